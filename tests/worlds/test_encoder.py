"""Visitors as they come: no value that can be meant is an error, and no vector is longer than L."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np
import pytest

import feducb
from feducb.errors import ConfigurationError
from feducb.worlds.features import Category, Column, Flag, Hashed, Number, Recipe, Tags
from feducb.worlds.features.bounds import derive_bounds
from feducb.worlds.features.encoder import Encoder
from feducb.worlds.features.wording import typical_actions

OPEN: tuple[Column, ...] = (
    Category("country", ("DE", "FR", "US"), unknown="other", missing="own"),
    Category("device", ("phone", "desk"), unknown="zero", missing="zero"),
    Number("age", 0, 100, missing="own"),
    Number("basket", -5, 500, missing="zero"),
    Flag("returning", missing="own"),
    Hashed("zip", 8, missing="own"),
    Tags("likes", ("books", "games", "films"), missing="own"),
)
OFFERS: tuple[Column, ...] = (
    Category("offer", ("none", "free_shipping", "ten_percent")),
    Number("price", 0, 50, missing="own"),
)
NAMES = tuple(column.name for column in OPEN)
RECIPE = Recipe(
    context=OPEN,
    action=OFFERS,
    terms=(
        *((), ("offer",), ("price",), ("price", "basket"), ("likes", "offer", "age")),
        *(("offer", name) for name in NAMES),
        *((name,) for name in NAMES),
    ),
    action_bound=1.5,
    actions=("none", {"id": "free_shipping", "price": 4.9}, "ten_percent"),  # type: ignore[arg-type]
)
MEANT: tuple[Any, ...] = (None, True, False, 0, 1, -3, 17.5, 1e300, 10**400, "DE", "", "books|games", "phone")
NOT_MEANT: tuple[Any, ...] = (math.nan, math.inf, -math.inf, [], {}, {"a": 1}, [[1]], [None], object())


def visitors(count: int, *, wild: float, seed: int) -> list[dict[str, Any]]:
    """Some as the columns want them, some with anything anywhere."""
    coins = random.Random(seed)
    fits: dict[str, tuple[Any, ...]] = {
        "country": ("DE", "FR", "US", "Atlantis"),
        "device": ("phone", "desk", "watch"),
        "age": (-4, 0, 33, 71.5, 100, 140),
        "basket": (0.0, 12.5, 900),
        "returning": (True, False, "yes", "no", 1, 0),
        "zip": ("10115", 10115, "0815"),
        "likes": ("books", "books|films", ["games", "chess"], ""),
        "never_heard_of": (1, {"a": []}),
    }
    made = []
    for _ in range(count):
        visitor = {name: coins.choice(values) for name, values in fits.items() if coins.random() < 0.9}
        for name in fits:
            if coins.random() < wild:
                visitor[name] = coins.choice((*MEANT, *NOT_MEANT))
        made.append(visitor)
    return made


def test_ten_thousand_visitors_are_encoded_within_the_bound_or_the_column_is_named() -> None:
    encoder, refused = Encoder(RECIPE), 0
    for visitor in visitors(10_000, wild=0.03, seed=1):
        try:
            vectors = encoder.vectors(visitor)
        except feducb.ConfigurationError as error:
            refused += 1
            place, _, column = error.setting.partition(".")
            assert (place, column in NAMES) == ("context", True)
        else:
            assert vectors.shape == (3, RECIPE.dim)
            assert (np.linalg.norm(vectors, axis=1) <= RECIPE.action_bound).all()
    assert 500 < refused < 5_000


def test_the_fast_way_makes_the_vectors_that_logs_get() -> None:
    encoder = Encoder(RECIPE)
    offers = [{"id": "free_shipping", "price": 3.0}, "none", {"offer": "ten_percent", "price": 70}]
    for visitor in visitors(300, wild=0.0, seed=2):
        plain = {name: value for name, value in visitor.items() if name in NAMES}
        if isinstance(plain.get("likes"), list):
            plain["likes"] = "|".join(plain["likes"])
        for actions in (None, offers):
            again = RECIPE.vectors(plain, actions or RECIPE.actions)
            np.testing.assert_allclose(encoder.vectors(visitor, actions), again, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("visitor", "rules"),
    [
        ({}, {(name, "missing") for name in NAMES}),
        ({"country": "Atlantis", "device": "watch"}, {("country", "unknown"), ("device", "unknown")}),
        ({"age": 140, "basket": -6, "returning": False}, {("age", "clipped"), ("basket", "clipped")}),
        ({"country": "DE", "age": 10**400, "likes": ["chess"]}, {("age", "clipped"), ("likes", "unknown")}),
        ({"country": "DE", "zip": "new", "likes": "books"}, set()),
    ],
)
def test_each_rule_that_is_taken_is_told(visitor: dict[str, Any], rules: set[tuple[str, str]]) -> None:
    encoder = Encoder(RECIPE)
    found = encoder.encode(visitor | {"new": 1}, encoder.offers(["none"]))
    # An offer without its price took a rule too.
    taken = {rule for rule in found.rules if rule != ("price", "missing")}
    assert {rule for rule in taken if rule[0] in visitor or not visitor} == rules
    assert (found.ignored, found.context) == (1, visitor)


def test_a_number_of_hundreds_of_digits_is_at_the_end_of_its_range_that_is_nearest() -> None:
    for low, high in ((18, 90), (-20, -10)):
        read = Number("age", low, high).reader("age")
        for sign in (1, -1):
            assert read(sign * 10**400) == (((0, float(sign)),), "clipped")


@pytest.mark.parametrize(("low", "high"), [(1e8 + 0.1, 1e8 + 100.3), (3.3e7, 3.3e7 + 7.7), (18.0, 90.0)])
def test_an_end_that_rounds_beyond_1_makes_no_longer_vector(low: float, high: float) -> None:
    """A product of several such ends would be as many times further beyond."""
    recipe = Recipe(
        context=(Number("at", low, high),),
        action=(Category("offer", ("a", "b")),),
        terms=(("offer", "at", "at", "at"),),
    )
    for at in (low, high, -1e308, 1e308, 10**400, -(10**400)):
        fast = Encoder(recipe).vectors({"at": at})
        assert np.linalg.norm(fast, axis=1).max() <= recipe.action_bound
        assert np.array_equal(fast, recipe.vectors({"at": at}, ["a", "b"]))


@pytest.mark.parametrize(
    ("visitor", "named"),
    [
        ({"age": "old"}, "context.age is 'a text', expected a number"),
        ({"age": True}, "context.age is 'true or false', expected a number"),
        ({"age": math.nan}, "context.age is 'nan', expected a finite number"),
        ({"basket": -math.inf}, "context.basket is '-inf', expected a finite number"),
        ({"country": {"name": "DE"}}, "context.country is 'an object', expected a text"),
        ({"country": math.nan}, "context.country is 'nan', expected a text"),
        ({"returning": "perhaps"}, "context.returning is 'a text', expected true or false"),
        ({"zip": ["1"]}, "context.zip is 'a list', expected a text"),
        ({"likes": ["books", ["games"]]}, "context.likes is 'a list', expected a text"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_column(visitor: dict[str, Any], named: str) -> None:
    with pytest.raises(feducb.ConfigurationError) as raised:
        Encoder(RECIPE).vectors(visitor)
    assert str(raised.value) == named


def test_a_number_of_thousands_of_digits_is_a_level_like_any_other() -> None:
    """Python does not write it in decimals; a visitor is no error all the same."""
    encoder = Encoder(Recipe(context=OPEN[:1], action=OFFERS[:1], terms=(("offer", "country"),)))
    assert encoder.encode({"country": 10**5000}, encoder.offers()).rules == (("country", "unknown"),)


@pytest.mark.parametrize("name", ["\ud800", "b\udfff"])
def test_a_recipe_with_half_a_character_is_refused(name: str) -> None:
    """An answer could not say it, after the decision was written down."""
    expected = "recipe is 'half a character in a name', expected text"
    with pytest.raises(ConfigurationError, match=expected):
        Recipe.of_actions(["a", name])
    with pytest.raises(ConfigurationError, match=expected):
        Recipe.of_actions(["a"], name)
    with pytest.raises(ConfigurationError, match=expected):
        Recipe(context=(), action=OFFERS, terms=(("offer",),), actions=({"id": name, "offer": "none"},))


def test_a_refused_action_is_told_by_its_columns_and_not_by_its_values() -> None:
    for action in ({"price": "secret"}, {"id": {"name": "secret"}, "price": 3}):
        with pytest.raises(ConfigurationError, match=r"actions\[0\] is 'one with (id, )?price'") as refused:
            Encoder(RECIPE).offers([action])
        assert "secret" not in str(refused.value)


def test_a_recipe_without_rules_refuses_whom_it_does_not_know() -> None:
    country = Category("country", ("DE", "FR"))
    offer = Category("offer", ("a", "b"))
    encoder = Encoder(Recipe(context=(country,), action=(offer,), terms=(("offer", "country"),)))
    with pytest.raises(
        feducb.ConfigurationError, match=r"context\.country is 'another one', expected one of"
    ):
        encoder.vectors({"country": "US"})
    with pytest.raises(feducb.ConfigurationError, match=r"context\.country is 'missing'"):
        encoder.vectors({})
    with pytest.raises(
        feducb.ConfigurationError, match=r"actions\[1\]\.offer is 'another one', expected one of a, b"
    ):
        encoder.vectors({"country": "DE"}, ["a", "c"])


def test_a_log_with_gaps_and_new_levels_is_read_by_the_same_rules() -> None:
    age, country, returning = (Encoder(RECIPE).recipe.context[place] for place in (2, 0, 4))
    assert age.block(np.array([50.0, math.nan, 150.0])).tolist() == [[0, 0], [0, 1], [1, 0]]
    assert age.block(["50", "", None]).tolist() == [[0, 0], [0, 1], [0, 1]]
    assert country.block(["FR", "Atlantis", None]).tolist() == [
        [0, 1, 0, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1],
    ]
    assert returning.block(["yes", False, None]).tolist() == [[1, 0], [-1, 0], [0, 1]]
    with pytest.raises(feducb.ConfigurationError, match="returning in row 2 is 'perhaps'"):
        returning.block(["yes", "perhaps"])


def test_a_recipe_file_is_the_same_recipe_with_its_fingerprint_in_json_toml_or_plain_data(
    tmp_path: Any,
) -> None:
    (tmp_path / "recipe.json").write_text(RECIPE.to_json())
    again = Recipe.read(tmp_path / "recipe.json")
    assert (again, again.fingerprint) == (RECIPE, RECIPE.fingerprint)
    (tmp_path / "recipe.toml").write_text(
        'terms = ["1", "offer", "offer*age"]\n'
        'context = [{kind = "number", name = "age", low = 0, high = 100, missing = "own"}]\n'
        'action = [{kind = "category", name = "offer", levels = ["a", "b"]}]\n'
    )
    toml = Recipe.read(tmp_path / "recipe.toml")
    assert (toml.terms, toml.dim, toml.offered) == (((), ("offer",), ("offer", "age")), 7, ("a", "b"))
    assert toml.fingerprint != RECIPE.fingerprint
    for text, named in (
        ('terms = ["1"]\nwings = 2', "recipe is 'wings', expected nothing but context"),
        ("terms = 3", "recipe is 'one of terms', expected action too"),
        ("terms =", "a TOML or JSON file"),
    ):
        (tmp_path / "recipe.toml").write_text(text)
        with pytest.raises(feducb.ConfigurationError, match=named):
            Recipe.read(tmp_path / "recipe.toml")


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (
            {"kind": "number", "name": "age", "low": None, "high": None},
            "low of age is None, expected a public",
        ),
        ({"kind": "category", "name": "age", "levels": []}, "levels of age is .*, expected public levels"),
        (
            {"kind": "number", "name": "age", "low": 0, "high": 1, "missing": "maybe"},
            "missing of age is 'maybe'",
        ),
        ({"kind": "category", "name": "age", "levels": "ab"}, "levels of age is 'ab', expected a list"),
        (
            {"kind": "number", "name": "age", "low": 0, "hi": 1},
            "part of column age is 'hi', expected one of kind, name, low, high, missing",
        ),
        ({"kind": "number", "name": "age", "low": 0}, r"part of column age is .*, expected high too"),
    ],
)
def test_a_placeholder_must_be_filled_in(column: dict[str, Any], named: str) -> None:
    offer = {"kind": "category", "name": "offer", "levels": ["a", "b"]}
    with pytest.raises(feducb.ConfigurationError, match=named):
        Recipe.from_plain({"context": [column], "action": [offer], "terms": ["offer*age"]})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"public": "no"}, "public is 'no', expected true or false"),
        ({"public": 0}, "public is 0, expected true or false"),
        ({"action_bound": "1"}, "action_bound is '1', expected a finite number, without"),
        ({"action_bound": True}, "action_bound is True, expected a finite number"),
        ({"action_bound": 10**400}, "expected a finite number"),
        ({"parameter_bound": "1"}, "parameter_bound is '1', expected a finite number"),
        ({"terms": "offer"}, "terms is 'offer', expected a list"),
        ({"terms": [3]}, "terms is 3, expected names of columns"),
        ({"terms": [["offer", None]]}, "terms is .*, expected names of columns"),
        ({"retired": "a"}, "retired is 'a', expected a list"),
        ({"actions": "a"}, "actions is 'a', expected a list"),
        ({"actions": [{"id": True}]}, "expected a name, as its id"),
        ({"actions": [{"id": math.nan, "offer": "a"}]}, "expected a name, as its id"),
        ({"context": {"age": 1}}, "context is .*, expected a list"),
        ({"context": ["age"]}, "column is 'age', expected an object with its kind and name"),
        ({"context": [{"kind": "number", "low": 0, "high": 1}]}, "name of a column is None, expected a text"),
        ({"context": [{"name": "age"}]}, "kind of column age is None, expected one of number"),
        ({"context": [{"kind": ["number"], "name": "age"}]}, "kind of column age is"),
        (
            {"context": [{"kind": "number", "name": "age", "low": "0", "high": 1}]},
            "low of age is '0', expected a finite number, without quotation marks",
        ),
        (
            {"context": [{"kind": "category", "name": "country", "levels": ["DE", None]}]},
            "levels of country is .*, expected names: texts or numbers, none of them null",
        ),
        (
            {"action": [{"kind": "category", "name": "offer", "levels": ["a"], "reserve": 1, "added": "b"}]},
            "added to offer is 'b', expected a list",
        ),
    ],
)
def test_a_file_says_what_it_means_or_is_refused_in_a_sentence(changes: dict[str, Any], named: str) -> None:
    """No text is taken for true, for a number or for a list of letters, and null is no level."""
    offer = {"kind": "category", "name": "offer", "levels": ["a", "b"]}
    plain = {"context": [], "action": [offer], "terms": ["offer"]}
    assert Recipe.from_plain(plain).dim == 2
    with pytest.raises(feducb.ConfigurationError, match=named) as refused:
        Recipe.from_plain(plain | changes)
    assert "Error(" not in str(refused.value)


@pytest.mark.parametrize("missing", ["own", "zero", "refuse"])
@pytest.mark.parametrize(
    "kind", [Category("a", ("x",), unknown="other"), Number("a", 0, 1), Flag("a"), Hashed("a", 2)]
)
def test_an_empty_text_is_missing_in_every_column_of_logs_and_of_visitors(kind: Any, missing: str) -> None:
    column = dataclasses.replace(kind, missing=missing)
    read = column.reader("context.a")
    if missing == "refuse":
        for empty in ("", None):
            with pytest.raises(feducb.ConfigurationError, match=r"context\.a is 'missing'"):
                read(empty)
            with pytest.raises(feducb.ConfigurationError, match="a in row 1"):
                column.block([empty])
    else:
        assert read("") == read(None)
        assert read("")[1] == "missing"
        assert np.array_equal(column.block([""]), column.block([None]))


@pytest.mark.parametrize("missing", ["own", "zero", "refuse"])
def test_no_tags_are_a_list_of_none_or_an_empty_text_where_none_may_be_missing(missing: Any) -> None:
    column = Tags("a", ("x", "y"), missing=missing)
    assert column.reader("a")("")[1] == ("" if missing == "refuse" else "missing")
    assert column.reader("a")([]) == ((), "")
    assert column.block([""]).tolist() == [[0, 0, 1][: column.width]]


@pytest.mark.parametrize("missing", ["own", "zero", "refuse"])
def test_tags_are_the_same_as_a_list_and_as_a_text_whoever_reads_them(missing: Any) -> None:
    """In a recipe's actions too: what decides, what a log gets, and what `/v1/model` tells of."""
    plain = {
        "action": [
            {"kind": "category", "name": "offer", "levels": ["a", "b"]},
            {"kind": "tags", "name": "for", "levels": ["vip", "new"], "missing": missing},
        ],
        "terms": ["offer", "for"],
    }
    made = []
    for both, one in ((["vip", "new"], ["new"]), ("vip|new", "new")):
        actions = [{"id": "a", "for": both}, {"id": "b", "for": one}]
        recipe = Recipe.from_plain(plain | {"actions": actions})
        made += [Encoder(recipe).vectors({}), recipe.vectors({}, ["a", "b"]), typical_actions(recipe)]
    for others in made[1:]:
        np.testing.assert_allclose(others, made[0], atol=1e-9)
    column = Tags("a", ("x", "y"), missing=missing)
    np.testing.assert_array_equal(column.block([["x"], "x", []]), column.block(["x", "x", "z"]))


