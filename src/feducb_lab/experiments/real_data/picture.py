"""The picture: what federating is worth by records per agent, a panel for each data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from feducb_lab.experiments.real_data.cells import EPSILONS, TRUSTS
from feducb_lab.experiments.real_data.findings import OPEN, Findings, Line, names_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]


def draw(found: Findings) -> Figure:
    """Own play less each agent alone; intervals are of each by itself."""
    from matplotlib.figure import Figure

    names = names_of(found)
    rows = -(-len(names) // 2)
    figure = Figure(figsize=(10, 2.6 * rows), layout="constrained")
    panels = figure.subplots(rows, 2, squeeze=False).ravel()
    colours, styles = (
        dict(zip(TRUSTS, ("C3", "C0", "C2"), strict=True)),
        dict(zip(EPSILONS, (":", "-"), strict=True)),
    )
    for panel, name in zip(panels, names, strict=False):
        lines = [one for one in found.play("own") if one.name == name]
        each = [one.used for one in lines]
        _curve(panel, each, lines, OPEN, color="grey", linestyle="--", label="no privacy")
        for epsilon in EPSILONS:
            for trust, colour in colours.items():
                column = f"ε = {epsilon:g}, {trust}"
                _curve(panel, each, lines, column, color=colour, linestyle=styles[epsilon], label=column)
        panel.axhline(0.0, color="black", linewidth=0.8)
        panel.set_xscale("log")
        panel.set_xticks(each, [f"{one:,}" for one in each])
        panel.set_xticks([], minor=True)
        panel.set_title(f"{name}, {lines[0].agents} agents", fontsize=9)
    for panel in panels[len(names) :]:
        panel.set_axis_off()
    figure.supxlabel("records per agent")
    figure.supylabel("value less that of each agent alone (own play)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8)
    return figure


def _curve(panel: Any, each: list[int], lines: list[Line], name: str, **style: Any) -> None:
    """Differences with their own 95 % intervals."""
    found = [one.policies[name].over_alone for one in lines]
    values = [one.value for one in found if one is not None]
    margins = [one.margin for one in found if one is not None]
    panel.errorbar(each, values, yerr=margins, marker=".", linewidth=1.2, elinewidth=0.5, **style)
