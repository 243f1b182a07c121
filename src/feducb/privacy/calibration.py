"""From a budget (ε, δ) to noise, exactly.

A release stream is Gaussian: its privacy is one number μ (Gaussian differential privacy, Dong, Roth & Su
2022), and (ε, δ) ↔ μ is the exact curve of Balle & Wang 2018, taken from dp-accounting.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from scipy.special import log_ndtr

from feducb.config import Budget

__all__ = ["epsilon_from_curve", "mu_from_curve", "noise_scale", "sigma_of", "to_epsilon", "to_mu"]


def to_mu(budget: Budget) -> float:
    """The largest μ such that μ-GDP implies (ε, δ)-DP.

    Guarantees:
        A Gaussian mechanism of sensitivity μ and unit noise is (ε, δ)-private, and none with more is.
    """
    try:
        return 1.0 / sigma_of(budget)
    except ImportError:  # on a machine that only simulates
        return mu_from_curve(budget)


def sigma_of(budget: Budget) -> float:
    """The least noise that makes a Gaussian mechanism of sensitivity 1 (ε, δ)-private."""
    from dp_accounting import get_sigma_gaussian  # slow to import, and not needed to simulate without

    return _solved(get_sigma_gaussian, budget.epsilon, budget.delta)


@lru_cache(maxsize=256)
def _solved(solve: Callable[[float, float], float], epsilon: float, delta: float) -> float:
    """Kept: a root takes milliseconds, and every store, plan and certificate of a budget asks for it."""
    return float(solve(epsilon, delta))


def mu_from_curve(budget: Budget) -> float:
    """The same μ without dp-accounting, for simulations: the root of δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).

    (Balle & Wang 2018, Theorem 8.) Whatever is deployed depends on dp-accounting.
    """
    from scipy.optimize import brentq

    def excess(log_mu: float) -> float:
        return _log_delta(math.exp(log_mu), budget.epsilon) - math.log(budget.delta)

    return math.exp(brentq(excess, math.log(1e-6), math.log(1e6), xtol=1e-13))


def _log_delta(mu: float, epsilon: float) -> float:
    """log δ of μ-GDP at ε."""
    kept = log_ndtr(mu / 2.0 - epsilon / mu)
    lost = min(epsilon + log_ndtr(-mu / 2.0 - epsilon / mu) - kept, -1e-300)
    return float(kept + math.log(-math.expm1(lost)))


def to_epsilon(mu: float, delta: float) -> float:
    """The smallest ε such that μ-GDP implies (ε, δ)-DP."""
    try:
        from dp_accounting import get_epsilon_gaussian
    except ImportError:  # on a machine that only simulates
        return epsilon_from_curve(mu, delta)
    return float(get_epsilon_gaussian(1.0 / mu, delta))


def epsilon_from_curve(mu: float, delta: float) -> float:
    """The same ε without dp-accounting, for simulations; 0 where δ is large enough by itself."""
    from scipy.optimize import brentq

    def excess(epsilon: float) -> float:
        return _log_delta(mu, epsilon) - math.log(delta)

    if excess(0.0) <= 0.0:
        return 0.0
    most = 1.0
    while excess(most) > 0.0:
        most *= 2.0
    return float(brentq(excess, 0.0, most, xtol=1e-13))


def noise_scale(radius: float, mu: float) -> float:
    """√v = R²/μ, the standard deviation of one off-diagonal entry of the Gram's noise; √v/s in the moment.

    Guarantees:
        (N̂ + N̂ᵀ)/√2 has variance v off the diagonal and 2v on it, so its density at Frobenius distance
        √2 R² is that of a unit Gaussian at distance √2 R²/√(2v) = R²/√v = μ. With the columns of the
        encoder at most 1 long, the whole stream is μ-GDP (see `mechanisms`).
    """
    return radius / mu
