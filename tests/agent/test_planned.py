"""Planned releases: few, the same at all agents, and as numbers that no later version moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings, release_plan, sum_reading
from feducb.agent.kept import misfit
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.models.mixture import MixtureBound
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.mechanisms import Dense
from feducb.protocol import messages
from feducb.protocol.estimators import Estimator, calibrated_estimator
from feducb.simulation.plan import make_plan
from feducb.types import ReleasedSum
from feducb.worlds.synthetic import PaperEnvironment

BUDGET = Budget(epsilon=1.0, delta=1e-6)
BUDGETS = {
    name: Budget(epsilon=epsilon, delta=1e-6) for name, epsilon in (("a", 0.5), ("b", 1.0), ("c", 4.0))
}
ASKED: dict[str, Any] = {
    "problem": Problem(dim=3),
    "agents": 3,
    "decisions": 20_000,
    "season": 7_200.0,
    "start": 0.0,
}


def _planned(**changes: Any) -> AgentSettings:
    return AgentSettings(**{"budget": BUDGET, **ASKED, **changes})


def test_an_agent_releases_when_the_simulated_federation_would() -> None:
    told = _planned()
    world = PaperEnvironment(problem=told.problem, arms=5)
    (team,) = make_plan(told.federation, world, horizon=told.decisions, runs=1, seed=0).teams
    rounds = team.estimators[0].release_rounds
    assert told.schedule == "planned"
    assert 3 < told.releases == len(rounds) < 30
    decided = [told.decisions * due / told.season for due in told.release_times]
    np.testing.assert_allclose(decided, rounds, rtol=0, atol=0.51)
    assert told.rule.first == 1  # every one of them is read
    assert told.release_times[-1] < told.season


@pytest.mark.parametrize(
    "places",
    [
        [{"name": name} for name in "abc"],
        [{"name": name, "budget": BUDGETS[name], "budgets": BUDGETS} for name in "abc"],
        [{"name": name, "quorum": 2} for name in "abc"],
        [{"name": name, "groups": 2} for name in "abc"],
        [{}, {"clique": ("a", "b"), "cliques": 2}, {"clique": ("c",), "cliques": 2}],
        [{"name": name, "trust": "controller"} for name in "abc"],
    ],
    ids=["one budget", "budgets", "quorum", "groups", "graph", "controller"],
)
def test_all_agents_plan_the_same(places: list[dict[str, Any]]) -> None:
    """On a graph before an agent knows its place, too: it may come to know it within a season."""
    assert len({_planned(**place).release_times for place in places}) == 1


def test_a_plan_that_was_made_is_kept_as_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told, path = _planned(), tmp_path / "agent.db"
    Agent.open(path, told).close()

    def otherwise(*_: Any, **__: Any) -> tuple[int, ...]:
        return (7_000, 14_000)

    monkeypatch.setattr(release_plan, "plan_rounds", otherwise)
    assert _planned().releases == 2
    with Agent.open(path) as agent:
        assert agent.settings.release_times == told.release_times
    numbers = {"releases": told.releases, "first_release": told.first_release}
    assert _planned(**numbers) == told  # as `agent init` writes them


def test_where_nothing_is_worth_reading_one_release_is_planned() -> None:
    told = _planned(decisions=20, budget=Budget(epsilon=0.1, delta=1e-6))
    assert told.release_times == (told.season,)
    assert not told.reads
    assert _planned().reads


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"releases": 8}, "releases is 8, expected nothing with a planned schedule, or first_release too"),
        ({"first_release": 8.0}, "first_release is 8.0, expected nothing with a planned schedule"),
        ({"releases": 2, "first_release": 7_200.0}, "first_release is 7200.0, expected before the season"),
        ({"releases": 2, "first_release": 7_201.0}, "first_release is 7201.0, expected at most the season"),
        ({"schedule": "periodic", "first_release": 8.0}, "nothing with a periodic schedule"),
        ({"schedule": "determinant"}, "planned, geometric or periodic"),
    ],
)
def test_a_schedule_says_what_goes_with_it(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        _planned(**changes)


@pytest.fixture
def quiet_by_two(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AgentSettings]:
    """Settings as a version has them that spreads noise otherwise: two quiet releases."""

    def otherwise(*given: Any, promised: Any = None, **named: Any) -> Estimator:
        mechanism = promised or Dense(len(given[1]), 2)
        return calibrated_estimator(*given, promised=mechanism, **named)

    def make() -> AgentSettings:
        with monkeypatch.context() as patched:
            patched.setattr(sum_reading, "calibrated_estimator", otherwise)
            return _planned()

    return make


def test_an_open_season_keeps_how_noise_is_spread(
    quiet_by_two: Callable[[], AgentSettings], tmp_path: Path
) -> None:
    path, before, now = tmp_path / "agent.db", quiet_by_two(), _planned()
    assert (before.terms.quiet, now.terms.quiet) == (2, 0)
    with Agent.open(path, before) as agent:
        agent.decide(np.eye(3))
    assert misfit(path, now) is None
    with Agent.open(path, now) as agent:
        assert agent.settings.terms == agent.store.terms == before.terms
        assert agent.settings.rule.first == 3
        agent.new_season(replace(now, start=agent.started_at + 1.0), drop_open=True)
        assert agent.settings.terms == agent.store.terms == now.terms


def test_another_mechanism_waits_for_a_new_season(
    quiet_by_two: Callable[[], AgentSettings], tmp_path: Path
) -> None:
    path = tmp_path / "agent.db"
    with Agent.open(path, quiet_by_two()) as agent:
        agent.decide(np.eye(3))
    with pytest.raises(ConfigurationError, match=r"terms\.mechanism is 'tree', expected 'dense'"):
        Agent.open(path, _planned(mechanism="tree"))


def _sum_of(parts: list[AgentSettings]) -> ReleasedSum:
    """The sum of the last releases of agents that have no records."""
    made = []
    for settings in parts:
        door = DeployedPrivatizer(settings.terms)
        for _ in range(settings.releases):
            release = door.release()
        made.append(messages.decode(messages.encode(release)))
    return messages.combine(made).read()


def test_the_simulated_threshold_is_for_sums_of_the_planned_noise_alone() -> None:
    """Others may have records_per_person of their own: under less noise than planned x must be larger."""
    plan = {"schedule": "geometric", "releases": 6, "first_release": 600.0, "records_per_person": 5}
    own = _planned(budget=Budget(epsilon=8.0, delta=1e-6), **plan)
    others = replace(own, records_per_person=1).under(own.terms)
    assert others.terms.factors == own.terms.factors  # so that their releases can be added
    assert own.rule_for(_sum_of([own] * 3)) is own.rule
    careful = own.rule_for(_sum_of([own, others, others])).bound
    assert isinstance(careful, MixtureBound)
    assert isinstance(own.rule.bound, MixtureBound)
    union = math.log((own.releases - own.rule.first + 1) / (0.95 * own.alpha))
    assert careful.log_threshold == pytest.approx(union)
    assert careful.log_threshold > own.rule.bound.log_threshold
    assert replace(careful, log_threshold=own.rule.bound.log_threshold) == own.rule.bound


def test_deployed_sums_are_read_with_room_for_what_the_grid_adds() -> None:
    own = _planned()
    assert isinstance(own.rule.bound, MixtureBound)
    assert own.rule.bound.rounding == pytest.approx((math.sqrt(1 + 2**-9) - 1) * math.sqrt(2 * 3 / 3))
    assert own.watch.rounding == own.rule.bound.rounding
