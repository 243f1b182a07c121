"""An agent that is alone (trust self): it learns at once, nothing leaves it, and it may join others later."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb import simulate
from feducb.agent import Agent, AgentSettings
from feducb.agent.agent_file import read_agent_file
from feducb.agent.upkeep import erase, export, warm_start
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError, PrivacyError
from feducb.privacy import grid
from feducb.privacy.statement import statement, to_markdown
from feducb.protocol import messages
from feducb.storage import own_sums
from feducb.trust import SELF, require_trust
from feducb.types import Statistics
from feducb.worlds.features import Recipe
from feducb.worlds.features.season import with_added
from own_sites import START, THETA, visitors

SETTINGS = AgentSettings(
    problem=Problem(dim=2), trust=SELF, decisions=800, window=5.0, keep_events=1e6, start=START
)
JOINED = AgentSettings(
    problem=Problem(dim=2),
    budget=Budget(epsilon=8.0, delta=1e-6),
    decisions=800,
    season=800.0,
    window=5.0,
    play="own",
    releases=2,
    first_release=40.0,
    last_release=80.0,
)


class Site:
    """An agent and its clock; visitors come one a second, and rewards have a seed of their own."""

    def __init__(
        self, path: Path, settings: AgentSettings = SETTINGS, seed: int = 0, shift: float = 0.0
    ) -> None:
        self.now, self.path, self.shift = START, path, shift
        self.visits = visitors(seed)
        self.records: list[tuple[np.ndarray, float]] = []
        self.agent = self.open(settings)

    def open(self, settings: AgentSettings | None = None) -> Agent:
        agent = Agent.open(self.path, settings, clock=lambda: self.now)
        agent._state.coins = random.Random(7)
        agent.store.database.execute("PRAGMA synchronous = OFF")
        return agent

    def visit(self, count: int) -> None:
        for _ in range(count):
            candidates, noise = next(self.visits)
            chosen = self.agent.decide(candidates)
            reward = float(np.clip(candidates[chosen.index] @ THETA + noise + self.shift, -1, 1))
            self.agent.reward(chosen.id, reward)
            self.records.append((candidates[chosen.index], reward))
            self.now += 1.0
            self.agent.tick()

    def sums(self, part: own_sums.Part) -> own_sums.OwnSums | None:
        return own_sums.read(self.agent.store.database, part)

    def released(self) -> list[bytes]:
        rows = self.agent.store.database.execute("SELECT payload FROM outgoing ORDER BY number").fetchall()
        return [payload for (payload,) in rows]


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise, so that what is released can be told to the last bit."""
    monkeypatch.setattr(grid.GridNoise, "draw", lambda self, count: np.zeros(count, dtype=np.int64))


def test_it_draws_uniformly_for_a_public_number_of_visitors_and_then_reads_its_own_records(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path / "a.db")
    first = SETTINGS.waits_alone
    site.visit(first + 3)  # the windows of the newest four are still open
    assert not site.agent.closed
    assert site.agent.snapshot()["own"]["phase"] == "alone"
    assert f"until {first} records are there, {first - 1} so far" in site.agent.snapshot()["own"]["says"]
    site.visit(1)
    assert site.agent.closed
    read = site.sums("read")
    assert read is not None
    actions, rewards = map(np.array, zip(*site.records[: read.records], strict=True))
    expected = SETTINGS.unheard(Statistics(actions.T @ actions, actions.T @ rewards, read.records))
    belief = site.agent._state.chooser.deciders[0].belief
    np.testing.assert_allclose(belief.theta, expected.theta, rtol=1e-6)
    np.testing.assert_allclose(belief.ellipsoid_width, expected.ellipsoid_width, rtol=1e-6)
    rows = list(export(site.path))
    assert [row["own_phase"] for row in rows] == [False] * (first + 4)
    site.visit(3)
    assert [row["own_phase"] for row in export(site.path)][-3:] == [True] * 3


