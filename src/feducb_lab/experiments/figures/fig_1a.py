"""Figure 1a: regret over the privacy budget and the number of agents."""

from __future__ import annotations

from matplotlib.figure import Figure as Picture

from feducb_lab.experiments.experiment import Figure, Outcome, Point, Results, Scale
from feducb_lab.experiments.figures import common

__all__ = ["FIGURE"]

_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_NO_FEDERATION = ", an agent by itself under noise"
_PRINTED = {"quick": ((10, (0.1, 1.0, 10.0)), (100, (1.0,))), "full": ((100, (0.1, 1.0, 10.0)),)}


def _points(scale: Scale) -> list[Point]:
    full = scale == "full"
    world = {"dim": 10, "arms": 100, "seed": 0, "horizon": 10_000_000 if full else 10_000}
    private = world | {"delta": 0.1}
    printed = private | {"mode": "paper", "schedule": "geometric", "releases": 64, "runs": 5 if full else 2}
    sizes = {1: 100, 10: 100, 100: 100, 1000: 100} if full else {1: 24, 10: 12, 100: 4}
    points = [
        Point(
            {"who": "calibrated", "M": agents, "epsilon": epsilon},
            private | {"agents": agents, "runs": runs, "epsilon": epsilon},
        )
        for agents, runs in sizes.items()
        for epsilon in _EPSILONS
    ]
    points += [
        Point(
            {"who": "paper", "M": agents, "epsilon": epsilon},
            printed | {"agents": agents, "epsilon": epsilon},
        )
        for agents, epsilons in _PRINTED[scale]
        for epsilon in epsilons
    ]
    points += [
        common.baseline("no privacy", world | {"agents": agents, "runs": runs}, M=agents)
        for agents, runs in sizes.items()
    ]
    few = world | {"agents": 10, "runs": 10 if full else 12}
    return points + common.alone_and_uniform(few, alone_runs=common.ALONE_RUNS if full else None)


def _draw(results: Results) -> Picture:
    drawn, (axes,) = common.picture(title=FIGURE.title)
    for agents, shade in zip(results.values("M", who="calibrated"), common.SHADES, strict=False):
        line = results.along("epsilon", who="calibrated", M=agents)
        common.bars(axes, "epsilon", line, color=shade, label=f"M = {agents:,}")
        raw = results.one(who="no privacy", M=agents)
        common.level(axes, raw, colour=shade, label=f"M = {agents:,}, no privacy  {common.number(raw.mean)}")
    for agents, marker in zip(results.values("M", who="paper"), "xsd", strict=False):
        line = results.along("epsilon", who="paper", M=agents)
        name = f"printed constants, M = {agents:,}"
        common.bars(axes, "epsilon", line, color=common.COLOURS["paper"], marker=marker, label=name)
    common.levels(axes, results, "alone", "uniform")
    common.finish(axes, "ε (δ = 0.1)", title=f"T = {results.one(who='alone').setting['horizon']:,}")
    return drawn


def _name(one: Outcome) -> str:
    return f"M = {one.label['M']:,}, ε = {one.label['epsilon']:g}"


def _text(results: Results) -> str:
    said = []
    sizes = results.values("M", who="calibrated")
    for agents in sizes:
        line = results.along("epsilon", who="calibrated", M=agents)
        low, high = line[0], line[-1]
        verb = "falls with ε" if common.falls(line) else "does not fall steadily with ε"
        said.append(
            f"- M = {agents:,}{_NO_FEDERATION if agents == 1 else ''}: regret {verb}, from "
            f"{common.plus_minus(low)} at ε = {low.label['epsilon']:g} "
            f"to {common.plus_minus(high)} at ε = {high.label['epsilon']:g}; without privacy it is "
            f"{common.plus_minus(results.one(who='no privacy', M=agents))}."
        )
    most = results.along("epsilon", who="calibrated", M=sizes[-1])
    raw = results.one(who="no privacy", M=sizes[-1])
    close = most[max((at + 1 for at, one in enumerate(most) if one.mean >= 2 * raw.mean), default=0) :]
    competitive = (
        f"With M = {most[0].label['M']:,} agents privacy less than doubles regret from ε = "
        f"{close[0].label['epsilon']:g} on."
        if close
        else f"Even with M = {most[0].label['M']:,} agents and ε = {most[-1].label['epsilon']:g} privacy "
        "costs more than a factor of two."
    )
    beats = common.alone_sentence(results, _name)
    planned = common.releases_sentence(results)
    return "\n".join(said) + f"\n\n{competitive} {beats} {planned}\n\n{common.printed_sentence(results)}"


FIGURE = Figure(
    name="1a",
    title="Regret over the privacy budget",
    question="How does per-agent regret at the horizon depend on ε and on the number of agents M (δ = 0.1,"
    " d = 10, K = 100; the planned schedule, and 64 geometric releases for the printed constants)? The paper "
    "finds it to fall with ε and to be “competitive even at large privacy budget”.",
    points=_points,
    draw=_draw,
    text=_text,
    table=lambda results: common.table_of(results, ("M", "epsilon")),
)
