"""Where federating pays: over the number of sites, visitors of each, ε, and who adds the noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from feducb.protocol.federation import Tuning
from feducb.simulation.paying import PATIENCE_ALONE
from feducb.simulation.public_numbers import numbers_of
from feducb.simulation.results import SimulationResult
from feducb.simulation.runner import simulate
from feducb.types import Array
from feducb_lab.experiments.experiment import Figure, Point, Results, Scale
from feducb_lab.experiments.figures import common
from feducb_lab.experiments.figures.paying_cells import REAL, TRUSTS, cells_of, season_at
from feducb_lab.experiments.figures.paying_words import text_of

__all__ = ["FIGURE", "alone_soon"]

_DARKEST = 30.0  # times less, or more, than alone
_BORDER = 0.95  # of alone's regret: where the line is drawn


class _Grid(NamedTuple):
    """What is played."""

    runs: Mapping[int, int]  # of so many agents
    visitors: tuple[int, ...]
    epsilons: tuple[float, ...]


_GRIDS: dict[Scale, _Grid] = {
    "quick": _Grid({5: 16, 20: 6, 80: 3, 320: 2}, (100, 400, 1600), (1.0, 4.0)),
    "full": _Grid(
        {3: 40, 10: 20, 30: 12, 100: 6, 300: 4, 1000: 2},
        (100, 300, 1000, 3000, 10_000),
        (0.3, 1.0, 3.0, 10.0),
    ),
}


def alone_soon(**setting: Any) -> SimulationResult:
    """An agent alone that acts on its records sooner: a plan holds federations against the better of two."""
    return simulate(**setting, baseline="alone", tuning=Tuning(patience=min(PATIENCE_ALONE)))


def _points(scale: Scale) -> list[Point]:
    """Largest first, so that none is waited for at the end."""
    grid = _GRIDS[scale]
    points = []
    for visitors in reversed(grid.visitors):
        world = {"dim": 10, "arms": 100, "seed": 0, "horizon": visitors}
        for agents, runs in reversed(list(grid.runs.items())):
            many, where = world | {"agents": agents, "runs": runs}, {"M": agents, "T": visitors}
            points += list(_private(many, grid.epsilons, where))
            points.append(common.baseline("no privacy", many, **where))
        few = world | {"agents": 10, "runs": 40 if scale == "full" else 10}
        points += common.alone_and_uniform(few, T=visitors, soon=False)
        points.append(Point({"who": "alone", "T": visitors, "soon": True}, few, f"{__name__}:alone_soon"))
    return points


def _private(
    setting: Mapping[str, Any], epsilons: Sequence[float], where: Mapping[str, Any]
) -> Iterator[Point]:
    """Under each budget and trust the plays in which agents would share anything, by public numbers."""
    for epsilon in epsilons:
        for trust in TRUSTS:
            private = {"epsilon": epsilon, "delta": 1e-6, "trust": trust}
            label = {"who": "calibrated", "trust": trust, "epsilon": epsilon, **where}
            numbers = numbers_of(season_at(label))
            if numbers.readable:
                yield Point(label | {"play": "released"}, {**setting, **private, "play": "released"})
            if numbers.closes:
                yield Point(label | {"play": "own"}, {**setting, **private, "play": "own"})


def _map(axes: Axes, results: Results, title: str, **label: Any) -> Any:
    """Regret over alone's in colours, with the line beyond which federating pays, and the real data."""
    cells, agents, visitors = (
        cells_of(results, **label),
        results.values("M", who="no privacy"),
        results.values("T"),
    )
    ratio = np.array([[one.ratio for one in row] for row in cells])
    top = math.log10(_DARKEST)
    across, up = _edges(visitors), _edges(agents)
    drawn = axes.pcolormesh(across, up, np.log10(ratio), cmap="RdBu_r", vmin=-top, vmax=top)
    if ratio.min() < _BORDER < ratio.max():
        axes.contour(visitors, agents, ratio, levels=[_BORDER], colors="black", linewidths=2)
    for row, sites in zip(cells, agents, strict=True):
        for one, many in zip(row, visitors, strict=True):
            shown = "alone" if one.chosen is None else f"{one.ratio:.2f}"
            dark = abs(math.log10(one.ratio)) > 0.6 * top
            colour = "white" if dark else "#888888" if one.chosen is None else "black"
            axes.text(many, sites, shown, ha="center", va="center", fontsize=6.5, color=colour)
    for number, (sites, records, _) in enumerate(REAL.values(), start=1):
        axes.text(
            np.clip(records, 1.2 * across[0], across[-1] / 1.2),  # what is beyond the map lies at its edge
            np.clip(sites, 1.2 * up[0], up[-1] / 1.2),
            str(number),
            fontsize=6,
            ha="center",
            va="center",
            bbox={
                "boxstyle": "circle,pad=0.25",
                "facecolor": "#f2c14e",
                "edgecolor": "black",
                "linewidth": 0.6,
            },
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(visitors, [f"{one:,}" for one in visitors], fontsize=7)
    axes.set_yticks(agents, [f"{one:,}" for one in agents], fontsize=7)
    axes.minorticks_off()
    axes.set_title(title, loc="left", fontsize=9.5, color="#555555")
    return drawn


def _edges(values: Sequence[float]) -> Array:
    """Between neighbours, evenly on a logarithmic scale."""
    logs = np.log(np.array(values, dtype=float))
    middle = 0.5 * (logs[1:] + logs[:-1])
    ends = 2 * logs[0] - middle[0], 2 * logs[-1] - middle[-1]
    return np.asarray(np.exp([ends[0], *middle, ends[1]]))


def _draw(results: Results) -> Picture:
    epsilons = results.values("epsilon", who="calibrated")
    drawn = Picture(figsize=(3.1 * (len(epsilons) + 1), 8.6), layout="constrained")
    drawn.suptitle(FIGURE.title, x=0.01, ha="left", fontsize=14, fontweight="bold")
    panels = drawn.subplots(len(TRUSTS), len(epsilons) + 1, squeeze=False)
    for row, (trust, name) in zip(panels, TRUSTS.items(), strict=True):
        for axes, epsilon in zip(row, epsilons, strict=False):
            shown = _map(
                axes, results, f"ε = {epsilon:g}, {name}", who="calibrated", trust=trust, epsilon=epsilon
            )
        row[0].set_ylabel("M, sites", fontsize=9)
        row[-1].axis("off")
    for axes in panels[-1][:-1]:
        axes.set_xlabel("visitors of each site", fontsize=9)
    panels[0][-1].axis("on")
    _map(panels[0][-1], results, "no privacy", who="no privacy")
    names = [
        f"{number}  {name}, d = {dim}" for number, (name, (_, _, dim)) in enumerate(REAL.items(), start=1)
    ]
    said = "\n".join(
        [
            "agents × records of real data:",
            *names,
            "",
            "other worlds and other d than",
            "the map's: d = 10, K = 100;",
            "beyond the map: at its edge",
        ]
    )
    panels[1][-1].text(0.0, 1.0, said, va="top", fontsize=9, transform=panels[1][-1].transAxes)
    ratios = [1 / _DARKEST, 0.1, 0.3, 1.0, 3.0, 10.0, _DARKEST]
    inside = panels[-1][-1].inset_axes((0.0, 0.7, 1.0, 0.08))
    bar = drawn.colorbar(shown, cax=inside, orientation="horizontal", ticks=np.log10(ratios))
    bar.ax.set_xticklabels([f"{one:.2g}" for one in ratios], fontsize=8)
    bar.set_label(f"regret over that of an agent alone;\nblack line: {_BORDER:g}", fontsize=9)
    return drawn


def _table(results: Results) -> list[list[str]]:
    """A row for each place: alone and without privacy, then each trust under both plays."""
    columns = [(trust, play) for trust in TRUSTS for play in ("released", "own")]
    head = ["ε", "M", "T", "uniform", "alone", "alone, sooner", "no privacy"]
    rows = [[*head, *(f"{trust}, {play}" for trust, play in columns)]]
    for epsilon in results.values("epsilon", who="calibrated"):
        for agents in results.values("M", who="no privacy"):
            for visitors in results.values("T"):
                row = [
                    f"{epsilon:g}",
                    f"{agents:,}",
                    f"{visitors:,}",
                    common.plus_minus(results.one(who="uniform", T=visitors)),
                ]
                row += [
                    common.plus_minus(results.one(who="alone", T=visitors, soon=soon))
                    for soon in (False, True)
                ]
                row.append(common.plus_minus(results.one(who="no privacy", M=agents, T=visitors)))
                for trust, play in columns:
                    found = results.where(
                        who="calibrated", trust=trust, play=play, epsilon=epsilon, M=agents, T=visitors
                    )
                    row.append(common.plus_minus(found[0]) if found else "–")
                rows.append(row)
    return rows


FIGURE = Figure(
    name="federation",
    title="Where federating beats staying alone",
    question="An agent that never communicates is perfectly private under the paper's definition. With how "
    "many sites M, how many visitors of each, which ε (δ = 10⁻⁶) and whose noise is it better to federate "
    "(d = 10, K = 100)? Of released and own play the better is taken, as public numbers say.",
    points=_points,
    draw=_draw,
    text=text_of,
    table=_table,
)
