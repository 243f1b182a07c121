"""A plan tells the truth before anyone deploys: against an honest alone, and as a log would tell it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import feducb
from feducb.errors import ConfigurationError
from feducb.evaluation.question import evaluate
from feducb.evaluation.study import Study
from feducb.protocol.federation import Play
from feducb.simulation.paying import _recommended, pays_from
from feducb.simulation.planned_season import Season
from feducb.simulation.planning import plan_privacy
from feducb.simulation.results import SimulationResult
from feducb.trust import require_trust
from feducb.worlds.features import Category, Number, Recipe
from feducb.worlds.from_recipe import RecipeWorld
from feducb.worlds.streams import Streams
from feducb.worlds.synthetic import paper_world

RECIPE = Recipe(
    context=(Number("age", 18, 90),),
    action=(Category("offer", ("book", "game", "film")),),
    terms=(("offer",), ("offer", "age")),
)
WORLD = RecipeWorld(recipe=RECIPE)


def _season(agents: int, visitors: int, epsilon: float, trust: str = "nobody", **more: Any) -> Season:
    budget = feducb.Budget(epsilon=epsilon, delta=1e-6)
    settings = {"world": WORLD, "budget": budget, "trust": require_trust(trust), **more}
    return Season(agents=agents, visitors=visitors, **settings)


def _log(agents: int, visitors: int, seed: int) -> pd.DataFrame:
    """What uniform play would have written down in the plan's world."""
    rng, rows = np.random.default_rng(seed), agents * visitors
    uniform = rng.random((rows, WORLD.coins))
    offers = rng.integers(WORLD.arms, size=rows)
    chosen = WORLD.candidates(uniform)[np.arange(rows), offers]
    means = chosen @ WORLD.parameter(Streams(seed), 0)
    return pd.DataFrame(
        {
            "shop": np.repeat(np.arange(agents), visitors),
            "age": WORLD.context(uniform)["age"],
            "offer": np.array(WORLD.actions)[offers],
            "bought": (rng.random(rows) < 0.5 + means).astype(int),
            "chance": 1.0 / WORLD.arms,
        }
    )


@pytest.mark.parametrize(
    ("agents", "visitors", "epsilon", "trust", "pays"),
    [
        (200, 40, 1.0, "controller", True),
        (100, 100, 8.0, "nobody", True),
        (20, 100, 1.0, "nobody", False),  # read too late to make up for it
        (5, 300, 0.5, "nobody", False),  # nothing to read
    ],
)
def test_a_plan_and_a_log_of_its_shape_say_the_same(
    agents: int, visitors: int, epsilon: float, trust: str, pays: bool
) -> None:
    # Settings in which both are sure. On a log agents learn at one go, and not by what they do: in between,
    # the two may differ.
    plan = plan_privacy(_season(agents, visitors, epsilon, trust), runs=10)
    assert (plan["pays_after"] is not None) is pays
    assert plan["verdict"].startswith("Federating pays after about" if pays else "Stay alone: ")
    study = Study(epsilons=(epsilon,), trusts=(require_trust(trust),), repeats=3)
    said = evaluate(
        _log(agents, visitors, seed=3),
        study=study,
        agent_column="shop",
        action="offer",
        reward="bought",
        propensity="chance",
        recipe=RECIPE,
    )
    assert said.federate is pays


def test_federating_pays_later_the_more_noise_there_is() -> None:
    settings: dict[str, Any] = {
        "world": paper_world(feducb.Problem(dim=4), 16),
        "agents": 100,
        "visitors": 600,
    }
    trusted, untrusted = (
        plan_privacy(Season(**settings, trust=require_trust(trust)), runs=5)["pays_after"]
        for trust in ("controller", "nobody")
    )
    assert trusted is not None
    assert untrusted is None or untrusted > trusted


