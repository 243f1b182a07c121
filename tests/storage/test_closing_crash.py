"""Kill -9 around the close: the phase and own sums follow from the file, and nothing leaves after it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from closing_agent import LATE

from feducb.agent.upkeep import export
from feducb.privacy import grid
from feducb.storage import AgentStore, agent_tables, own_sums
from own_sites import CLOSE, START, settings_of

AGENT = Path(__file__).with_name("closing_agent.py")
KILLS, IN_EACH = 200, 20  # so many, at least so many of them in each phase
FIRST, VISITORS = 70, 130  # kills begin there; all visitors
LONGEST = 4000  # points of a life: enough to open the file and serve a few visitors
LAST, CLOSED = (
    int(CLOSE["last_release"]),
    int(CLOSE["last_release"]) + LATE,
)  # who meets the last release, the close
OPENED, EVERY = 600, 31  # where the sweep begins, and its step
PATIENCE = 120.0  # seconds that nothing here needs: only a hang takes so long


class Life(NamedTuple):
    killed: bool
    where: tuple[str, ...]  # functions of the agent that were underway
    stands: dict[str, Any]  # how the file stands after it


class Lives:
    """An agent that lives by fates; its file."""

    def __init__(self, store: Path, agent: subprocess.Popen[str]) -> None:
        self.store, self._agent = store, agent

    def live(self, visitors: int, *, point: int = 0) -> Life:
        assert self._agent.stdin
        assert self._agent.stdout
        self._agent.stdin.write(f"{point} {visitors}\n")
        self._agent.stdin.flush()
        code, where = self._agent.stdout.readline().split()
        assert int(code) in ((-signal.SIGKILL, 0) if point else (0,))
        return Life(code != "0", tuple(where.split(",")), _look(self.store))

    @property
    def left(self) -> list[list[str]]:
        """Whatever was handed over: number, hash, whether the agent had closed."""
        return [line.split() for line in Path(f"{self.store}.left").read_text().splitlines()]


@contextmanager
def _born(store: Path, others: Path) -> Iterator[Lives]:
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
    with agent.stdin, agent.stdout:  # without them the agent ends: nothing is left running
        yield Lives(store, agent)
    assert agent.wait(timeout=PATIENCE) == 0


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What two other agents release, one message after the other."""
    monkeypatch.setattr(grid.GridNoise, "draw", lambda self, count: np.zeros(count, dtype=np.int64))
    out = tmp_path / "others"
    draws, parts = np.random.default_rng(4), []
    for name in ("b", "c"):
        with AgentStore.open(tmp_path / f"{name}.db", settings_of(name).terms) as store:
            for _ in range(CLOSE["releases"]):
                actions = draws.uniform(-0.7, 0.7, (40, 2))
                store.record(actions, actions @ [0.7, -0.3])
                parts.append(store.release())
    out.write_bytes(b"".join(parts))
    return out


def _look(path: Path) -> dict[str, Any]:
    """What the file says: the phase, what left, the newest sum, own sums."""
    with closing(agent_tables.look_into(path)) as db:
        unsent = "count(*) FILTER (WHERE sent_at IS NULL)"
        made, left = db.execute(f"SELECT count(*), {unsent} FROM outgoing").fetchone()
        hashes = db.execute("SELECT number, sha256 FROM outgoing ORDER BY number").fetchall()
        newest = max((one.number for one in agent_tables.received_sums(db)), default=0)
        counts = agent_tables.read_counts(db)
        own = {part: own_sums.read(db, part) for part in ("shared", "kept", "read")}
        sums = {part: None if one is None else (one.records, list(one.values)) for part, one in own.items()}
        closed = own_sums.closed_at(db)
    for asked_again in ("repeated_rewards", "late_rewards"):
        counts.pop(asked_again, None)
    phase = "waiting" if made == CLOSE["releases"] else "sharing"
    return {
        "phase": phase if closed is None else "closed",
        "closed_at": closed,
        "made": hashes,
        "unsent": left,
        "newest": newest,
        "counts": counts,
        "own": sums,
    }


