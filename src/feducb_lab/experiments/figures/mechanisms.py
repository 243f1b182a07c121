"""Ways of spreading noise over releases, at the same true budget."""

from __future__ import annotations

from matplotlib.figure import Figure as Picture

from feducb_lab.experiments.experiment import Figure, Outcome, Point, Results, Scale
from feducb_lab.experiments.figures import common

__all__ = ["FIGURE"]

_MECHANISMS = ("tree", "optimal-tree", "toeplitz", "blt", "dense")
_PLAIN = ("#b23a48", "#d98e04", "#4a98c9", "#7b5ea7", "#1b6ca8")
_RELEASES = {"quick": (16, 64, 256), "full": (8, 16, 32, 64, 128, 256)}
_EPSILONS = {"quick": (0.5, 2.0), "full": (0.3, 0.5, 2.0, 4.0)}
_FIXED_RELEASES, _FIXED_EPSILON = 64, 1.0


def _points(scale: Scale) -> list[Point]:
    full = scale == "full"
    world = {"dim": 10, "arms": 100, "seed": 0, "agents": 100, "horizon": 1_000_000 if full else 5_000}
    runs = 200 if full else 8
    grid = [(releases, _FIXED_EPSILON) for releases in _RELEASES[scale]]
    grid += [(_FIXED_RELEASES, epsilon) for epsilon in _EPSILONS[scale]]
    spread = world | {"schedule": "geometric", "delta": 1e-6}
    points = [
        Point(
            {"who": "calibrated", "mechanism": mechanism, "n": releases, "epsilon": epsilon},
            spread | {"releases": releases, "epsilon": epsilon, "mechanism": mechanism, "runs": runs},
        )
        for mechanism in _MECHANISMS
        for releases, epsilon in grid
    ]
    printed = {"releases": _FIXED_RELEASES, "epsilon": _FIXED_EPSILON, "mode": "paper"}
    printed |= {"runs": 5 if full else 2}
    points.append(Point({"who": "paper", "n": _FIXED_RELEASES, "epsilon": _FIXED_EPSILON}, spread | printed))
    points.append(common.baseline("no privacy", world | {"runs": runs}))
    return points + common.alone_and_uniform(world | {"agents": 10, "runs": 10})


def _line(results: Results, mechanism: str, over: str) -> list[Outcome]:
    fixed = {"epsilon": _FIXED_EPSILON} if over == "n" else {"n": _FIXED_RELEASES}
    return results.along(over, who="calibrated", mechanism=mechanism, **fixed)


def _draw(results: Results) -> Picture:
    drawn, (left, right) = common.picture(width=13, panels=2, title=FIGURE.title)
    for over, axes in (("n", left), ("epsilon", right)):
        for mechanism, colour in zip(_MECHANISMS, _PLAIN, strict=True):
            common.bars(axes, over, _line(results, mechanism, over), color=colour, label=mechanism)
        style = {"color": "black", "marker": "x", "linestyle": "none"}
        common.bars(axes, over, results.where(who="paper"), label="printed constants", **style)
        common.levels(axes, results, "no privacy", "alone", "uniform")
    common.finish(left, "releases", title=f"ε = {_FIXED_EPSILON:g}, δ = 10⁻⁶", legend=False)
    common.finish(right, "ε", title=f"{_FIXED_RELEASES} releases, δ = 10⁻⁶")
    for over, axes in (("n", left), ("epsilon", right)):
        ticks = [one.label[over] for one in _line(results, "tree", over)]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    return drawn


def _text(results: Results) -> str:
    said = []
    for mechanism in _MECHANISMS:
        line = _line(results, mechanism, "n")
        first, last = line[0], line[-1]
        verb = common.change(first, last, "helps", "hurts", "makes no sure difference")
        at = results.one(who="calibrated", mechanism=mechanism, n=_FIXED_RELEASES, epsilon=_FIXED_EPSILON)
        said.append(
            f"- {mechanism}: {common.plus_minus(at)} at {_FIXED_RELEASES} releases; going from "
            f"{first.label['n']} to {last.label['n']} {verb} ({common.plus_minus(first)} to "
            f"{common.plus_minus(last)})."
        )
    pairs, others = (
        [
            (one, results.one(**(dict(one.label) | {"mechanism": "dense"})))
            for one in results.where(who="calibrated", mechanism=mechanism)
        ]
        for mechanism in ("tree", "blt")
    )
    won = sum(common.surely_less(dense, tree) for tree, dense in pairs)
    lost = sum(common.surely_less(tree, dense) for tree, dense in pairs)
    ratios = sorted(tree.mean / dense.mean for tree, dense in pairs)
    span = common.span((common.number(ratios[0]), common.number(ratios[-1])))
    tree = (
        f"At the same true ε the optimal dense factorisation beats the paper's tree in {won} of {len(pairs)} "
        f"settings and does worse in {lost}; the tree costs {span} times its regret."
    )
    behind = sum(common.surely_less(dense, one) for one, dense in others)
    buffered = f"The buffered form (blt) is surely behind dense in {behind} of {len(others)}."
    beats = common.alone_sentence(
        results,
        lambda one: f"{one.label['mechanism']}, {one.label['n']} releases, ε = {one.label['epsilon']:g}",
    )
    return "\n".join(said) + f"\n\n{tree} {buffered} {beats}\n\n{common.printed_sentence(results)}"


FIGURE = Figure(
    name="mechanisms",
    title="Ways of spreading noise over releases",
    question="How much regret does the mechanism cost at the same true budget (M = 100, d = 10, K = 100, δ"
    " = 10⁻⁶)? The paper takes the binary tree; optimal-tree reads all its nodes; toeplitz, blt "
    "and dense factor the matrix of prefix sums.",
    points=_points,
    draw=_draw,
    text=_text,
    table=lambda results: common.table_of(results, ("mechanism", "n", "epsilon")),
)
