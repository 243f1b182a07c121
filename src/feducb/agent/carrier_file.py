"""What a running agent says about its engine, in a small file beside its store: for `feducb agent status`."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from feducb.agent.mailbox import EngineFacts
from feducb.storage.sqlite import is_locked
from feducb.system import write_atomically

__all__ = ["keep_engine_file", "read_engine_file"]

_LOOK_SECONDS = 1.0


def _path(store: Path) -> Path:
    return store.with_name(f"{store.name}.engine.json")


async def keep_engine_file(store: Path, engine: EngineFacts | None) -> None:
    """Write the file whenever something changed, until cancelled; take it away where there is no engine."""
    if engine is None:
        with suppress(OSError):
            _path(store).unlink(missing_ok=True)
        return
    last = None
    while True:
        facts = engine.as_dict()
        if facts != last:
            with suppress(OSError):  # a full disk must not stop what can still be done
                write_atomically(_path(store), json.dumps(facts), private=True)
            last = facts
        await asyncio.sleep(_LOOK_SECONDS)


def read_engine_file(store: Path) -> tuple[bool, dict[str, Any] | None]:
    """Whether a process has the store open, and what it said about its engine; None if it has none."""
    running = is_locked(store)
    try:
        facts: dict[str, Any] = json.loads(_path(store).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return running, None
    return running, facts if running else facts | {"connected": False, "failures": 0}
