"""What the page says about learning is true: averages, and uniform choice estimated where it can be."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

import numpy as np

from feducb.agent import Agent, AgentSettings
from feducb.agent.curve import Curve, points, width_for
from feducb.agent.view import look
from feducb.config import Budget, Problem
from feducb.storage.events import Due

SETTINGS = AgentSettings(
    problem=Problem(dim=2),
    budget=Budget(epsilon=1e5, delta=1e-3),
    decisions=1_000_000,
    releases=8,
    schedule="periodic",
    season=8000.0,
    window=60.0,
    default_reward=-0.5,
)
ACTIONS = [[0.9, 0.0], [0.0, 0.9]]


def _due(
    number: int,
    reward: float | None,
    *,
    propensity: float | None,
    candidates: int = 4,
    index: int = 0,
    step: int | None = None,
) -> Due:
    """A decision whose preferred candidate was the first."""
    step = number % 3 if step is None else step
    return Due(number, 0, None, b"", reward, 3_600_000 * step, candidates, index, 0, propensity)


def test_uniform_choice_is_estimated_from_a_policy_that_prefers_one_candidate(tmp_path: Path) -> None:
    """Within 5 standard errors of the truth, 0.35: fails by chance less than once in a million."""
    rng, worth, share = np.random.default_rng(30), (0.8, 0.4, 0.2, 0.0), 0.1
    curve, rows, shown = Curve(3600), [], 0.0
    for number in range(40_000):
        index = int(rng.integers(4)) if rng.random() < share else 0
        reward = float(rng.random() < worth[index])
        chance = share / 4 + (1 - share) * (index == 0)
        rows.append(_due(number, reward, propensity=chance, index=index))
        shown += reward
    curve.settled(rows, default=0.0, uniform=True, only_choice=True)
    with Agent.open(tmp_path / "agent.db", SETTINGS) as agent:
        with agent.writing() as db:
            curve.flush(db)
        told = points(agent.store.database, 3600)
    whole = told["whole"]
    assert whole["value"] == shown / 40_000
    assert abs(whole["uniform"] - 0.35) < 5 * whole["uniform_error"]
    assert 0.002 < whole["uniform_error"] < 0.03
    assert [one["start"] for one in told["points"]] == [0, 3600, 7200]


def test_steps_with_few_uniform_draws_are_put_together_whatever_was_drawn_in_them(tmp_path: Path) -> None:
    """100 steps of 10 decisions, 1 in 10 drawn: 5 blocks of 20 steps; their mean is near the truth, 0.35.

    The mean of 5 blocks has a standard deviation of 0.038; in 20,000 draws none was 0.2 away.
    """
    rng, worth, share = np.random.default_rng(31), (0.8, 0.4, 0.2, 0.0), 0.1
    curve, rows = Curve(3600), []
    for number in range(1000):
        index = int(rng.integers(4)) if rng.random() < share else 0
        chance = share / 4 + (1 - share) * (index == 0)
        reward = float(rng.random() < worth[index])
        rows.append(_due(number, reward, propensity=chance, index=index, step=number // 10))
    curve.settled(rows, default=0.0, uniform=True, only_choice=True)
    with Agent.open(tmp_path / "agent.db", SETTINGS) as agent:
        with agent.writing() as db:
            curve.flush(db)
        told = points(agent.store.database, 3600)["points"]
    assert len({one["uniform"] for one in told}) == 5
    assert [one["uniform"] for one in told[:20]] == [told[0]["uniform"]] * 20
    assert abs(np.mean([one["uniform"] for one in told]) - 0.35) < 0.2


def test_where_candidates_could_not_be_shown_nothing_is_estimated(tmp_path: Path) -> None:
    """Sure choices, choices of unknown chance and the application's own; a lone candidate among sure ones."""
    sure = [_due(number, 1.0, propensity=1.0) for number in range(100)]
    unknown = [_due(number, 1.0, propensity=None) for number in range(100)]
    lone = [_due(number, 1.0, propensity=1.0, candidates=1) for number in range(100)]
    drawn = [_due(number, 1.0, propensity=0.25) for number in range(100)]
    curve = Curve(1)
    curve.settled([*sure, *unknown, *lone], default=0.0, uniform=True, only_choice=False)
    curve.settled(drawn, default=0.0, uniform=False, only_choice=True)  # shadow mode
    with Agent.open(tmp_path / "agent.db", SETTINGS) as agent:
        with agent.writing() as db:
            curve.flush(db)
        whole = points(agent.store.database, 1)["whole"]
    assert (whole["settled"], whole["value"], whole["uniform"]) == (400, 1.0, None)


def test_an_agent_fills_it_in_the_step_of_the_decision_with_the_default_where_no_reward_came(
    tmp_path: Path,
) -> None:
    now = [10_000.0]
    with Agent.open(tmp_path / "agent.db", SETTINGS, clock=lambda: now[0]) as agent:
        width = width_for(SETTINGS.season)
        assert width == 60
        made = [agent.decide(ACTIONS).id for _ in range(40)]
        now[0] += 50.0
        for name in made[:30]:
            agent.reward(name, 0.5)
        with suppress(ZeroDivisionError), agent.writing():
            agent.decide(ACTIONS)
            _ = 1 / 0  # rolled back: it never happened
        before = agent.overview()["curve"]
        assert before["whole"]["value"] is None  # no window has closed
        now[0] += 60.0
        agent.tick()
        told = agent.overview()["curve"]
    first = told["points"][0]
    assert (first["start"], first["decisions"], first["settled"]) == (9960, 40, 40)
    assert math.isclose(first["value"], (30 * 0.5 - 10 * 0.5) / 40)
    assert math.isclose(first["uniform"], first["value"])  # nothing was learnt: every choice was uniform
    assert sum(one["rewards"] for one in told["points"]) == 30
    assert sum(one["decisions"] for one in told["points"]) == 40
    assert look(tmp_path / "agent.db", over_time=True)["curve"] == told


def test_steps_fit_the_season() -> None:
    assert [width_for(season) for season in (1.0, 300.0, 3600.0, 86400.0, 30 * 86400.0)] == [
        1,
        5,
        60,
        900,
        3600,
    ]
