"""Kill -9 around the close: the phase and own sums follow from the file, and nothing leaves after it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.agent.upkeep import export
from feducb.privacy import grid
from feducb.storage import AgentStore, agent_tables, own_sums
from own_sites import CLOSE, settings_of

AGENT = Path(__file__).with_name("closing_agent.py")
KILLS, IN_EACH = 200, 20  # so many, at least so many of them in each phase
FIRST, VISITORS = 70, 130  # kills begin there; all visitors
LONGEST = 2000  # points of a life: opening the file takes about 750 of them, a visitor 600
PATIENCE = 120.0  # seconds that nothing here needs: only a hang takes so long


def _others(path: Path) -> Path:
    """What two other agents release, one message after the other."""
    out = path / "others"
    draws, parts = np.random.default_rng(4), []
    for name in ("b", "c"):
        with AgentStore.open(path / f"{name}.db", settings_of(name).terms) as store:
            for _ in range(CLOSE["releases"]):
                actions = draws.uniform(-0.7, 0.7, (40, 2))
                store.record(actions, actions @ [0.7, -0.3])
                parts.append(store.release())
    out.write_bytes(b"".join(parts))
    return out


def _lives(store: Path, others: Path, fates: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Let the agent live by these fates; how its file stands after each life."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    agent = subprocess.Popen(
        [sys.executable, str(AGENT), str(store), str(others)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    assert agent.stdin
    assert agent.stdout
    stands = []
    with agent.stdin, agent.stdout:  # without them the agent ends: nothing is left running
        for point, visitors in fates:
            agent.stdin.write(f"{point} {visitors}\n")
            agent.stdin.flush()
            assert int(agent.stdout.readline()) in ((-signal.SIGKILL, 0) if point else (0,))
            stands.append(_look(store))
    assert agent.wait(timeout=PATIENCE) == 0
    return stands


def _look(path: Path) -> dict[str, Any]:
    """What the file says: the phase, what left, the newest sum, own sums."""
    with closing(agent_tables.look_into(path)) as db:
        unsent = "count(*) FILTER (WHERE sent_at IS NULL)"
        made, left = db.execute(f"SELECT count(*), {unsent} FROM outgoing").fetchone()
        newest = max((one.number for one in agent_tables.received_sums(db)), default=0)
        counts = agent_tables.read_counts(db)
        own = {part: own_sums.read(db, part) for part in ("shared", "kept", "read")}
        sums = {part: None if one is None else (one.records, list(one.values)) for part, one in own.items()}
        closed = own_sums.closed_at(db) is not None
    phase = "closed" if closed else "waiting" if made == CLOSE["releases"] else "sharing"
    return {"phase": phase, "made": made, "unsent": left, "newest": newest, "counts": counts, "own": sums}


def test_killed_at_any_point_around_the_close_it_goes_on_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid.GridNoise, "draw", lambda self, count: np.zeros(count, dtype=np.int64))
    others, draws = _others(tmp_path), random.Random(19)
    fates = [(draws.randint(1, LONGEST), VISITORS) for _ in range(KILLS)]
    stands = _lives(tmp_path / "killed.db", others, [(0, FIRST), *fates, (0, VISITORS)])
    (twin,) = _lives(tmp_path / "twin.db", others, [(0, VISITORS)])
    phases = Counter(one["phase"] for one in stands[1:-1])
    print(f"\n{KILLS} kills: {dict(phases)}")
    assert min(phases[phase] for phase in ("sharing", "waiting", "closed")) >= IN_EACH
    assert [one["phase"] for one in stands] == sorted(
        (one["phase"] for one in stands), key=["sharing", "waiting", "closed"].index
    )
    for one in stands:
        own, counts = one["own"], one["counts"]
        records = sum(part[0] for part in (own["shared"], own["kept"]) if part is not None)
        assert records == counts.get("settled", 0)  # none lost, none twice
        assert one["made"] <= CLOSE["releases"]
        if one["phase"] == "closed":
            assert one["newest"] == CLOSE["releases"]
            assert own["shared"] == twin["own"]["shared"]  # frozen with the last release
            assert own["read"][0] <= records
            assert one["unsent"] == 0
        else:
            assert own["read"] is None
    assert stands[-1] == twin | {"counts": stands[-1]["counts"]}
    for name in ("repeated_rewards", "late_rewards"):  # asked again
        stands[-1]["counts"].pop(name, None)
    assert stands[-1]["counts"] == twin["counts"]
    decided = [[_without_times(row) for row in export(tmp_path / name)] for name in ("killed.db", "twin.db")]
    assert decided[0] == decided[1]
    assert len(decided[0]) == VISITORS


def _without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "decided_at"}
