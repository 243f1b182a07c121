"""Regret curves. The only file of the simulation that draws."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from feducb.simulation.results import SimulationResult

__all__ = ["plot_curves"]

_COLOURS = {
    "feducb (calibrated)": "#1b6ca8",
    "feducb (secure sums)": "#7a4fa3",
    "the paper's constants": "#b23a48",
    "each agent alone": "#6b6b6b",
    "no privacy": "#3a7d44",
    "uniform play": "#b8b8b8",
}
_DASHED = ("uniform play", "each agent alone")
_CROWDED = 4.0  # one curve this many times above the next hides the others: draw them again without it


def plot_curves(
    results: Mapping[str, SimulationResult],
    *,
    title: str = "",
    subtitle: str = "",
    path: str | Path | None = None,
) -> Figure:
    """Draw per-agent regret curves, one per label, with bands of two standard errors.

    Where one curve dwarfs the others, a second panel shows the others at their own scale.

    Args:
        results: by label.
        title: above the picture.
        subtitle: below the title, smaller.
        path: where to write it; the ending says the format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ends = sorted(result.mean for result in results.values())
    zoomed = len(ends) > 2 and ends[-1] > _CROWDED * ends[-2]
    figure = Figure(figsize=(12.0, 5.2) if zoomed else (9.0, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    if zoomed:
        largest = max(results, key=lambda label: results[label].mean)
        others = {label: result for label, result in results.items() if label != largest}
        panels = {"all": results, f"the same without {largest}": others}
        for axes, (name, shown) in zip(figure.subplots(1, 2), panels.items(), strict=True):
            _draw(axes, shown)
            axes.set_title(name, loc="left", fontsize=10.5, color="#555555")
    else:
        _draw(figure.subplots(), results)
    if title:
        figure.suptitle(title.rstrip(), x=0.01, ha="left", fontsize=15, fontweight="bold")
    if subtitle:
        figure.supxlabel(subtitle, x=0.01, ha="left", fontsize=9.5, color="#555555")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _draw(axes: Axes, results: Mapping[str, SimulationResult]) -> None:
    for label, result in results.items():
        colour, style = _COLOURS.get(label, "#1b6ca8"), "--" if label in _DASHED else "-"
        mean, error = result.mean_curve, result.stderr_curve
        axes.plot(result.rounds, mean, style, color=colour, linewidth=2.2)
        if error is not None:
            axes.fill_between(
                result.rounds, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.18, linewidth=0
            )
    _name_ends(axes, results)
    axes.set_xlabel("round")
    axes.set_ylabel("regret of the average agent")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e6e6e6")
    axes.set_axisbelow(True)


def _name_ends(axes: Axes, results: Mapping[str, SimulationResult]) -> None:
    """Write each curve's name and last value at its right end, pushed apart where they would touch."""
    apart = 0.06 * (max(result.mean for result in results.values()) or 1.0)
    height = -apart
    for label, result in sorted(results.items(), key=lambda entry: entry[1].mean):
        height = max(result.mean, height + apart)
        axes.annotate(
            f"{label}  {result.mean:,.1f}",
            xy=(float(result.rounds[-1]), height),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=_COLOURS.get(label, "#1b6ca8"),
            fontsize=10.5,
            fontweight="bold",
            annotation_clip=False,
        )
