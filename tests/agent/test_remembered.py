"""What is learnt outlives its season: by released sums alone, as the file has them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings
from feducb.agent.agent_file import read_agent_file
from feducb.agent.upkeep import backup, restore
from feducb.agent.view import look
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.models.mixture import MixtureBound
from feducb.protocol import messages
from feducb.storage import agent_tables
from feducb.worlds.features import Recipe
from own_sites import Sites
from secure_net import SecureNet

START, SEASON = 1_800_000_000.0, 601.0
THETA = np.array([0.8, -0.4])


def _settings(**changes: Any) -> AgentSettings:
    usual: dict[str, Any] = {
        "problem": Problem(dim=2),
        "budget": Budget(epsilon=8.0, delta=1e-6),
        "decisions": 600,
        "season": SEASON,
        "window": 0.5,
        "start": START,
    }
    return AgentSettings(**(usual | changes))


class Site:
    """One agent, a visitor a second, on a clock of its own."""

    def __init__(self, path: Path, settings: AgentSettings, seed: int = 1) -> None:
        self.now, self.path, self.theta = settings.start or START, path, THETA
        self._draws = np.random.default_rng(seed)
        self.agent = self.open(settings)

    def open(self, settings: AgentSettings | None = None) -> Agent:
        self.agent = Agent.open(self.path, settings, clock=lambda: self.now)
        self.agent._state.coins = random.Random(3)
        return self.agent

    def play(self, visitors: int = 600) -> np.ndarray:
        """What each visitor lost."""
        lost = []
        for visitor in range(visitors):
            self.now += 1.0
            candidates = self._draws.standard_normal((6, 2))
            candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
            means = candidates @ self.theta
            made = self.agent.decide(candidates)
            noise = self._draws.uniform(-0.1, 0.1)
            self.agent.reward(made.id, float(np.clip(means[made.index] + noise, -1.0, 1.0)))
            lost.append(means.max() - means[made.index])
            if visitor % 10 == 9:
                self.now += 0.001
                self.agent.tick()
        return np.array(lost)

    def next_season(self, **changes: Any) -> Agent:
        settings = replace(self.agent.settings, start=self.now, promised=None, **changes)
        self.agent.new_season(settings, drop_open=True)
        return self.agent


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "a.db", _settings(**getattr(request, "param", {})))
    yield site
    site.agent.close()


def _belief(agent: Agent) -> tuple[np.ndarray, np.ndarray]:
    belief = agent._state.chooser.deciders[0].belief
    return belief.theta, belief.inverse * belief.ellipsoid_width**2


def test_a_new_season_goes_on_where_the_last_one_ended(site: Site) -> None:
    """The same visitors after a season that forgets: about a sixth of them are drawn uniformly."""
    first = site.play()
    drawn = site.agent.snapshot()["counts"]["drawn_uniformly"]
    site.next_season()
    second = site.play()
    assert site.agent.snapshot()["counts"]["drawn_uniformly"] == drawn > 20
    # Deployed noise has no seed. It is small here: uniform visits lose 0.6, and those that are decided 0.01.
    assert second[:30].mean() < 0.25 * first[:30].mean()
    assert site.agent.snapshot()["memory"]["says"] == "Remembers 1 season: 1."


def test_what_is_read_is_the_sums_with_their_weights(site: Site) -> None:
    """Worked out by hand: one set over the weighed sum of three seasons, of the sum of their noises."""
    seen = []
    for _ in range(2):
        site.play()
        seen += site.agent._state.inbox.read(0)
        site.next_season()
    site.play(300)
    seen += site.agent._state.inbox.read(0)
    rule = site.agent._state.memory.rule(0)
    assert rule is not None
    newest, earlier = seen[-1], seen[1::-1]
    own, *weights = rule.weights[newest.number]
    assert 0.0 < own <= 1.0
    assert max(own, *weights) == 1.0
    assert weights[0] == pytest.approx(weights[1])  # as many records under the same noise
    gram = own * newest.gram + sum(c * one.gram for c, one in zip(weights, earlier, strict=True))
    moment = own * newest.moment + sum(c * one.moment for c, one in zip(weights, earlier, strict=True))
    variance = own**2 * newest.variance + sum(
        c**2 * one.variance for c, one in zip(weights, earlier, strict=True)
    )
    assert isinstance(rule.bound, MixtureBound)
    expected = rule.bound.belief(gram, moment, np.asarray(variance))
    theta, shape = _belief(site.agent)
    np.testing.assert_allclose(theta, expected.theta)
    np.testing.assert_allclose(shape, expected.inverse * expected.ellipsoid_width**2)
    assert np.all(np.linalg.eigvalsh(shape) > 0.0)


def test_an_agent_that_was_killed_remembers_the_same(site: Site) -> None:
    site.play()
    site.next_season()
    site.play(200)
    before = _belief(site.agent)
    site.agent.close()
    site.open()
    for one, other in zip(before, _belief(site.agent), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_leaves_is_the_same_whatever_is_remembered() -> None:
    """Releases and their noise are planned for the season's own records."""
    told = [_settings(remember=one) for one in ("all", "none", 3)]
    assert len({one.terms for one in told}) == 1
    assert len({one.release_times for one in told}) == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"remember": "none"}, "Begins anew: season 1 is not remembered (remember = none)."),
        (
            {"problem": Problem(dim=2, parameter_bound=2.0)},
            "Begins anew: season 1 had other bounds.",
        ),
        ({"problem": Problem(dim=3)}, "Begins anew: season 1 had other bounds."),
    ],
)
def test_a_season_that_begins_anew_says_so(site: Site, changes: dict[str, Any], says: str) -> None:
    site.play()
    site.next_season(**changes)
    assert site.agent._state.chooser.deciders == {}
    assert look(site.path)["memory"]["says"] == says


