"""From a budget (ε, δ) to noise, exactly.

A release stream is Gaussian: its privacy is one number μ (Gaussian differential privacy, Dong, Roth & Su
2022), and (ε, δ) ↔ μ is the exact curve of Balle & Wang 2018, taken from dp-accounting.
"""

from __future__ import annotations

import math

from scipy.special import log_ndtr

from feducb.config import Budget, Problem

__all__ = ["mu_from_curve", "noise_scale", "record_radius", "reward_weight", "to_epsilon", "to_mu"]


def to_mu(budget: Budget) -> float:
    """The largest μ such that μ-GDP implies (ε, δ)-DP.

    Guarantees:
        A Gaussian mechanism of sensitivity μ and unit noise is (ε, δ)-private, and none with more is.
    """
    try:
        from dp_accounting import get_sigma_gaussian  # slow to import, and not needed to simulate without
    except ImportError:  # on a machine that only simulates
        return mu_from_curve(budget)
    return 1.0 / float(get_sigma_gaussian(budget.epsilon, budget.delta))


def mu_from_curve(budget: Budget) -> float:
    """The same μ without dp-accounting, for simulations: the root of δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).

    (Balle & Wang 2018, Theorem 8.) Whatever is deployed depends on dp-accounting.
    """
    from scipy.optimize import brentq

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        kept = log_ndtr(mu / 2.0 - budget.epsilon / mu)
        lost = min(budget.epsilon + log_ndtr(-mu / 2.0 - budget.epsilon / mu) - kept, -1e-300)
        return float(kept + math.log(-math.expm1(lost)) - math.log(budget.delta))

    return math.exp(brentq(excess, math.log(1e-6), math.log(1e6), xtol=1e-13))


def to_epsilon(mu: float, delta: float) -> float:
    """The smallest ε such that μ-GDP implies (ε, δ)-DP."""
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(1.0 / mu, delta))


def reward_weight(problem: Problem) -> float:
    """s: rewards are multiplied by it before noise and divided by it after, which spends μ best.

    With s·B in B's place R² = L² + s²B² (s·B ≤ L), and one entry of h − Hθ* has the variance
    (R²/μ)² (1/s² + S²), least where 2B²S²s⁴ + B²s² = L². For L = B = S = 1: s² = ½, and 0.92 times the noise.
    """
    length, reward, bound = problem.action_bound**2, problem.reward_bound**2, problem.parameter_bound**2
    root = math.sqrt(reward**2 + 8.0 * reward * bound * length)
    return math.sqrt(2.0 * length / (reward + root))  # the positive root, free of cancellation


def record_radius(problem: Problem, weight: float = 1.0) -> float:
    """R²: replacing one record moves the released matrix by at most √2 R² in Frobenius norm.

    A record gives x xᵀ and y x, seen as a symmetric (d+1)×(d+1) matrix without its corner. For
    ‖x‖, ‖x'‖ ≤ L, |y|, |y'| ≤ B the largest move is between (x, B) and (x', −B) at the angle with
    cos = min(1, B²/L²): R² = L² + B² if B ≤ L, and 2LB if B ≥ L. Proof: docs/theory.md. Rewards scaled by
    a weight s are rewards with the bound s·B.
    """
    length, reward = problem.action_bound, weight * problem.reward_bound
    return length**2 + reward**2 if reward <= length else 2.0 * length * reward


def noise_scale(problem: Problem, mu: float, weight: float = 1.0) -> float:
    """√v = R²/μ, the standard deviation of one off-diagonal entry of the Gram's noise; √v/s in the moment.

    Guarantees:
        (N̂ + N̂ᵀ)/√2 has variance v off the diagonal and 2v on it, so its density at Frobenius distance
        √2 R² is that of a unit Gaussian at distance √2 R²/√(2v) = R²/√v = μ. With the columns of the
        encoder at most 1 long, the whole stream is μ-GDP (see `mechanisms`).
    """
    return record_radius(problem, weight) / mu
