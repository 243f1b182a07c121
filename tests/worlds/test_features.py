"""Features: what a recipe promises to whoever saves it, and to privacy."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import feducb
from feducb.types import Belief
from feducb.worlds.features import Category, Coded, Hashed, Number, Recipe, Tags, problem_for
from feducb.worlds.features.explain import describe

RECIPE = Recipe(
    context=(Number("age", 0, 120), Category("region", ("north", "south")), Hashed("zip", 8)),
    action=(Category("offer", ("a", "b", "c")),),
    terms=((), ("offer",), ("age",), ("offer", "region"), ("offer", "zip"), ("offer", "age")),
    action_bound=2.0,
)


def test_a_vector_is_what_one_computes_by_hand() -> None:
    recipe = Recipe(
        context=(Number("age", 0, 100), Category("region", ("north", "south"))),
        action=(Category("offer", ("a", "b")),),
        terms=((), ("offer",), ("offer", "age"), ("offer", "region")),
    )
    (found,) = recipe.vectors({"age": 75, "region": "south"}, ["b"])
    by_hand = np.array([1, 0, 1, 0, 0.5, 0, 0, 0, 1]) / 2  # √4 terms
    np.testing.assert_allclose(found, by_hand, rtol=1e-9)
    assert recipe.dim == 9


@settings(max_examples=200, deadline=None)
@given(
    age=st.floats(-1e9, 1e9),
    region=st.sampled_from(["north", "south"]),
    place=st.one_of(st.text(min_size=1, max_size=12), st.integers()),
    offer=st.sampled_from(["a", "b", "c"]),
)
def test_no_record_makes_a_vector_longer_than_the_bound(
    age: float, region: str, place: Any, offer: str
) -> None:
    (found,) = RECIPE.vectors({"age": age, "region": region, "zip": place}, [offer])
    assert np.linalg.norm(found) <= 2.0
    assert found.shape == (RECIPE.dim,)


def test_a_saved_recipe_makes_the_same_vectors() -> None:
    tags = Recipe(
        context=(Number("age", 18, 99),),
        action=(Tags("genres", ("Drama", "War")), Number("year", 1900, 2000)),
        terms=(("genres",), ("year", "age")),
        public=False,
    )
    for recipe, context, actions in (
        (RECIPE, {"age": 40, "region": "south", "zip": "0815"}, ["a", "c"]),
        (tags, {"age": 30}, [{"genres": "War|Drama", "year": 1950}, {"genres": "none", "year": 1990}]),
    ):
        again = Recipe.from_json(recipe.to_json())
        assert again == recipe
        np.testing.assert_array_equal(again.vectors(context, actions), recipe.vectors(context, actions))


def test_hashing_is_the_same_in_another_process_and_for_unknown_levels() -> None:
    code = (
        "from feducb.worlds.features import Hashed; import numpy as np;"
        "print(np.nonzero(Hashed('zip', 64).block(['10115', 'never seen'])), flush=True)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    block = Hashed("zip", 64).block(["10115", 10115, 10115.0])
    assert (block == block[0]).all()  # text, integer and float of one code
    assert np.abs(block).sum() == 3.0


def test_rows_candidates_and_vectors_agree() -> None:
    columns: dict[str, Any] = {"age": [20, 60], "region": ["north", "south"], "zip": ["1", "2"]}
    many = RECIPE.candidates(columns, ["a", "b", "c"])
    coded = columns | {"region": Coded(np.array([0, 1]), ("north", "south"))}
    np.testing.assert_array_equal(RECIPE.candidates(coded, ["a", "b", "c"]), many)
    for row in range(2):
        one = RECIPE.vectors({name: values[row] for name, values in columns.items()}, ["a", "b", "c"])
        np.testing.assert_array_equal(one, many[row])
    np.testing.assert_array_equal(RECIPE.rows(columns | {"offer": ["b", "c"]})[0], many[0, 1])


def test_an_agent_decides_on_the_recipe_s_vectors() -> None:
    recipe = Recipe(
        context=(Number("age", 0, 100),), action=(Category("offer", ("a", "b")),), terms=(("offer", "age"),)
    )
    belief = Belief(np.array([-1.0, 1.0]), np.eye(2), np.array(0.0), np.array(0.0))
    decider = feducb.Decider(belief)
    assert decider.decide(recipe.vectors({"age": 90}, ["a", "b"])) == 1
    assert decider.decide(recipe.vectors({"age": 10}, ["a", "b"])) == 0


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"age": [30, math.nan]}, "age in row 8 is nan, expected a finite number"),
        ({"age": [30, "old"]}, "age in row 8 is 'old', expected a finite number"),
        ({"region": ["north", "east"]}, "region in row 8 is 'east', expected one of north, south"),
        ({"region": [None, "north"]}, "region in row 7 is None, expected one of north, south"),
        ({"zip": ["1", None]}, "zip in row 8 is None, expected a value"),
    ],
)
def test_a_bad_value_is_named_with_its_row(changed: dict[str, list[Any]], named: str) -> None:
    columns: dict[str, Any] = {
        "age": [30, 40],
        "region": ["north", "south"],
        "zip": ["1", "2"],
        "offer": ["a", "b"],
    }
    with pytest.raises(feducb.ConfigurationError) as raised:
        RECIPE.rows(columns | changed, first_row=7)
    assert str(raised.value) == named


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"terms": (("offer", "wings"),)}, "terms is 'wings'"),
        ({"terms": (("age",),)}, "to tell actions"),
        ({"terms": ()}, "terms is []"),
        ({"terms": (("offer", "age"), ("age", "offer"))}, "terms is ['offer*age', 'age*offer']"),
        ({"action_bound": 0.0}, "action_bound is 0.0"),
        ({"action": ()}, "action is ()"),
        ({"context": (Number("offer", 0, 1),)}, "columns is"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(setting: dict[str, Any], named: str) -> None:
    base: dict[str, Any] = {
        "context": (Number("age", 0, 1),),
        "action": (Category("offer", ("a", "b")),),
        "terms": (("offer",),),
    }
    with pytest.raises(feducb.ConfigurationError) as raised:
        Recipe(**(base | setting))
    assert named in str(raised.value)


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda: Number("age", 5, 5), "high of age is 5"),
        (lambda: Number("age", 1e308, 1.5e308), "range of age is '1e+308 to 1.5e+308'"),
        (lambda: Number("age", -1e308, 1e308), "range of age is '-1e+308 to 1e+308'"),
        (lambda: Number("age", 0, 5e-324), "range of age is '0 to 4.94066e-324'"),
        (lambda: Number("age", 1e16, 1e16 + 2), "range of age is '1e+16 to 1e+16'"),  # 2, not 1, at its end
        (lambda: Category("x", ("a", "a")), "levels of x"),
        (lambda: Hashed("x", 0), "buckets of x is 0"),
        (lambda: Recipe.from_json("{}"), "recipe is"),
        (lambda: Recipe.from_json("[" * 100_000), "recipe is"),
        (lambda: Recipe.from_json('{"format": "other", "version": 1}'), "expected feducb-recipe 1"),
        (lambda: RECIPE.vectors({"age": 3}, ["a"]), "column region is 'missing'"),
    ],
)
def test_parts_that_cannot_be_are_refused(made: Any, named: str) -> None:
    with pytest.raises(feducb.ConfigurationError) as raised:
        made()
    assert named in str(raised.value)


def test_the_shared_part_of_a_recipe_makes_the_same_vectors_without_what_is_personal() -> None:
    columns: dict[str, Any] = {"context": (Number("age", 0, 1),), "action": (Category("a", ("x", "y")),)}
    recipe = Recipe(**columns, terms=((), ("a",), ("age",), ("a", "age")), personal=((), ("a", "age")))
    values: dict[str, Any] = {"age": [0.2, 0.9], "a": ["x", "y"]}
    np.testing.assert_allclose(
        recipe.rows(values)[:, recipe.shared_places], recipe.shared.rows(values), rtol=1e-12
    )
    assert recipe.shared_places.tolist() == [1, 2, 3]
    assert problem_for(recipe.shared).parameter_bound == pytest.approx(problem_for(recipe).parameter_bound)
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert list(describe(recipe))[-1] == "never leave an agent: intercept, a × age"
    assert recipe.shared.vectors({"age": 0.5}, ["x", "y"]).shape == (2, 3)
    with pytest.raises(feducb.ConfigurationError, match="take `shared`"):
        recipe.vectors({"age": 0.5}, ["x", "y"])
    with pytest.raises(
        feducb.ConfigurationError, match="personal is 'a', expected another term that tells actions"
    ):
        Recipe(**columns, terms=(("a",), ("age",)), personal=(("a",),))
    with pytest.raises(feducb.ConfigurationError, match=r"personal is 'a\*age', expected some of the terms"):
        Recipe(**columns, terms=(("a",),), personal=(("a", "age"),))
