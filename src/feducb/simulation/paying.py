"""From how many visitors on a federation loses less than each agent by itself, and how it should play.

All of them are simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from feducb.protocol.federation import Federation, Play, Tuning
from feducb.simulation.results import SimulationResult
from feducb.simulation.runner import simulate
from feducb.system import counted
from feducb.types import Array
from feducb.worlds.synthetic import PaperEnvironment
from feducb.worlds.world import Environment

__all__ = ["PATIENCE_ALONE", "compare_with_alone", "pays_from", "runs_for"]

_FALSE_ALARM = 0.05
_ALONE = 100  # agents alone are alike, and slow to play: so many in all runs together tell enough
# How soon an agent alone acts on its records (`Tuning.patience`): late, as is best over long seasons in the
# paper's world, or sooner, as is best over short ones and where actions have levels of their own.
PATIENCE_ALONE = (Tuning().patience, 0.5)
_RUNS = (5, 20)
# Decisions that take seconds: compiled ones (of a hundred candidates in ten dimensions), and readable ones.
_COMPILED, _READABLE = 4_000_000, 1_000_000
_OWN = 8  # a decision in own play, whose sums are each agent's own, counts as so many


def runs_for(plays: Mapping[Play, Federation], world: Environment, visitors: int) -> int:
    """How many runs take seconds rather than minutes; at least 5, since their spread says what to believe."""
    agents = next(iter(plays.values())).agents * (_OWN if "own" in plays else 1)
    size = world.arms * world.problem.dim / 1000.0
    steps = _COMPILED / max(size, 1.0) if isinstance(world, PaperEnvironment) else _READABLE
    fewest, most = _RUNS
    return int(min(max(steps // (agents * visitors), fewest), most))


def compare_with_alone(
    plays: Mapping[Play, Federation],
    world: Environment,
    lasts: Mapping[str, Any],
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Regret of the average agent in the federation and by itself, and from when on the former is less.

    By itself it acts on its records late or soon: a federation pays where it beats both, and is held against
    the stronger. Of several plays the one that pays is the better; if both do, or neither, own play only if
    it loses less than the other by more than chance, since the other promises more.

    Args:
        plays: the federation under one play or several.
        world: where.
        lasts: ``horizon``, ``runs``, ``seed`` and ``history`` of `simulate`.
        progress: called with (agent-steps done, agent-steps in all).

    Returns:
        ``play``, the better one; ``pays_after``, a number of visitors or None; ``regret``, plain data;
        ``verdict``, a sentence.
    """
    federation = next(iter(plays.values()))
    few = replace(federation, baseline="alone", agents=min(federation.agents, -(-_ALONE // lasts["runs"])))
    waits = [replace(few, tuning=replace(few.tuning, patience=patience)) for patience in PATIENCE_ALONE]
    results = _played([*plays.values(), *waits], world, lasts, progress)
    together, alone = dict(zip(plays, results, strict=False)), results[len(plays) :]
    # (runs, points); run by run of the same θ*
    saved = {play: [one.regret - result.regret for one in alone] for play, result in together.items()}
    found = {play: [pays_from(alone[0].rounds, one, len(plays)) for one in saved[play]] for play in plays}
    after = {play: None if None in at else max(one for one in at if one) for play, at in found.items()}
    play = _recommended(together, [play for play in plays if after[play] is not None] or list(plays))
    stronger = int(np.argmin([one.mean for one in alone]))
    gained = saved[play][stronger]
    late = gained - gained[:, [-1 - gained.shape[1] // 5]]  # of the last fifth
    plain = {
        "visitors": lasts["horizon"],
        "arms": world.arms,
        "runs": lasts["runs"],
        "agents_alone": few.agents,
        "federated": together[play].mean,
        "federated_stderr": together[play].stderr,
        "alone": alone[stronger].mean,
        "alone_stderr": alone[stronger].stderr,
        "saved": float(gained[:, -1].mean()),
        "saved_margin": float(_margins(gained, len(plays))[-1]),
        "saved_late": float(late[:, -1].mean()),
        "saved_late_margin": float(_margins(late, len(plays))[-1]),
        "by_play": {name: {"mean": one.mean, "stderr": one.stderr} for name, one in together.items()},
    }
    verdict = _verdict(plays[play], together[play], after[play], plain)
    return {"play": play, "pays_after": after[play], "regret": plain, "verdict": verdict}


def _recommended(together: Mapping[Play, SimulationResult], among: Sequence[Play]) -> Play:
    """Of plays that do equally well against alone: ``own`` where it is better than ``released`` for sure."""
    if len(among) == 1:
        return among[0]
    better = (together["released"].regret - together["own"].regret)[:, -1:]
    return "own" if better.mean() > _margins(better)[0] else "released"


def _played(
    federations: Sequence[Federation],
    world: Environment,
    lasts: Mapping[str, Any],
    progress: Callable[[int, int], None] | None,
) -> list[SimulationResult]:
    """One after another, on the same seed: agent i of run r meets the same visitors in all of them."""
    steps = [lasts["runs"] * one.agents * (lasts["horizon"] + lasts["history"]) for one in federations]
    results: list[SimulationResult] = []
    for number, one in enumerate(federations):

        def tell(done: int, _: int, before: int = sum(steps[:number])) -> None:
            if progress is not None:
                progress(before + done, sum(steps))

        results.append(simulate(one, world, **lasts, progress=tell))
    return results


def _margins(saved: Array, plays: int = 1) -> Array:
    """(points,): a mean of (runs, points) beyond it is chance once in 20 (Student's t, one side).

    Of several plays any may be the one that seems to save, so that each has its part of that chance.
    """
    runs = len(saved)
    quantile = float(stdtrit(runs - 1, 1.0 - _FALSE_ALARM / plays))
    return np.asarray(quantile * saved.std(axis=0, ddof=1) / math.sqrt(runs))


def pays_from(rounds: NDArray[np.int64], saved: Array, plays: int = 1) -> int | None:
    """The first of the rounds from which on, up to the last, what is saved is surely more than nothing.

    That it pays at all is claimed only if it does at the last round, so wrongly once in 20 at most: to look
    at the rounds before costs nothing, and makes the answer later rather than too early.

    Args:
        rounds: (points,), rising.
        saved: (runs, points), cumulative.
        plays: how many are looked at in this way: that any of them is wrongly said to pay is once in 20.
    """
    sure = saved.mean(axis=0) > _margins(saved, plays)
    if not sure[-1]:
        return None
    unsure = np.flatnonzero(~sure)
    return int(rounds[unsure[-1] + 1 if len(unsure) else 0])


def _verdict(
    federation: Federation, together: SimulationResult, after: int | None, regret: dict[str, Any]
) -> str:
    """Plain sentences on whether federating pays at these numbers, and how to play then."""
    saved, margin, visitors = regret["saved"], regret["saved_margin"], regret["visitors"]
    if after is not None:
        head = f"Federating pays after about {counted(after, 'visitor')} with play = {federation.play}"
    elif saved < -margin:  # against the stronger of two, picked by its mean: wrong once in 10 at most
        head = f"Stay alone: federating does not pay within {counted(visitors, 'visitor')}"
    else:
        runs = counted(regret["runs"], "run")
        head = f"Cannot tell: over {runs} the difference may be chance (--runs takes more)"
    stated = f"{federation.agents:,} agents at ε = {federation.budgets[0].epsilon:g}"
    lost = ", ".join(f"{_shown(**one)} with play = {play}" for play, one in regret["by_play"].items())
    lost = f"{lost} and {_shown(regret['alone'], regret['alone_stderr'])} by itself"
    later = ""
    if after is None and regret["saved_late"] > regret["saved_late_margin"]:
        later = " It loses less over the last fifth of the season, though: a longer one may pay."
    phases = "" if together.played is None else f" Own play {together.played}."
    if after is not None and federation.play == "released" and "own" in regret["by_play"]:
        phases = " All sites are alike here; where yours may differ, play = own is the safe one."
    each = f"With {stated}, {visitors:,} visitors each, the average agent loses {lost}"
    return f"{head}. {each}.{phases}{later}"


def _shown(mean: float, stderr: float) -> str:
    return f"{mean:,.1f} ± {stderr:,.1f}"
