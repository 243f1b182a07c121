"""Regret and the gap between arms."""

from __future__ import annotations

import math

from matplotlib.figure import Figure as Picture

from feducb_lab.experiments.experiment import Figure, Point, Results, Scale
from feducb_lab.experiments.figures import common

__all__ = ["FIGURE"]

_GAPS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
_EPSILONS = (0.3, 1.0, 3.0)
_PRINTED = ((0.05, 1.0), (0.2, 1.0), (0.5, 0.3), (0.5, 1.0), (0.5, 3.0))


def _points(scale: Scale) -> list[Point]:
    full = scale == "full"
    points = []
    world = {"dim": 10, "arms": 100, "seed": 0, "agents": 10, "horizon": 1_000_000 if full else 10_000}
    private = world | {"delta": 0.1}
    printed = private | {"mode": "paper", "schedule": "geometric", "releases": 64, "runs": 5 if full else 2}
    runs, lone, few = (100, common.ALONE_RUNS, 10) if full else (8, 4, 4)
    for gap in _GAPS:
        points += [
            Point(
                {"who": "calibrated", "gap": gap, "epsilon": epsilon},
                private | {"gap": gap, "epsilon": epsilon, "runs": runs},
            )
            for epsilon in _EPSILONS
        ]
        points += [
            common.baseline(who, world | {"gap": gap, "runs": many}, gap=gap)
            for who, many in (("no privacy", runs), ("alone", lone), ("uniform", few))
        ]
    points += [
        Point(
            {"who": "paper", "gap": gap, "epsilon": epsilon},
            printed | {"gap": gap, "epsilon": epsilon},
        )
        for gap, epsilon in _PRINTED
    ]
    return points


def _draw(results: Results) -> Picture:
    drawn, (axes,) = common.picture(title=FIGURE.title)
    for epsilon, shade in zip(_EPSILONS, common.SHADES, strict=False):
        line = results.along("gap", who="calibrated", epsilon=epsilon)
        common.bars(axes, "gap", line, color=shade, label=f"ε = {epsilon:g}")
    for epsilon, marker in zip(_EPSILONS, "xsd", strict=False):
        line = results.along("gap", who="paper", epsilon=epsilon)
        style = {"color": common.COLOURS["paper"], "marker": marker, "linestyle": "none"}
        common.bars(axes, "gap", line, label=f"printed constants, ε = {epsilon:g}", **style)
    for who, style_of_line in (("no privacy", ":"), ("alone", "--"), ("uniform", "--")):
        style = {"color": common.COLOURS[who], "linestyle": style_of_line}
        common.bars(axes, "gap", results.along("gap", who=who), label=who, **style)
    common.finish(axes, "gap Δ", title=f"T = {results.outcomes[0].setting['horizon']:,}, δ = 0.1")
    axes.set_xscale("linear")
    return drawn


def _text(results: Results) -> str:
    said = []
    lines = {f"ε = {eps:g}": results.along("gap", who="calibrated", epsilon=eps) for eps in _EPSILONS}
    lines["no privacy"] = results.along("gap", who="no privacy")
    for name, line in lines.items():
        if common.falls(line):
            verb = "falls as the gap grows"
        elif common.surely_less(line[-1], line[0]):
            verb = "is smaller at the largest gap than at the smallest, but does not fall steadily"
        else:
            verb = "does not fall as the gap grows"
        said.append(
            f"- {name}: regret {verb}, from {common.plus_minus(line[0])} at Δ = {line[0].label['gap']:g} to "
            f"{common.plus_minus(line[-1])} at Δ = {line[-1].label['gap']:g}; it is lowest at "
            f"Δ = {min(line, key=lambda one: one.mean).label['gap']:g}."
        )
    strict, loose = lines[f"ε = {_EPSILONS[0]:g}"], lines[f"ε = {_EPSILONS[-1]:g}"]
    small, large = strict[0].mean / loose[0].mean, strict[-1].mean / loose[-1].mean
    ends = (strict[0], loose[0], strict[-1], loose[-1])
    unsure = 2 * math.sqrt(sum((one.stderr / one.mean) ** 2 for one in ends))
    less = "less" if math.log(small / large) > unsure else "not surely less"
    if math.log(large / small) > unsure:
        less = "more"
    steps = (strict[0].mean - loose[0].mean, strict[-1].mean - loose[-1].mean)
    sensitive = (
        f"The algorithm becomes {less} sensitive to the budget: ε = {_EPSILONS[0]:g} costs "
        f"{common.number(small)} times the regret of ε = {_EPSILONS[-1]:g} at the smallest gap and "
        f"{common.number(large)} times at the largest (in regret, {common.number(steps[0])} and "
        f"{common.number(steps[1])} more)."
    )
    beats = common.alone_sentence(
        results, lambda one: f"Δ = {one.label['gap']:g}, ε = {one.label['epsilon']:g}"
    )
    return (
        "\n".join(said)
        + f"\n\n{sensitive} {beats} {common.releases_sentence(results)}\n\n{common.printed_sentence(results)}"
    )


FIGURE = Figure(
    name="gap",
    title="Regret and the gap between arms",
    question="How does regret depend on the gap Δ between the bands of mean rewards (M = 10, d = 10, K = "
    "100, δ = 0.1; the planned schedule, and 64 geometric releases for the printed constants)? The "
    "paper: “the overall regret decreases as the gap increases, and the algorithm "
    "becomes less sensitive to privacy budget altogether”.",
    points=_points,
    draw=_draw,
    text=_text,
    table=lambda results: common.table_of(results, ("gap", "epsilon")),
)
