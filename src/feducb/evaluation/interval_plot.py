"""A comparison as a picture: a point and an interval per policy. The only file here that draws."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from feducb.evaluation.verdicts import ALONE, Comparison, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_comparison"]

# The mark of each play, its name, and how far above a policy's line it is drawn.
_PLAYS = {
    "greedy": ("o", "by its estimate (greedy)", 0.12),
    "practical": ("o", "with part of the bonus (practical)", 0.12),
    "played": ("s", "as agents play (played)", -0.12),
    "fixed": ("D", "one rule for everybody", 0.0),
}


def _colour(row: Row) -> str:
    if row.private:
        return "#1b6ca8"
    if row.name == ALONE:
        return "#6b6b6b"
    return "#b8860b" if row.play == "fixed" else "#3a7d44"


def plot_comparison(comparison: Comparison, *, path: str | Path | None = None) -> Figure:
    """Draw it, best at the top; write it to ``path`` if given, the ending says the format."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.name for row in comparison.rows))
    figure = Figure(figsize=(9.5, 1.9 + 0.42 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    shown = set()
    for row in comparison.rows:
        mark, label, above = _PLAYS[row.play]
        axes.errorbar(
            row.value.value,
            len(names) - 1 - names.index(row.name) + above,
            xerr=row.value.margin,
            marker=mark,
            color=_colour(row),
            markersize=5.5,
            capsize=3,
            linewidth=1.6,
            label=None if label in shown else label,
        )
        shown.add(label)
    for row in comparison.rows:
        if (row.name, row.play) == (ALONE, comparison.primary):
            axes.axvline(row.value.value, color="#6b6b6b", linewidth=1.0, linestyle="--")
    axes.set_yticks(range(len(names)), [textwrap.fill(name, 44) for name in reversed(names)])
    axes.set_xlabel(f"{comparison.measure}, {100 * comparison.settings['level']:g} % intervals")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#e6e6e6")
    axes.set_axisbelow(True)
    figure.legend(fontsize=8, frameon=False, loc="outside lower left", ncols=3)
    figure.suptitle(comparison.source, x=0.01, ha="left", fontsize=13, fontweight="bold")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
