"""A recipe knows which entries of a Gram are zero, whoever comes; its model leaves out these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import feducb
from feducb.models import LINEAR, Products
from feducb.types import Array
from feducb.worlds.data.letter import RECIPE as LETTER
from feducb.worlds.features import Category, Column, Flag, Hashed, Number, Recipe, Tags, model_of

AGE, NEW = Number("age", 0.0, 100.0, missing="own"), Flag("new")
REGION = Category("region", ("north", "south"), unknown="other", missing="zero")
CITY, LIKES = Hashed("city", 3), Tags("likes", ("tea", "jam", "ale"))
OFFER = Category("offer", ("a", "b", "c"))

RECIPES: dict[str, tuple[tuple[tuple[str, ...], ...], str]] = {
    "offers alone": ((("offer",),), "zeros:a3"),
    "per action": ((("offer",), ("age", "offer"), ("offer", "new")), "zeros:a3+2*a3+a3"),
    "two one-hots": ((("offer",), ("offer", "region")), "zeros:a3+a3*b3"),
    "mixed": (((), ("age",), ("offer",), ("offer", "new")), "zeros:1+2+2(a3)"),
    "squares": ((("new", "new"), ("offer", "offer")), "zeros:1+a3*3"),
    "hashed and tags": ((("offer", "city"), ("likes",), ("city", "likes")), "zeros:a3*b3+3+b3*3"),
}


def _recipe(terms: tuple[tuple[str, ...], ...]) -> Recipe:
    context: tuple[Column, ...] = (AGE, NEW, REGION, CITY, LIKES)
    return Recipe(context=context, action=(OFFER,), terms=terms)


def _vectors(recipe: Recipe, rng: np.random.Generator, visitors: int = 400) -> Array:
    def some(*values: Any) -> list[Any]:
        return [values[place] for place in rng.integers(len(values), size=visitors)]

    context = {
        "age": some(3.0, 40.0, 71.0, None),
        "new": some(True, False),
        "region": some("north", "south", "elsewhere", None),
        "city": some(*map(str, range(9))),
        "likes": some("tea", "tea|jam", "jam|ale", "tea|jam|ale", "ale"),
    }
    return recipe.candidates(context, ("a", "b", "c")).reshape(visitors * 3, -1)


@pytest.mark.parametrize("case", RECIPES)
def test_every_vector_fits_and_the_entries_left_out_are_zero(case: str, rng: np.random.Generator) -> None:
    terms, name = RECIPES[case]
    recipe = _recipe(terms)
    model = model_of(recipe)
    assert isinstance(model, Products)
    assert model.name == name
    vectors = _vectors(recipe, rng)
    np.testing.assert_array_equal(model.nearest(vectors), vectors)
    known = np.ones((recipe.dim, recipe.dim), dtype=bool)
    pattern = model.pattern(recipe.dim)
    known[pattern.rows, pattern.columns] = known[pattern.columns, pattern.rows] = False
    gram = vectors.T @ vectors
    assert known.any()
    assert not gram[known].any()


@pytest.mark.parametrize("case", ["offers alone", "per action", "two one-hots", "mixed"])
def test_what_is_not_left_out_can_happen(case: str, rng: np.random.Generator) -> None:
    """No known zero is overlooked, but for a number beside its own gap and for squares of one-hots."""
    recipe = _recipe(RECIPES[case][0])
    vectors = _vectors(recipe, rng, 4_000)
    kept = model_of(recipe).coordinates(recipe.dim) - recipe.dim
    happened = np.triu((np.abs(vectors[:, :, None]) * np.abs(vectors[:, None])).sum(axis=0) > 0.0)
    with_gaps = sum(3 if "offer" in term else 1 for term in recipe.terms if "age" in term)
    assert kept == happened.sum() + with_gaps


def test_letters_are_ten_blocks_of_seventeen_wherever_they_stand() -> None:
    model = model_of(LETTER)
    assert model.name == "zeros:17(a10)"
    assert LINEAR.coordinates(170) == 14_535 + 170
    assert model.coordinates(170) == 1_530 + 170
    pattern = model.pattern(170)  # type: ignore[attr-defined]
    assert (pattern.components, pattern.largest, pattern.complete) == (10, 17, True)
    problem = feducb.Problem(dim=170)
    blocks = feducb.models.Blocks(10)
    assert model.weight(problem) == blocks.weight(problem)
    assert model.radius(problem) == blocks.radius(problem)
    assert model.gram_radius(170, 8, 0.01) == blocks.gram_radius(170, 8, 0.01)
    np.testing.assert_array_equal(model.residual_scales(problem, 0.7), blocks.residual_scales(problem, 0.7))


def test_without_one_hots_or_a_recipe_the_model_is_the_linear_one() -> None:
    numbers = Recipe(
        context=(AGE,), action=(Number("price", 0, 9),), terms=((), ("price",), ("age", "price"))
    )
    assert model_of(numbers) is model_of(None) is LINEAR
    long = Recipe(context=(), action=(Hashed("offer", 3_000),), terms=(("offer",),))
    assert model_of(long) is LINEAR  # of all pairs of so many entries no pattern is made
