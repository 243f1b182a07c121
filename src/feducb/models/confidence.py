"""The paper's confidence bound; `mixture.MixtureBound` is ours.

Both come out as a `Belief`: an estimate θ̂, the inverse V⁻¹ and two widths, so that

    UCB(x) = xᵀθ̂ + β ‖x‖_{V⁻¹} + b ‖V⁻¹x‖₂

scores every action the same way. Both have b = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from feducb.config import Problem
from feducb.models.ridge import Ridge
from feducb.types import Array, Belief

__all__ = ["PaperBound", "error_ratio"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperBound:
    """Proposition 2's radius, repaired only so that it can be evaluated.

    Differs from the paper: log det V − d log(Mρ_min) where d·log det V is printed, Mκ where Mγ is
    printed, and log(2Mn/α) for the union over M agents and n data-dependent sync times.
    With budgets of their own the agents' sums Σρ_min, Σ√ρ_max, Σκ stand for Mρ_min, M√ρ_max, Mκ.

    Attributes:
        problem: the public bounds.
        alpha: α.
        agents: M.
        releases: n.
        rho_min: Σρ_min over the agents.
        root_rho_max: Σ√ρ_max.
        kappa: Σκ.
    """

    problem: Problem
    alpha: float
    agents: int
    releases: int
    rho_min: float
    root_rho_max: float
    kappa: float

    def radius(self, log_det: Array) -> Array:
        """β for regressions with the given log det V."""
        union = 2.0 * math.log(2.0 * self.agents * self.releases / self.alpha)
        information = log_det - self.problem.dim * math.log(self.rho_min)
        # A release whose noise overshoots ρ_min (chance α/2) can take log det V below d log(Mρ_min).
        rewards = self.problem.noise_scale * np.sqrt(np.maximum(union + information, 0.0))
        return np.asarray(rewards + (self.problem.parameter_bound * self.root_rho_max + self.kappa))

    def belief(self, ridge: Ridge) -> Belief:
        """What S + U tells (Alg. 1, l. 6–8)."""
        return Belief(
            theta=ridge.theta,
            inverse=ridge.inverse,
            ellipsoid_width=self.radius(ridge.log_det),
            euclidean_width=np.zeros_like(ridge.log_det),
        )


def error_ratio(belief: Belief, theta: Array) -> Array:
    """How much of the bound the true error uses up: sup over x of |xᵀ(θ̂ − θ*)| / width(x).

    The bound holds for every x at once if and only if this is at most 1. The supremum is exact:
    (√A + √B)² = min over τ in (0, 1) of A/τ + B/(1−τ), so the squared ratio is the maximum over τ of
    Σ e_i² / (β²/(v_i τ) + b²/(v_i² (1−τ))) in the eigenbasis of V, a concave function of τ.

    Args:
        belief: what is claimed, leading axes ``...``.
        theta: (..., d), the true parameter.
    """
    inverse_values, vectors = np.linalg.eigh(belief.inverse)
    error = np.einsum("...dk,...d->...k", vectors, belief.theta - theta)
    ellipsoid = belief.ellipsoid_width[..., None] ** 2 * inverse_values
    euclidean = belief.euclidean_width[..., None] ** 2 * inverse_values**2

    def squared_ratio(share: Array) -> Array:
        share = share[..., None]
        return np.asarray(
            (error**2 * share * (1.0 - share) / (ellipsoid * (1.0 - share) + euclidean * share)).sum(axis=-1)
        )

    low, high = np.full(error.shape[:-1], 1e-12), np.full(error.shape[:-1], 1.0 - 1e-12)
    for _ in range(80):  # ternary search; (2/3)^80 is below rounding
        left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
        rising = squared_ratio(left) < squared_ratio(right)
        low, high = np.where(rising, left, low), np.where(rising, high, right)
    return np.sqrt(squared_ratio((low + high) / 2.0))