def _require_sound(stands: dict[str, Any]) -> None:
    """Whatever holds at any moment: sum, phase and own reading came with one commit; no record is lost."""
    own, counts = stands["own"], stands["counts"]
    records = sum(part[0] for part in (own["shared"], own["kept"]) if part is not None)
    assert records == counts.get("settled", 0)  # none lost, none twice
    assert len(stands["made"]) <= CLOSE["releases"]
    closed = stands["phase"] == "closed"
    assert closed == (stands["newest"] == CLOSE["releases"]) == (own["read"] is not None)
    if closed:
        assert stands["closed_at"] == 1000 * (START + CLOSED)
        assert own["read"][0] <= records


def _decided(path: Path) -> list[dict[str, Any]]:
    return list(export(path))


def test_killed_at_any_point_around_the_close_it_goes_on_as_if_it_had_not_been(
    tmp_path: Path, others: Path
) -> None:
    draws, kills = random.Random(19), list[Life]()
    with _born(tmp_path / "killed.db", others) as killed:
        killed.live(FIRST)
        while len(kills) < KILLS:
            # the longer ahead, the more visitors there are: all of them are not served before the last kill
            until = FIRST + 1 + (VISITORS - FIRST) * (len(kills) + 1) // KILLS
            life = killed.live(until, point=draws.randint(1, LONGEST))
            kills += [life] if life.killed else []
        end = killed.live(VISITORS).stands
    with _born(tmp_path / "twin.db", others) as twin:
        expected = twin.live(VISITORS).stands
    phases = [one.stands["phase"] for one in kills]
    print(f"\n{len(kills)} kills: {dict(Counter(phases))}")
    assert min(Counter(phases)[phase] for phase in ("sharing", "waiting", "closed")) >= IN_EACH
    assert phases == sorted(phases, key=["sharing", "waiting", "closed"].index)
    for one in kills:
        _require_sound(one.stands)
        if one.stands["phase"] == "closed":
            assert one.stands["own"]["shared"] == expected["own"]["shared"]  # frozen with the last release
    assert end == expected
    assert _decided(tmp_path / "killed.db") == _decided(tmp_path / "twin.db")
    assert len(_decided(tmp_path / "twin.db")) == VISITORS
    _require_same_left(killed, twin)


def _require_same_left(killed: Lives, twin: Lives) -> None:
    """The same bytes, however often they were handed over; none for the first time after the close."""
    assert {(number, digest) for number, digest, _ in killed.left} == {
        (number, digest) for number, digest, _ in twin.left
    }
    before = {number for number, _, closed in killed.left if closed == "False"}
    assert before == {number for number, _, _ in killed.left}


@pytest.mark.parametrize(
    ("visitor", "steps"),
    [
        (LAST, {"release", "settle"}),
        (CLOSED, {"absorb", "read_own", "settle"}),
    ],
    ids=["the last release", "the close"],
)
def test_killed_at_every_moment_of_it_all_of_it_happened_or_nothing(
    tmp_path: Path, others: Path, visitor: int, steps: set[str]
) -> None:
    """From the same file again and again, a few points later each time: before it, in its commit, after."""
    file, kills = tmp_path / "killed.db", list[Life]()
    with _born(tmp_path / "twin.db", others) as twin:
        expected, decided = twin.live(visitor + 4).stands, _decided(twin.store)
    with _born(file, others) as killed:
        killed.live(visitor)
        shutil.copy(file, tmp_path / "before.db")
        for point in range(OPENED, 10_000, EVERY):
            for beside in ("-wal", "-shm"):
                Path(f"{file}{beside}").unlink(missing_ok=True)
            shutil.copy(tmp_path / "before.db", file)
            life = killed.live(visitor + 2, point=point)
            _require_sound(life.stands)
            assert killed.live(visitor + 4).stands == expected
            assert _decided(file) == decided
            if not life.killed:
                break
            kills.append(life)
    done = "closed" if visitor == CLOSED else "waiting"
    where = Counter(step for one in kills for step in steps & set(one.where))
    before = sum(one.stands["phase"] != done for one in kills)
    print(f"\n{len(kills)} kills, {before} before it was on disk, {len(kills) - before} after; {dict(where)}")
    assert min(before, len(kills) - before) >= 10
    assert where.keys() == steps
    _require_same_left(killed, twin)