def test_so_many_seasons_are_remembered(site: Site) -> None:
    for _ in range(3):
        site.play()
        site.next_season(remember=2)
    assert [one.season for one in site.agent._state.memory.read] == [3, 2]
    assert "remember = 2" in str(site.agent._state.memory.earlier[-1].misfit)


def test_a_discount_weighs_older_seasons_less(site: Site) -> None:
    for _ in range(2):
        site.play()
        site.next_season(discount=0.5)
    rule = site.agent._state.memory.rule(0)
    assert rule is not None
    np.testing.assert_allclose(rule.weights[0], [0.0, 1.0, 0.5])


@pytest.mark.parametrize("site", [{"drift": 300.0}], indirect=True)
def test_records_fade_within_a_season_and_after_it(site: Site) -> None:
    """By hand: each batch is a difference of sums, and counts half after 300 seconds."""
    site.play()
    sums, times = site.agent._state.inbox.read(0), site.agent.settings.release_times
    assert len(sums) == len(times) > 3
    whole = site.agent._state.memory.blended(0, sums)
    batches = np.diff([np.zeros((2, 2)), *(one.gram for one in sums)], axis=0)
    left = 0.5 ** ((times[-1] - np.array(times)) / 300.0)
    assert whole is not None
    np.testing.assert_allclose(whole.gram, np.einsum("k,kij->ij", left, batches))
    decoder = site.agent.store.terms.factors.decoder()
    noise = left @ np.diff(decoder, axis=0, prepend=0.0)
    fresh = float(sums[-1].variance) / np.sum(decoder[-1] ** 2)
    assert float(whole.variance) == pytest.approx(fresh * noise @ noise)
    assert float(whole.variance) < float(sums[-1].variance)
    site.next_season()
    rule = site.agent._state.memory.rule(0)
    assert rule is not None
    np.testing.assert_allclose(rule.past[0].gram, whole.gram)
    ages = site.agent.started_at + np.array([0.0, *times]) - (START + times[-1])
    ratio = rule.weights[:, 1] / rule.weights[:, 0].clip(1e-300)
    later = rule.weights[1:, 0] == 1.0  # where the new season counts whole
    steps = np.diff(np.log2(ratio[1:][later]) + ages[1:][later] / 300.0)
    assert np.all(np.abs(steps) < 3.0)
    site.agent.close()
    site.open()
    np.testing.assert_allclose(_belief(site.agent)[0], rule.start(()).belief.theta.squeeze())  # type: ignore[union-attr]


