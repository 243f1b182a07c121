"""A world made from a recipe: its rewards have the means that regret is computed from, within the bounds."""

from __future__ import annotations

import numpy as np
import pytest

from feducb.errors import ConfigurationError
from feducb.worlds.features import Category, Coded, Hashed, Number, Recipe, Tags
from feducb.worlds.from_recipe import RecipeWorld
from feducb.worlds.streams import Streams

SHOP = Recipe(
    context=(Number("age", 18, 90), Category("region", ("north", "south"))),
    action=(Category("offer", ("book", "game", "film")),),
    terms=((), ("offer",), ("offer", "age"), ("offer", "region")),
)
FILMS = Recipe(
    context=(Hashed("user", 4),),
    action=(Tags("genres", ("drama", "comedy", "crime")), Number("year", 1900, 2000)),
    terms=(("genres",), ("user", "genres"), ("year",)),
)
WORLDS = {"offers": RecipeWorld(recipe=SHOP), "films": RecipeWorld(recipe=FILMS, drawn=4)}


@pytest.mark.parametrize("name", WORLDS)
def test_means_stay_within_the_bounds_and_use_them(name: str) -> None:
    world = WORLDS[name]
    bound, longest = world.problem.reward_bound, world.problem.parameter_bound
    for run in range(20):
        theta = world.parameter(Streams(3), run)
        means = world.candidates(np.random.default_rng(run).random((2000, world.coins))) @ theta
        assert np.abs(means).max() <= bound
        assert np.linalg.norm(theta) <= longest
        # As long as may be: one of the bounds is reached, so that effects are not weaker than they could be.
        reached = max(np.linalg.norm(theta) / longest, np.abs(means).max() / bound)
        assert reached >= 0.5


def test_rewards_have_the_means_that_regret_is_computed_from() -> None:
    # Mean of 60,000 rewards less their means, of size B = ½: 5 standard errors, a false alarm has a chance of
    # 6e-7. It would miss a bias below 0.01.
    visits = WORLDS["offers"].open(Streams(5), range(2), range(3))
    contexts = visits.arrive(10_000)
    chosen = contexts.chosen(np.random.default_rng(0).integers(3, size=(2, 3, 10_000)))
    rewards = visits.reward(chosen)
    assert set(np.unique(rewards)) == {-0.5, 0.5}
    assert abs((rewards - chosen.means).mean()) < 5 * 0.5 / np.sqrt(rewards.size)
    assert np.corrcoef(rewards.ravel(), chosen.means.ravel())[0, 1] > 0.1


def test_visitors_cover_public_ranges_and_levels() -> None:
    columns = WORLDS["offers"].context(np.random.default_rng(1).random((4000, 2)))
    ages, regions = np.asarray(columns["age"]), columns["region"]
    assert 18 <= ages.min() < 20
    assert 88 < ages.max() < 90
    assert isinstance(regions, Coded)
    assert abs((regions.values() == "north").mean() - 0.5) < 0.05


@pytest.mark.parametrize(("recipe", "drawn"), [(SHOP, 4), (FILMS, None), (FILMS, 0)])
def test_how_many_candidates_there_are_is_said_once(recipe: Recipe, drawn: int | None) -> None:
    with pytest.raises(ConfigurationError, match="arms is"):
        RecipeWorld(recipe=recipe, drawn=drawn)
