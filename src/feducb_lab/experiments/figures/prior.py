"""Earlier private algorithms beside ours, at one and the same privacy."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure as Picture

from feducb.privacy.calibration import to_epsilon
from feducb_lab.experiments.experiment import SIMULATE, Figure, Outcome, Point, Results, Scale
from feducb_lab.experiments.figures import common
from feducb_lab.experiments.prior_work import batch_rule

__all__ = ["FIGURE", "reaccounted"]

_SINGLE = "Shariff & Sheffet 2018"
_BATCHES = "Zhou & Chowdhury 2024"
_BATCHES_OURS = "Zhou & Chowdhury 2024 with our bound"
_OURS = "ours"
_CONTROLLER = "ours, trusted controller"
_REFERENCES = {"alone": "each agent alone", "no-privacy": "no privacy", "uniform": "uniform play"}
_ORDER = [_OURS, _BATCHES_OURS, _BATCHES, _SINGLE, _CONTROLLER, *_REFERENCES.values()]
_PRIVATE = [_OURS, _BATCHES_OURS, _BATCHES, _SINGLE]
_COLOURS = {_OURS: "#1b6ca8", _CONTROLLER: "#7fb2d9", _BATCHES: "#b23a48", _BATCHES_OURS: "#d98a94"}
_COLOURS |= {_SINGLE: "#8a5a9e"}

_EPSILON, _DELTA, _AGENTS = 1.0, 1e-6, 100


def _points(scale: Scale) -> list[Point]:
    horizons = (10_000,) if scale == "quick" else (1_000_000, 10_000_000)
    return [point for horizon in horizons for point in _points_at(horizon, quick=scale == "quick")]


def _points_at(horizon: int, *, quick: bool) -> list[Point]:
    def point(who: str, runs: int, player: str = "", **more: Any) -> Point:
        label = {"T": horizon, "who": who, "batch": more.get("batch")}
        setting = {"agents": _AGENTS, "dim": 10, "arms": 100, "horizon": horizon, "runs": runs, "seed": 7}
        full: dict[str, Any] = setting | {"epsilon": _EPSILON, "delta": _DELTA} | more
        return Point(label, full, f"feducb_lab.experiments.prior_work:{player}" if player else SIMULATE)

    many, few = (10, 3) if quick else (10, 5)
    rule = batch_rule(horizon, _AGENTS)
    made = [point(_OURS, many), point(_CONTROLLER, many, trust="controller")]
    for batch in (rule, 10 * rule, 30 * rule, 100 * rule):
        made.append(point(_BATCHES, few, "fixed_batch", batch=batch))
        made.append(
            point(_BATCHES_OURS, few if batch == rule else many, "fixed_batch", batch=batch, our_bound=True)
        )
    for batch in (horizon // 100, horizon // 10):
        made.append(point(_SINGLE, many, "single_agent", batch=batch))
    for baseline, name in _REFERENCES.items():
        lone = baseline == "alone"  # agents of a run are as good as runs, but for the standard error
        size: dict[str, Any] = {"agents": 10} if lone else {}
        runs = (20 if quick else common.ALONE_RUNS) if lone else (2 if quick else few)
        made.append(point(name, runs, baseline=baseline, **size))
    return made


def reaccounted(one: Outcome) -> float:
    """ε of the whole stream, from the noise that was really added; ∞ without any, 0 where nothing leaves."""
    mu = one.result["privacy"]["mu"]
    if mu is None:
        return math.inf
    return 0.0 if mu == 0.0 else to_epsilon(mu, _DELTA)


def _best(results: Results, horizon: int) -> dict[str, Outcome]:
    """Each at the batch that came out best."""
    best = {}
    for who in _ORDER:
        tried = results.where(T=horizon, who=who)
        if tried:
            best[who] = min(tried, key=lambda one: one.mean)
    return best


def _draw(results: Results) -> Picture:
    horizons = results.values("T")
    drawn, panels = common.picture(7.5 * len(horizons), 4.6, panels=len(horizons))
    for axes, horizon in zip(panels, horizons, strict=True):
        best = _best(results, horizon)
        for place, (who, one) in enumerate(best.items()):
            axes.barh(place, one.mean, xerr=2.0 * one.stderr, color=_COLOURS.get(who, "#a8a8a8"), capsize=3)
            axes.annotate(
                f"{one.mean:,.0f}" if one.mean >= 100.0 else f"{one.mean:.3g}",
                (one.mean + 2.0 * one.stderr, place),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
            )
        axes.set_yticks(range(len(best)), list(best))
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.margins(x=0.15)
        axes.set_xlabel(f"regret of the average agent, T = {horizon:,}, ± 2 s.e.")
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


def _compare(one: Outcome, other: Outcome, name: str, other_name: str) -> str:
    """Which of two loses less, by what factor, if the runs can tell."""
    if not (common.surely_less(one, other) or common.surely_less(other, one)):
        both = f"{name} ({one.mean:.4g}) and {other_name} ({other.mean:.4g})"
        return f"{both} cannot be told apart by these runs"
    if one.mean > other.mean:
        one, other, name, other_name = other, one, other_name, name
    factor = other.mean / one.mean
    return f"{name} loses {one.mean:.4g}, {other_name} loses {other.mean:.4g}, {factor:.3g} times as much"


def _text(results: Results) -> str:
    private = [one for one in results.outcomes if one.label["who"] in (*_PRIVATE, _CONTROLLER)]
    spent = [reaccounted(one) for one in private]
    equal = max(spent) - min(spent) <= 1e-3
    parts = [
        f"Re-accounted from the noise really added, the {len(private)} private streams spend ε from "
        f"{min(spent):.4f} to {max(spent):.4f} at δ = {_DELTA:g}: "
        + ("equal." if equal else "NOT equal, so that the regrets do not compare.")
        + " Earlier work gets the exact Gaussian noise of that budget on its own tree, the least that it can "
        "have, so that constants of its own would add at least as much; and the closed-form bound of two "
        "widths, which is valid for it, played optimistically. Everybody acts on released sums only. "
        "Its batch is the best of those tried, picked afterwards, which favours it: Shariff & Sheffet "
        "release to themselves every round; "
        "batches of a hundredth and a tenth of T, with less noise, are tried here. Our patience "
        "was chosen on a family of worlds, this one among them."
    ]
    for horizon in results.values("T"):
        best = _best(results, horizon)
        ranked = sorted((who for who in _PRIVATE if who in best), key=lambda who: best[who].mean)
        first, second = ranked[:2]
        lines = [
            f"At T = {horizon:,} the least regret of those that trust nobody is that of {first}: "
            + _compare(best[first], best[second], first, second)
            + "."
        ]
        lines += [
            _compare(best[_OURS], best[who], _OURS, who) + "."
            for who in (_BATCHES, _SINGLE)
            if who not in (first, second)
        ]
        lines.append(
            "Of the distance to Zhou & Chowdhury, each at its best batch, the bound: "
            + _compare(best[_BATCHES_OURS], best[_BATCHES], "with our bound it", "with the closed form it")
            + "; mechanism, quiet start, schedule and policy: "
            + _compare(best[_OURS], best[_BATCHES_OURS], _OURS, "its tree and batches with our bound")
            + "."
        )
        rule, batch = batch_rule(horizon, _AGENTS), best[_BATCHES].label["batch"]
        lines.append(f"Its own rule is B = √(T/M) = {rule}; the best of those tried was B = {batch}.")
        alone = best[_REFERENCES["alone"]]
        paid = [who for who in ranked if common.surely_less(best[who], alone)]
        lines.append(
            f"An agent that never communicates loses {alone.mean:.4g}; "
            + (f"below it: {', '.join(paid)}." if paid else "none of the private ones is clearly below it.")
        )
        parts.append(" ".join(line[0].upper() + line[1:] for line in lines))
    return "\n\n".join(parts)


def _table(results: Results) -> list[list[str]]:
    rows = [["T", "who", "batch", "regret of the average agent", "releases", "ε re-accounted"]]
    for one in results.outcomes:
        spent = reaccounted(one)
        epsilon = "∞" if math.isinf(spent) else f"{spent:.4f}" if spent else "0 (nothing leaves)"
        regret, releases = f"{one.mean:.4g} ± {one.stderr:.2g}", f"{one.result['releases']:g}"
        label = [f"{one.label['T']:,}", one.label["who"], str(one.label["batch"] or "–")]
        rows.append([*label, regret, releases, epsilon])
    return rows


FIGURE = Figure(
    name="prior",
    title="Earlier private algorithms at equal privacy",
    question=(
        "At one and the same (1, 1e-6) for the whole stream: what do private LinUCB by oneself (Shariff & "
        "Sheffet 2018), silo-level privacy with fixed batches (Zhou & Chowdhury 2024) and ours lose?"
    ),
    points=_points,
    draw=_draw,
    text=_text,
    table=_table,
)
