"""What the map of where federating pays says, in words made from its results."""

from __future__ import annotations

import math

from feducb_lab.experiments.experiment import Outcome, Results
from feducb_lab.experiments.figures import common
from feducb_lab.experiments.figures.paying_cells import REAL, TRUSTS, Cell, cell_at, cells_of

__all__ = ["text_of"]


def text_of(results: Results) -> str:
    """Where it pays, how good the public rule is, and where real data lie."""
    said = [_trust_text(results, trust, name) for trust, name in TRUSTS.items()]
    return "\n".join(said) + f"\n\n{_rule_text(results)} {_real_text(results)}"


def _trust_text(results: Results, trust: str, name: str) -> str:
    """How often it pays under a trust, and the border at each ε."""
    flat: list[Cell] = []
    borders = []
    for epsilon in results.values("epsilon", who="calibrated"):
        cells = cells_of(results, who="calibrated", trust=trust, epsilon=epsilon)
        flat += [one for row in cells for one in row]
        border = []
        for column, visitors in enumerate(results.values("T")):
            won = [
                agents
                for agents, row in zip(results.values("M", who="no privacy"), cells, strict=True)
                if row[column].pays
            ]
            border.append(f"{min(won):,} at {visitors:,}" if won else f"none at {visitors:,}")
        borders.append(f"ε = {epsilon:g}: {', '.join(border)}")
    pays, stays = sum(one.pays for one in flat), sum(one.chosen is None for one in flat)
    lost = sum(one.chosen is not None and common.surely_less(one.alone, one.chosen) for one in flat)
    best = min(flat, key=lambda one: one.ratio)
    gain = (
        ""
        if best.chosen is None
        else f", by up to {common.number(1 / best.ratio)} times ({_where(best.chosen)})"
    )
    return (
        f"- Where {name}, federating pays in {pays} of {len(flat)} places{gain}; in {stays} all stay alone, "
        f"in {lost} sharing loses. Fewest sites, of those played, with which it pays, at so many visitors of "
        f"each: {'; '.join(borders)}."
    )


def _where(one: Outcome) -> str:
    return f"M = {one.label['M']:,}, {one.label['T']:,} visitors, ε = {one.label['epsilon']:g}"


def _rule_text(results: Results) -> str:
    """How good the public rule is that says how to play."""
    cells = [
        one
        for trust in TRUSTS
        for epsilon in results.values("epsilon", who="calibrated")
        for row in cells_of(results, who="calibrated", trust=trust, epsilon=epsilon)
        for one in row
        if len(one.plays) > 1
    ]
    if not cells:
        return "Nowhere both plays share anything."
    costs = [
        one.chosen.mean / min(play.mean for play in one.plays) for one in cells if one.chosen is not None
    ]
    right = sum(cost == 1.0 for cost in costs)
    return (
        "How to play is said by public numbers alone, as `feducb privacy plan --predict` says it: in "
        f"{right} of {len(cells)} places where both plays share something that is the one that loses less, "
        f"and elsewhere it costs at most {common.number(max(costs))} times as much."
    )


def _real_text(results: Results) -> str:
    """Which real data sets lie where it pays, by the nearest place of the map."""
    agents, visitors = results.values("M", who="no privacy"), results.values("T")
    said = []
    for name, (sites, records, dim) in REAL.items():
        near = [
            min(among, key=lambda one: abs(math.log(one / value)))
            for among, value in ((agents, sites), (visitors, records))
        ]
        found = []
        for trust in TRUSTS:
            paid = [
                epsilon
                for epsilon in results.values("epsilon", who="calibrated")
                if cell_at(results, *near, who="calibrated", trust=trust, epsilon=epsilon).pays
            ]
            found.append(f"{trust} {f'from ε = {min(paid):g}' if paid else 'nowhere'}")
        said.append(f"{name} ({sites} × {records:g}, d = {dim}): {', '.join(found)}")
    return (
        "Real data sets lie in the map by their agents and records alone; their d and their worlds are "
        f"others, so that this is no verdict on them. At the nearest place it pays: {'; '.join(said)}."
    )
