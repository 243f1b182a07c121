"""The closed-form confidence bound of earlier work: a shift of the Gram and a ball cover the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from feducb.config import Problem
from feducb.models.ridge import factorise
from feducb.types import Array, Belief

__all__ = ["TwoWidths"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TwoWidths:
    """UCB(x) = xᵀθ̂ + β‖x‖_{V⁻¹} + b‖V⁻¹x‖₂ of released sums, by a union over releases.

    With probability 1 − α, for all releases k and all x at once,
    ``|xᵀ(θ̂ − θ*)| ≤ β ‖x‖_{V⁻¹} + b_k ‖V⁻¹x‖₂``. Proof: docs/theory.md.

    Attributes:
        problem: the public bounds.
        alpha: α, the chance that the bound fails anywhere.
        releases: n, how many releases the union covers.
        regularizer: ρ.
    """

    problem: Problem
    alpha: float
    releases: int
    regularizer: float = 1.0

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
        information = log_det - self.problem.dim * math.log(self.regularizer)
        return self.problem.noise_scale * np.sqrt(2.0 * math.log(2.0 / self.alpha) + information)

    def belief(self, gram: Array, moment: Array, variance: Array) -> Belief:
        """What a released sum tells (`Bound.belief`); one entry of h has the variance w too."""
        shifted = gram + self.shift(variance)[..., None, None] * np.eye(self.problem.dim)
        ridge = factorise(_floor_eigenvalues(shifted, self.regularizer), moment)
        return Belief(
            theta=ridge.theta,
            inverse=ridge.inverse,
            ellipsoid_width=self.ellipsoid_width(ridge.log_det),
            euclidean_width=self.euclidean_width(variance),
        )


def _floor_eigenvalues(matrix: Array, floor: float) -> Array:
    """Lift the eigenvalues of symmetric matrices that lie below ``floor`` up to it; leave the others."""
    lowest = np.linalg.eigvalsh(matrix)[..., 0]
    if np.all(lowest >= floor):
        return matrix
    values, vectors = np.linalg.eigh(matrix)
    lifted = (vectors * np.maximum(values, floor)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.asarray(np.where((lowest < floor)[..., None, None], lifted, matrix))
