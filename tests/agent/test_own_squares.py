"""Squares of own rewards, which tell how far they scatter: kept like an agent's sums, for nobody else."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings
from feducb.agent.upkeep import backup, export, restore, warm_start
from feducb.agent.view import look
from feducb.config import Problem
from feducb.errors import ConfigurationError
from feducb.models.joint import Others
from feducb.privacy import grid
from feducb.storage import AgentStore, own_sums
from feducb.trust import SELF
from feducb.types import Belief, Statistics, add, zeros
from feducb.worlds.features import Category, Number, Recipe
from feducb.worlds.features.bounds import problem_of
from own_sites import CLOSE, START, WINDOW, Sites, settings_of

CENTRED = Problem(dim=2, reward_bound=1.25, reward_centre=0.25)


def _read(agent: Agent, part: own_sums.Part = "read") -> Statistics:
    found = own_sums.read(agent.store.database, part)
    assert found is not None
    return agent.store.read_own(found)


def _of(records: Sequence[tuple[np.ndarray, float]], problem: Problem) -> Statistics:
    """As they are said to enter: rewards clipped to their range, less its middle."""
    low, high = problem.reward_range
    rewards = np.clip([reward for _, reward in records], low, high) - problem.reward_centre
    return add(zeros(problem.dim), np.array([action for action, _ in records]), rewards)


def _same(one: Statistics, other: Statistics) -> None:
    assert one.count == other.count
    for name in ("gram", "moment", "squares"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-5, atol=1e-5)


def _belief(agent: Agent) -> Belief:
    return agent._state.chooser.deciders[0].belief


def _as_before(path: Path) -> None:
    """A file as the version before wrote it: without squares, and with hashes that know of none."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("ALTER TABLE own DROP COLUMN squares")
        for row in db.execute("SELECT part, records, sums, since FROM own").fetchall():
            digest = sha256(repr(row).encode()).digest()
            db.execute("UPDATE own SET sha256 = ? WHERE part = ?", (digest, row[0]))
        db.execute("PRAGMA user_version = 15")


@pytest.mark.parametrize("trust", ["nobody", "controller"])
def test_an_agent_knows_of_its_records_what_they_come_to_squares_included(tmp_path: Path, trust: str) -> None:
    """After the close, a restart, a log that was loaded late, a backup, and in the season after."""
    sites = Sites(tmp_path, trust=trust, problem=CENTRED)
    sites.run(120)
    assert sites.phase() == "closed"
    records, settled = sites.records["a"], 120 - int(WINDOW) + 1
    _same(_read(sites.live["a"]), _of(records[:settled], CENTRED))
    sites.reopen("a")
    agent = sites.live["a"]
    late = [(np.array([0.4, 0.3]), 0.5), (np.array([0.1, -0.2]), 7.0), (np.array([0.2, 0.2]), -7.0)]
    warm_start(agent, [one for one, _ in late], [one for _, one in late], policy="fixed")
    records = [*records[:settled], *late]
    shared = int(CLOSE["last_release"] - WINDOW) + 1
    _same(_read(agent, "shared"), _of(records[:shared], CENTRED))
    _same(_read(agent, "kept"), _of(records[shared:], CENTRED))
    agent.new_season(replace(agent.settings, start=sites.now, promised=None), drop_open=True)
    _same(_read(agent, "before"), _of(records[shared:], CENTRED))
    backup(tmp_path / "a.db", tmp_path / "copy.db")
    agent.close()
    for file in tmp_path.glob("a.db*"):
        file.unlink()
    restore(tmp_path / "copy.db", tmp_path / "a.db", clock=lambda: sites.now)
    with AgentStore.open(tmp_path / "a.db") as store:
        found = own_sums.read(store.database, "before")
        assert found is not None
        _same(store.read_own(found), _of(records[shared:], CENTRED))
    sites.close()


