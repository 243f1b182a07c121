"""Where federating beats staying alone."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from feducb_lab.experiments.experiment import Figure, Outcome, Point, Results, Scale
from feducb_lab.experiments.figures import common

__all__ = ["FIGURE"]

_EPSILONS = (0.3, 1.0, 3.0, 10.0)
_TRUST = {"nobody": "nobody is trusted", "controller": "the controller is trusted"}


def _points(scale: Scale) -> list[Point]:
    full = scale == "full"
    world = {"dim": 10, "arms": 100, "seed": 0, "horizon": 1_000_000 if full else 2_000}
    runs = {10: 100, 30: 100, 100: 100, 300: 60, 1000: 40} if full else {10: 12, 30: 8, 100: 6, 300: 4}
    points = [
        Point(
            {"who": "calibrated", "trust": trust, "M": agents, "epsilon": epsilon},
            world | {"agents": agents, "runs": many, "epsilon": epsilon, "delta": 1e-6, "trust": trust},
        )
        for trust in _TRUST
        for agents, many in runs.items()
        for epsilon in _EPSILONS
    ]
    points += [
        common.baseline("no privacy", world | {"agents": agents, "runs": many}, M=agents)
        for agents, many in runs.items()
    ]
    few = world | {"agents": 10, "runs": 10}
    return points + common.alone_and_uniform(few, alone_runs=common.ALONE_RUNS if full else None)


def _row(results: Results, trust: str, agents: int) -> list[Outcome]:
    return results.along("epsilon", who="calibrated", trust=trust, M=agents)


def _map(axes: Axes, rows: list[list[Outcome]], alone: Outcome) -> None:
    """Regret over alone in colours, with the border where federating wins."""
    ratio = np.array([[np.log10(one.mean / alone.mean) for one in row] for row in rows])
    axes.imshow(ratio, cmap="RdBu_r", vmin=-1.2, vmax=1.2, origin="lower", aspect="auto")
    wins = [[one.mean < alone.mean for one in row] for row in rows]
    for y, row in enumerate(rows):
        for x, one in enumerate(row):
            dark = abs(ratio[y, x]) > 0.8
            shown = common.plus_minus(one).replace(" ± ", "\n± ")
            axes.text(x, y, shown, ha="center", va="center", fontsize=8, color="white" if dark else "black")
            if x and wins[y][x] != wins[y][x - 1]:
                axes.plot((x - 0.5, x - 0.5), (y - 0.5, y + 0.5), color="black", linewidth=3)
            if y and wins[y][x] != wins[y - 1][x]:
                axes.plot((x - 0.5, x + 0.5), (y - 0.5, y - 0.5), color="black", linewidth=3)


def _draw(results: Results) -> Picture:
    alone, uniform = results.one(who="alone"), results.one(who="uniform")
    drawn, panels = common.picture(width=12, panels=2, title=FIGURE.title)
    sizes = results.values("M", who="calibrated")
    for axes, (trust, name) in zip(panels, _TRUST.items(), strict=True):
        rows = [[*_row(results, trust, agents), results.one(who="no privacy", M=agents)] for agents in sizes]
        _map(axes, rows, alone)
        axes.set_title(name, loc="left", fontsize=10.5, color="#555555")
        axes.set_xticks(range(len(_EPSILONS) + 1), [*(f"{one:g}" for one in _EPSILONS), "no privacy"])
        axes.set_yticks(range(len(sizes)), [f"{agents:,}" for agents in sizes])
        axes.set_xlabel("ε (δ = 10⁻⁶)")
        axes.set_ylabel("M, agents")
    drawn.supxlabel(
        f"regret of the average agent after {alone.setting['horizon']:,} rounds; blue: below each agent "
        f"alone, {common.plus_minus(alone)}; uniform play {common.plus_minus(uniform)}",
        x=0.01,
        ha="left",
        fontsize=9.5,
        color="#555555",
    )
    return drawn


def _text(results: Results) -> str:
    alone, uniform = results.one(who="alone"), results.one(who="uniform")
    said = []
    for trust, name in _TRUST.items():
        border = []
        for agents in results.values("M", who="calibrated"):
            won = [
                one.label["epsilon"] for one in _row(results, trust, agents) if common.surely_less(one, alone)
            ]
            border.append(f"{agents:,} agents {f'from ε = {min(won):g}' if won else 'nowhere'}")
        beats = common.alone_sentence(
            results, lambda one: f"M = {one.label['M']:,}, ε = {one.label['epsilon']:g}", trust=trust
        )
        said.append(f"- Where {name}: {beats} The border: {', '.join(border)}.")
    gains = [
        one.mean / results.one(**(dict(one.label) | {"trust": "controller"})).mean
        for one in results.where(who="calibrated", trust="nobody")
    ]
    verb = "changes" if min(gains) < 1 < max(gains) else "divides"
    span = common.span((common.number(min(gains)), common.number(max(gains))))
    worst = max(results.where(who="calibrated"), key=lambda one: one.mean)
    blind = common.percent(common.share(worst, uniform))
    trusting = f"Trusting the controller {verb} regret by a factor of {span}."
    where = f"(M = {worst.label['M']:,}, ε = {worst.label['epsilon']:g})"
    planned = common.releases_sentence(results)
    last = f"{trusting} {planned} The worst point {where} loses {blind} of what uniform play loses."
    return "\n".join(said) + f"\n\n{last}"


FIGURE = Figure(
    name="federation",
    title="Where federating beats staying alone",
    question="An agent that never communicates is perfectly private under the paper's definition. From how"
    " many agents M and from which ε on (δ = 10⁻⁶, d = 10, K = 100, the planned schedule) is it "
    "better to federate?",
    points=_points,
    draw=_draw,
    text=_text,
    table=lambda results: common.table_of(results, ("trust", "M", "epsilon")),
)