def test_nothing_leaves_by_any_door_and_no_sum_comes_in(tmp_path: Path) -> None:
    site = Site(tmp_path / "a.db")
    site.visit(60)
    agent = site.agent
    for door in (
        agent.release,
        agent.store.release,
        agent.store.upload,
        agent.store._privatizers[0].release,
        agent.store._privatizers[0].upload,
        agent.store._privatizers[0].row,
        lambda: agent.store.record([[0.1, 0.2]], [0.3]),
    ):
        with pytest.raises(PrivacyError):
            door()
    assert site.released() == []
    assert agent.outbox() == []
    with Agent.open(tmp_path / "b.db", replace(JOINED, start=START)) as other:
        total = messages.decode(other.store.release())
    with pytest.raises(ValueError, match="this agent is alone"):
        agent.absorb(total)
    stands = agent.snapshot()
    assert (stands["epsilon"], stands["delta"], stands["releases_left"], stands["season_over"]) == (
        0,
        0,
        0,
        False,
    )
    assert (agent.ledger().mu_of_a_regular, agent.ledger().current.mu) == (0.0, 0.0)
    assert agent.ledger().as_dict()["seasons"][0]["epsilon"] == 0.0


def test_what_it_learnt_outlives_a_season_and_a_restart(tmp_path: Path) -> None:
    site = Site(tmp_path / "a.db")
    site.visit(60)
    site.visit(5)  # so that a few windows are open
    before = own_sums.count(site.agent.store.database)
    site.agent.new_season(drop_open=True)
    assert site.agent.closed  # it decides by what it knew, from the first visitor on
    assert own_sums.count(site.agent.store.database) == before
    belief = site.agent._state.chooser.deciders[0].belief
    site.agent.close()
    site.agent = site.open()
    np.testing.assert_array_equal(site.agent._state.chooser.deciders[0].belief.theta, belief.theta)
    site.visit(30)
    assert own_sums.count(site.agent.store.database) == before + 26


