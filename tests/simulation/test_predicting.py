"""A plan predicts at once what simulation will find: as well as it says, and for nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.config import Problem
from feducb.simulation import planning
from feducb.simulation.paying import compare_with_alone
from feducb.simulation.planned_season import Season
from feducb.simulation.planning import plan_privacy
from feducb.simulation.predicting import agents_needed, predict, read_table
from feducb.simulation.public_numbers import season_of
from feducb.trust import require_trust
from feducb.worlds.synthetic import paper_world

POINTS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs/figures/plan-points.json").read_text(encoding="utf-8")
)["points"]
HELD_OUT = {name: one for name, one in POINTS.items() if name.startswith("held-") and name.count("-") == 1}


def _season(**more: Any) -> Season:
    usual = {"dim": 10, "arms": 100, "epsilon": 1.0, "delta": 1e-6, "visitors": 2000, "agents": 100}
    return season_of(**{**usual, "trust": "keepers", **more})


def _apart(one: float, other: float) -> float:
    return max(one / other, other / one)


def test_the_error_it_states_is_that_against_simulated_seasons_that_were_not_fitted_to() -> None:
    error, fitted = read_table()["error"], [one["setting"] for name, one in POINTS.items() if "fit-" in name]
    assert len(HELD_OUT) == error["seasons"] == 30
    visitors, agree, sure = [], 0, 0
    for one in HELD_OUT.values():
        assert one["setting"] not in fitted
        play = None if one["both"] else "released"
        said, paid = predict(season_of(**one["setting"], play=play)), one["pays_after"]
        assert said is not None
        if paid is not None and said.pays_after is not None:
            visitors.append(_apart(paid, said.pays_after))
        if paid is not None or one["saved"] < -one["saved_margin"]:
            sure, agree = sure + 1, agree + ((paid is None) == (said.pays_after is None))
    assert float(np.median(visitors)) == pytest.approx(error["median"]["visitors"], rel=1e-3)
    assert (agree, sure) == (error["agree"], error["sure"])
    assert agree >= 0.8 * sure
    said = predict(_season())
    assert said is not None
    assert f"{agree} of {sure} sure verdicts were as predicted" in said.verdict


@pytest.mark.parametrize("trust", ["nobody", "keepers", "controller"])
@pytest.mark.parametrize(("dim", "arms"), [(10, 100), (5, 10), (15, 50)])
def test_a_larger_budget_is_predicted_to_help(trust: str, dim: int, arms: int) -> None:
    lost = []
    for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
        said = predict(_season(trust=trust, epsilon=epsilon, dim=dim, arms=arms))
        assert said is not None
        lost.append(said.regret.get("released", np.inf))  # own play closes elsewhere, and may lose more
    assert all(later <= 1.05 * earlier for earlier, later in pairwise(lost))
    assert lost[-1] < 0.7 * lost[0]


def test_more_agents_are_predicted_to_be_needed_where_less_is_trusted() -> None:
    needed = [agents_needed(_season(trust=trust)) for trust in ("controller", "keepers", "nobody")]
    assert None not in needed
    assert needed == sorted(needed)  # type: ignore[type-var]
    assert needed[0] < needed[-1]  # type: ignore[operator]
    just = predict(_season(trust="nobody", agents=needed[-1]))
    assert just is not None
    assert just.pays_after is not None


@pytest.mark.parametrize(
    "more",
    [
        {"agents": 5000},
        {"dim": 40},
        {"visitors": 50_000},
        {"history": 100},
        {"spacing": 2, "records_per_person": 2},
        {"distance": 0.1, "play": "own"},
        {"releases": 8},
    ],
)
def test_nothing_is_predicted_for_what_no_simulated_season_was_like(more: dict[str, Any]) -> None:
    assert predict(_season(**more)) is None


def test_nor_for_another_world() -> None:
    assert predict(replace(_season(), world=paper_world(Problem(dim=10), 100, gap=0.3))) is None


def test_what_is_predicted_is_not_simulated_and_what_is_not_is(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []

    def counting(*asked: Any) -> dict[str, Any]:
        played.append(1)
        return compare_with_alone(*asked)

    monkeypatch.setattr(planning, "compare_with_alone", counting)
    planned = plan_privacy(_season(), simulated=False)
    assert not played
    assert planned["regret"] is None
    assert planned["pays_after"] == planned["predicted"]["pays_after"] is not None
    assert planned["verdict"].startswith("Predicted: federating pays after about")
    planned = plan_privacy(_season(dim=2, arms=4, visitors=100, agents=20), simulated=False, runs=2)
    assert played
    assert planned["predicted"] is None
    assert planned["regret"] is not None


def test_where_nothing_is_worth_reading_it_says_so_whatever_the_noise() -> None:
    said = predict(_season(agents=3, epsilon=0.01, visitors=500, trust=require_trust("nobody")))
    assert said is not None
    assert said.play is None
    assert said.pays_after is None
    assert "nothing released is worth reading" in said.verdict
