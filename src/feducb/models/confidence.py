"""Upper confidence bounds, in the paper's form and in the calibrated two-width form.

Both come out as a `Belief`: an estimate θ̂, the inverse V⁻¹ and two widths, so that

    UCB(x) = xᵀθ̂ + β ‖x‖_{V⁻¹} + b ‖V⁻¹x‖₂

scores every action the same way. The paper's radius has b = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.config import Problem
from feducb.models.ridge import Ridge, factorise, floor_eigenvalues
from feducb.types import Array, Belief

__all__ = ["CalibratedBound", "OwnDataBound", "PaperBound", "ReleasedSetBound", "error_ratio"]

Flags = NDArray[np.bool_]

_TAUS: Array = np.geomspace(1e-4, 1e2, 61)
_PULLS: Array = np.geomspace(1e-4, 1e8, 121)  # τ where a set is looked at for being empty


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibratedBound:
    """The two-width bound, for an agent that acts on released sums only: closed form, with or without noise.

    `ReleasedSetBound` says the same of noisy sums more sharply; this one is the readable reference.

    With probability 1 − α, for all releases k and all x at once,
    ``|xᵀ(θ̂ − θ*)| ≤ β ‖x‖_{V⁻¹} + b_k ‖V⁻¹x‖₂``. Proof: docs/theory.md.

    Attributes:
        problem: the public bounds.
        alpha: α, the chance that the bound fails anywhere.
        releases: n, how many releases the union covers.
        regularizer: ρ.
        private: whether the sums carry noise; if not, all of α goes to the rewards' share.
    """

    problem: Problem
    alpha: float
    releases: int
    regularizer: float = 1.0
    private: bool = True

    def _log_union(self) -> float:
        return math.log(4.0 * self.releases / self.alpha)

    def shift(self, variance: Array) -> Array:
        """c_k = λ_k + ρ, what the receiver adds to the diagonal, from the noise variance w_k."""
        operator = 2.0 * math.sqrt(self.problem.dim) + 2.0 * math.sqrt(self._log_union())
        return np.sqrt(variance) * operator + self.regularizer

    def euclidean_width(self, variance: Array) -> Array:
        """b_k: the Gaussian vector h − Hθ* (θ* is fixed, so no operator norm), and the shift."""
        squared = self.problem.parameter_bound**2
        radius = math.sqrt(self.problem.dim * (1.0 + squared) + squared) + math.sqrt(
            2.0 * (1.0 + 2.0 * squared) * self._log_union()
        )
        return np.sqrt(variance) * radius + self.shift(variance) * self.problem.parameter_bound

    def ellipsoid_width(self, log_det: Array) -> Array:
        """β = σ √(2 ln(2/α) + log det V − d log ρ), self-normalised (V ⪰ G + ρI)."""
        share = 2.0 if self.private else 1.0
        information = log_det - self.problem.dim * math.log(self.regularizer)
        return self.problem.noise_scale * np.sqrt(2.0 * math.log(share / self.alpha) + information)

    def belief(self, gram: Array, moment: Array, variance: Array) -> Belief:
        """What a released sum tells (`Bound.belief`); one entry of h has the variance w too."""
        shifted = gram + self.shift(variance)[..., None, None] * np.eye(self.problem.dim)
        ridge = factorise(floor_eigenvalues(shifted, self.regularizer), moment)
        return Belief(
            theta=ridge.theta,
            inverse=ridge.inverse,
            ellipsoid_width=self.ellipsoid_width(ridge.log_det),
            euclidean_width=self.euclidean_width(variance),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedSetBound:
    """A confidence set read off the noisy normal equations: no shift, no bias. Proof: docs/theory.md.

    θ* solves A θ* = a up to the noise: a − Aθ* = (h − Hθ*) + Xᵀη with A = G + H, a = u + h. With probability
    1 − α, for all releases at once, ‖h − Hθ*‖ ≤ R_k = r√w_k, G ⪯ A + λ√w_k I and
    ‖Xᵀη‖_{W⁻¹} ≤ β with W = A + (λ√w_k + ρ) I. A sum of a ball and an ellipsoid fits into the ellipsoid
    D = (1+κ) R² I + (1+1/κ) β² W, and ‖θ*‖ ≤ S, so that for every κ, τ > 0, in A's eigenbasis,

        Σ_{σ_i > 0} (a_i − σ_i θ*_i)²/D_i + τ ‖θ*‖²/S² ≤ 1 + τ,

    an ellipsoid around θ̂_i = (a_i σ_i/D_i)/P_i with P_i = σ_i²/D_i + τ/S². τ is chosen at each release so
    that the longest axis is shortest; the bound holds for all τ together.

    Attributes:
        problem: the public bounds.
        reward_alpha: the share of α for the rewards' noise η.
        residual_radius: r, at its own share of α.
        gram_radius: λ, at its own share of α.
        regularizer: ρ, fixed over releases; near R_k at the first release that counts.
    """

    problem: Problem
    reward_alpha: float
    residual_radius: float
    gram_radius: float
    regularizer: float

    def belief(self, gram: Array, moment: Array, variance: Array) -> Belief:
        """What a released sum tells (`Bound.belief`), w > 0."""
        vectors, values, moments, slack = self._equations(gram, moment, variance)
        # Axis −2: candidates for τ. Directions without signal keep only ‖θ*‖ ≤ S.
        tau = _TAUS[:, None]
        values, moments, slack = (part[..., None, :] for part in (values, moments, slack))
        precision = values**2 / slack + tau / self.problem.parameter_bound**2
        centre = moments * values / (slack * precision)
        misfit = moments**2 / slack - precision * centre**2
        squared = 1.0 + _TAUS - misfit.sum(axis=-1)
        squared = np.where(squared > 0.0, squared, 1.0 + _TAUS)  # an empty set: the bound has failed
        best = np.argmin(squared / precision.min(axis=-1), axis=-1)[..., None]
        squared = np.take_along_axis(squared, best, axis=-1)[..., 0]
        precision, centre = (
            np.take_along_axis(part, best[..., None], axis=-2)[..., 0, :] for part in (precision, centre)
        )
        return Belief(
            theta=np.einsum("...dk,...k->...d", vectors, centre),
            inverse=(vectors / precision[..., None, :]) @ np.swapaxes(vectors, -1, -2),
            ellipsoid_width=np.sqrt(squared),
            euclidean_width=np.zeros_like(squared),
        )

    def contradicted(self, gram: Array, moment: Array, variance: Array) -> Flags:
        """Whether no θ with ‖θ‖ ≤ S agrees with a released sum: the set is empty.

        Over all releases together that has a chance of at most α, its three shares together, if ‖θ*‖ ≤ S,
        rewards are linear and their noise is σ-sub-Gaussian: it speaks against one of these. By duality the
        set is empty if min_θ Σ (a_i − σ_iθ_i)²/D_i + τ‖θ‖²/S² exceeds 1 + τ for some τ > 0. Arguments are
        those of ``belief``.
        """
        _, values, moments, slack = self._equations(gram, moment, variance)
        signal, misfit = (values**2 / slack)[..., None, :], (moments**2 / slack)[..., None, :]
        pull = _PULLS / self.problem.parameter_bound**2
        least = (misfit * (pull[:, None] / (signal + pull[:, None]))).sum(axis=-1)
        return np.asarray((least > 1.0 + _PULLS).any(axis=-1))

    def _equations(self, gram: Array, moment: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
        """A's eigenvectors, then in its eigenbasis σ_i₊, a_i (0 where σ_i ≤ 0) and D_i."""
        values, vectors = np.linalg.eigh(gram)
        moments = np.einsum("...dk,...d->...k", vectors, moment)
        root = np.sqrt(variance)[..., None]
        radius = self.residual_radius * root
        # W ⪰ ρI but for the chance in `gram_radius`; then the floor changes nothing.
        design = np.maximum(values + self.gram_radius * root, 0.0) + self.regularizer
        information = np.log(design / self.regularizer).sum(axis=-1, keepdims=True)
        beta = self.problem.noise_scale * np.sqrt(2.0 * math.log(1.0 / self.reward_alpha) + information)
        typical = beta * np.exp(0.5 * np.log(design).mean(axis=-1, keepdims=True))
        slack = (1.0 + typical / radius) * radius**2 + (1.0 + radius / typical) * beta**2 * design
        return vectors, np.maximum(values, 0.0), np.where(values > 0.0, moments, 0.0), slack


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnDataBound:
    """The same bound for an agent that acts on its own data alone: no noise, V = ρI + Σ x xᵀ."""

    problem: Problem
    alpha: float
    regularizer: float = 1.0

    def belief(self, ridge: Ridge) -> Belief:
        """What the agent's own regression tells."""
        information = ridge.log_det - self.problem.dim * math.log(self.regularizer)
        radius = np.sqrt(2.0 * math.log(1.0 / self.alpha) + information)
        bias = self.regularizer * self.problem.parameter_bound
        return Belief(
            theta=ridge.theta,
            inverse=ridge.inverse,
            ellipsoid_width=self.problem.noise_scale * radius,
            euclidean_width=np.full_like(ridge.log_det, bias),
        )


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
