"""Figure 1b: regret and communication."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from feducb.experiments.base import Figure, Outcome, Point, Results, Scale
from feducb.experiments.figures import common

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURE"]

_FEW, _SOME, _ALL = "O(M^1.5)", "O(M log T)", "O(MT)"
_SCHEDULES: dict[str, dict[str, Any]] = {
    _FEW: {"schedule": "geometric", "releases": 10},
    _SOME: {"schedule": "geometric", "releases": 64},
    _ALL: {"schedule": "every-round"},
}
_STYLES = {_FEW: ":", _SOME: "-", _ALL: "--"}
_WHO = ("calibrated", "no privacy", "paper")


def _points(scale: Scale) -> list[Point]:
    full = scale == "full"
    found = []
    for communication, schedule in _SCHEDULES.items():
        every = communication == _ALL
        horizon = (20_000 if every else 10_000_000) if full else (1_000 if every else 5_000)
        world = {"dim": 10, "arms": 100, "seed": 0, "agents": 100, "horizon": horizon} | schedule
        runs = (20 if every else 100) if full else (3 if every else 8)
        label = {"communication": communication}
        private = world | {"epsilon": 1.0, "delta": 0.1}
        found += [
            Point({"who": "calibrated", **label}, private | {"runs": runs}),
            common.baseline("no privacy", world | {"runs": runs}, **label),
            Point({"who": "paper", **label}, private | {"mode": "paper", "runs": 5 if full else 2}),
        ]
    few = {"dim": 10, "arms": 100, "seed": 0, "agents": 10, "horizon": 10_000_000 if full else 5_000}
    few |= {"runs": 10}
    return [*found, common.baseline("alone", few), common.baseline("uniform", few)]


def _draw(results: Results) -> Picture:
    drawn, (axes,) = common.picture(width=11, title=FIGURE.title)
    for who in _WHO:
        for communication, style in _STYLES.items():
            one = results.one(who=who, communication=communication)
            name = f"{who}, {communication}"
            common.curve(axes, one, colour=common.COLOURS[who], label=name, style=style)
    for who in ("alone", "uniform"):
        common.curve(axes, results.one(who=who), colour=common.COLOURS[who], label=who)
    common.finish(axes, "round")
    return drawn


def _compare(more: Outcome, less: Outcome, names: tuple[str, str], at: int) -> str:
    (one, error), (other, error_too) = common.at_round(more, at), common.at_round(less, at)
    gap, sure = other - one, 2 * math.hypot(error, error_too)
    if gap > sure:
        verdict = f"{names[0]} beats {names[1]}"
    elif -gap > sure:
        verdict = f"{names[0]} does worse than {names[1]}"
    else:
        verdict = f"{names[0]} and {names[1]} do not differ surely"
    return (
        f"{verdict} at round {at:,} ({common.number(one)} ± {common.number(error)} against "
        f"{common.number(other)} ± {common.number(error_too)})"
    )


def _text(results: Results) -> str:
    said = []
    for who in _WHO:
        few, some, every = (results.one(who=who, communication=name) for name in _SCHEDULES)
        whole, short = some.setting["horizon"], every.setting["horizon"]
        said.append(
            f"- {who}: {_compare(some, few, (_SOME, _FEW), whole)}; "
            f"{_compare(every, some, (_ALL, _SOME), min(whole, short))}."
        )
    alone, uniform = results.one(who="alone"), results.one(who="uniform")
    every = results.one(who="calibrated", communication=_ALL)
    short, whole = every.setting["horizon"], alone.setting["horizon"]
    cut = ""
    if short < whole:
        cut = (
            f" {_ALL} was played for {short:,} rounds only, where the others were played for {whole:,}: "
            "every round is a release."
        )
    private = [results.one(who="calibrated", communication=name) for name in (_FEW, _SOME)]
    beats = common.alone_sentence(private, lambda one: alone, lambda one: str(one.label["communication"]))
    at_short = common.at_round(alone, short)[0]
    beats += f" {_ALL} has {common.plus_minus(every)} at round {short:,}, alone {common.number(at_short)}."
    printed = common.printed_sentence(results.where(who="paper"), lambda one: uniform)
    return "\n".join(said) + f"\n\n{beats}{cut}\n\n{printed}"


FIGURE = Figure(
    name="1b",
    title="Regret and communication",
    question="What does more communication buy M = 100 agents (ε = 1, δ = 0.1, d = 10, K = 100): O(M^1.5),"
    " 10 releases an agent; O(M log T), 64; O(MT), one a round? The paper observes a trade-off, "
    "with more communication giving less regret.",
    points=_points,
    draw=_draw,
    text=_text,
    table=lambda results: common.table_of(results, ("communication",)),
)
