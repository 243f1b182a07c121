"""What each leak costs in privacy, and what closing it costs in regret."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure as Picture

from feducb.cli.output import counted
from feducb.config import Budget
from feducb.privacy.calibration import to_epsilon, to_mu
from feducb_lab.experiments.experiment import Figure, Outcome, Point, Results, Scale
from feducb_lab.experiments.figures import common

__all__ = ["FIGURE", "Leak", "leaks"]

_EPSILON, _DELTA = 1.0, 1e-6
_RESTARTS = (1, 2, 9)
_NOT_SIMULATED, _UNSURE = "not simulated", "no difference that these runs can tell"


def _mu() -> float:
    return to_mu(Budget(epsilon=_EPSILON, delta=_DELTA))


def _points(scale: Scale) -> list[Point]:
    agents, horizon, runs = (50, 2000, 8) if scale == "quick" else (100, 10_000, 40)
    world: dict[str, Any] = {"agents": agents, "dim": 4, "arms": 16, "horizon": horizon, "runs": runs}
    world |= {"seed": 11, "delta": _DELTA}

    def calibrated(name: str, factor: float = 1.0, **more: Any) -> Point:
        epsilon = _EPSILON if factor == 1.0 else to_epsilon(_mu() / factor, _DELTA)
        return Point({"play": name}, world | {"epsilon": epsilon, **more})

    def printed(play: str) -> Point:
        setting = world | {"play": play, "epsilon": _EPSILON}
        return Point({"play": play}, setting, "feducb_lab.experiments.printed_play:printed_play")

    return [
        *map(printed, ("trigger", "own data", "released")),
        calibrated("calibrated"),
        *(calibrated(f"restarts {count}", math.sqrt(count + 1)) for count in _RESTARTS),
        calibrated("two batches", 2.0),
        calibrated("controller", trust="controller"),
    ]


@dataclass(frozen=True, slots=True)
class Leak:
    """One leak: with it, and with it closed, as far as that was simulated."""

    name: str
    epsilon: float  # that it really has where 1 is promised; ∞ where no ε holds
    why: str  # where that comes from
    leaking: Outcome | None
    closed: Outcome | None
    how: str  # it is closed


def leaks(results: Results) -> list[Leak]:
    """All of them, from what was measured and accounted for."""
    names = ("trigger", "own data", "released", "calibrated", "two batches", "controller")
    trigger, own, released, ours, two_batches, controller = (results.one(play=name) for name in names)
    moved, hidden, mu = float(own.result["moved"]), float(released.result["moved"]), _mu()
    gaps = "gaps in what float64 noise can reach tell values apart (Mironov 2012); not measured here"
    in_full = "against the controller, who reads raw sums; 1 against all others"
    twice = "more noise; or each record enters once: free"
    return [
        Leak("(a) determinant trigger", math.inf, trigger.result["check"], trigger, own, "public rounds"),
        Leak("(b) acting on raw data", math.inf, own.result["check"], own, released, "released sums only"),
        Leak(
            "(c) noise for a fixed stream",
            to_epsilon(max(moved, 1.0) * mu, _DELTA),
            f"one record moved its first batch by {moved:.2f} times what the noise hides; "
            f"{hidden:.2f} once own records wait",
            own,
            released,
            "released sums only",
        ),
        *(
            Leak(
                f"(d) noise redrawn, {counted(count, 'restart')}",
                to_epsilon(mu * math.sqrt(count + 1), _DELTA),
                f"μ√{count + 1}",
                ours,
                results.one(play=f"restarts {count}"),
                "more noise; or a release on disk before it is sent: free",
            )
            for count in _RESTARTS
        ),
        Leak("(e) float64 noise", math.inf, gaps, None, None, "noise on a grid"),
        Leak("(f) a record in two batches", to_epsilon(2.0 * mu, _DELTA), "2μ", ours, two_batches, twice),
        Leak("(g) trusting the controller", math.inf, in_full, controller, ours, "every agent adds noise"),
    ]


def _draw(results: Results) -> Picture:
    rows = leaks(results)
    drawn, (privacy, regret) = common.picture(12.5, 5.4, panels=2, sharey=True)
    end = 1.25 * max(one.epsilon for one in rows if math.isfinite(one.epsilon))
    for place, one in enumerate(rows):
        if math.isfinite(one.epsilon):
            privacy.barh(place, one.epsilon, color="#b23a48", height=0.6)
            privacy.annotate(
                f"{one.epsilon:.2f}", (one.epsilon, place), (4, 0), textcoords="offset points", va="center"
            )
        else:
            arrow = {"arrowstyle": "-|>", "color": "#b23a48", "lw": 5}
            privacy.annotate("", (end, place), (0.0, place), arrowprops=arrow)
            privacy.annotate("∞", (end, place), (4, 0), textcoords="offset points", va="center")
        for label, side, shift, colour in (
            ("with the leak", one.leaking, -0.18, "#b8b8b8"),
            ("closed (d, f: by noise)", one.closed, 0.18, "#1b6ca8"),
        ):
            if side is not None:
                name = label if place == 0 else None
                style: dict[str, Any] = {"color": colour, "capsize": 2, "label": name}
                regret.barh(place + shift, side.mean, xerr=2.0 * side.stderr, height=0.34, **style)
        if one.leaking is None and one.closed is None:
            regret.annotate(_NOT_SIMULATED, (0.0, place), (4, 0), textcoords="offset points", va="center")
    privacy.axvline(_EPSILON, color="#3a7d44", lw=1.2, ls="--")
    privacy.set_xlim(0.0, 1.12 * end)
    privacy.set_xlabel(f"ε it really has at δ = {_DELTA:g} (promised: {_EPSILON:g}, dashed)")
    privacy.set_yticks(range(len(rows)), [one.name for one in rows])
    privacy.invert_yaxis()
    regret.set_xlabel("regret of the average agent (bars of two standard errors)")
    regret.legend(frameon=False, loc="lower right")
    for axes in (privacy, regret):
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


def _change(one: Leak) -> str:
    """What closing does to regret, if the runs can tell."""
    if one.leaking is None or one.closed is None:
        return _NOT_SIMULATED
    before, after = one.leaking, one.closed
    change = f"{before.mean:.4g} → {after.mean:.4g}"
    share = f"{abs(after.mean / before.mean - 1.0):.0%}"
    verdict = common.change(before, after, f"{share} less", f"{share} more", _UNSURE)
    return f"{change}, {verdict}"


def _text(results: Results) -> str:
    rows = leaks(results)
    trigger, public = (results.one(play=name).result["releases"] for name in ("trigger", "own data"))
    first = results.one(play="own data").result["release_rounds"][0]
    none_holds = [one.name for one in rows if math.isinf(one.epsilon)]
    finite = max((one for one in rows if math.isfinite(one.epsilon)), key=lambda one: one.epsilon)
    factors = {
        one.name: one.closed.mean / one.leaking.mean
        for one in rows
        if one.leaking and one.closed and _change(one).endswith("more")
    }
    parts = [
        f"Where ε = {_EPSILON:g} is promised, no ε holds for {len(none_holds)} of {len(rows)} rows "
        f"({'; '.join(none_holds)}); of the others the worst is {finite.name}, ε = {finite.epsilon:.3g}.",
        "Regret when the leak is closed: "
        + "; ".join(f"{one.name}: {_change(one)} ({one.how})" for one in rows)
        + ".",
        "(a) to (c) play the printed rule (Dubey & Pentland 2020) on a tree with exact noise, (d) to (g) what"
        " is shipped: regrets compare within a row. Under the trigger data decide when, so that its tree must"
        f" be made for a release per round; it made {trigger:g}, public rounds {public:g}. To close (d) and"
        " (f) by order costs no regret; the second number is what hiding them under noise would cost instead."
        " (c) is the record of one visitor whose followers are in league with an adversary, in the first"
        f" batch, of {first} rounds; each further round moves it by as much again.",
    ]
    if factors:
        name, factor = max(factors.items(), key=lambda entry: entry[1])
        parts.append(f"The dearest to close is {name}: {factor:.3g} times the regret.")
    else:
        parts.append("No closing cost regret that these runs can tell.")
    return "\n\n".join(parts)


def _regret(one: Outcome | None) -> str:
    return _NOT_SIMULATED if one is None else f"{one.mean:.4g} ± {one.stderr:.2g}"


def _table(results: Results) -> list[list[str]]:
    rows = [["leak", "real ε", "because", "regret with it", "regret closed", "closed by"]]
    for one in leaks(results):
        spent = "∞" if math.isinf(one.epsilon) else f"{one.epsilon:.2f}"
        rows.append([one.name, spent, one.why, _regret(one.leaking), _regret(one.closed), one.how])
    return rows


FIGURE = Figure(
    name="adversaries",
    title="What each leak costs, and what closing it costs",
    question=(
        "Of each way to be less private than promised: which ε does it really have, and how much regret does "
        "it take to close it?"
    ),
    points=_points,
    draw=_draw,
    text=_text,
    table=_table,
)
