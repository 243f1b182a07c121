"""What figures share: reference points, comparisons with their errors, sentences, style."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from feducb_lab.experiments.experiment import Outcome, Point, Results

COLOURS = {
    "calibrated": "#1b6ca8",
    "paper": "#b23a48",
    "alone": "#6b6b6b",
    "no privacy": "#3a7d44",
    "uniform": "#b8b8b8",
}
SHADES = ("#9ecae1", "#4a98c9", "#1b6ca8", "#0b3c5d", "#7b5ea7", "#d98e04")
_NAMES = {"alone": "each agent alone", "uniform": "uniform play", "no privacy": "no privacy"}
ALONE_RUNS = 50  # of 10 agents: a standard error of one to two per cent
_SURE = 2.0  # standard errors
_BLIND = 0.9  # of what uniform play loses: no better than not learning
_LEARNT = 0.5


def baseline(who: str, setting: Mapping[str, Any], **label: Any) -> Point:
    """A reference point: *alone*, *no privacy* or *uniform*."""
    return Point({"who": who, **label}, {**setting, "baseline": who.replace(" ", "-")})


def alone_and_uniform(
    setting: Mapping[str, Any], *, alone_runs: int | None = None, **label: Any
) -> list[Point]:
    """The references that do not communicate; alone varies more and may be played more often."""
    many = setting if alone_runs is None else {**setting, "runs": alone_runs}
    return [baseline("alone", many, **label), baseline("uniform", setting, **label)]


def number(value: float) -> str:
    """Three figures or so."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def plus_minus(one: Outcome) -> str:
    """Mean ± standard error."""
    digits = 0 if one.mean >= 1000 else 1 if one.mean >= 10 else 2
    return f"{one.mean:,.{digits}f} ± {one.stderr:,.{digits}f}"


def surely_less(small: Outcome, large: Outcome) -> bool:
    """Whether one mean lies more than two standard errors of the difference below the other."""
    return large.mean - small.mean > _SURE * math.hypot(small.stderr, large.stderr)


def change(first: Outcome, last: Outcome, less: str, more: str, unsure: str) -> str:
    """One of three words: whether the last mean is surely less than the first, surely more, or neither."""
    if surely_less(last, first):
        return less
    return more if surely_less(first, last) else unsure


def falls(outcomes: Sequence[Outcome]) -> bool:
    """Whether means fall surely from first to last, and surely rise at no step."""
    rises = any(surely_less(one, other) for one, other in pairwise(outcomes))
    return surely_less(outcomes[-1], outcomes[0]) and not rises


def share(one: Outcome, uniform: Outcome) -> float:
    """Regret as a share of what uniform play loses in as many rounds."""
    rounds = float(one.setting["horizon"] / uniform.setting["horizon"])
    return one.mean / (uniform.mean * rounds)


