"""The leaks of the printed rule: players, what they promise, and a text that follows the results."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from feducb_lab.experiments.experiment import Outcome, Point, Results
from feducb_lab.experiments.figures import NAMES, figure
from feducb_lab.experiments.figures.adversaries import leaks
from feducb_lab.experiments.printed_play import printed_play
from feducb_lab.experiments.sweep import play_point

ADVERSARIES = figure("adversaries")
TINY = {"agents": 4, "dim": 2, "arms": 4, "horizon": 120, "runs": 2}

pytestmark = pytest.mark.xdist_group("adversaries")  # played once for all


@pytest.fixture(scope="module")
def played() -> Results:
    """The figure in a tiny world."""

    def tiny(point: Point) -> Point:
        return replace(point, setting=dict(point.setting) | TINY)

    points = [tiny(point) for point in ADVERSARIES.points("quick")]
    outcomes = [Outcome(p.label, p.setting, play_point(p, "reference", 1)) for p in points]
    return Results("adversaries", "quick", outcomes)


def test_the_figure_is_drawn_told_and_tabulated(played: Results) -> None:
    assert NAMES["adversaries"] == "adversaries"
    assert ADVERSARIES.text(Results.from_dict(played.as_dict())) == ADVERSARIES.text(played)
    head, *rows = ADVERSARIES.table(played)
    assert rows
    assert all(len(row) == len(head) for row in rows)
    assert ADVERSARIES.draw(played).axes


def test_points_are_named_once_and_full_is_larger() -> None:
    for scale in ("quick", "full"):
        points = ADVERSARIES.points(scale)
        assert len({point.key for point in points}) == len(points)
    quick, full = (max(p.setting["horizon"] for p in ADVERSARIES.points(s)) for s in ("quick", "full"))
    assert full > quick


def test_real_epsilons(played: Results) -> None:
    found = {one.name: one.epsilon for one in leaks(played)}
    restarts = [value for name, value in found.items() if name.startswith("(d)")]
    assert restarts == pytest.approx([1.45, 1.81, 3.52], abs=0.01)
    assert found["(f) a record in two batches"] == pytest.approx(2.12, abs=0.01)
    assert found["(c) noise for a fixed stream"] > 10.0
    assert sum(map(math.isinf, found.values())) == 4


def test_own_data_moves_a_batch_by_its_length_and_waiting_by_one_record() -> None:
    setting: dict[str, Any] = TINY | {"runs": 1, "releases": 4}
    assert printed_play(play="own data", **setting)["moved"] == pytest.approx(8.0)
    assert printed_play(play="released", **setting)["moved"] <= 1.0 + 1e-12


def test_leaky_players_promise_nothing(played: Results) -> None:
    holds = {
        play: played.one(play=play).result["privacy"]["holds"] for play in ("trigger", "own data", "released")
    }
    assert holds == {"trigger": False, "own data": False, "released": True}


def changed(results: Results, means: dict[str, float]) -> Results:
    """The same results with other regrets, by play."""
    outcomes = []
    for one in results.outcomes:
        mean = means[one.label["play"]]
        result = dict(one.result) | {"per_agent_regret": {"mean": mean, "stderr": 0.01 * mean}}
        outcomes.append(Outcome(one.label, one.setting, result))
    return Results(results.figure, results.scale, outcomes)


def test_the_text_follows_the_results(played: Results) -> None:
    every = {one.label["play"]: 50.0 for one in played.outcomes}
    free = ADVERSARIES.text(changed(played, every))
    assert "No closing cost regret that these runs can tell." in free
    dear = ADVERSARIES.text(changed(played, every | {"controller": 10.0}))
    assert "The dearest to close is (g) trusting the controller: 5 times the regret." in dear
    less = ADVERSARIES.text(changed(played, every | {"trigger": 100.0}))
    assert "(a) determinant trigger: 100 → 50, 50% less" in less
    assert "(e) float64 noise: not simulated" in less