def test_seasons_that_disagree_are_warned_of(site: Site) -> None:
    site.play()
    site.next_season()
    site.play()
    assert "changed" not in site.agent.warnings
    site.next_season()
    site.theta = np.array([-0.8, 0.4])
    site.play()
    assert "seasons.drift" in site.agent.warnings["changed"]


def test_an_agent_from_a_backup_remembers_the_seasons_before_it(site: Site, tmp_path: Path) -> None:
    site.play()
    site.next_season()
    site.play(200)
    backup(site.path, tmp_path / "copy")
    settings = site.agent.settings
    site.agent.close()
    restore(tmp_path / "copy", tmp_path / "b.db", season=7)
    site.path, site.now = tmp_path / "b.db", site.now + 5000.0
    site.open(replace(settings, start=site.now, promised=None))
    assert [one.season for one in site.agent._state.memory.read] == [2, 1]
    assert site.agent._state.chooser.deciders


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"remember": 0}, "remember"),
        ({"remember": "some"}, "remember"),
        ({"discount": 1.5}, "discount"),
        ({"drift": 0.0}, "drift"),
        ({"drift": 60.0, "discount": 0.5}, "discount"),
    ],
)
def test_impossible_memories_are_refused(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        _settings(**changes)
    assert error.value.setting == names


def test_agent_toml_has_a_table_for_seasons(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    head = "version = 2\n[problem]\ndim = 2\n[privacy]\nepsilon = 8.0\ndelta = 1e-6\n"
    for table, expected in (
        ('remember = "none"\ndrift = "none"', ("none", 1.0, None)),
        ('remember = 3\ndrift = "90d"', (3, 1.0, 90 * 86400.0)),
        ("discount = 0.5", ("all", 0.5, None)),
    ):
        path.write_text(f"{head}[seasons]\n{table}\n")
        told = read_agent_file(path).agent
        assert (told.remember, told.discount, told.drift) == expected
        assert AgentSettings.from_json(told.to_json()) == told


RELEASED: dict[str, Any] = {"play": "released", "releases": None, "first_release": None, "last_release": None}


@pytest.mark.parametrize("changes", [{}, {"trust": "controller"}, {"quorum": 2}], ids=str)
def test_a_federation_remembers_the_sum_of_all(tmp_path: Path, changes: dict[str, Any]) -> None:
    sites = Sites(tmp_path, **RELEASED, **changes)
    sites.run(600)
    for agent in sites.live.values():
        last = agent._state.inbox.read(0)[-1]
        agent.new_season(replace(agent.settings, start=sites.now, promised=None), drop_open=True)
        rule = agent._state.memory.rule(0)
        assert rule is not None
        np.testing.assert_array_equal(rule.past[0].gram, last.gram)
        assert (0 in agent._state.chooser.deciders) == (rule.first == 0)
    starts = [agent._state.memory.belief(0, []) for agent in sites.live.values()]
    assert all(one is not None for one in starts)
    for one in starts[1:]:  # they go on together
        np.testing.assert_array_equal(one.theta, starts[0].theta)  # type: ignore[union-attr]
    sites.close()


def test_secure_sums_are_remembered(tmp_path: Path) -> None:
    net = SecureNet(tmp_path)
    asyncio.run(net.step(until=net.now))
    for seed in range(2):
        net.visit(seed=seed)
        asyncio.run(net.step())
    agent = next(iter(net.live.values()))
    last = agent._state.inbox.read(0)[-1]
    agent.new_season(replace(agent.settings, start=net.now, promised=None), drop_open=True)
    rule = agent._state.memory.rule(0)
    assert rule is not None
    np.testing.assert_array_equal(rule.past[0].gram, last.gram)
    assert rule.past[0].variance == last.variance  # as planned, whoever was there
    net.close()


@pytest.mark.parametrize("changes", [{"contexts": "public"}, {"groups": 2}], ids=str)
def test_other_readings_are_remembered_too(tmp_path: Path, changes: dict[str, Any]) -> None:
    site = Site(tmp_path / "a.db", _settings(**changes))
    site.play()
    site.next_season()
    assert sorted(site.agent._state.chooser.deciders) == list(range(site.agent.settings.groups))
    site.agent.close()


def test_what_a_recipe_knows_to_be_zero_stays_so(tmp_path: Path) -> None:
    recipe = Recipe.of_actions(["a", "b", "c"])
    told = _settings(problem=None, recipe=recipe, default_reward=0.5)
    now = START
    with Agent.open(tmp_path / "a.db", told, clock=lambda: now) as agent:
        for visitor in range(600):
            now += 1.0
            made = agent.decide()
            agent.reward(made.id, float(made.action == "b"))
            if visitor % 10 == 9:
                agent.tick()
        now += 1.0
        agent.tick()
        assert agent.store.season == 2  # by the clock
        assert agent.decide(scores=True).scores is not None
        best = max(agent.model()["actions"], key=lambda one: one["estimate"])
        assert best["id"] == "b"
        agent.new_season(
            replace(told, start=now + 1.0, recipe=Recipe.of_actions(["a", "b", "d"])), drop_open=True
        )
        assert agent.snapshot()["memory"]["says"] == "Begins anew: season 1 had another recipe."


def test_a_season_of_thousands_of_releases_remembers_too(tmp_path: Path) -> None:
    told = _settings(schedule="periodic", releases=1100, budget=Budget(epsilon=1000.0, delta=1e-6))
    site = Site(tmp_path / "a.db", told)
    site.play(90)
    site.next_season()
    rule = site.agent._state.memory.rule(0)
    assert rule is not None
    assert rule.first == 0
    assert rule.weights.shape == (1101, 2)
    assert site.play(10).mean() < 0.2
    site.agent.close()


def test_a_newcomer_knows_what_the_federation_has_learnt_before_its_first_visitor(
    site: Site, tmp_path: Path
) -> None:
    """It is told the last sums of earlier seasons; who has decided by less reads them from the next on."""
    settings = site.agent.settings
    for season in (1, 2):
        site.play(550)
        site.now = START + season * SEASON + 1.0
        site.agent.tick()
    assert site.agent.store.season == 3
    sums = [messages.decode(one.payload) for one in agent_tables.remembered_sums(site.agent.store.database)]
    assert [one.season for one in sums] == [1, 2]

    def newcomer(name: str) -> Agent:
        agent = Agent.open(tmp_path / name, settings, first_season=3, clock=lambda: site.now)
        agent.renewal = lambda _: (settings, None)
        return agent

    with newcomer("early.db") as early, newcomer("late.db") as late:
        late.decide(np.eye(2))
        for agent in (early, late):
            assert agent.snapshot()["memory"]["seasons"] == []
            assert [agent.absorb(one) for one in (*sums[::-1], *sums)] == [True, True, False, False]
        for one, other in zip(_belief(early), _belief(site.agent), strict=True):
            np.testing.assert_array_equal(one, other)
        assert late.snapshot()["memory"]["seasons"] == []
        assert [one.season for one in early.ledger().accounts] == [3]  # it cost the newcomer's people nothing
        site.now = START + 3.2 * SEASON
        late.tick(alone=False)
        assert late.store.season == 4
        assert [one["season"] for one in late.snapshot()["memory"]["seasons"]] == [2, 1]


def test_a_newcomer_takes_no_earlier_sum_that_does_not_go_with_its_own_terms(
    site: Site, tmp_path: Path
) -> None:
    settings = site.agent.settings
    site.play(550)
    site.now = START + SEASON + 1.0
    site.agent.tick()
    (kept,) = agent_tables.remembered_sums(site.agent.store.database)
    total = messages.decode(kept.payload)
    other = replace(settings, problem=replace(settings.problem, reward_bound=2.0), promised=None)
    for then, taken in (
        (other, False),
        (replace(settings, agents=2, promised=None), False),
        (settings, True),
    ):
        with Agent.open(
            tmp_path / f"{taken}{then.agents}.db", then, first_season=2, clock=lambda: site.now
        ) as agent:
            agent.renewal = lambda _, then=then: (then, None)
            assert agent.absorb(total) == taken
