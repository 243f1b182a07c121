"""Mechanisms given by a square matrix: the square-root Toeplitz factorisation, and the optimal dense one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.privacy.mechanisms.base import (
    SLACK,
    Array,
    Memory,
    lag_matrix,
    norm,
    prefix_sums,
    square_root_coefficients,
)

__all__ = ["DENSE_LIMIT", "Dense", "SquareRootToeplitz"]

DENSE_LIMIT = 256  # the optimum takes O(n³): half a second at 256


class Factors(NamedTuple):
    """E, F, and a certificate: no factorisation at all has a smaller worst error than ``lower_bound``."""

    encoder: Array
    decoder: Array
    lower_bound: float


class _Matrix:
    """What mechanisms with a square matrix share: they keep all draws and read off row k of F."""

    __slots__ = ()
    releases: int

    def decoder(self) -> Array:
        raise AssertionError("given by the subclass")

    def rows(self, release: int) -> int:
        """One row a release."""
        return 1

    def error(self, release: int) -> float:
        """‖row_k(F)‖."""
        return norm(self.decoder()[release - 1])

    def worst_error(self) -> float:
        """The largest row norm of F."""
        return float(np.linalg.norm(self.decoder(), axis=1).max())

    def correlate(self, memory: Memory, release: int, fresh: Array) -> tuple[Memory, Array]:
        """Row k of F times all draws so far."""
        draws = (*memory, fresh[0])
        kept = np.stack([draw for draw in draws if draw is not None])
        return draws, np.tensordot(self.decoder()[release - 1, :release], kept, axes=1)


@dataclass(frozen=True, slots=True)
class SquareRootToeplitz(_Matrix):
    """E = F = √P, Toeplitz with coefficients C(2j, j)/4^j (Fichtenberger, Henzinger & Upadhyay 2023)."""

    name: ClassVar[str] = "toeplitz"
    releases: int

    def __post_init__(self) -> None:
        require_integer("releases", self.releases, at_least=1)

    def encoder(self) -> Array:
        """√P, scaled so that its first (longest) column has length 1."""
        return _square_root(self.releases).encoder

    def decoder(self) -> Array:
        """√P, scaled back."""
        return _square_root(self.releases).decoder


@dataclass(frozen=True, slots=True)
class Dense(_Matrix):
    """The factorisation with the least worst error there is (the γ₂ norm of P), for n ≤ 256."""

    name: ClassVar[str] = "dense"
    releases: int

    def __post_init__(self) -> None:
        require_integer("releases", self.releases, at_least=1)
        if self.releases > DENSE_LIMIT:
            raise ConfigurationError(
                "releases", self.releases, f"at most {DENSE_LIMIT} for a dense mechanism"
            )

    def encoder(self) -> Array:
        """E, lower triangular."""
        return optimal_factors(self.releases).encoder

    def decoder(self) -> Array:
        """F = P E⁻¹, lower triangular."""
        return optimal_factors(self.releases).decoder


@lru_cache(maxsize=8)
def _square_root(releases: int) -> Factors:
    coefficients = square_root_coefficients(releases)
    length, root = norm(coefficients) * (1.0 + SLACK), lag_matrix(coefficients)
    return _frozen(Factors(root / length, root * length, 0.0))


@lru_cache(maxsize=8)
def optimal_factors(releases: int, sweeps: int = 64) -> Factors:
    """Minimise the worst row norm of F over all encoders whose columns have length 1.

    For weights u on the releases and v on the batches, each summing to 1, the trace norm of diag(√u) P
    diag(√v) is at most the minimum sought, with equality at the best weights (duality of γ₂). Each sweep
    multiplies a release's weight by its squared error, twice over, and a batch's weight by its squared column
    norm likewise; at the fixed point both are level. The number of sweeps is fixed, so that all machines
    compute the same encoder up to rounding.
    """
    target = prefix_sums(releases)
    u = v = np.full(releases, 1.0 / releases)
    for _ in range(sweeps):
        weighted, basis, singular = _right_vectors(target, u, v)
        u = _level(u * (((weighted @ basis) ** 2 @ (1.0 / singular)) / u) ** 2)
        v = _level(v * ((basis**2 @ singular) / v) ** 2)
    _, basis, singular = _right_vectors(target, u, v)
    gram = (basis * singular) @ basis.T / np.sqrt(np.outer(v, v))  # EᵀE, whatever the rotation of E
    encoder = cholesky(gram[::-1, ::-1], lower=False)[::-1, ::-1]  # flipped twice: lower triangular
    encoder = np.tril(encoder / np.linalg.norm(encoder, axis=0)) * (1.0 - SLACK)
    if np.min(encoder.T @ encoder) < 0.0:  # measured positive for every n up to 256, not proved: so checked
        raise ArithmeticError(
            "columns of the encoder point apart: several records would cost more than their sum"
        )
    decoder = solve_triangular(encoder, target.T, trans="T", lower=True).T
    return _frozen(Factors(encoder, np.tril(decoder), float(singular.sum())))


def _right_vectors(target: Array, u: Array, v: Array) -> tuple[Array, Array, Array]:
    """The weighted target, its right singular vectors (columns) and singular values."""
    weighted = np.sqrt(u)[:, None] * target * np.sqrt(v)
    squares, basis = np.linalg.eigh(weighted.T @ weighted)
    return weighted, basis, np.sqrt(np.maximum(squares, 1e-14 * squares[-1]))


def _level(weights: Array) -> Array:
    """Weights that sum to 1; none vanishes, lest the encoder be singular."""
    weights = np.maximum(weights / weights.sum(), 1e-7 / len(weights))
    return np.asarray(weights / weights.sum())


def _frozen(factors: Factors) -> Factors:
    """Shared by all who ask: nobody may write into it."""
    factors.encoder.flags.writeable = False
    factors.decoder.flags.writeable = False
    return factors
