"""Figure 1c: regret and dimension."""

from __future__ import annotations

from matplotlib.figure import Figure as Picture

from feducb_lab.experiments.experiment import Figure, Point, Results, Scale
from feducb_lab.experiments.figures import common

__all__ = ["FIGURE"]

_DIMS = (5, 10, 15, 20)
_STYLES = {"calibrated": "-", "no privacy": ":", "paper": "-.", "alone": "--", "uniform": "--"}


def _points(scale: Scale) -> list[Point]:
    full = scale == "full"
    points = []
    for dim in _DIMS:
        world = {"dim": dim, "arms": 100, "seed": 0, "horizon": 10_000_000 if full else 2_000}
        crowd = world | {"agents": 100, "epsilon": 1.0, "delta": 0.1}
        printed = crowd | {"mode": "paper", "schedule": "geometric", "releases": 64}
        few = world | {"agents": 10, "runs": 10}
        runs = 100 if full else 16
        points += [
            Point({"who": "calibrated", "d": dim}, crowd | {"runs": runs}),
            Point({"who": "paper", "d": dim}, printed | {"runs": 5 if full else 2}),
            common.baseline("no privacy", world | {"agents": 100, "runs": runs}, d=dim),
            *common.alone_and_uniform(few, alone_runs=common.ALONE_RUNS if full else None, d=dim),
        ]
    return points


def _exponent(results: Results, who: str) -> tuple[float, float]:
    line = results.along("d", who=who)
    return common.slope([one.label["d"] for one in line], line)


def _draw(results: Results) -> Picture:
    drawn, (left, right) = common.picture(width=13, panels=2, title=FIGURE.title)
    for who in ("calibrated", "paper"):
        for shade, one in zip(common.SHADES, results.along("d", who=who), strict=False):
            colour = shade if who == "calibrated" else common.COLOURS[who]
            name = f"{who}, d = {one.label['d']}"
            common.curve(left, one, colour=colour, label=name, style=_STYLES[who])
    common.finish(left, "round", title="curves")
    for who, style in _STYLES.items():
        exponent, error = _exponent(results, who)
        look = {"color": common.COLOURS[who], "linestyle": style}
        name = f"{who}: d^({exponent:.2f} ± {error:.2f})"
        common.bars(right, "d", results.along("d", who=who), label=name, **look)
    common.finish(right, "d", title="at the horizon")
    right.set_xticks(_DIMS, [str(dim) for dim in _DIMS])
    right.minorticks_off()
    return drawn


def _text(results: Results) -> str:
    exponent, error = _exponent(results, "calibrated")
    line = results.along("d", who="calibrated")
    if abs(exponent - 2) <= max(2 * error, 0.1):
        verdict = "is essentially quadratic, as the paper says"
    else:
        verdict = f"is {'less' if exponent < 2 else 'more'} than quadratic, other than the paper says"
    beats = common.alone_sentence(results, lambda one: f"d = {one.label['d']}")
    first, last = line[0], line[-1]
    grows = "grows with d" if common.falls(line[::-1]) else "does not grow steadily with d"
    powers = {
        name: "{:.2f} ± {:.2f}".format(*_exponent(results, who))
        for name, who in (("without privacy", "no privacy"), ("alone", "alone"), ("printed", "paper"))
    }
    return (
        f"Calibrated regret {grows}: it is {common.plus_minus(first)} at d = {first.label['d']} and "
        f"{common.plus_minus(last)} at d = {last.label['d']}, fitted by d to the power {exponent:.2f} "
        f"± {error:.2f}. The dependence {verdict}. Without privacy the exponent is "
        f"{powers['without privacy']}, alone {powers['alone']}, with the printed constants "
        f"{powers['printed']}.\n\n{beats} {common.releases_sentence(results)}\n\n"
        f"{common.printed_sentence(results)}"
    )


FIGURE = Figure(
    name="1c",
    title="Regret and dimension",
    question="How does per-agent regret grow with d (M = 100, K = 100, ε = 1, δ = 0.1; the planned "
    "schedule, and 64 geometric releases for the printed constants)? The paper observes “essentially "
    "a quadratic dependence”.",
    points=_points,
    draw=_draw,
    text=_text,
    table=lambda results: common.table_of(results, ("d",)),
)
