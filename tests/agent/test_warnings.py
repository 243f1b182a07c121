"""An agent warns of settings that do not fit, by what is released or noisy alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_agent import SETTINGS, Clock, _candidates, release_when_due

from feducb.agent import Agent, AgentSettings
from feducb.agent.upkeep import warm_start
from feducb.agent.view import look
from feducb.agent.warning import KEEP_EVENTS, PARAMETER_BOUND, REWARD_BOUND
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.models.mixture import MixtureBound
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.tally import ONE_IN
from feducb.protocol import messages
from feducb.trust import CONTROLLER
from troubles import troubles

SHORT = replace(
    SETTINGS,
    problem=Problem(dim=3, parameter_bound=0.4, noise_scale=0.1),
    decisions=20_000,
)
PLAIN = replace(SETTINGS, budget=Budget(epsilon=4.0, delta=1e-6))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., Agent]]:
    agents: list[Agent] = []

    def anew(settings: AgentSettings | None = None) -> Agent:
        while agents:
            agents.pop().close()
        given = None if settings is None else replace(settings, start=clock.now)
        agents.append(Agent.open(tmp_path / "agent.db", given, clock=clock))
        return agents[0]

    yield anew
    for agent in agents:
        agent.close()


def _sums(settings: AgentSettings, length: float, seed: int, season: int = 1) -> Iterator[bytes]:
    """A season's sums where uniformly drawn actions meet a parameter of this length; true noise."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(3)
    theta *= length / np.linalg.norm(theta)
    door = DeployedPrivatizer(settings.terms)
    for _ in range(settings.releases):
        actions = rng.standard_normal((settings.decisions // settings.releases, 3))
        actions /= np.linalg.norm(actions, axis=1, keepdims=True)
        door.record(actions, actions @ theta + rng.uniform(-0.1, 0.1, len(actions)))
        yield messages.encode(door.release(), season=season)


def test_a_parameter_beyond_its_bound_is_seen_and_said_until_a_new_season(
    opened: Callable[..., Agent], tmp_path: Path
) -> None:
    """Twice the bound, ε = 1, 20,000 decisions: missed with a chance far below 1e-6."""
    agent = opened(SHORT)
    for payload in _sums(SHORT, 0.8, seed=1):
        agent.absorb(messages.decode(payload))
    (said,) = agent.warnings.values()
    assert "parameter_bound = 0.4" in said
    assert "new season" in said
    assert list(agent.snapshot()["warnings"]) == [PARAMETER_BOUND]
    agent = opened()  # a restart forgets nothing
    assert list(agent.warnings) == [PARAMETER_BOUND]
    assert agent.warnings.keys() <= troubles(look(tmp_path / "agent.db")).keys()
    wider = replace(SHORT, problem=replace(SHORT.problem, parameter_bound=0.8), start=None)
    season = agent.new_season(wider, drop_open=True)
    assert agent.warnings == {}
    for payload in _sums(wider, 0.8, seed=1, season=season):
        agent.absorb(messages.decode(payload))
    assert agent.warnings == {}  # but for a chance of 1 %, by proof; far less, in fact


class _Narrow(MixtureBound):
    """The same set, a sixth as wide."""

    def _slack(self, values: Any, variance: Any) -> Any:
        return MixtureBound._slack(self, values, variance) / 36.0


def test_a_parameter_within_its_bound_is_rarely_doubted() -> None:
    """2,000 seasons at ‖θ*‖ = S, the worst case, in the law of the noise: at most 1 % of them may warn.

    40 or more have a chance below 1e-4 if that holds; with a sixth of the radius 112 do.
    """
    rng, runs, rule, watch = np.random.default_rng(3), 2000, SHORT.rule, SHORT.watch
    scale = SHORT.terms.certificate().scale / np.sqrt(2.0)
    mixing, batch = SHORT.terms.factors.decoder(), SHORT.decisions // SHORT.releases
    theta = rng.standard_normal((runs, 3))
    theta *= 0.4 / np.linalg.norm(theta, axis=1, keepdims=True)
    grams, moments = np.zeros((runs, 3, 3)), np.zeros((runs, 3))
    fresh = rng.standard_normal((SHORT.releases, runs, 3, 3))
    loud = scale * (fresh + np.swapaxes(fresh, -1, -2)) / np.sqrt(2.0)
    other = scale / SHORT.terms.weight * rng.standard_normal((SHORT.releases, runs, 3))
    warned, doubted = np.zeros(runs, dtype=bool), np.zeros(runs, dtype=bool)
    narrow = _Narrow(**{one.name: getattr(watch, one.name) for one in fields(watch)})
    for number in range(1, SHORT.releases + 1):
        actions = rng.standard_normal((runs, 64, 3))
        actions /= np.linalg.norm(actions, axis=2, keepdims=True)
        share = batch / 64  # of records alike: their reward noise is that of 64, which is more
        rewards = np.einsum("rtd,rd->rt", actions, theta) + 0.1 / np.sqrt(share) * rng.choice(
            [-1.0, 1.0], (runs, 64)
        )
        grams += share * np.einsum("rtd,rte->rde", actions, actions)
        moments += share * np.einsum("rt,rtd->rd", rewards, actions)
        if number < rule.first:
            continue
        noise = np.tensordot(mixing[number - 1], loud, 1), np.tensordot(mixing[number - 1], other, 1)
        variance = np.full(runs, (scale * np.linalg.norm(mixing[number - 1])) ** 2)
        warned |= watch.contradicted(grams + noise[0], moments + noise[1], variance)
        doubted |= narrow.contradicted(grams + noise[0], moments + noise[1], variance)
    assert warned.sum() < 40
    assert doubted.sum() > 80


def _visit(agent: Agent, clock: Clock, count: int, beyond: float, rng: np.random.Generator) -> None:
    """Visitors whose rewards are out of range with this chance; then their windows close."""
    with agent.writing():
        for _ in range(count):
            decision = agent.decide(_candidates(rng))
            if rng.random() < beyond:
                with pytest.raises(ConfigurationError, match="reward"):
                    agent.reward(decision.id, 1.5)
            else:
                agent.reward(decision.id, 0.5)
    clock.now += PLAIN.window + 1.0


def test_many_rewards_out_of_range_are_seen_and_said(opened: Callable[..., Agent], clock: Clock) -> None:
    """3 in 10 at ε = 4: 100 records above one in twenty, with noise of 2.6 records: missed with 1e-100."""
    agent, rng = opened(PLAIN), np.random.default_rng(2)
    _visit(agent, clock, 400, 0.3, rng)
    assert agent.warnings == {}  # nothing is said before a release
    release_when_due(agent, clock)
    (said,) = agent.warnings.values()
    assert "reward_bound = 1" in said
    assert list(opened().snapshot()["warnings"]) == [REWARD_BOUND]


def test_few_rewards_out_of_range_are_not_made_much_of(opened: Callable[..., Agent], clock: Clock) -> None:
    """1 in 50; a false alarm has a chance below 1e-3, by proof."""
    agent, rng = opened(PLAIN), np.random.default_rng(4)
    for _ in range(3):
        _visit(agent, clock, 100, 0.02, rng)
        release_when_due(agent, clock)
    assert agent.warnings == {}


def _tallies(path: Path) -> dict[int, tuple[int | None, int | None]]:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT number, exact, noisy FROM tallies").fetchall()
    return {number: (exact, noisy) for number, exact, noisy in rows}


def test_what_is_tallied_are_the_records_that_count_with_the_default_for_a_reward_out_of_range(
    opened: Callable[..., Agent], clock: Clock, tmp_path: Path
) -> None:
    path, rng = tmp_path / "agent.db", np.random.default_rng(6)
    agent = opened(replace(PLAIN, records_per_person=2))

    def refused(id: str, value: float = -3.0) -> None:
        with pytest.raises(ConfigurationError, match="reward"):
            agent.reward(id, value)

    ids = [agent.decide(_candidates(rng), person=f"p{k % 8}").id for k in range(20)]
    for _ in range(3):
        refused(ids[0])  # once, however often
    refused(ids[1])
    agent.reward(ids[1], 0.2)  # it counts with this after all
    agent.reward(ids[2], 0.2)
    refused(ids[2])  # it had one
    refused(ids[16])  # the third of a person: it does not enter
    refused("unknown")
    for value in ("1", True, None):
        refused(ids[3], value)  # type: ignore[arg-type]  # not a number, so not one out of range
    refused(ids[4], float("inf"))
    clock.now += PLAIN.window + 1.0
    refused(ids[5])  # too late
    agent.settle_some()
    assert _tallies(path) == {1: (2 * ONE_IN - 16, None)}
    release_when_due(agent, clock)
    release_when_due(agent, clock)  # nothing in it: it looks like any other
    tallies = _tallies(path)
    assert [tallies[number][0] for number in (1, 2)] == [None, None]  # exact ones are gone
    assert all(isinstance(tallies[number][1], int) for number in (1, 2))
    before = tallies
    agent = opened()
    release_when_due(agent, clock)
    assert {number: _tallies(path)[number] for number in (1, 2)} == before  # drawn once
    agent.new_season()
    assert _tallies(path) == {}


def test_where_the_controller_is_trusted_nothing_is_tallied(
    opened: Callable[..., Agent], clock: Clock
) -> None:
    """One noise for all agents leaves no room for it (docs/theory.md, 3)."""
    agent, rng = opened(replace(PLAIN, trust=CONTROLLER)), np.random.default_rng(8)
    _visit(agent, clock, 400, 0.3, rng)
    release_when_due(agent, clock)
    assert list(agent.warnings) == []


def test_records_of_an_own_log_are_not_in_the_tally(
    opened: Callable[..., Agent], clock: Clock, tmp_path: Path
) -> None:
    """10,000 of them would hide 120 refused rewards of 400, which are seen without."""
    agent, rng = opened(PLAIN), np.random.default_rng(9)
    warm_start(agent, _candidates(rng, 10_000), rng.uniform(-1, 1, 10_000), policy="fixed")
    assert _tallies(tmp_path / "agent.db") == {}
    _visit(agent, clock, 400, 0.3, rng)
    release_when_due(agent, clock)
    assert list(agent.warnings) == [REWARD_BOUND]


def test_where_no_noise_covers_a_tally_none_is_written(
    opened: Callable[..., Agent], clock: Clock, tmp_path: Path
) -> None:
    settings = replace(PLAIN, default_reward=-1.0)
    assert settings.tally_scale is None
    agent, rng = opened(settings), np.random.default_rng(10)
    _visit(agent, clock, 20, 0.5, rng)
    agent.settle_some()
    release_when_due(agent, clock)
    assert _tallies(tmp_path / "agent.db") == {}


def test_shadow_mode_that_keeps_nothing_is_said_until_events_are_kept(
    opened: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = opened(replace(SETTINGS, shadow=True))
    assert list(agent.warnings) == [KEEP_EVENTS]
    assert KEEP_EVENTS in troubles(look(tmp_path / "agent.db"))
    assert opened(replace(SETTINGS, shadow=True, keep_events=60.0)).warnings == {}
    season = opened()
    season.new_season(replace(SETTINGS, shadow=True, follow_policy="fixed", start=None))
    assert season.warnings == {}  # they are released
