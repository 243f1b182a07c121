"""One self-normalised confidence set for the noise of rewards and of privacy together.

Alone (own records, no noise), without privacy, and private federations are read by the same bound, so that
none of them is compared with a weaker version of itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.config import Problem
from feducb.models.parts import Eigenbasis
from feducb.types import Array, Belief

__all__ = ["MixtureBound", "apart", "narrowest"]

_TAUS: Array = np.geomspace(1e-4, 1e2, 61)
_MOST_ENTRIES = 2**21  # of an array with a row for each τ
_SHARES = np.linspace(0.02, 0.98, 49)  # of one of two sets that are looked at for being apart
_PULLS: Array = np.geomspace(1e-4, 1e8, 121)  # τ where a set is looked at for being empty


def narrowest(signal: Array, pull: Array, misfit: Array, bound: float) -> tuple[Array, Array, Array]:
    """The ellipsoid with the least sum of squared axes around a set, in a basis of its own.

    The set is Σ (signal_i θ_i² − 2 pull_i θ_i + misfit_i) ≤ 1, ‖θ‖ ≤ S. For every τ > 0 both together give
    Σ P_i (θ_i − θ̂_i)² ≤ 1 + τ − Σ (misfit_i − P_i θ̂_i²), with P_i = signal_i + τ/S² and θ̂_i = pull_i/P_i.

    Args:
        signal: (..., d), in a basis of its own, as all others.
        pull: (..., d).
        misfit: (..., d); only its sum counts.
        bound: S.

    Returns:
        P (..., d), θ̂ (..., d), and the squared radius (...).
    """
    dim = signal.shape[-1]
    at_once, number = max(1, _MOST_ENTRIES // (len(_TAUS) * dim)), signal.size // dim
    flat = [part.reshape(-1, dim) for part in (signal, pull, misfit)]
    pieces = ([part[start : start + at_once] for part in flat] for start in range(0, number, at_once))
    made = [_narrowest(*piece, bound=bound) for piece in pieces]
    precision, centre, squared = (np.concatenate(parts) for parts in zip(*made, strict=True))
    return precision.reshape(signal.shape), centre.reshape(signal.shape), squared.reshape(signal.shape[:-1])


def _narrowest(signal: Array, pull: Array, misfit: Array, *, bound: float) -> tuple[Array, Array, Array]:
    """`narrowest`, of few enough sums that an array with an entry for each τ is small."""
    precision = signal[..., None, :] + (_TAUS / bound**2)[:, None]  # axis −2: candidates for τ
    centre = pull[..., None, :] / precision
    left_over = misfit[..., None, :] - precision * centre**2
    squared = 1.0 + _TAUS - left_over.sum(axis=-1)
    squared = np.where(squared > 0.0, squared, 1.0 + _TAUS)  # an empty set: the bound has failed
    best = np.argmin(squared * (1.0 / precision).sum(axis=-1), axis=-1)[..., None]
    squared = np.take_along_axis(squared, best, axis=-1)[..., 0]
    precision, centre = (
        np.take_along_axis(part, best[..., None], axis=-2)[..., 0, :] for part in (precision, centre)
    )
    return precision, centre, squared


def apart(one: Belief, other: Belief) -> bool:
    """Whether two ellipsoids have no point in common; of beliefs without leading axes.

    Where they have one, λ‖θ − θ̂‖²_P/ω² + (1 − λ)‖θ − θ̂′‖²_P′/ω′² is at most 1 there for all λ in [0, 1]. Its
    least value over all θ, for (1 − λ) and λ taken into the two matrices, is that of the difference of the
    centres in the norm of (P⁻¹ + P′⁻¹)⁻¹.
    """
    apart_by = one.theta - other.theta
    shapes = [belief.inverse * belief.ellipsoid_width**2 for belief in (one, other)]
    for share in _SHARES:
        both = shapes[0] / share + shapes[1] / (1.0 - share)
        if float(apart_by @ np.linalg.solve(both, apart_by)) > 1.0:
            return True
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class MixtureBound:
    """A set around θ* read off the normal equations, noisy or not. Proof: docs/theory.md, 6.

    With A = G + H, a = u + h: a − Aθ* = Xᵀη + e with e = h − Hθ*. For Λ_k fixed in advance, with probability
    1 − α, for all releases k that are read,

        ‖a − Aθ*‖²_{Σ⁻¹} ≤ 2 ln x + log det(Σ/Λ_k),   Σ = σ²(A + λ√w_k I)₊ + (w_k D̄ + Λ_k) I,

    and ‖θ*‖ ≤ S, so that for every τ > 0, in A's eigenbasis, with D_i the right side times Σ_i,

        Σ_{v_i > 0} (a_i − v_i θ*_i)²/D_i + τ ‖θ*‖²/S² ≤ 1 + τ:

    an ellipsoid around θ̂_i = (a_i v_i/D_i)/P_i with P_i = v_i²/D_i + τ/S². τ is chosen at each release so
    that the sum of the squared axes is least; the bound holds for all τ together.

    Attributes:
        problem: the public bounds.
        log_threshold: ln x; ln(1/α) without noise (`mixture_threshold` with it).
        gram_radius: λ, at its own share of α; 0 without noise.
        residual: D̄, at least the variance of an entry of e over w; 0 without noise.
        regularizer: ρ, so that Λ_k = ½ w_k D̄ + ρσ².
        entry: the mean variance of an entry of e over w, which the estimate shrinks by; None: of a full Gram.
        rounding: how much further off than Gaussian noise of the stated variance a sum may be, in the norm of
            Σ⁻¹ (`grid.rounding_radius`); 0 off the grid.
    """

    problem: Problem
    log_threshold: float
    gram_radius: float = 0.0
    residual: float = 0.0
    regularizer: float = 20.0
    rounding: float = 0.0
    entry: float | None = None

    def prior(self, variance: Array) -> Array:
        """Λ_k, from the noise variance w_k."""
        return 0.5 * variance * self.residual + self.regularizer * self.problem.noise_scale**2

    def half_axis(self, evenly: float, variance: float = 0.0) -> float:
        """Half an axis of the set that a sum with A = ``evenly`` · I would leave: a public number.

        At S and beyond it says nothing that ‖θ*‖ ≤ S does not say.
        """
        slack = self._slack(np.full(self.problem.dim, evenly), np.array(variance))
        return math.sqrt(float(slack[0])) / evenly

    def belief(self, gram: Array, moment: Array, variance: Array) -> Belief:
        """What a sum tells.

        Args:
            gram: (..., d, d), G + H.
            moment: (..., d), u + h.
            variance: (...), w, the variance of one off-diagonal entry of H; 0 without noise.
        """
        basis, values, moments, slack = self._equations(gram, moment, variance)
        # Directions without signal keep only ‖θ*‖ ≤ S.
        signal, pull = values / slack, moments / slack
        shape = narrowest(signal * values, pull * values, pull * moments, self.problem.parameter_bound)
        precision, centre, squared = shape
        return Belief(
            theta=basis.turn_out(centre),
            inverse=basis.matrix(1.0 / precision),
            ellipsoid_width=np.sqrt(squared),
            euclidean_width=np.zeros_like(squared),
            estimate=basis.turn_out(self._likely(values, moments, variance)),
        )

    def _likely(self, values: Array, moments: Array, variance: Array) -> Array:
        """(..., d), an estimate in A's eigenbasis that shrinks as much as noise calls for, not as a set does.

        θ_i = v_i a_i/(v_i² + v_i σ²/S² + w(1/s² + S²) d/S²): against the rewards' noise ridge regression,
        against privacy's, whose variance is known, the posterior mean of a θ* ~ N(0, S²/d I), whose length is
        S in the mean. With entries of H known to be 0, `entry` stands for 1/s² + S². No bound is
        claimed.
        """
        bound, noise = self.problem.parameter_bound**2, np.asarray(variance, dtype=np.float64)[..., None]
        rewards = self.problem.noise_scale**2 / bound * values
        entry = max(self.residual - bound, 0.0) if self.entry is None else self.entry
        privacy = noise * entry * (self.problem.dim / bound)
        weighed = values**2 + rewards + privacy
        return np.asarray(values * moments / np.where(weighed > 0.0, weighed, 1.0))

    def contradicted(self, gram: Array, moment: Array, variance: Array) -> NDArray[np.bool_]:
        """Whether no θ with ‖θ‖ ≤ S agrees with a sum: the set is empty.

        Over all releases together that has a chance of at most α if ‖θ*‖ ≤ S, rewards are linear and their
        noise is σ-sub-Gaussian: it speaks against one of these. By duality the set is empty if
        min_θ Σ (a_i − v_iθ_i)²/D_i + τ‖θ‖²/S² exceeds 1 + τ for some τ > 0.
        """
        _, values, moments, slack = self._equations(gram, moment, variance)
        signal, misfit = (values**2 / slack)[..., None, :], (moments**2 / slack)[..., None, :]
        pull = (_PULLS / self.problem.parameter_bound**2)[:, None]
        least = (misfit * (pull / (signal + pull))).sum(axis=-1)
        return np.asarray((least > 1.0 + _PULLS).any(axis=-1))

    def _equations(
        self, gram: Array, moment: Array, variance: Array
    ) -> tuple[Eigenbasis, Array, Array, Array]:
        """A's eigenbasis, then in it v_i₊, a_i (0 where v_i ≤ 0) and D_i."""
        basis = Eigenbasis.of(gram)
        values, moments = basis.values, basis.turn_in(moment)
        slack = self._slack(values, np.asarray(variance, dtype=np.float64))
        return basis, np.maximum(values, 0.0), np.where(values > 0.0, moments, 0.0), slack

    def _slack(self, values: Array, variance: Array) -> Array:
        """(..., d), D_i, from A's eigenvalues and w (...)."""
        variance = variance[..., None]
        prior = self.prior(variance)
        design = np.maximum(values + self.gram_radius * np.sqrt(variance), 0.0)
        scatter = self.problem.noise_scale**2 * design + variance * self.residual + prior
        radius = 2.0 * self.log_threshold + np.log(scatter / prior).sum(axis=-1, keepdims=True)
        return np.asarray(scatter * (np.sqrt(radius) + self.rounding) ** 2)
