"""One view of an agent: what it says of itself and what its file says are the same."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings
from feducb.agent.kept import season_in
from feducb.agent.upkeep import backup, restore
from feducb.agent.view import look
from feducb.config import Budget, Problem
from feducb.errors import StoreError
from feducb.storage import agent_tables
from troubles import troubles

SETTINGS = AgentSettings(
    problem=Problem(dim=2),
    budget=Budget(epsilon=1.0, delta=1e-6),
    releases=8,
    schedule="periodic",
    season=800.0,
    window=10.0,
)
LIVE = {"agents_in_sum", "first_useful_sum", "learning", "in_batch", "season_over", "next_release_at"}
LIVE |= {"warnings"}  # which are among the file's trouble
BESIDE = {"running", "seconds_ago", "engine", "keeper", "trouble"}


def test_an_agent_and_its_file_say_the_same(tmp_path: Path) -> None:
    now, path = [1000.0], tmp_path / "agent.db"
    with Agent.open(path, SETTINGS, clock=lambda: now[0]) as agent:
        ids = [agent.decide(0.5 * np.eye(2)).id for _ in range(6)]
        agent.reward(ids[0], 0.5)
        agent.discard(ids[1])
        now[0] += 5.0
        agent.decide(0.5 * np.eye(2))
        now[0] += 100.0
        agent.tick()
        ids = [agent.decide(0.5 * np.eye(2)).id for _ in range(3)]
        agent.discard(ids[0])
        snapshot, overview = agent.snapshot(), agent.overview()
        brief, whole = look(path), look(path, over_time=True)
    for one in (brief, whole):
        one["counts"] = Counter(one["counts"])  # a file also names what it has not counted yet
    assert snapshot["open_decisions"] == 2
    assert (snapshot["model"], snapshot["releases_made"]) == (["1.1"], 1)
    assert set(snapshot) - set(brief) == LIVE
    assert set(brief) - set(snapshot) == BESIDE
    assert brief["running"]
    for name in set(snapshot) & set(brief) - {"at"}:
        assert brief[name] == snapshot[name], name
    assert set(whole) - set(overview) == BESIDE
    for name in set(whole) - BESIDE - {"at", "next_release_at"}:  # the file's reader has a clock of its own
        assert whole[name] == overview[name], name


def test_open_decisions_are_those_that_the_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with Agent.open(path, SETTINGS) as agent:
        for _ in range(4):
            agent.decide(0.5 * np.eye(2))
    with sqlite3.connect(path) as db:
        (waiting,) = db.execute("SELECT count(*) FROM decisions WHERE state = 0").fetchone()
    db.close()
    assert look(path)["open_decisions"] == waiting == 4
    assert not look(path)["running"]
    with Agent.open(path) as agent:
        agent.new_season(drop_open=True)
    assert look(path)["open_decisions"] == 0


def test_a_file_that_no_agent_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        look(tmp_path / "none.db")
    with Agent.open(tmp_path / "agent.db", SETTINGS):
        pass
    with sqlite3.connect(tmp_path / "agent.db") as db:
        db.execute("DELETE FROM settings")
    db.close()
    with (
        pytest.raises(StoreError, match="was never opened by one"),
        agent_tables.look_into(tmp_path / "agent.db") as db,
    ):
        season_in(db, tmp_path / "agent.db")
    db.close()


@pytest.mark.parametrize("changes", [{}, {"season": 400.0}, {"start": None}])
def test_a_season_that_was_restored_and_not_begun_has_its_own_times(
    tmp_path: Path, changes: dict[str, float | None]
) -> None:
    """As its agent will begin it with the settings of `agent.toml`; not those of the season before."""
    start = time.time() - 10.5 * SETTINGS.season
    settings = replace(SETTINGS, budget=Budget(epsilon=8.0, delta=1e-6), start=start)
    with Agent.open(tmp_path / "lost.db", settings, clock=lambda: start + 1.0):
        backup(tmp_path / "lost.db", tmp_path / "copy.db")
    settings, path = replace(settings, **changes), tmp_path / "agent.db"  # type: ignore[arg-type]
    restore(tmp_path / "copy.db", path, settings=settings, season=40, never_opened=True)
    stands = look(path, settings=settings)
    assert list(troubles(stands)) == ["stopped"]
    begins = stands["at"] if settings.start is None else start + 39 * settings.season
    assert (stands["season"], stands["started_at"]) == (40, begins)
    assert stands["season_ends_at"] == begins + settings.season
