"""Earlier work at equal privacy: the figure, its accounting, and a text that follows the results."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from feducb_lab.experiments.experiment import Outcome, Point, Results
from feducb_lab.experiments.figures import NAMES, figure
from feducb_lab.experiments.figures.prior_words import (
    CORE_SILOS,
    CORRELATED,
    COUNTERPARTS,
    FIXED,
    FRESH,
    PEOPLE,
    SIFTING,
    TUNED,
    reaccounted,
)
from feducb_lab.experiments.sweep import play_apart, play_point, sweep

PRIOR = figure("prior")
REFERENCES = ("each agent alone", "no privacy", "uniform play")

pytestmark = pytest.mark.xdist_group("prior")  # played once for all


def tiny(point: Point) -> Point:
    setting = dict(point.setting) | {"agents": 4, "dim": 2, "arms": 4, "horizon": 120, "runs": 2}
    for name, most in (("batch", 30), ("first", 10)):
        if name in setting:
            setting[name] = min(setting[name], most)
    return replace(point, setting=setting)


def ends_of_grids() -> list[Point]:
    """The first and the last of the ways to tune each player in each world."""
    found: dict[tuple[str, str], list[Point]] = {}
    for point in PRIOR.points("quick"):
        found.setdefault((point.label["who"], point.label["world"]), []).append(point)
    return [point for ways in found.values() for point in (ways if len(ways) == 1 else (ways[0], ways[-1]))]


@pytest.fixture(scope="module")
def played() -> Results:
    """The figure in a tiny world."""
    points = [tiny(point) for point in ends_of_grids()]
    outcomes = [Outcome(p.label, p.setting, play_point(p, "reference", 1)) for p in points]
    return Results("prior", "quick", outcomes)


def imagined(mean: Callable[[Point], float]) -> Results:
    """All points of the figure as if they had come to this."""

    def outcome(point: Point) -> Outcome:
        result = {"per_agent_regret": {"mean": mean(point), "stderr": 0.01}, "privacy": {"spent": 1.0}}
        return Outcome(point.label, point.setting, result)

    return Results("prior", "quick", [outcome(point) for point in PRIOR.points("quick")])


def test_all_private_streams_spend_the_same(played: Results) -> None:
    spent = [reaccounted(one) for one in played.outcomes if one.label["who"] not in REFERENCES]
    assert len(spent) >= 25
    assert spent == pytest.approx([1.0] * len(spent), abs=1e-3)


def test_references_are_told_apart(played: Results) -> None:
    spent = {who: reaccounted(played.where(who=who)[0]) for who in REFERENCES}
    assert spent == {"each agent alone": 0.0, "no privacy": math.inf, "uniform play": 0.0}


def test_both_sides_protect_the_same(played: Results) -> None:
    """The unit of privacy of each earlier algorithm is that of ours in its world, word for word."""
    for who, counterparts in COUNTERPARTS.items():
        for one in played.where(who=who):
            for name in counterparts:
                ours = played.one(who=name, world=one.label["world"])
                assert one.result["privacy"]["unit"] == ours.result["privacy"]["unit"]


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_everybody_is_held_against_somebody_and_full_has_forty_runs(scale: str) -> None:
    points = PRIOR.points(scale)  # type: ignore[arg-type]
    assert len({point.key for point in points}) == len(points)
    worlds = {(point.label["who"], point.label["world"]) for point in points}
    for who, counterparts in COUNTERPARTS.items():
        at = {world for name, world in worlds if name == who}
        assert at
        assert all((name, world) in worlds for name in counterparts for world in at)
    if scale == "full":
        assert min(point.setting["runs"] for point in points) == 40


def test_earlier_work_is_tuned_as_well_in_few_runs_as_in_many() -> None:
    """Each in at least five ways, by our bound and by its own where it has one: none is a straw man."""
    quick, full = (
        {
            (point.label["who"], point.label["world"], point.label["T"], point.label["tuned"])
            for point in points
        }
        for points in (PRIOR.points("quick"), PRIOR.points("full"))
    )
    rounds = {FRESH: 10_000, FIXED: 2000, PEOPLE: 2000}
    for world, horizon in rounds.items():
        assert {one for one in quick if one[1] == world} == {
            one for one in full if one[1:3] == (world, horizon)
        }
    assert {(who, tuned) for who, world, _, tuned in quick if world == CORRELATED} == {
        (who, tuned) for who, world, _, tuned in full if world == CORRELATED
    }
    for who in COUNTERPARTS:
        for world in {one[1] for one in quick if one[0] == who}:
            ways = [tuned for name, place, _, tuned in quick if (name, place) == (who, world)]
            assert len(ways) >= 5, f"{who} has {len(ways)} ways"


def test_the_figure_is_drawn_told_and_tabulated(played: Results) -> None:
    assert NAMES["prior"] == "prior"
    assert PRIOR.text(Results.from_dict(played.as_dict())) == PRIOR.text(played)
    head, *rows = PRIOR.table(played)
    assert len(rows) == len(played.outcomes)
    assert all(len(row) == len(head) for row in rows)
    assert len(PRIOR.draw(played).axes) == 4


def changed(results: Results, means: dict[str, float], mu: float | None = None) -> Results:
    """The same results with other regrets, and another noise of ours."""
    outcomes = []
    for one in results.outcomes:
        mean = means.get(one.label["who"], 50.0)
        result = dict(one.result) | {"per_agent_regret": {"mean": mean, "stderr": 0.01 * mean}}
        if mu is not None and one.label["who"] == "ours, nobody":
            result["privacy"] = result["privacy"] | {"mu": mu}
        outcomes.append(Outcome(one.label, one.setting, result))
    return Results(results.figure, results.scale, outcomes)


def test_the_text_follows_the_results(played: Results) -> None:
    silos, shuffled, core = (
        "Zhou & Chowdhury 2024, local",
        "Chowdhury & Zhou 2022, vector sum",
        "Hanna et al. 2022, central",
    )
    means = {silos: 40.0, "ours, nobody": 10.0, shuffled: 5.0, "ours, keepers": 20.0, core: 30.0}
    means |= {"ours, controller": 30.0, "ours, controller" + SIFTING: 60.0, "each agent alone": 12.0}
    said = PRIOR.text(changed(played, means))
    assert f"- {shuffled}: 0.25 ± 0.004 of what ours, keepers loses (fresh contexts)." in said
    fresh = said.partition("\n\nFresh contexts, T")[2]
    line = next(line for line in fresh.splitlines() if silos in line)
    assert line.endswith("loses 40.0; ours, nobody 10.0, ratio 4 ± 0.06.")
    line = next(line for line in fresh.splitlines() if shuffled in line)
    assert line.endswith("loses 5.00; ours, keepers 20.0, **ratio 0.25 ± 0.004: it wins**.")
    line = next(line for line in fresh.splitlines() if core in line and "loses" in line)
    assert "ours, controller 30.0, ratio 1 ± 0.01, which these runs cannot tell from 1" in line
    assert "with the policy sifting 60.0, **ratio 0.5 ± 0.007: it wins**" in line
    proven = "; at boldness 1, for which alone there is a proof, it loses 30.0, ratio 1 ± 0.01"
    assert line.endswith(f"{proven}, which these runs cannot tell from 1.")
    assert f"Surely below alone: {shuffled}; ours, nobody." in fresh
    assert ", equal." in said
    assert "NOT equal" in PRIOR.text(changed(played, means, mu=0.5))
    none = PRIOR.text(changed(played, {"each agent alone": 1.0}))
    assert none.count("Surely below alone: none of the private ones.") == 4


def test_the_text_says_what_was_tuned_and_whose_best_is_at_an_edge() -> None:
    """First the best is in the middle of every grid, then one player's longest first phase is its best."""
    tried: dict[tuple[str, str, str], set[float]] = {}
    for point in PRIOR.points("quick"):
        for name in set(TUNED) - {"bound"}:
            if name in point.setting:
                key = (point.label["who"], point.label["world"], name)
                tried.setdefault(key, set()).add(point.setting[name])
    middle = {key: sorted(values)[len(values) // 2] for key, values in tried.items()}

    def mean(point: Point) -> float:
        at = (point.label["who"], point.label["world"])
        wrong = [name for name in TUNED if (*at, name) in middle and point.setting[name] != middle[*at, name]]
        return 50.0 + len(wrong)

    said = PRIOR.text(imagined(mean))
    assert "No best is at an edge of what was tried." in said
    assert "whether its own closed bound or ours reads its sums" in said
    assert "is the best of 5 to 40 ways, picked afterwards" in said

    def longer(point: Point) -> float:
        last = point.label["who"] == CORE_SILOS and point.setting["first"] == 80
        return mean(point) - (5.0 if last else 0.0)

    said = PRIOR.text(imagined(longer))
    assert (
        "At an edge of what was tried, so that more might be gained: Hanna et al. 2022, silos (first 80)."
        in said
    )
    fresh = {one.label["who"]: one for one in imagined(mean).where(world=FRESH)}
    assert "untuned" in PRIOR.text(Results("prior", "quick", list(fresh.values())))


def test_points_in_processes_come_to_the_same(tmp_path) -> None:  # type: ignore[no-untyped-def]
    points = [tiny(point) for point in ends_of_grids() if "hanna" in point.player]
    here = sweep(points, tmp_path / "here")
    apart = sweep(points, tmp_path / "apart", lambda waiting, keep: play_apart(waiting, keep, processes=2))
    assert [one.mean for one in here] == [one.mean for one in apart]
