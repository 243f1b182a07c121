"""Agents whose recipe gives each action its own weights: what is known to be zero never leaves them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feducb
from feducb import Agent, AgentSettings, Budget, ConfigurationError
from feducb.agent.upkeep import warm_start
from feducb.carriers.local import AgentMailbox, LocalController
from feducb.controller.collector import open_collector
from feducb.models import LINEAR, KnownZeros
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.storage import RowBook
from feducb.types import Array
from feducb.worlds.features import Category, Number, Recipe, model_of
from feducb.worlds.features.encoder import Encoder
from feducb.worlds.from_recipe import RecipeWorld
from secure_net import SecureNet

COLUMNS: dict[str, Any] = {
    "context": (Number("age", 0, 100), Category("country", ("DE", "FR"), unknown="other", missing="zero")),
    "action": (Category("offer", ("none", "five", "ten")),),
}
PER_ACTION = Recipe(**COLUMNS, terms=(("offer",), ("offer", "age")))
MIXED = Recipe(**COLUMNS, terms=((), ("age",), ("offer",), ("offer", "age"), ("offer", "country")))
BUDGET, START = Budget(epsilon=8.0, delta=1e-6), 1.8e9


def _settings(recipe: Recipe = MIXED, **changes: Any) -> AgentSettings:
    usual: dict[str, Any] = {
        **{"budget": BUDGET, "start": START, "window": 1.0, "season": 60.0, "decisions": 600},
        **{"schedule": "geometric", "releases": 3, "first_release": 10.0, "agents_per_person": 1},
    }
    return AgentSettings(recipe=recipe, **(usual | changes))


def _known(recipe: Recipe) -> Array:
    """(d, d), where a Gram is zero whoever comes."""
    model = model_of(recipe)
    assert isinstance(model, KnownZeros)
    known, pattern = np.ones((recipe.dim, recipe.dim)), model.pattern(recipe.dim)
    known[pattern.rows, pattern.columns] = known[pattern.columns, pattern.rows] = 0.0
    return known


class Shops:
    """Agents with a controller between them, a visitor each a second."""

    def __init__(self, folder: Path, stack: ExitStack, recipes: dict[str, Recipe], **changes: Any) -> None:
        self.now, self._coins = START, np.random.default_rng(3)
        changes = {"agents": len(recipes), **changes}
        self.live = {
            name: stack.enter_context(
                Agent.open(
                    folder / f"{name}.db", _settings(recipe, name=name, **changes), clock=lambda: self.now
                )
            )
            for name, recipe in recipes.items()
        }
        collector = open_collector(
            folder / "controller.db", {name: agent.store.terms for name, agent in self.live.items()}
        )
        assert not isinstance(collector, RowBook)
        self.collector = collector
        stack.callback(collector.close)

    def visits(self, seconds: int) -> Iterator[dict[str, bytes]]:
        """What waits to leave, second by second; it is sent, and newest sums come back."""
        for _ in range(seconds):
            self.now += 1.0
            for agent in self.live.values():
                country = ("DE", "IT", None)[self._coins.integers(3)]
                context = {"age": float(self._coins.uniform(0, 100)), "country": country}
                agent.reward(agent.decide(context=context).id, float(self._coins.random() < 0.5))
                agent.tick(alone=False)
            waiting = {name: parcel.body for name, agent in self.live.items() for parcel in agent.outbox()}
            if waiting:
                boxes = {name: AgentMailbox(agent) for name, agent in self.live.items()}
                asyncio.run(LocalController(self.collector, boxes).step(now=self.now))
                yield waiting


@pytest.mark.parametrize(("recipe", "name"), [(PER_ACTION, "zeros:2(a3)"), (MIXED, "zeros:2(1)+2(a3)+a3*b3")])
def test_the_terms_of_an_agent_name_what_its_recipe_knows(recipe: Recipe, name: str) -> None:
    terms = _settings(recipe).terms
    assert terms.model.name == name
    assert Terms.from_json(terms.to_json()).digest() == terms.digest()
    assert terms.digest() != replace(terms, model=LINEAR).digest()
    assert terms.certificate().coordinates == model_of(recipe).coordinates(recipe.dim)
    assert _settings(recipe, contexts="public").terms.model.name == f"public:{name}"
    assert _settings(recipe, default_reward=0.5).tally_scale is not None  # what is out of range is counted


def test_spaced_one_hots_are_as_any_others() -> None:
    offers = Recipe.of_actions(["a", "b"])
    assert _settings(offers).terms.model.name == "zeros:a2"
    assert _settings(offers, records_per_person=2, spacing=1).terms.model is LINEAR


@pytest.mark.parametrize("recipe", [PER_ACTION, MIXED], ids=["per action", "mixed"])
@pytest.mark.parametrize("trust", ["nobody", "controller"])
def test_known_zeros_are_zero_in_every_release_and_sum(tmp_path: Path, trust: str, recipe: Recipe) -> None:
    known = _known(recipe).astype(bool)
    assert known.any()
    with ExitStack() as stack:
        shops = Shops(tmp_path, stack, {"a": recipe, "b": recipe}, trust=trust)
        left = list(shops.visits(60))
        sums = [agent._state.inbox.newest(0) for agent in shops.live.values()]
    assert len(left) >= 2
    coordinates = model_of(recipe).coordinates(recipe.dim)
    for total in sums:
        assert total is not None
        assert (total.number, total.model.name) == (len(left), model_of(recipe).name)
        gram = total.read().gram
        assert not gram[known].any()
        assert gram[~known].all()
    if trust == "nobody":
        releases = [messages.decode(body) for sent in left for body in sent.values()]
        assert {len(release.values) for release in releases} == {coordinates}
        assert not any(release.read().gram[known].any() for release in releases)


def test_agents_of_different_structure_are_refused(tmp_path: Path) -> None:
    """Two recipes of one length and one set of bounds: only the model tells them apart."""
    swapped = replace(MIXED, terms=((), ("offer",), ("age",), ("offer", "age"), ("offer", "country")))
    assert _settings(swapped).problem == _settings(MIXED).problem
    with ExitStack() as stack, pytest.raises(ConfigurationError, match=r"terms\.model of b is 'zeros:1\+a3"):
        Shops(tmp_path, stack, {"a": MIXED, "b": swapped})
    settings = _settings(MIXED)
    other = DeployedPrivatizer(_settings(swapped).terms).release()
    with Agent.open(tmp_path / "agent.db", settings, clock=lambda: START) as agent:
        total = messages.decode(messages.encode(other, season=1))
        with pytest.raises(ValueError, match=r"sum has model zeros:1\+a3.*the others' recipe is another one"):
            agent._state.inbox.admit(total, agent.settings, 1)


def test_vectors_that_no_recipe_makes_are_refused_and_of_a_log_they_are_counted(tmp_path: Path) -> None:
    with Agent.open(tmp_path / "agent.db", _settings(), clock=lambda: START) as agent:
        made = Encoder(MIXED).vectors({"age": 30, "country": "FR"})
        agent.decide(made)
        both = made[0] * 0.5 + made[1] * 0.5
        with pytest.raises(
            ConfigurationError, match=r"actions\[1\] is 'of two levels at once', expected .* zeros:2\(1\)"
        ):
            agent.decide([made[0], both])
        loaded = warm_start(agent, [made[0], both], [1.0, 0.0], policy="fixed")
        assert (loaded.entered, loaded.clipped) == (2, 1)


def test_a_season_that_was_opened_with_all_entries_stays_so(tmp_path: Path) -> None:
    """Files of an earlier version release what they promised; the next season takes the structure."""
    settings = _settings()
    before = settings.under(replace(settings.terms, model=LINEAR))
    assert before.terms.model is LINEAR
    with Agent.open(tmp_path / "agent.db", before, clock=lambda: START) as agent:
        agent.decide(context={"age": 3, "country": "DE"})
    with Agent.open(tmp_path / "agent.db", settings, clock=lambda: START + 1.0) as agent:
        assert agent.store.terms.model == agent.settings.terms.model == LINEAR


@pytest.mark.parametrize("recipe", [PER_ACTION, MIXED], ids=["per action", "mixed"])
def test_without_noise_all_decide_as_with_the_dense_model(recipe: Recipe) -> None:
    world = RecipeWorld(recipe=recipe)
    federation = feducb.Federation(problem=world.problem, agents=3, baseline="no-privacy")
    dense, structured = (
        feducb.simulate(replace(federation, model=model), world, horizon=120, runs=2, seed=7)
        for model in (LINEAR, model_of(recipe))
    )
    np.testing.assert_array_equal(dense.regret, structured.regret)


def test_under_own_play_own_records_are_read_by_the_same_structure(tmp_path: Path) -> None:
    """After the close: own sums and the others' have the same zeros, and the belief is a finite one."""
    changes = {"play": "own", "schedule": "planned", "releases": 2, "last_release": 20.0, "distance": 0.0}
    with ExitStack() as stack:
        shops = Shops(tmp_path, stack, {"a": MIXED, "b": MIXED}, **changes)
        for _ in shops.visits(40):
            pass
        agent = shops.live["a"]
        assert agent.snapshot()["own"]["phase"] == "closed"
        belief = agent._state.chooser.deciders[0].belief
    assert belief is not None
    assert np.isfinite(belief.theta).all()
    assert np.linalg.norm(belief.theta) <= 2.0 * agent.settings.problem.parameter_bound


def test_rows_under_pads_have_no_known_zeros_either(tmp_path: Path) -> None:
    """Under trust keepers, what opens is a sum with the structure that the charter names."""
    net = SecureNet(tmp_path, settings={"problem": None, "recipe": MIXED})
    known, coins = _known(MIXED).astype(bool), np.random.default_rng(2)
    try:
        for agent in net.live.values():
            for _ in range(5):
                decision = agent.decide(context={"age": float(coins.uniform(0, 100)), "country": "FR"})
                agent.reward(decision.id, 1.0)
        net.now += 2.0
        assert asyncio.run(net.step()) == 1
        total = net.live["a4"]._state.inbox.newest(0)
        assert total is not None
        assert total.model == model_of(MIXED)
        gram = total.read().gram
        assert not gram[known].any()
        assert gram[~known].all()
    finally:
        net.close()
