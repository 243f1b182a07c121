"""Every world that is shipped, and the skeleton of the guide, keep what a world must keep."""

from __future__ import annotations

import numpy as np
import pytest
from world_suite import check_world

import feducb
from feducb.worlds.features import Category, Hashed, Number, Recipe, Tags
from feducb.worlds.from_recipe import RecipeWorld
from feducb.worlds.world import Environment
from page_code import run_page

PROBLEM = feducb.Problem(dim=3)


WORLDS: dict[str, Environment] = {
    "the paper's": feducb.PaperEnvironment(problem=PROBLEM, arms=5),
    "isotropic": feducb.IsotropicArms(problem=PROBLEM, arms=5),
    "one-hot": feducb.OneHotArms(problem=PROBLEM),
    "correlated": feducb.CorrelatedArms(problem=PROBLEM, arms=5),
    "fixed arms": feducb.FixedArms(problem=PROBLEM, actions=np.eye(3), theta=np.array([0.7, 0.2, 0.1])),
    "own": feducb.OwnEnvironment(
        problem=PROBLEM,
        arms=3,
        theta=np.array([0.3, 0.4, 0.0]),
        draw=lambda generator, agent, rounds: generator.random((rounds, 3, 3)) / 2.0,
        pay=lambda generator, actions, means: (generator.random(len(means)) < means).astype(float),
    ),
}

_SHOP = Recipe(
    context=(Number("age", 18, 90), Category("region", ("north", "south"))),
    action=(Category("offer", ("book", "game", "film")),),
    terms=((), ("offer",), ("age",), ("offer", "age"), ("offer", "region")),
)
_FILMS = Recipe(
    context=(Hashed("user", 4),),
    action=(Tags("genres", ("drama", "comedy", "crime")), Number("year", 1900, 2000)),
    terms=(("genres",), ("user", "genres"), ("year",)),
    action_bound=2.0,
)
WORLDS |= {
    "of a recipe that lists its actions": RecipeWorld(recipe=_SHOP),
    "of a recipe that does not": RecipeWorld(recipe=_FILMS, drawn=5),
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_shipped_world_keeps_what_a_world_must_keep(name: str) -> None:
    check_world(WORLDS[name])


def test_the_skeleton_of_the_guide_does_too(capsys: pytest.CaptureFixture[str]) -> None:
    made = run_page("extending/world.md")
    assert float(capsys.readouterr().out) >= 0.0
    check_world(made["world"])
