"""A running agent says every few seconds that it is there, so that one that hangs is not green."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from feducb.agent import Agent, AgentSettings, carrier_file
from feducb.agent.view import look
from feducb.carriers.nats.link_status import EngineStatus
from feducb.config import Budget, Problem

SETTINGS = AgentSettings(problem=Problem(dim=2), budget=Budget(epsilon=50.0, delta=1e-6), season=8000.0)


def _kinds(store: Path) -> list[str]:
    return [one["kind"] for one in look(store)["trouble"]]


def _say(store: Path, **facts: Any) -> None:
    """Write what an agent's process would."""
    plain = {"at": time.time(), "pid": os.getpid()} | facts
    store.with_name(f"{store.name}.engine.json").write_text(json.dumps(plain))


@pytest.mark.parametrize("engine", [None, EngineStatus(connected=True)])
def test_it_says_so_again_though_nothing_has_changed(
    tmp_path: Path, engine: EngineStatus | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_LOOK_SECONDS", "_SAY_SECONDS"):
        monkeypatch.setattr(carrier_file, name, 0.0)
    store = tmp_path / "agent.db"

    async def run() -> None:
        work = asyncio.ensure_future(carrier_file.keep_engine_file(store, engine))
        seen = set[float | None]()
        while len(seen) < 3:
            await asyncio.sleep(0)
            seen.add(carrier_file.read_engine_file(store).at)
        work.cancel()

    with Agent.open(store, SETTINGS):
        asyncio.run(run())
        assert (look(store)["engine"] is None, _kinds(store)) == (engine is None, [])


def test_one_that_hangs_is_told_from_one_that_another_process_has_open(tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    with Agent.open(store, SETTINGS):
        assert _kinds(store) == []  # a program's own agent says nothing
        _say(store, at=time.time() - 31.0)
        assert _kinds(store) == ["hangs"]
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        _say(store, at=time.time() - 31.0, pid=ended.pid)  # of a process that was killed
        assert _kinds(store) == []
    assert _kinds(store) == ["stopped"]
