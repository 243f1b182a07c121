"""Figures that are tables of the documentation: each point is a cell, drawn as a dot with its error."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure as Picture
from matplotlib.ticker import NullFormatter

from feducb_lab.experiments.experiment import Figure, Outcome, Point, Results, Scale
from feducb_lab.experiments.figures import common

__all__ = ["table_figure"]


def table_figure(name: str, title: str, question: str, points: Callable[[Scale], list[Point]]) -> Figure:
    """A figure whose points are labelled by ``table``, ``row`` and ``column``."""
    return Figure(name, title, question, points, lambda results: _draw(results, title), _text, _all)


def _tables(results: Results) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for one in results.outcomes:
        found.setdefault(one.label["table"], []).append(one)
    return found


def _text(results: Results) -> str:
    return "\n\n".join(f"### {name}\n\n{_grid(cells)}" for name, cells in _tables(results).items())


def _grid(cells: list[Outcome]) -> str:
    rows = list(dict.fromkeys(one.label["row"] for one in cells))
    columns = list(dict.fromkeys(one.label["column"] for one in cells))
    at = {(one.label["row"], one.label["column"]): common.plus_minus(one) for one in cells}
    lines = [["", *columns], ["---"] * (1 + len(columns))]
    lines += [[row, *(at.get((row, column), "") for column in columns)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _draw(results: Results, title: str) -> Picture:
    tables = _tables(results)
    across = -(-len(tables) // 2)
    drawn = Picture(figsize=(13, 0.6 + 4.2 * across), layout="constrained")
    drawn.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold")
    panels = drawn.subplots(across, 2, squeeze=False).ravel()
    for axes in panels[len(tables) :]:
        axes.set_visible(False)
    for axes, (name, cells) in zip(panels, tables.items(), strict=False):
        rows = list(dict.fromkeys(one.label["row"] for one in cells))
        columns = list(dict.fromkeys(one.label["column"] for one in cells))
        for shade, column in zip((*common.SHADES, *common.COLOURS.values()), columns, strict=False):
            mine = [one for one in cells if one.label["column"] == column]
            places = [rows.index(one.label["row"]) for one in mine]
            errors = [2 * one.stderr for one in mine]
            axes.errorbar(
                [one.mean for one in mine], places, xerr=errors, fmt="o", color=shade, capsize=2, label=column
            )
        axes.set_yticks(range(len(rows)), rows, fontsize=8)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_title(name, loc="left", fontsize=10.5, color="#555555")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color="#e6e6e6")
        axes.set_xlabel("regret of the average agent")
        if len(columns) > 1:
            axes.legend(fontsize=7, frameon=False)
    return drawn


def _all(results: Results) -> list[list[str]]:
    rows = [["table", "row", "column", "runs", "per-agent regret"]]
    for one in results.outcomes:
        where = [str(one.label[name]) for name in ("table", "row", "column")]
        rows.append([*where, str(one.setting.get("runs", "–")), common.plus_minus(one)])
    return rows