def test_an_agent_alone_with_a_recipe_knows_them_from_season_to_season_until_rewards_mean_something_else(
    tmp_path: Path,
) -> None:
    """Rewards that do not come or are refused count as the default."""
    recipe = Recipe(
        context=(Number("age", 0, 100),),
        action=(Category("offer", ("none", "five", "ten")),),
        terms=(("offer",), ("offer", "age")),
    )
    problem = problem_of(recipe, (1.0, 9.0))
    settings = AgentSettings(
        recipe=recipe, problem=problem, trust=SELF, decisions=800, window=5.0, default_reward=2.0, start=START
    )
    now, draws = [START], np.random.default_rng(4)
    agent = Agent.open(tmp_path / "a.db", settings, clock=lambda: now[0])
    records: list[tuple[np.ndarray, float]] = []

    def live(visitors: int) -> None:
        for _ in range(visitors):
            age = float(draws.uniform(0, 100))
            decision = agent.decide(context={"age": age})
            row = recipe.candidates({"age": [age]}, ("none", "five", "ten"))[0][decision.index]
            reward = [None, 99.0, float(draws.uniform(1.0, 9.0))][min(2, int(draws.integers(8)))]
            with suppress(ConfigurationError):  # one is out of range
                if reward is not None:
                    agent.reward(decision.id, reward)
            records.append((row, 2.0 if reward in (None, 99.0) else reward))
            now[0] += 1.0
            agent.tick()
        now[0] += 10.0
        agent.tick()

    live(60)
    found = own_sums.everything(agent.store.database)
    assert found is not None
    _same(agent.store.read_own(found), _of(records, problem))
    agent.new_season()
    agent.close()
    agent = Agent.open(tmp_path / "a.db", clock=lambda: now[0])
    live(40)
    found = own_sums.everything(agent.store.database)
    assert found is not None
    _same(agent.store.read_own(found), _of(records, problem))
    agent.new_season(replace(settings, problem=problem_of(recipe, (0.0, 8.0)), start=None))
    assert own_sums.everything(agent.store.database) is None
    agent.close()


def test_a_file_of_before_goes_on_and_what_nobody_kept_stays_unknown(tmp_path: Path) -> None:
    """It decides as it did, by the bound of rewards, however many records come after."""
    sites = Sites(tmp_path)
    sites.run(100)
    assert sites.phase() == "closed"
    sites.live["a"].close()
    _as_before(tmp_path / "a.db")
    agent = sites.live["a"] = sites.open("a")
    read = _read(agent)
    assert read.squares == math.inf
    total = agent._state.inbox.newest(0)
    assert total is not None
    shared = _read(agent, "shared")
    theirs = total.read()
    others = Others.of(theirs.gram - shared.gram, theirs.moment - shared.moment)
    expected = agent.settings.joint_for(theirs).belief(read, others)
    for name in ("theta", "inverse", "ellipsoid_width", "estimate"):
        np.testing.assert_allclose(getattr(_belief(agent), name), getattr(expected, name), rtol=1e-5)
    sites.run(30)
    for part in ("kept", "read"):
        assert _read(sites.live["a"], part).squares == math.inf
    assert _read(sites.live["b"]).squares < math.inf
    agent.new_season(replace(agent.settings, start=sites.now, promised=None), drop_open=True)
    sites.now += 1.0
    warm_start(agent, [[0.4, 0.3]], [0.5], policy="fixed")
    assert _read(agent, "before").squares == math.inf
    assert _read(agent, "shared").squares == pytest.approx(0.25, rel=1e-6)  # of records that came since
    together = own_sums.everything(agent.store.database)
    assert together is not None
    assert together.squares is None
    sites.close()


def test_they_move_nothing_that_leaves_and_are_on_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two logs with the same sums, whose rewards scatter otherwise: the same releases."""
    monkeypatch.setattr(grid.GridNoise, "draw", lambda self, count: np.zeros(count, dtype=np.int64))
    actions, left, squares, now = [[0.5, 0.25], [0.5, 0.25]] * 20, [], [], [START]
    for name, rewards in (("one", [0.5, 0.5] * 20), ("other", [1.0, 0.0] * 20)):
        now[0] = START
        agent = Agent.open(tmp_path / f"{name}.db", settings_of("a", agents=1), clock=lambda: now[0])
        warm_start(agent, actions, rewards, policy="fixed")
        now[0] += 100.0
        agent.tick(alone=False)
        left.append([item.released() for item in agent.outbox()])
        found = own_sums.read(agent.store.database, "shared")
        assert found is not None
        squares.append(_read(agent, "shared").squares)
        pages: list[Any] = [agent.snapshot(), agent.overview(), look(tmp_path / f"{name}.db")]
        pages += export(tmp_path / f"{name}.db")
        said = json.dumps(pages, default=str)
        assert str(found.squares) not in said
        assert "squares" not in said
        agent.close()
    assert left[0] == left[1] != []
    assert squares == pytest.approx([10.0, 20.0], rel=1e-6)