def test_nothing_to_read_is_said_without_a_simulation_and_what_would_help_does_help() -> None:
    told: list[int] = []
    season = _season(5, 300, 0.5)
    plan = plan_privacy(season, progress=lambda done, total: told.append(done))
    assert not told
    assert (plan["regret"], plan["pays_after"], plan["read_from"]) == (None, None, None)
    assert "It takes about 600 visitors, or 10 agents, or ε = 1 to read anything" in plan["verdict"]
    for more in (_season(5, 600, 0.5), _season(10, 300, 0.5), _season(5, 300, 1.0)):
        assert plan_privacy(more, runs=2)["read_from"] is not None


def test_both_plays_are_compared_and_the_one_that_is_recommended_is_described() -> None:
    world = paper_world(feducb.Problem(dim=4), 16)
    season = Season(world=world, agents=40, visitors=500, trust=require_trust("controller"))
    plan = plan_privacy(season, runs=3)
    assert plan["regret"]["by_play"].keys() == {"released", "own"}
    assert plan["regret"]["federated"] == plan["regret"]["by_play"][plan["play"]]["mean"]
    assert f"with play = {plan['play']}." in plan["verdict"]
    assert ("where yours may differ" in plan["verdict"]) is (plan["play"] == "released")
    own = plan_privacy(replace(season, play="own"), runs=3)
    assert own["regret"]["by_play"] == {"own": plan["regret"]["by_play"]["own"]}
    assert own["closes_after"] == own["release_visitors"][-1] < season.visitors
    assert f"shares until visitor {own['closes_after']}" in own["verdict"]


def test_own_play_is_recommended_only_where_it_is_better_for_sure() -> None:
    def came_to(*regrets: float) -> SimulationResult:
        result = feducb.simulate(agents=2, dim=2, horizon=10, runs=len(regrets), baseline="uniform")
        return replace(result, regret=np.array(regrets)[:, None])

    released, better, hardly = came_to(5.0, 6.0, 7.0), came_to(3.0, 4.1, 4.9), came_to(2.0, 9.0, 6.0)
    both: list[Play] = ["released", "own"]
    assert _recommended({"released": released, "own": better}, both) == "own"
    assert _recommended({"released": released, "own": hardly}, both) == "released"
    assert _recommended({"released": better, "own": released}, ["own"]) == "own"  # the only one that pays


def test_as_much_history_as_a_plan_names_is_read_at_once_and_less_is_not() -> None:
    season = Season(world=paper_world(feducb.Problem(dim=3), 9), agents=10, visitors=300, play="released")
    plan = plan_privacy(season, runs=2)
    enough = plan["enough_history"]
    assert plan["read_from"] > 0
    assert f"About {enough:,} records of history per site (feducb agent warm-start)" in plan["verdict"]
    given = plan_privacy(replace(season, play="own", history=enough), runs=2)
    assert (given["release_visitors"], given["closes_after"]) == ([0], 0)
    assert "records of history" not in given["verdict"]
    assert plan_privacy(replace(season, history=2 * enough), runs=2)["read_from"] == 0
    assert plan_privacy(replace(season, history=enough // 2), runs=2)["read_from"] > 0


def test_a_federation_of_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="agents is 1, expected 2 or more"):
        _season(1, 100, 1.0)


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0], 10),  # from the first look on
        ([-1.0, 2.0, 3.0, 4.0], 20),
        ([1.0, -2.0, 3.0, 4.0], 30),  # an early lead that was lost does not count
        ([1.0, 2.0, 3.0, -4.0], None),
        ([1.0, 2.0, 3.0, 0.0], None),
    ],
)
def test_it_pays_from_when_on_it_stays_ahead(means: list[float], expected: int | None) -> None:
    spread = np.array([-0.1, 0.0, 0.1])[:, None]  # three runs
    assert pays_from(np.array([10, 20, 30, 40]), np.array(means) + spread) == expected


def test_chance_is_taken_for_a_gain_once_in_twenty() -> None:
    # 2,000 seasons of 5 runs in which federating saves nothing: 100 wrong claims are expected. Fewer than 51
    # or more than 149 have a chance of 1e-6 (binomial). It would miss a rate of 6 %.
    saved = np.random.default_rng(8).standard_normal((2000, 5, 10)).cumsum(axis=2)
    wrong = sum(pays_from(np.arange(1, 11), one) is not None for one in saved)
    assert 50 < wrong < 150
