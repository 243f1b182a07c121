"""What a running agent says of itself, in a small file beside its store: for `feducb agent status`."""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from feducb.agent.mailbox import EngineFacts
from feducb.storage.sqlite import is_locked
from feducb.system import write_atomically

__all__ = ["Said", "keep_engine_file", "read_engine_file"]

_LOOK_SECONDS = 1.0
_SAY_SECONDS = 5.0


def _path(store: Path) -> Path:
    return store.with_name(f"{store.name}.engine.json")


async def keep_engine_file(store: Path, engine: EngineFacts | None) -> None:
    """Write the file whenever something changed, and every few seconds, until cancelled; also with no engine.

    Beside the engine's facts it has ``at`` and ``pid``: when this was said, and by which process.
    """
    last, said = None, -math.inf
    while True:
        facts = {} if engine is None else engine.as_dict()
        if facts != last or time.monotonic() - said >= _SAY_SECONDS:
            plain = json.dumps(facts | {"at": time.time(), "pid": os.getpid()})
            with suppress(OSError):  # a full disk must not stop what can still be done
                write_atomically(_path(store), plain, private=True)
            last, said = facts, time.monotonic()
        await asyncio.sleep(_LOOK_SECONDS)


class Said(NamedTuple):
    """What is known of a process beside its store."""

    running: bool  # whether a process has the store open
    at: float | None  # when that one last said so; None if it says nothing, as a command, or an older version
    engine: dict[str, Any] | None  # None if it has none


def read_engine_file(store: Path) -> Said:
    """What the process that has the store open said of itself; of its engine, also the last one before it."""
    running = is_locked(store)
    try:
        facts: dict[str, Any] = json.loads(_path(store).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Said(running, None, None)
    at, pid = facts.pop("at", None), facts.pop("pid", None)
    if facts and not running:
        facts |= {"connected": False, "failures": 0}
    # Where a process was killed, and another has the store now, what is there is not that one's.
    return Said(running, at if running and _is_there(pid) else None, facts or None)


def _is_there(pid: int | None) -> bool:
    try:
        os.kill(pid or 0, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's
    return pid is not None
