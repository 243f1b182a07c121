"""From how many visitors on a federation loses less than each agent by itself: both are simulated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from feducb.protocol.federation import Federation, Tuning
from feducb.simulation.results import SimulationResult
from feducb.simulation.runner import simulate
from feducb.system import counted
from feducb.types import Array
from feducb.worlds.synthetic import PaperEnvironment
from feducb.worlds.world import Environment

__all__ = ["compare_with_alone", "pays_from", "runs_for"]

_FALSE_ALARM = 0.05
_AGENTS_ALONE = 5  # agents alone are alike, and slow to play: so many a run tell enough
# How soon an agent alone acts on its records (`Tuning.patience`): late, as is best over long seasons in the
# paper's world, or sooner, as is best over short ones and where actions have levels of their own.
_PATIENCE_ALONE = (Tuning().patience, 0.5)
_RUNS = (5, 20)
# Decisions that take seconds: compiled ones (of a hundred candidates in ten dimensions), and readable ones.
_COMPILED, _READABLE = 4_000_000, 1_000_000


def runs_for(federation: Federation, world: Environment, visitors: int) -> int:
    """How many runs take seconds rather than minutes; at least 5, since their spread says what to believe."""
    size = world.arms * world.problem.dim / 1000.0
    steps = _COMPILED / max(size, 1.0) if isinstance(world, PaperEnvironment) else _READABLE
    fewest, most = _RUNS
    return int(min(max(steps // (federation.agents * visitors), fewest), most))


def compare_with_alone(
    federation: Federation,
    world: Environment,
    *,
    visitors: int,
    runs: int,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Regret of the average agent in the federation and by itself, and from when on the former is less.

    By itself it acts on its records late or soon: a federation pays where it beats both, and is held against
    the stronger.

    Returns:
        ``pays_after``, a number of visitors or None; ``regret``, plain data; ``verdict``, a sentence.
    """
    few = replace(federation, baseline="alone", agents=min(federation.agents, _AGENTS_ALONE))
    waits = [replace(few, tuning=replace(few.tuning, patience=patience)) for patience in _PATIENCE_ALONE]
    together, *alone = _played([federation, *waits], world, visitors, runs, seed, progress)
    saved = [one.regret - together.regret for one in alone]  # (runs, points); run by run of the same θ*
    found = [pays_from(together.rounds, one) for one in saved]
    after = None if None in found else max(one for one in found if one is not None)
    stronger = int(np.argmin([one.mean for one in alone]))
    late = saved[stronger] - saved[stronger][:, [-1 - saved[stronger].shape[1] // 5]]  # of the last fifth
    plain = {
        "visitors": visitors,
        "arms": world.arms,
        "runs": runs,
        "agents_alone": few.agents,
        "federated": together.mean,
        "federated_stderr": together.stderr,
        "alone": alone[stronger].mean,
        "alone_stderr": alone[stronger].stderr,
        "saved": float(saved[stronger][:, -1].mean()),
        "saved_margin": float(_margins(saved[stronger])[-1]),
        "saved_late": float(late[:, -1].mean()),
        "saved_late_margin": float(_margins(late)[-1]),
    }
    return {"pays_after": after, "regret": plain, "verdict": _verdict(federation, after, plain)}


def _played(
    federations: Sequence[Federation],
    world: Environment,
    visitors: int,
    runs: int,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> list[SimulationResult]:
    """One after another, on the same seed: agent i of run r meets the same visitors in all of them."""
    steps = [runs * one.agents * visitors for one in federations]
    results: list[SimulationResult] = []
    for number, one in enumerate(federations):

        def tell(done: int, _: int, before: int = sum(steps[:number])) -> None:
            if progress is not None:
                progress(before + done, sum(steps))

        results.append(simulate(one, world, horizon=visitors, runs=runs, seed=seed, progress=tell))
    return results


def _margins(saved: Array) -> Array:
    """(points,): a mean of (runs, points) beyond it is chance once in 20 (Student's t, one side)."""
    runs = len(saved)
    quantile = float(stdtrit(runs - 1, 1.0 - _FALSE_ALARM))
    return np.asarray(quantile * saved.std(axis=0, ddof=1) / math.sqrt(runs))


def pays_from(rounds: NDArray[np.int64], saved: Array) -> int | None:
    """The first of the rounds from which on, up to the last, what is saved is surely more than nothing.

    That it pays at all is claimed only if it does at the last round, so wrongly once in 20 at most: to look
    at the rounds before costs nothing, and makes the answer later rather than too early.

    Args:
        rounds: (points,), rising.
        saved: (runs, points), cumulative.
    """
    sure = saved.mean(axis=0) > _margins(saved)
    if not sure[-1]:
        return None
    unsure = np.flatnonzero(~sure)
    return int(rounds[unsure[-1] + 1 if len(unsure) else 0])


def _verdict(federation: Federation, after: int | None, regret: dict[str, Any]) -> str:
    """A plain sentence on whether federating pays at these numbers."""
    saved, margin, visitors = regret["saved"], regret["saved_margin"], regret["visitors"]
    if after is not None:
        head = f"Federating pays after about {counted(after, 'visitor')}"
    elif saved < -margin:  # against the stronger of two, picked by its mean: wrong once in 10 at most
        head = f"Stay alone: federating does not pay within {counted(visitors, 'visitor')}"
    else:
        runs = counted(regret["runs"], "run")
        head = f"Cannot tell: over {runs} the difference may be chance (--runs takes more)"
    stated = f"{federation.agents:,} agents at ε = {federation.budgets[0].epsilon:g}"
    lost = f"{_shown(regret, 'federated')} in a federation and {_shown(regret, 'alone')} by itself"
    later = ""
    if after is None and regret["saved_late"] > regret["saved_late_margin"]:
        later = " It loses less over the last fifth of the season, though: a longer one may pay."
    return f"{head}. With {stated}, {visitors:,} visitors each, the average agent loses {lost}.{later}"


def _shown(regret: dict[str, Any], name: str) -> str:
    return f"{regret[name]:,.1f} ± {regret[f'{name}_stderr']:,.1f}"
