"""Earlier work at equal privacy, and the leaks: players, accounting, and texts that follow the results."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from feducb_lab.experiments.experiment import Outcome, Point, Results
from feducb_lab.experiments.figures import NAMES, figure
from feducb_lab.experiments.figures.adversaries import leaks
from feducb_lab.experiments.figures.prior import reaccounted
from feducb_lab.experiments.prior_work import batch_rule, fixed_batch, printed_play, single_agent
from feducb_lab.experiments.sweep import play_point

PRIOR, ADVERSARIES = figure("prior"), figure("adversaries")
TINY = {"agents": 4, "dim": 2, "arms": 4, "horizon": 120, "runs": 2}
REFERENCES = ("each agent alone", "no privacy", "uniform play")


def tiny(point: Point) -> Point:
    setting = dict(point.setting) | TINY
    if "batch" in setting:
        setting["batch"] = min(setting["batch"], 30)
    return replace(point, setting=setting)


pytestmark = pytest.mark.xdist_group("prior")  # played once for all


@pytest.fixture(scope="module")
def played() -> dict[str, Results]:
    """Both figures in a tiny world."""
    found = {}
    for one in (PRIOR, ADVERSARIES):
        points = [tiny(point) for point in one.points("quick")]
        outcomes = [Outcome(p.label, p.setting, play_point(p, "reference", 1)) for p in points]
        found[one.name] = Results(one.name, "quick", outcomes)
    return found


def test_all_of_prior_spend_the_same(played: dict[str, Results]) -> None:
    spent = {}
    for one in played["prior"].outcomes:
        if one.label["who"] not in REFERENCES:
            spent[one.label["who"], one.label["batch"]] = reaccounted(one)
    assert len(spent) >= 10
    for epsilon in spent.values():
        assert epsilon == pytest.approx(1.0, abs=1e-3)


def test_references_are_told_apart(played: dict[str, Results]) -> None:
    spent = {who: reaccounted(played["prior"].where(who=who)[0]) for who in REFERENCES}
    assert spent == {"each agent alone": 0.0, "no privacy": math.inf, "uniform play": 0.0}


def test_a_single_agent_does_not_depend_on_how_many_there_are() -> None:
    setting: dict[str, Any] = {"dim": 2, "arms": 4, "horizon": 100, "runs": 3, "batch": 10}
    few, many = (single_agent(agents=agents, **setting, backend="reference") for agents in (1, 50))
    assert np.array_equal(few.regret, many.regret)
    assert few.releases == 10


def test_fixed_batches_release_at_their_rounds() -> None:
    setting: dict[str, Any] = {"agents": 3, "dim": 2, "arms": 4, "horizon": 100, "runs": 1, "batch": 25}
    for ours in (False, True):
        played = fixed_batch(**setting, our_bound=ours, backend="reference")
        assert played.release_rounds == ((25, 50, 75, 100),)
        assert played.privacy["mechanism"] == "tree"
    assert batch_rule(10_000, 100) == 10


def test_figures_are_drawn_told_and_tabulated(played: dict[str, Results]) -> None:
    for name, results in played.items():
        assert NAMES[name] == name
        one = figure(name)
        again = Results.from_dict(results.as_dict())
        assert one.text(again) == one.text(results)
        head, *rows = one.table(results)
        assert rows
        assert all(len(row) == len(head) for row in rows)
        assert one.draw(results).axes


def test_points_are_named_once_and_full_is_larger() -> None:
    for one in (PRIOR, ADVERSARIES):
        for scale in ("quick", "full"):
            points = one.points(scale)
            assert len({point.key for point in points}) == len(points)
        quick, full = (max(p.setting["horizon"] for p in one.points(s)) for s in ("quick", "full"))
        assert full > quick


def test_real_epsilons(played: dict[str, Results]) -> None:
    found = {one.name: one.epsilon for one in leaks(played["adversaries"])}
    restarts = [value for name, value in found.items() if name.startswith("(d)")]
    assert restarts == pytest.approx([1.45, 1.81, 3.52], abs=0.01)
    assert found["(f) a record in two batches"] == pytest.approx(2.12, abs=0.01)
    assert found["(c) noise for a fixed stream"] > 10.0
    assert sum(map(math.isinf, found.values())) == 4


def test_own_data_moves_a_batch_by_its_length_and_waiting_by_one_record() -> None:
    setting: dict[str, Any] = TINY | {"runs": 1, "releases": 4}
    assert printed_play(play="own data", **setting)["moved"] == pytest.approx(8.0)
    assert printed_play(play="released", **setting)["moved"] <= 1.0 + 1e-12


def test_leaky_players_promise_nothing(played: dict[str, Results]) -> None:
    holds = {
        play: played["adversaries"].one(play=play).result["privacy"]["holds"]
        for play in ("trigger", "own data", "released")
    }
    assert holds == {"trigger": False, "own data": False, "released": True}


def changed(results: Results, means: dict[str, float], by: str, mu: float | None = None) -> Results:
    """The same results with other regrets, by label."""
    outcomes = []
    for one in results.outcomes:
        result = dict(one.result)
        mean = means.get(one.label[by])
        if mean is not None:
            result["per_agent_regret"] = {"mean": mean, "stderr": 0.01 * mean}
        if mu is not None and one.label[by] == "ours":
            result["privacy"] = result["privacy"] | {"mu": mu}
        outcomes.append(Outcome(one.label, one.setting, result))
    return Results(results.figure, results.scale, outcomes)


def test_the_text_of_prior_follows_the_results(played: dict[str, Results]) -> None:
    theirs, ours_bound = "Zhou & Chowdhury 2024", "Zhou & Chowdhury 2024 with our bound"
    means = {theirs: 40.0, ours_bound: 20.0, "ours": 10.0, "Shariff & Sheffet 2018": 90.0}
    means |= {"each agent alone": 30.0}
    won = PRIOR.text(changed(played["prior"], means, "who"))
    assert "is that of ours: ours loses 10" in won
    assert f"Ours loses 10, {theirs} loses 40, 4 times as much" in won
    assert f"below it: ours, {ours_bound}." in won
    assert ": equal." in won
    lost = PRIOR.text(changed(played["prior"], means | {"ours": 80.0}, "who", mu=0.5))
    assert f"is that of {ours_bound}:" in lost
    assert "loses 20, ours loses 80, 4 times as much" in lost
    assert "NOT equal" in lost
    near = PRIOR.text(changed(played["prior"], means | {"ours": 20.1, "each agent alone": 5.0}, "who"))
    assert "cannot be told apart" in near
    assert "none of the private ones is clearly below it" in near


def test_the_text_of_adversaries_follows_the_results(played: dict[str, Results]) -> None:
    results = played["adversaries"]
    every = {one.label["play"]: 50.0 for one in results.outcomes}
    free = ADVERSARIES.text(changed(results, every, "play"))
    assert "No closing cost regret that these runs can tell." in free
    dear = ADVERSARIES.text(changed(results, every | {"controller": 10.0}, "play"))
    assert "The dearest to close is (g) trusting the controller: 5 times the regret." in dear
    less = ADVERSARIES.text(changed(results, every | {"trigger": 100.0}, "play"))
    assert "(a) determinant trigger: 100 → 50, 50% less" in less
    assert "(e) float64 noise: not simulated" in less
