"""An agent with a recipe: visitors and named actions in, a named action out, and nothing of it forgotten."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb import Agent, AgentSettings, Budget, ConfigurationError, Decision, Problem
from feducb.agent.agent_file import read_agent_file
from feducb.agent.kept import misfit
from feducb.agent.upkeep import export
from feducb.worlds.features import Category, Flag, Number, Recipe
from feducb.worlds.features.encoder import Encoder

RECIPE = Recipe(
    context=(
        Category("country", ("DE", "FR"), unknown="other", missing="own"),
        Number("age", 0, 100, missing="own"),
        Flag("returning", missing="zero"),
    ),
    action=(
        Category("offer", ("none", "free_shipping", "ten_percent")),
        Number("price", 0, 20, missing="own"),
    ),
    terms=((), ("offer",), ("price",), ("offer", "age"), ("offer", "country"), ("offer", "returning")),
    actions=("none", {"id": "free_shipping", "price": 4.9}, {"id": "ten_percent", "price": 9.9}),  # type: ignore[arg-type]
)
BUDGET = Budget(epsilon=1.0, delta=1e-6)
ADA = {"country": "DE", "age": 36, "returning": True}


class Clock:
    def __init__(self) -> None:
        self.now = 1.8e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    agents: list[Agent] = []

    def anew(clock: Callable[[], float] | None = None, **changes: Any) -> Agent:
        given: dict[str, Any] = {"recipe": RECIPE, "budget": BUDGET, "keep_events": 3600.0} | changes
        settings = AgentSettings(**given)
        agents.append(Agent.open(tmp_path / "agent.db", settings, clock=clock or Clock()))
        return agents[-1]

    yield anew
    for agent in agents:
        agent.close()


def test_bounds_follow_from_the_recipe_and_others_are_refused_by_both_values(
    opened: Callable[..., Agent],
) -> None:
    agent = opened()
    problem = agent.settings.problem
    assert (problem.dim, problem.reward_bound, problem.reward_centre) == (RECIPE.dim, 0.5, 0.5)
    changes: tuple[tuple[str, Any], ...] = (("dim", 7), ("action_bound", 2.0), ("parameter_bound", 9.0))
    for name, value in changes:
        follows = getattr(problem, name)
        with pytest.raises(
            ConfigurationError, match=f"{name} is {value}, expected {follows!r}, which follows"
        ):
            replace(agent.settings, problem=replace(problem, **{name: value}))
    with pytest.raises(ConfigurationError, match="problem is None, expected the public bounds, or a recipe"):
        AgentSettings(budget=BUDGET)


def test_a_visitor_gets_a_named_action(opened: Callable[..., Agent]) -> None:
    agent = opened()
    names = ("none", "free_shipping", "ten_percent")
    decision = agent.decide(context=ADA)
    assert decision.action == names[decision.index] == decision.would_choose_action
    assert decision.propensity == pytest.approx(1 / 3)
    assert (decision.estimate, decision.bound) == (None, None)
    some = agent.decide(["ten_percent", {"id": "free_shipping", "price": 2.5}], context=ADA, id="visit 1")
    assert some.action == ("ten_percent", "free_shipping")[some.index]
    again = agent.decide(["ten_percent", {"id": "free_shipping", "price": 2.5}], context=ADA, id="visit 1")
    assert (again.action, again.repeated) == (some.action, True)
    vectors = agent.decide(Encoder(RECIPE).vectors(ADA))
    assert (vectors.action, vectors.index in range(3)) == (None, True)


def test_an_id_names_one_visitor_and_what_she_was_shown(opened: Callable[..., Agent]) -> None:
    """As many candidates, but others; or another visitor: the reward would go to what was not shown."""
    agent = opened()
    first = agent.decide(["none", "ten_percent"], context=ADA, id="v0")
    others: tuple[dict[str, Any], ...] = (
        {"actions": ["free_shipping", {"id": "none", "price": 1.0}], "context": ADA},
        {"actions": ["ten_percent", "none"], "context": ADA},
        {"actions": ["none", "ten_percent"], "context": ADA | {"age": 37}},
        {"actions": Encoder(RECIPE).vectors(ADA | {"age": 37}, ["none", "ten_percent"])},
    )
    for other in others:
        with pytest.raises(ConfigurationError, match="id is 'v0', expected a new one"):
            agent.decide(id="v0", **other)
    again, many = agent.decide_many(
        [{"actions": ["none", "ten_percent"], "context": ADA, "id": "v0"}, others[0] | {"id": "v0"}]
    )
    assert isinstance(again, Decision)
    assert (again.action, again.repeated) == (first.action, True)
    assert isinstance(many, ConfigurationError)
    two = agent.decide_many([{"context": ADA, "id": "v1"}, {"context": {"age": 3}, "id": "v1"}])
    assert [isinstance(one, Decision) for one in two] == [True, False]
    assert agent.snapshot()["counts"]["decisions"] == 2


def test_what_is_expected_is_told_once_something_was_learnt(tmp_path: Path) -> None:
    """At ε = 10⁶ the estimate of an offer that sells at 0.9 is near that, and its bound above it."""
    settings = AgentSettings(
        recipe=Recipe.of_actions(["good", "bad"]),
        budget=Budget(epsilon=1e6, delta=1e-6),
        window=1.0,
        decisions=2000,
        season=2000.0,
    )
    clock, coins = Clock(), np.random.default_rng(3)
    with Agent.open(tmp_path / "agent.db", settings, clock=clock) as agent:
        for _ in range(1000):
            clock.now += 1.0
            with agent.writing():
                decision = agent.decide()
                sells = {"good": 0.9, "bad": 0.2}[str(decision.action)]
                agent.reward(decision.id, float(coins.random() < sells))
            agent.tick()
        judged = {str(one.action): one for one in (agent.decide() for _ in range(200))}
        best = judged["good"]
        assert best.estimate == pytest.approx(0.9, abs=0.1)
        assert best.estimate is not None
        assert best.bound is not None
        assert 0.0 <= best.estimate <= best.bound <= 1.0


def test_values_that_took_a_rule_are_counted_by_column(opened: Callable[..., Agent]) -> None:
    agent = opened()
    agent.decide(context={"country": "Atlantis", "age": 140, "returning": True, "shoe": {"size": 44}})
    agent.decide(context={"age": -3})
    agent.decide(context=ADA)
    agent.decide(["none", {"id": "ten_percent", "pirce": 9.9}], context=ADA)  # mistyped, and counted as such
    agent.decide(context={"age": -3}, id="twice")
    agent.decide(context={"age": -3}, id="twice")  # the same decision
    facts = agent.snapshot()
    missing = {"missing": 2}
    country = missing | {"unknown": 1}
    prices = {"missing": 5}  # "none" has no price
    assert facts["recipe"]["values"] == {
        **{"age": {"clipped": 3}, "country": country, "returning": missing, "price": prices}
    }
    assert (facts["counts"]["decisions"], facts["counts"]["ignored_columns"]) == (5, 2)
    assert facts["recipe"]["fingerprint"] == RECIPE.fingerprint


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"context": {"age": "old"}}, "context.age is 'a text', expected a number"),
        ({"context": {"age": math.nan}}, "context.age is 'nan'"),
        ({"context": {"country": {"code": "DE"}}}, "context.country is 'an object'"),
        ({"context": ["DE"]}, "context is 'list', expected an object"),
        ({"context": {"age": 10**5000}}, "context is 'a number of thousands of digits'"),
        ({"actions": ["none", "half_price"]}, "actions[1].offer is 'another one', expected one of none"),
        ({"actions": ["none", {"id": "ten_percent", "price": "free"}]}, "actions[1].price is 'a text'"),
        ({"actions": ["none", "none"]}, "actions is 'none', expected all different"),
        ({"actions": [{"price": 3}]}, "actions[0] is 'one with price', expected a name, as its id"),
        ({"actions": [{"id": True, "offer": "none"}]}, "expected a name, as its id"),
        ({"actions": [{"id": math.nan, "offer": "none"}]}, "expected a name, as its id"),
        ({"actions": "none"}, "actions is 'a text', expected a list"),
        ({"actions": [[0.1, 0.2]], "context": {}}, "context is 'given', expected nothing beside vectors"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name_and_leaves_no_trace(
    opened: Callable[..., Agent], asked: dict[str, Any], named: str
) -> None:
    agent = opened()
    with pytest.raises(ConfigurationError) as raised:
        agent.decide(**asked)
    assert named in str(raised.value)
    assert agent.snapshot()["counts"]["decisions"] == 0
    assert agent.snapshot()["recipe"]["values"] == {}


def test_many_visitors_are_one_commit_and_a_refused_one_loses_no_other(opened: Callable[..., Agent]) -> None:
    agent = opened()
    asked = [{"context": ADA | {"age": age}} for age in range(50)]
    asked[7] = {"context": {"age": "old"}}
    answers = agent.decide_many(asked)
    assert [place for place, one in enumerate(answers) if isinstance(one, ConfigurationError)] == [7]
    assert agent.snapshot()["counts"]["decisions"] == 49
    ids = [one.id for one in answers if isinstance(one, Decision)]
    assert {agent.reward(one, 1.0) for one in ids} == {"recorded"}


def test_in_shadow_mode_the_application_names_what_it_shows(opened: Callable[..., Agent]) -> None:
    agent = opened(shadow=True)
    decision = agent.decide(context=ADA, follow="free_shipping", follow_propensity=0.5)
    assert (decision.index, decision.action, decision.propensity) == (1, "free_shipping", 0.5)
    assert decision.would_choose_action in ("none", "free_shipping", "ten_percent")
    with pytest.raises(
        ConfigurationError, match="follow is 'half_price', expected one of the actions: none, free"
    ):
        agent.decide(context=ADA, follow="half_price")
    with pytest.raises(ConfigurationError, match="follow is 'none', expected one of the actions: its index"):
        agent.decide(Encoder(RECIPE).vectors(ADA), follow="none")


def test_an_export_says_names_and_context_as_long_as_events_are_kept(opened: Callable[..., Agent]) -> None:
    clock = Clock()
    agent = opened(clock, window=1.0)
    offers = ["none", {"id": "ten_percent", "price": 3.0}]
    first = agent.decide(context=ADA | {"secret": "not a column"})
    second = agent.decide(offers, context={"age": 20})
    rows = list(export(agent.store.path))
    assert [row["context"] for row in rows] == [ADA, {"age": 20}]
    assert [row["name"] for row in rows] == [first.action, second.action]
    assert rows[1]["actions"][1] == {"id": "ten_percent", "offer": "ten_percent", "price": 3.0}
    vectors = Encoder(RECIPE).vectors({"age": 20}, offers)
    np.testing.assert_array_equal(rows[1]["features"], vectors)
    np.testing.assert_array_equal(rows[1]["action"], vectors[second.index])
    assert {row["recipe"] for row in rows} == {RECIPE.fingerprint}
    clock.now += 2 * 3600.0
    agent.tick()
    assert list(export(agent.store.path)) == []


def test_nothing_said_is_kept_where_events_are_not(opened: Callable[..., Agent]) -> None:
    agent = opened(keep_events=0.0)
    agent.decide(context=ADA)
    (row,) = export(agent.store.path)  # it waits for its reward
    assert (row["features"], "context" in row) == (None, False)


def test_a_season_keeps_its_recipe(opened: Callable[..., Agent], tmp_path: Path) -> None:
    agent = opened()
    other = replace(
        RECIPE, context=(*RECIPE.context[:1], Number("age", 0, 120, missing="own"), RECIPE.context[2])
    )
    agent.close()
    agent = opened(recipe=other)  # nothing has happened yet
    agent.decide(context=ADA)
    agent.close()
    with pytest.raises(ConfigurationError) as raised:
        opened()
    fingerprints = (
        f"{RECIPE.fingerprint}', expected 'one of fingerprint {other.fingerprint}' until a new season"
    )
    assert f"recipe is 'one of fingerprint {fingerprints}" in str(raised.value)
    with Agent.open(tmp_path / "agent.db") as again:
        assert again.settings.recipe == other


CONFIG = """
version = 2
[problem]
{problem}
[privacy]
epsilon = 1.0
delta = 1e-6
"""


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (
            'actions = ["a", "b", "c"]',
            Problem(dim=3, reward_bound=0.5, reward_centre=0.5, parameter_bound=0.75**0.5),
        ),
        ('actions = ["a", "b"]\nreward_range = [-1, 3]', (2, 2.0, 1.0, 2.0**1.5, 2.0)),
        ('recipe = "recipe.json"', (RECIPE.dim, 0.5, 0.5, 12**0.5 / 2, 0.5)),
        ('recipe = "recipe.json"\ndim = 27\nreward_bound = 1.0', (RECIPE.dim, 1.0, 0.0, 12**0.5, 1.0)),
    ],
)
def test_agent_toml_takes_actions_or_a_recipe(tmp_path: Path, problem: str, expected: Any) -> None:
    (tmp_path / "recipe.json").write_text(RECIPE.to_json())
    (tmp_path / "agent.toml").write_text(CONFIG.format(problem=problem))
    if isinstance(expected, tuple):
        dim, bound, centre, length, noise = expected
        expected = Problem(
            dim=dim, reward_bound=bound, reward_centre=centre, parameter_bound=length, noise_scale=noise
        )
    settings = read_agent_file(tmp_path / "agent.toml").agent
    found = settings.problem
    assert replace(found, parameter_bound=1.0) == replace(expected, parameter_bound=1.0)
    assert found.parameter_bound == pytest.approx(expected.parameter_bound)
    with Agent.open(tmp_path / "agent.db", settings) as agent:
        assert agent.decide(context={}).action in (settings.recipe.offered if settings.recipe else ())
    assert misfit(tmp_path / "agent.db", settings) is None
    assert AgentSettings.from_json(settings.to_json()) == settings


def test_agent_toml_may_hold_the_recipe(tmp_path: Path) -> None:
    inline = """
