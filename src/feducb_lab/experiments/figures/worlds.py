"""Regret on a family of worlds."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure as Picture

from feducb.simulation.backends.choose import BackendName
from feducb.simulation.results import SimulationResult
from feducb.simulation.runner import simulate
from feducb.worlds.family import WORLDS
from feducb_lab.experiments.experiment import Figure, Outcome, Point, Results, Scale
from feducb_lab.experiments.figures import common

__all__ = ["FIGURE", "play"]

_TRUST = {"nobody": "nobody is trusted", "controller": "the controller is trusted"}
_EPSILON = 1.0


def play(*, environment: str, backend: BackendName, **setting: Any) -> SimulationResult:
    """As asked for in the paper's world; compiled backends were written for no other."""
    backend = backend if environment == "paper" else "reference"
    return simulate(environment=environment, backend=backend, **setting)


def _points(scale: Scale) -> list[Point]:
    full = scale == "full"
    sizes = (10, 30) if full else (30,)
    lasting = {"dim": 10, "seed": 0, "horizon": 10_000 if full else 2_000, "runs": 24 if full else 4}
    points = []
    for world in WORLDS:
        setting = lasting | {"environment": world} | ({} if world == "one-hot" else {"arms": 100})
        for agents in sizes:
            points += [
                Point(
                    {"who": "calibrated", "world": world, "trust": trust, "M": agents},
                    setting | {"agents": agents, "epsilon": _EPSILON, "delta": 1e-6, "trust": trust},
                )
                for trust in _TRUST
            ]
            points.append(common.baseline("no privacy", setting | {"agents": agents}, world=world, M=agents))
        points += common.alone_and_uniform(setting | {"agents": 10}, world=world)
    return [Point(one.label, one.setting, f"{__name__}:play") for one in points]


def _draw(results: Results) -> Picture:
    drawn, panels = common.picture(width=15, panels=len(WORLDS), title=FIGURE.title, sharey=True)
    sizes = results.values("M", who="calibrated")
    for axes, world in zip(panels, WORLDS, strict=True):
        for (trust, name), shade in zip(_TRUST.items(), common.SHADES[1:], strict=False):
            line = results.along("M", who="calibrated", world=world, trust=trust)
            common.bars(axes, "M", line, color=shade, label=name)
        raw = results.along("M", who="no privacy", world=world)
        common.bars(axes, "M", raw, color=common.COLOURS["no privacy"], linestyle=":", label="no privacy")
        for who in ("alone", "uniform"):
            common.level(axes, results.one(who=who, world=world), label=who)
        common.finish(axes, "M, agents", title=world, legend=world == WORLDS[-1])
        axes.set_xticks(sizes, [str(agents) for agents in sizes])
        axes.minorticks_off()
    return drawn


def _against_alone(results: Results, one: Outcome) -> str:
    alone = common.reference(results, "alone", one)
    verdict = common.change(alone, one, "surely less", "surely more", "no sure difference")
    agents, trust = one.label["M"], _TRUST[one.label["trust"]]
    return f"M = {agents}, {trust}: {common.plus_minus(one)}, {verdict}"


def _text(results: Results) -> str:
    said = []
    for world in WORLDS:
        alone, uniform = (results.one(who=who, world=world) for who in ("alone", "uniform"))
        private = [_against_alone(results, one) for one in results.where(who="calibrated", world=world)]
        raw = [
            f"{common.plus_minus(one)} at M = {one.label['M']}"
            for one in results.along("M", who="no privacy", world=world)
        ]
        said.append(
            f"- {world}: each agent alone loses {common.plus_minus(alone)} (uniform play "
            f"{common.plus_minus(uniform)}), without privacy {', '.join(raw)}. Private, against alone: "
            f"{'; '.join(private)}."
        )
    everywhere = common.alone_sentence(
        results, lambda one: f"{one.label['world']}, M = {one.label['M']}, {one.label['trust']} trusted"
    )
    return "\n".join(said) + f"\n\n{everywhere}"


FIGURE = Figure(
    name="worlds",
    title="Regret on a family of worlds",
    question="In the paper's world θ* lies along the Gram's longest axis, which flatters estimates that "
    "shrink. How does regret compare with each agent alone where it does not: isotropic candidates with an "
    f"intercept, one-hot arms, correlated features (d = 10, K = 100 or d, ε = {_EPSILON:g}, δ = 10⁻⁶)?",
    points=_points,
    draw=_draw,
    text=_text,
    table=lambda results: common.table_of(results, ("world", "trust", "M")),
)
