"""Lower bounds on privacy loss from samples, each with its exact chance of being wrong.

Two kinds. Under the Gaussian assumption: scores of the two worlds are normal with one unknown variance; the
bound on their distance μ inverts the noncentral t distribution. Free of assumptions: how often a score passes
a threshold fixed before any draw is binomial, whatever its law, and Clopper–Pearson bounds both frequencies.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betainccinv, betaincinv, ndtr
from scipy.stats import chi2

from feducb.privacy.calibration import to_epsilon

__all__ = ["epsilon_from_counts", "gaussian_epsilon", "least_distance", "least_share", "most_share"]

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(256)
_REACH = 14.0  # deviations of the sample deviation that are integrated over; the rest weighs under 1e-40


def least_share(successes: int, trials: int, level: float) -> float:
    """Clopper–Pearson: the probability of success is at least this, but with chance ``level``."""
    return float(betaincinv(successes, trials - successes + 1, level)) if successes else 0.0


def most_share(successes: int, trials: int, level: float) -> float:
    """Clopper–Pearson: the probability of success is at most this, but with chance ``level``."""
    return float(betainccinv(successes + 1, trials - successes, level)) if successes < trials else 1.0


def epsilon_from_counts(
    hits: int, trials: int, false_hits: int, false_trials: int, *, delta: float, level: float
) -> float:
    """A lower bound on ε at δ from how often one event happened in each of two neighbouring worlds.

    P₁(event) ≤ e^ε P₀(event) + δ for every (ε, δ)-private mechanism. ``level`` is the chance that the bound
    is above the truth; each side may fail with half of it.
    """
    likely = least_share(hits, trials, level / 2.0) - delta
    unlikely = most_share(false_hits, false_trials, level / 2.0)
    return max(0.0, math.log(likely / unlikely)) if likely > 0.0 else 0.0


def least_distance(zeros: Array, ones: Array, level: float) -> float:
    """A lower bound on μ = (mean₁ − mean₀)/deviation of two normal samples of one variance.

    Guarantees:
        Above μ with chance ``level`` at most (exactly so, where it is positive): t = (m₁ − m₀)/(s·h), with
        h² = 1/n₀ + 1/n₁, is noncentral t around μ/h; the bound is the μ that makes so large a t so unlikely.
    """
    count0, count1 = len(zeros), len(ones)
    freedom = count0 + count1 - 2
    if freedom < 100:
        raise ValueError(f"{count0} and {count1} samples, expected at least 102 together")
    squares = float(np.sum((zeros - zeros.mean()) ** 2) + np.sum((ones - ones.mean()) ** 2))
    spread = math.sqrt(1.0 / count0 + 1.0 / count1)
    gap = float(ones.mean() - zeros.mean())
    if squares == 0.0:
        return math.inf if gap > 0.0 else 0.0
    seen = gap / (math.sqrt(squares / freedom) * spread)
    if seen <= 0.0 or _chance_of_more(seen, 0.0, freedom) >= level:
        return 0.0
    high = seen + 1.0
    return float(brentq(lambda centre: _chance_of_more(seen, centre, freedom) - level, 0.0, high)) * spread


def _chance_of_more(seen: float, centre: float, freedom: int) -> float:
    """P(T ≥ seen) of a noncentral t: the mean of Φ(centre − seen·W) over W = √(χ²/freedom)."""
    width = _REACH / math.sqrt(2.0 * freedom)
    low, high = max(1e-9, 1.0 - width), 1.0 + width
    scale = low + (high - low) * (_NODES + 1.0) / 2.0
    density = np.exp(chi2.logpdf(freedom * scale**2, freedom)) * 2.0 * freedom * scale
    return float(np.sum(_WEIGHTS * density * ndtr(centre - seen * scale)) * (high - low) / 2.0)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """ε at δ of a Gaussian of distance μ; 0 where δ alone covers it."""
    if mu <= 1e-6:
        return 0.0
    return to_epsilon(mu, delta) if mu < 1e4 else mu * mu / 2.0  # below ε, and as good as it, so far out
