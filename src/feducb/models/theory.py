"""What the paper's theorems promise, as numbers.

Everything here depends on privacy through ρ_min and ρ_max alone. The bounds are evaluated as the proofs
print them; docs/differences.md says which of their steps do not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from feducb.config import Problem

__all__ = [
    "Spread",
    "default_threshold",
    "information_gain",
    "regret_bound_centralised",
    "regret_bound_decentralised",
    "sync_bound",
    "uniform_radius",
]


class Spread(NamedTuple):
    """Between which eigenvalues the noise of a release lies: ρ_min and ρ_max."""

    rho_min: float
    rho_max: float


def information_gain(problem: Problem, horizon: float, spread: Spread) -> float:
    """log(ρ_max/ρ_min + T L²/(d ρ_min)), which every bound is made of."""
    ratio = spread.rho_max / spread.rho_min
    growth = horizon * problem.action_bound**2 / (problem.dim * spread.rho_min)
    return math.log(ratio + growth)


def default_threshold(problem: Problem, horizon: int, spread: Spread) -> float:
    """Theorem 1's D = 2 T d / (log(ρ_max/ρ_min + T L²/(d ρ_min)) + 1)."""
    gain = information_gain(problem, horizon, spread)
    return 2.0 * horizon * problem.dim / (gain + 1.0)


def sync_bound(problem: Problem, horizon: int, spread: Spread, *, threshold: float) -> float:
    """Proposition 1: at most 2 √((dT/D) log(…)) + 4 synchronisations."""
    gain = information_gain(problem, horizon, spread)
    return 2.0 * math.sqrt(problem.dim * horizon / threshold * gain) + 4.0


def uniform_radius(
    problem: Problem,
    horizon: int,
    spread: Spread,
    *,
    alpha: float,
    agents: int,
    kappa: float,
    releases: int | None = None,
) -> float:
    """β̄_T of Proposition 2's proof, the largest that β can get by round T.

    As printed, with log(2/α); with ``releases`` = n, the log(2Mn/α) that `PaperBound` plays with.
    """
    union = 1 if releases is None else agents * releases
    gain = information_gain(problem, horizon, spread)
    rewards = problem.noise_scale * math.sqrt(2.0 * math.log(2.0 * union / alpha) + problem.dim * gain)
    return rewards + agents * (problem.parameter_bound * math.sqrt(spread.rho_max) + kappa)


def _best_base(bound_at: Callable[[float], float]) -> float:
    """Minimise a bound over the free base ν > 1 of its logarithms ("optimizing over ν")."""
    from scipy.optimize import minimize_scalar

    least = minimize_scalar(
        lambda log_excess: bound_at(1.0 + math.exp(log_excess)), bounds=(-12.0, 6.0), method="bounded"
    )
    return float(least.fun)


def regret_bound_centralised(
    problem: Problem, horizon: int, spread: Spread, *, agents: int, threshold: float, radius: float
) -> float:
    """Group regret bound in the proof of Theorem 1, for any D, at the best ν.

    2ν β̄ [ √(2 M T d log_ν(…)) + M √D (d log_ν(…) + 1) ].
    """
    gain = information_gain(problem, horizon, spread)

    def bound(base: float) -> float:
        gain_in_base = gain / math.log(base)
        synchronised = math.sqrt(2.0 * agents * horizon * problem.dim * gain_in_base)
        between = agents * math.sqrt(threshold) * (problem.dim * gain_in_base + 1.0)
        return 2.0 * base * radius * (synchronised + between)

    return _best_base(bound)


def regret_bound_decentralised(
    problem: Problem, horizon: int, spread: Spread, *, cliques: Sequence[int], ttl: int, radius: float
) -> float:
    """Group regret bound of Theorem 2's proof, at the best ν.

    The proof bounds each clique C and each of the γ sub-samples "in a manner identical to the centralized
    case": Σ over C and γ of 4ν β̄ √(2 (|C| T/γ) d (log_ν(ρ_max/ρ_min + T L²/(γ d ρ_min)) + 1)).
    One clique and γ = 1 give the last line of Theorem 1's proof, which does not follow from the line before
    it (`regret_bound_centralised`) when M > 1 or d > 1.

    Args:
        problem: the public bounds.
        horizon: T.
        spread: of the noise.
        cliques: the sizes |C| of the clique cover.
        ttl: γ.
        radius: β̄_T.
    """
    gain = information_gain(problem, horizon / ttl, spread)

    def bound(base: float) -> float:
        gain_in_base = gain / math.log(base)
        return sum(
            ttl
            * 4.0
            * base
            * radius
            * math.sqrt(2.0 * (size * horizon / ttl) * problem.dim * (gain_in_base + 1.0))
            for size in cliques
        )

    return _best_base(bound)
