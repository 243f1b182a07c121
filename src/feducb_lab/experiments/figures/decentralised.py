"""Agents on a graph: regret and messages over topologies and times to live."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure as Picture

from feducb_lab.experiments.experiment import Figure, Outcome, Point, Results, Scale
from feducb_lab.experiments.figures import common

__all__ = ["FIGURE"]

_GRAPHS = {
    "complete:16": (1,),
    "smallworld:16:4:0.2": (1, 2),
    "grid:4x4": (1, 2, 4),
    "ring:16": (1, 2, 4, 8),
    "line:16": (1, 2, 4, 8),
}
_PRIVATE = (("complete:16", 1), ("grid:4x4", 4), ("ring:16", 8))
_EPSILON = 8.0
_PLAIN = ("#3a7d44", "#d98e04", "#4a98c9", "#0b3c5d", "#7b5ea7")


def _points(scale: Scale) -> list[Point]:
    full = scale == "full"
    world: dict[str, Any] = {"dim": 10, "arms": 100, "seed": 0}
    world |= {"horizon": 100_000, "runs": 40} if full else {"horizon": 1_000, "runs": 4}
    points = []
    for graph, lives in _GRAPHS.items():
        for ttl in lives:
            for kept in ("paper", "one") if ttl > 1 else ("one",):
                label = {"graph": graph, "ttl": ttl, "estimators": kept}
                setting = world | {"topology": graph, "ttl": ttl, "estimators": kept}
                points.append(common.baseline("no privacy", setting, **label))
                if (graph, ttl) in _PRIVATE:
                    private = setting | {"epsilon": _EPSILON, "delta": 1e-6}
                    points.append(Point({"who": "calibrated", **label}, private))
    for graph, ttl in _PRIVATE:  # the printed algorithm: requests, γ estimators
        label = {"graph": graph, "ttl": ttl, "estimators": "paper"}
        printed = {"mode": "paper", "epsilon": _EPSILON, "delta": 1e-6, "runs": 5 if full else 2}
        points.append(Point({"who": "paper", **label}, world | {"topology": graph, "ttl": ttl} | printed))
    centre = {"graph": "controller"}
    star = world | {"agents": 16}
    points.append(common.baseline("no privacy", star, **centre))
    points.append(Point({"who": "calibrated", **centre}, star | {"epsilon": _EPSILON, "delta": 1e-6}))
    return points + common.alone_and_uniform(star)


def _name(one: Outcome) -> str:
    if one.label["graph"] == "controller":
        return "a controller"
    kept = "one estimator" if one.label["estimators"] == "one" else f"{one.label['ttl']} estimators"
    return f"{one.label['graph']}, γ = {one.label['ttl']}, {kept}"


def _line(results: Results, who: str, graph: str, kept: str) -> list[Outcome]:
    """Over γ; with γ = 1 both ways of keeping estimators are the same."""
    line = results.along("ttl", who=who, graph=graph)
    return [one for one in line if one.label["ttl"] == 1 or one.label["estimators"] == kept]


def _draw(results: Results) -> Picture:
    drawn, (left, right) = common.picture(width=14, panels=2, title=FIGURE.title)

    def both(line: list[Outcome], least: float = 0.0, **style: Any) -> None:
        """Over γ on the left; on the right over messages, of which a logarithm wants one at least."""
        common.bars(left, "ttl", line, **style)
        common.bars(right, [max(least, one.result["messages"]) for one in line], line, **style)

    for graph, shade in zip(_GRAPHS, _PLAIN, strict=True):
        for kept, style in (("one", "-"), ("paper", ":")):
            name = graph if kept == "one" else None
            both(_line(results, "no privacy", graph, kept), color=shade, linestyle=style, label=name)
        for one in results.where(who="calibrated", graph=graph):
            marker = "s" if one.label["estimators"] == "one" else "x"
            both([one], color=shade, marker=marker, linestyle="none")
    for one in results.where(who="paper"):
        both([one], least=1.0, color=common.COLOURS["paper"], marker="x", linestyle="none")
    for axes in (left, right):
        common.level(axes, results.one(who="no privacy", graph="controller"), label="controller, no privacy")
        common.levels(axes, results, "alone", "uniform")
    common.finish(left, "γ, hops that a message lives", title="solid: one estimator, dotted: γ", legend=False)
    left.set_xticks((1, 2, 4, 8), ["1", "2", "4", "8"])
    left.minorticks_off()
    private = f"squares, crosses: ε = {_EPSILON:g}, one estimator and γ; red: printed constants"
    common.finish(right, "messages per run, one per hop", title=private)
    return drawn


def _text(results: Results) -> str:
    said = []
    for graph, lives in _GRAPHS.items():
        if len(lives) == 1:
            continue
        one, many = (_line(results, "no privacy", graph, kept) for kept in ("one", "paper"))
        near, far_one, far_many = one[0], one[-1], many[-1]
        ways = []
        for line, name in ((many, "γ estimators"), (one, "one estimator")):
            verb = common.change(line[0], line[-1], "falls", "rises", "does not change surely")
            ways.append(f"with {name} it {verb} to {common.plus_minus(line[-1])}")
        ratio = far_many.result["messages"] / max(1, far_one.result["messages"])
        said.append(
            f"- {graph}: from γ = 1 ({common.plus_minus(near)}) to γ = {far_one.label['ttl']} "
            f"{' and '.join(ways)}; γ estimators send {common.number(ratio)} times the messages."
        )
    alone, uniform = results.one(who="alone"), results.one(who="uniform")
    centre = results.one(who="no privacy", graph="controller")
    graphs = [one for one in results.where(who="no privacy") if one is not centre]
    best = min(graphs, key=lambda one: one.mean)
    worst = max(graphs, key=lambda one: one.mean)
    ends = (
        f"Without privacy the best graph ({_name(best)}: {common.plus_minus(best)}) comes to "
        f"{common.number(best.mean / centre.mean)} times the regret of a controller "
        f"({common.plus_minus(centre)}), the worst ({_name(worst)}: {common.plus_minus(worst)}) to "
        f"{common.number(worst.mean / alone.mean)} times that of staying alone ({common.plus_minus(alone)})."
    )
    private = results.where(who="calibrated")
    beats = f"With ε = {_EPSILON:g} and δ = 10⁻⁶: " + common.alone_sentence(results, _name)
    worst = max(private, key=lambda one: one.mean)
    blind = common.percent(common.share(worst, uniform))
    beats += f" The worst ({_name(worst)}) loses {blind} of what uniform play loses."
    return "\n".join(said) + f"\n\n{ends}\n\n{beats}\n\n{common.printed_sentence(results)}"


def _table(results: Results) -> list[list[str]]:
    head, *rows = common.table_of(results, ("graph", "ttl", "estimators"))
    sent = [f"{one.result['messages']:,.0f}" for one in results.outcomes]
    return [[*head, "messages"], *([*row, count] for row, count in zip(rows, sent, strict=True))]


FIGURE = Figure(
    name="decentralised",
    title="Agents on a graph",
    question="What do 16 agents on a graph lose against a controller, over topologies and times to live γ "
    "(d = 10, K = 100), with the paper's γ estimators per agent and with one? The paper's bound "
    "grows with γ/|C|, |C| the size of an agent's clique.",
    points=_points,
    draw=_draw,
    text=_text,
    table=_table,
)