def test_what_counts_as_nothing_is_no_constant() -> None:
    """Rewards may be centred only if all vectors agree in a direction."""
    offer = Category("offer", ("a", "b"))
    for rule, constant in (("zero", False), ("other", True), ("refuse", True)):
        country = Category("country", ("DE",), unknown=rule)  # type: ignore[arg-type]
        recipe = Recipe(context=(country,), action=(offer,), terms=(("offer", "country"),))
        assert recipe.has_constant is constant
        found = derive_bounds(recipe).problem
        assert (found.reward_bound, found.reward_centre) == ((0.5, 0.5) if constant else (1.0, 0.0))


def test_the_parameter_of_offers_without_features_is_never_longer_than_its_bound() -> None:
    """Its entries are mean rewards less a half: the worst of them, all 0 or 1, just fit."""
    problem = derive_bounds(Recipe.of_actions(["a", "b", "c", "d"])).problem
    assert (problem.dim, problem.reward_bound, problem.reward_centre) == (4, 0.5, 0.5)
    worst = np.array([0.0, 1.0, 0.0, 0.0]) - 0.5
    assert np.linalg.norm(worst) == pytest.approx(problem.parameter_bound)


@pytest.mark.parametrize("level", [0.02, 0.5, 0.97])
def test_a_level_anywhere_and_effects_as_large_again_fit_the_derived_bound(level: float) -> None:
    """With an intercept: θ of mean ``level`` and of offers' effects whose length together is B."""
    recipe = Recipe(context=(), action=(Category("offer", ("a", "b", "c")),), terms=((), ("offer",)))
    problem = derive_bounds(recipe).problem
    effects = np.array([0.5, -0.5, 0.0]) / math.sqrt(2)
    theta = math.sqrt(2) * np.array([level - 0.5, *effects])
    assert np.linalg.norm(theta) <= problem.parameter_bound
    means = 0.5 + recipe.vectors({}, ["a", "b", "c"]) @ theta
    np.testing.assert_allclose(means, level + effects, rtol=1e-9)