[recipe]
context = [{kind = "number", name = "age", low = 0, high = 100, missing = "own"}]
action = [{kind = "category", name = "offer", levels = ["a", "b"]}]
terms = ["1", "offer", "offer*age"]
"""
    (tmp_path / "agent.toml").write_text(CONFIG.format(problem="") + inline)
    settings = read_agent_file(tmp_path / "agent.toml").agent
    assert (settings.problem.dim, settings.recipe is not None) == (7, True)


@pytest.mark.parametrize(
    ("problem", "named"),
    [
        ("", "problem.dim is None, expected a number: it has no default without a recipe or actions"),
        ('recipe = "gone.json"', "gone.json', expected a file; `feducb recipe init` writes one"),
        ('recipe = "recipe.json"\ndim = 8', "dim is 8, expected 27, which follows from the recipe"),
        (
            'recipe = "recipe.json"\nparameter_bound = 1.0',
            "parameter_bound is 1.0, expected 1.7320508075688772, which",
        ),
        (
            'recipe = "recipe.json"\nactions = ["a"]',
            "problem.recipe and problem.actions', expected one of them",
        ),
        ('actions = ["a", 3]', "problem.actions is ['a', 3], expected names"),
        ('actions = ["a", "a"]', "levels of action"),
        ('actions = ["a"]\nreward_range = [1, 0]', "problem.reward_range is [1, 0], expected [LOW, HIGH]"),
    ],
)
def test_a_problem_that_cannot_be_is_refused_in_a_sentence(tmp_path: Path, problem: str, named: str) -> None:
    (tmp_path / "recipe.json").write_text(RECIPE.to_json())
    (tmp_path / "agent.toml").write_text(CONFIG.format(problem=problem))
    with pytest.raises(ConfigurationError) as raised:
        read_agent_file(tmp_path / "agent.toml")
    assert named in str(raised.value)
