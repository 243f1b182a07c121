"""Intervals that may be looked at after every visit, for means of what was drawn with known chances.

X_1, X_2, … come one by one, X̂_t is fixed before X_t comes, and μ_t = E[X_t | past] may move as it likes. For
every λ ∈ [0, 1/c), where X_t − X̂_t ≥ −c,

    exp( λ Σ(X_t − μ_t) − ψ(λ) Σ(X_t − X̂_t)² ),    ψ(λ) = (−ln(1 − cλ) − cλ)/c²,

is a supermartingale that starts at 1: exp(λy − ψ(λ)y²) ≤ 1 + λy for y ≥ −c (Fan, Grama & Liu, Exponential
inequalities for martingales with applications, 2015, Lemma 4.1), and with y = X − X̂, δ = μ − X̂ its mean is
at most 1 + λδ ≤ exp(λδ) (Howard, Ramdas, McAuliffe & Sekhon, Time-uniform, nonparametric, nonasymptotic
confidence sequences, 2021, Theorem 4). So is any mixture of them, and by Ville's inequality none ever reaches
2/α but for a chance of α/2. Where the mixture is 2/α at Σ(X_t − μ_t) = u, the mean of the μ_t so far is at
least the mean of the X_t less u/n; the other end is the same for −X. Both hold at all times together, but for
a chance of α.

All that is kept is three sums. (Waudby-Smith & Ramdas, Estimating means of bounded random variables by
betting, 2024, have shorter intervals where μ_t never moves; an agent that learns moves it.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from feducb.types import Array

__all__ = ["ALPHA", "Interval", "interval"]

ALPHA = 0.05
_RATES: Array = np.geomspace(1e-5, 0.95, 48)  # λc; weights fall off slowly, as is usual for such mixtures
_WEIGHTS: Array = np.full(len(_RATES), 1.0 / len(_RATES))
_HALVINGS = 40


class Interval(NamedTuple):
    """An estimate, and where the truth is but for a chance of α, at all times together."""

    mean: float
    low: float
    high: float

    def within(self, low: float, high: float) -> Interval:
        """Cut off where the truth cannot be."""
        return Interval(*(min(max(one, low), high) for one in self))


def interval(count: int, total: float, square: float, reach: float, *, alpha: float = ALPHA) -> Interval:
    """Where the mean of the μ_t so far is.

    Args:
        count: n.
        total: Σ X_t.
        square: Σ (X_t − X̂_t)².
        reach: c, at least |X_t − X̂_t|.
        alpha: the chance with which it ever fails, at either end.
    """
    mean = total / count
    slack = reach * _boundary(square / reach**2, math.log(2.0 / alpha)) / count
    return Interval(mean, mean - slack, mean + slack)


def _boundary(variance: float, log_threshold: float) -> float:
    """u with Σ w_k exp(λ_k u − ψ(λ_k) v) = exp(``log_threshold``), for c = 1: the left side rises with u."""
    costs = (-np.log1p(-_RATES) - _RATES) * variance - np.log(_WEIGHTS)

    def log_mixture(at: float) -> float:
        return float(np.logaddexp.reduce(_RATES * at - costs))

    low, high = 0.0, 1.0
    while log_mixture(high) < log_threshold:
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if log_mixture(middle) < log_threshold else (low, middle)
    return high