def slope(xs: Sequence[float], outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """Exponent of regret in x, by weighted least squares of logarithms, and its standard error.

    The error is widened where the points scatter more about the line than their own errors explain.
    """
    x, y = np.log(np.array(xs, dtype=float)), np.log([one.mean for one in outcomes])
    error = np.maximum([one.stderr / one.mean for one in outcomes], 1e-3)
    line, covariance = np.polyfit(x, y, 1, w=1.0 / error, cov="unscaled")
    scatter = float(np.sum(((y - np.polyval(line, x)) / error) ** 2)) / max(1, len(x) - 2)
    return float(line[0]), math.sqrt(max(1.0, scatter) * covariance[0, 0])


def percent(value: float) -> str:
    """A share in percent; nothing is rounded to 0."""
    return f"{100 * value:.0f} %" if value >= 0.01 else f"{100 * value:.2g} %"


def span(values: Iterable[str]) -> str:
    """The first and the last of rising values, once if they read alike."""
    first, *_, last = values = list(values)
    return first if first == last else f"{first} to {last}"


def reference(results: Results, who: str, one: Outcome) -> Outcome:
    """The baseline in the world of a point: of its name, d and gap, of as many rounds if there is one."""
    world = {name: one.label[name] for name in ("world", "d", "gap") if name in one.label}
    fits = results.where(who=who, **world)
    return next((other for other in fits if other.setting["horizon"] == one.setting["horizon"]), fits[0])


def printed_sentence(results: Results) -> str:
    """Whether the printed constants learn, against uniform play."""
    outcomes = results.where(who="paper")
    if not outcomes:
        return ""
    shares = sorted(share(one, reference(results, "uniform", one)) for one in outcomes)
    lost = span(percent(value) for value in (shares[0], shares[-1]))
    if shares[0] > _BLIND:
        verdict = "do not learn"
    elif shares[-1] < _LEARNT:
        verdict = "learn"
    else:
        verdict = "learn in part"
    points = "the one point" if len(outcomes) == 1 else f"all {len(outcomes)} points"
    return f"The printed constants {verdict}: over {points} they lose {lost} of what uniform play loses."


def alone_sentence(results: Results, name: Callable[[Outcome], str], **label: Any) -> str:
    """Where a private federation, of those with this label, beats agents that stay alone.

    One agent under noise is no federation.
    """
    alone = partial(reference, results, "alone")
    outcomes = [one for one in results.where(who="calibrated", **label) if one.label.get("M") != 1]
    won = [one for one in outcomes if surely_less(one, alone(one))]
    lost = [one for one in outcomes if surely_less(alone(one), one)]
    levels = sorted({alone(one).mean for one in outcomes})
    level = span(number(value) for value in (levels[0], levels[-1]))
    if not won:
        return f"Federating privately beats staying alone ({level}) nowhere: in 0 of {len(outcomes)} points."
    best = min(won, key=lambda one: one.mean / alone(one).mean)
    times = number(alone(best).mean / best.mean)
    where = "everywhere" if len(won) == len(outcomes) else f"in {len(won)} of {len(outcomes)} points"
    text = f"Federating privately beats staying alone ({level}) {where}, "
    text += f"by up to {times} times ({name(best)})."
    if lost:
        worst = max(lost, key=lambda one: one.mean / alone(one).mean)
        times = number(worst.mean / alone(worst).mean)
        text += f" It does worse in {len(lost)}, at worst {times} times ({name(worst)})."
    return text


def releases_sentence(results: Results, **label: Any) -> str:
    """How often agents of private federations, of those with this label, release."""
    counts = sorted(one.result["releases"] for one in results.where(who="calibrated", **label))
    most = f"{counts[-1]:,.0f}"
    return f"The schedule plans {span((f'{counts[0]:,.0f}', most))} release{'s' * (most != '1')} per agent."


def table_of(results: Results, columns: Sequence[str]) -> list[list[str]]:
    """All points: these entries of their labels, rounds, runs, releases, regret ± standard error."""
    rows = [["who", *columns, "T", "runs", "releases", "per-agent regret"]]
    for one in results.outcomes:
        label = [str(one.label.get(column, "–")) for column in ("who", *columns)]
        rounds, releases = f"{one.setting['horizon']:,}", f"{one.result['releases']:,.0f}"
        rows.append([*label, rounds, str(one.setting["runs"]), releases, plus_minus(one)])
    return rows


def picture(
    width: float = 10.0, height: float = 5.2, panels: int = 1, title: str = "", sharey: bool = False
) -> tuple[Picture, list[Axes]]:
    """An empty picture with panels side by side."""
    drawn = Picture(figsize=(width, height), layout="constrained")
    if title:
        drawn.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold")
    return drawn, list(drawn.subplots(1, panels, squeeze=False, sharey=sharey)[0])


def bars(axes: Axes, over: str | Sequence[float], outcomes: Sequence[Outcome], **style: Any) -> None:
    """Means with bars of two standard errors, over an entry of their labels or over these numbers."""
    xs = [one.label[over] for one in outcomes] if isinstance(over, str) else over
    look: dict[str, Any] = {"marker": "o", "markersize": 4.5, "linewidth": 1.8, "capsize": 3} | style
    axes.errorbar(xs, [one.mean for one in outcomes], [2 * one.stderr for one in outcomes], **look)


def levels(axes: Axes, results: Results, *names: str) -> None:
    """References as horizontal lines."""
    for who in names:
        level(axes, results.one(who=who))


def level(axes: Axes, one: Outcome, *, colour: str | None = None, label: str | None = None) -> None:
    """A reference as a horizontal line with a band of two standard errors."""
    who = one.label["who"]
    colour = colour or COLOURS[who]
    style = ":" if who == "no privacy" else "--"
    name = label if label is not None else f"{_NAMES[who]}  {number(one.mean)}"
    axes.axhline(one.mean, linestyle=style, color=colour, linewidth=1.5, label=name)
    low = max(one.mean - 2 * one.stderr, one.mean / 10)
    axes.axhspan(low, one.mean + 2 * one.stderr, color=colour, alpha=0.15, linewidth=0)


def curve(axes: Axes, one: Outcome, *, colour: str, label: str, style: str = "-") -> None:
    """A regret curve with a band of two standard errors and a bar at its end."""
    rounds, means, errors = (np.array(part) for part in one.curve)
    seen = (rounds > 0) & (means > 0)
    rounds, means, errors = rounds[seen], means[seen], errors[seen]
    axes.plot(rounds, means, style, color=colour, linewidth=1.8, label=f"{label}  {number(one.mean)}")
    low = np.maximum(means - 2 * errors, means / 10)
    axes.fill_between(rounds, low, means + 2 * errors, color=colour, alpha=0.18, linewidth=0)
    axes.errorbar(rounds[-1:], means[-1:], 2 * errors[-1:], color=colour, capsize=3, linewidth=1.5)


def finish(axes: Axes, x: str, *, title: str = "", legend: bool = True) -> None:
    """Names, scales, grid and legend."""
    axes.set_xlabel(x)
    axes.set_ylabel("regret of the average agent")
    axes.set_xscale("log")
    axes.set_yscale("log")
    if title:
        axes.set_title(title, loc="left", fontsize=10.5, color="#555555")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e6e6e6")
    axes.set_axisbelow(True)
    if legend:
        axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
