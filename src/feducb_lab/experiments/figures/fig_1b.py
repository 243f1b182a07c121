"""Figure 1b: regret and communication."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure as Picture

from feducb_lab.experiments.experiment import Figure, Outcome, Point, Results, Scale
from feducb_lab.experiments.figures import common

__all__ = ["FIGURE"]

_FEW, _SOME, _ALL, _PLANNED = "O(M^1.5)", "O(M log T)", "O(MT)", "planned"
_SHORT = f"{_SOME}, fewer rounds"
_SCHEDULES: dict[str, dict[str, Any]] = {
    _FEW: {"schedule": "geometric", "releases": 10},
    _SOME: {"schedule": "geometric", "releases": 64},
    _SHORT: {"schedule": "geometric", "releases": 64},
    _ALL: {"schedule": "every-round"},
}
_STYLES = {_FEW: ":", _SOME: "-", _ALL: "--", _PLANNED: "-."}
_WHO = ("calibrated", "no privacy", "paper")  # the last knows no planned schedule


def _points(scale: Scale) -> list[Point]:
    full = scale == "full"
    world: dict[str, Any] = {"dim": 10, "arms": 100, "seed": 0}
    whole, short = (10_000_000, 20_000) if full else (5_000, 1_000)
    points = []
    for communication, schedule in _SCHEDULES.items():
        brief = communication in (_SHORT, _ALL)
        crowd = world | schedule | {"agents": 100, "horizon": short if brief else whole}
        runs = (20 if brief else 100) if full else (3 if brief else 8)
        label = {"communication": communication}
        private = crowd | {"epsilon": 1.0, "delta": 0.1}
        points += [
            Point({"who": "calibrated", **label}, private | {"runs": runs}),
            common.baseline(
                "no privacy", crowd | {"runs": min(runs, 5) if communication == _ALL else runs}, **label
            ),
            Point({"who": "paper", **label}, private | {"mode": "paper", "runs": 5 if full else 2}),
        ]
    crowd = world | {"agents": 100, "horizon": whole, "runs": 100 if full else 8}
    few = world | {"agents": 10, "horizon": whole, "runs": 10}
    lone = few | {"runs": common.ALONE_RUNS if full else 10}
    return [
        *points,
        Point({"who": "calibrated", "communication": _PLANNED}, crowd | {"epsilon": 1.0, "delta": 0.1}),
        common.baseline("no privacy", crowd, communication=_PLANNED),
        common.baseline("alone", lone, communication="none"),
        common.baseline("alone", lone | {"horizon": short}, communication="none, fewer rounds"),
        common.baseline("uniform", few),
    ]


def _draw(results: Results) -> Picture:
    drawn, (axes,) = common.picture(width=11, title=FIGURE.title)
    for who in _WHO:
        for communication, style in _STYLES.items():
            for one in results.where(who=who, communication=communication):
                name = f"{who}, {communication}"
                common.curve(axes, one, colour=common.COLOURS[who], label=name, style=style)
    common.curve(axes, results.one(who="alone", communication="none"), colour="#6b6b6b", label="alone")
    common.curve(axes, results.one(who="uniform"), colour="#b8b8b8", label="uniform")
    common.finish(axes, "round")
    return drawn


def _compare(more: Outcome, less: Outcome, names: tuple[str, str]) -> str:
    one, other = names
    unsure = f"{one} and {other} do not differ surely"
    verdict = common.change(less, more, f"{one} beats {other}", f"{one} does worse than {other}", unsure)
    rounds = more.setting["horizon"]
    return f"{verdict} over {rounds:,} rounds ({common.plus_minus(more)} against {common.plus_minus(less)})"


def _text(results: Results) -> str:
    said = []
    for who in _WHO:
        few, some, brief, every = (results.one(who=who, communication=name) for name in _SCHEDULES)
        parts = [_compare(some, few, (_SOME, _FEW)), _compare(every, brief, (_ALL, _SOME))]
        for planned in results.where(who=who, communication=_PLANNED):
            name = f"the planned schedule, {planned.result['releases']:,.0f} releases,"
            parts.append(_compare(planned, some, (name, _SOME)))
        said.append(f"- {who}: {'; '.join(parts)}.")
    whole, short = (results.one(who="alone", communication=f"none{name}") for name in ("", ", fewer rounds"))
    rounds = whole.setting["horizon"], short.setting["horizon"]
    cut = ""
    if rounds[1] < rounds[0]:
        cut = (
            f" {_ALL} was played for {rounds[1]:,} rounds only, where the others were played for "
            f"{rounds[0]:,}: every round is a release. It is compared with {_SOME} over as many rounds."
        )
    beats = common.alone_sentence(results, lambda one: str(one.label["communication"]))
    return "\n".join(said) + f"\n\n{beats}{cut}\n\n{common.printed_sentence(results)}"


FIGURE = Figure(
    name="1b",
    title="Regret and communication",
    question="What does more communication buy M = 100 agents (ε = 1, δ = 0.1, d = 10, K = 100): O(M^1.5),"
    " 10 releases per agent; O(M log T), 64; O(MT), one per round; and how many does the planned "
    "schedule make? The paper observes a trade-off, with more communication giving less regret.",
    points=_points,
    draw=_draw,
    text=_text,
    table=lambda results: common.table_of(results, ("communication",)),
)