@pytest.mark.usefixtures("quiet")
def test_when_it_joins_others_no_record_from_before_moves_what_leaves_or_what_is_decided_until_the_close(
    tmp_path: Path,
) -> None:
    """Two lives whose rewards differ before joining: the same releases and decisions up to the close."""
    sites = [Site(tmp_path / f"{shift}.db", shift=shift) for shift in (0.0, -0.4)]
    for site in sites:
        site.visit(60)
        site.agent.new_season(JOINED, drop_open=True)
        site.agent._state.coins = random.Random(11)
        site.shift = 0.0
        assert not site.agent.closed
        assert site.agent._state.chooser.deciders == {}
        site.records.clear()
        site.visit(80)
    one, other = sites
    assert len(one.released()) == JOINED.releases
    assert one.released() == other.released()
    for first, second in zip(one.records, other.records, strict=True):
        np.testing.assert_array_equal(first[0], second[0])
    assert [site.agent.closed for site in sites] == [
        True,
        True,
    ]  # the last release was made with the last visit
    mine, theirs = (site.agent._state.chooser.deciders[0].belief.theta for site in sites)
    assert not np.allclose(mine, theirs)  # what was learnt alone is read from the close on
    read, shared = one.sums("read"), one.sums("shared")
    assert read is not None
    assert shared is not None
    assert read.records > shared.records + 50


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"play": "released", "first_release": None, "last_release": None, "releases": None},
            "released play",
        ),
        ({"problem": Problem(dim=2, reward_bound=2.0)}, "other bounds"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_no_close_or_no_bound_could_read_is_deleted(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    site = Site(tmp_path / "a.db")
    site.visit(60)
    site.agent.new_season(replace(JOINED, **changes), drop_open=True)
    assert site.agent.store.database.execute("SELECT count(*) FROM own").fetchone() == (0,)


@pytest.mark.parametrize("by_hand", [True, False], ids=["with the season", "before its first decision"])
@pytest.mark.parametrize(("change", "stays"), [("added", True), ("retired", True), ("renamed", False)])
def test_actions_that_come_and_go_between_seasons_leave_what_was_learnt(
    tmp_path: Path, change: str, stays: bool, by_hand: bool
) -> None:
    recipe = Recipe.of_actions(["a", "b", "c"], reserve=1)
    other = {
        "added": with_added(recipe, "d"),
        "retired": replace(recipe, retired=("c",)),
        "renamed": Recipe.of_actions(["a", "b", "d"], reserve=1),
    }[change]
    now, alone = [START], AgentSettings(recipe=recipe, trust=SELF, decisions=800, window=5.0)
    agent = Agent.open(tmp_path / "a.db", alone, clock=lambda: now[0])
    for _ in range(40):
        agent.reward(agent.decide().id, 0.5)
    now[0] += 10.0
    agent.tick()
    agent.new_season(replace(alone, recipe=other) if by_hand else None)
    agent.close()
    agent = Agent.open(tmp_path / "a.db", replace(alone, recipe=other), clock=lambda: now[0])
    assert own_sums.count(agent.store.database) == (40 if stays else 0)
    assert agent.closed == stays
    agent.close()


def test_settings_that_were_edited_before_anything_happened_leave_raw_records_unread(tmp_path: Path) -> None:
    """A season that was opened alone and then, unused, turned into one that shares."""
    site = Site(tmp_path / "a.db")
    site.visit(60)
    site.agent.new_season(drop_open=True)
    assert site.agent.closed
    site.agent.close()
    site.agent = site.open(replace(JOINED, start=site.now + 1.0))
    assert not site.agent.closed
    assert site.agent._state.chooser.deciders == {}
    before = site.sums("before")
    assert before is not None
    assert before.records == 56


def test_sums_on_another_grid_are_the_same_to_half_of_its_finest_step(tmp_path: Path) -> None:
    site = Site(tmp_path / "a.db")
    site.visit(60)
    whole = own_sums.everything(site.agent.store.database)
    assert whole is not None
    before, store = site.agent.store.real(whole.values), site.agent.store
    weighted = float(store.read_own(whole).squares) * store.terms.weight**2
    site.agent.new_season(JOINED, drop_open=True)
    sums = site.sums("before")
    assert sums is not None
    store = site.agent.store
    step = 2.0 ** (store._privatizers[0].certificate.exponent - grid.FINE_BITS)
    assert np.abs(store.real(sums.values) - before).max() <= step / 2
    assert abs(float(store.read_own(sums).squares) * store.terms.weight**2 - weighted) <= step


def test_a_log_of_any_policy_may_be_loaded_and_is_read_at_once(tmp_path: Path) -> None:
    draws = np.random.default_rng(3)
    actions = draws.uniform(-0.7, 0.7, (100, 2))
    site = Site(tmp_path / "a.db")
    loaded = warm_start(site.agent, actions, actions @ THETA)
    assert (loaded.entered, loaded.kept) == (0, 100)
    assert site.agent.closed
    assert "nothing leaves it" in erase(site.agent, "somebody").said
    site.agent.close()
    with pytest.raises(ConfigurationError, match="until a new season"):  # something has happened
        site.open(replace(SETTINGS, window=9.0))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"agents": 2}, "agents"),
        ({"records_per_person": 2}, "records_per_person"),
        ({"budget": Budget(epsilon=1.0, delta=1e-5)}, "budget"),
        ({"releases": 3}, "releases"),
        ({"schedule": "periodic"}, "schedule"),
        ({"history": 10}, "history"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_means_nothing_where_nothing_leaves_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        replace(SETTINGS, **changes)
    assert error.value.setting == named


def test_only_an_agent_has_it_and_it_needs_no_budget(tmp_path: Path) -> None:
    assert require_trust("self") is SELF
    assert AgentSettings.from_json(SETTINGS.to_json()) == SETTINGS
    with pytest.raises(ConfigurationError, match="agents share"):
        simulate(agents=2, dim=2, arms=2, horizon=10, trust="self")
    with pytest.raises(ConfigurationError, match="budget"):
        AgentSettings(problem=Problem(dim=2))
    toml = tmp_path / "agent.toml"
    toml.write_text('version = 2\n[problem]\ndim = 2\n[privacy]\ntrust = "self"\n')
    assert read_agent_file(toml).agent.trust is SELF
    for more, named in (("epsilon = 1.0\n", "privacy.epsilon"), ('[engine]\nkind = "nats"\n', "engine.kind")):
        toml.write_text(f'version = 2\n[problem]\ndim = 2\n[privacy]\ntrust = "self"\n{more}')
        with pytest.raises(ConfigurationError) as error:
            read_agent_file(toml)
        assert error.value.setting == named


def test_the_statement_promises_that_nothing_leaves_and_nothing_against_visitors() -> None:
    plain = statement(SETTINGS.terms)
    assert (plain["epsilon"], plain["delta"], plain["releases"]) == (0.0, 0.0, 0)
    page = to_markdown(plain)
    assert "nothing is promised against visitors" in page
    assert "must not be loaded where it would enter a release" in page
    assert "Signed" in page
