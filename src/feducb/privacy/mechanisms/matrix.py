"""Mechanisms given by a square matrix: the square-root Toeplitz factorisation, and the optimal dense one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from feducb.config import require_finite, require_integer
from feducb.errors import ConfigurationError
from feducb.privacy.mechanisms.mechanism import (
    SLACK,
    Mechanism,
    lag_matrix,
    norm,
    prefix_sums,
    square_root_coefficients,
)
from feducb.system import single_threaded_blas
from feducb.types import Array

__all__ = ["DENSE_LIMIT", "Dense", "SquareRootToeplitz", "least_worst_error"]

DENSE_LIMIT = 256  # the optimum takes O(n³): half a second at 256
_SWEEPS, _SWEEPS_GIVEN = 64, 200
_LARGEST_DECAY = 16.0
_LARGEST_SPREAD = 1e7  # from the weight of the first release to that of the last: beyond, rounding shows
_WHISPER = 0.05  # what the column of an early batch gives away to its own, unread, release


class Factors(NamedTuple):
    """E, F, and a certificate: no factorisation at all has a smaller worst error than ``lower_bound``."""

    encoder: Array
    decoder: Array
    lower_bound: float


@dataclass(frozen=True, slots=True)
class SquareRootToeplitz(Mechanism):
    """E = F = √P, Toeplitz with coefficients C(2j, j)/4^j (Fichtenberger, Henzinger & Upadhyay 2023)."""

    name: ClassVar[str] = "toeplitz"

    def encoder(self) -> Array:
        """√P, scaled so that its first (longest) column has length 1."""
        return _square_root(self.releases).encoder

    def decoder(self) -> Array:
        """√P, scaled up by what the encoder was scaled down."""
        return _square_root(self.releases).decoder


@dataclass(frozen=True, slots=True)
class Dense(Mechanism):
    """The factorisation with the least worst error there is (the γ₂ norm of P), for n ≤ 256.

    Or, with a decay r, the one with the least Σ_k r^(−k) error_k². Where release k comes at t_k and is acted
    on until t_{k+1}, its noise costs (t_{k+1} − t_k)·(error_k/t_k)²: r is the ratio of a geometric schedule.

    Attributes:
        releases: n.
        quiet: how many releases at the start nobody will read. They carry 20 times the noise or more; in
            return those after them have the noise of a stream that is so many releases shorter.
        decay: r ≥ 1; None levels all errors that are read.
    """

    name: ClassVar[str] = "dense"
    quiet: int = 0
    decay: float | None = None

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        if self.releases > DENSE_LIMIT:
            raise ConfigurationError(
                "releases", self.releases, f"at most {DENSE_LIMIT} for a dense mechanism"
            )
        require_integer("quiet", self.quiet, at_least=0)
        if self.quiet >= self.releases:
            raise ConfigurationError("quiet", self.quiet, f"below the {self.releases} releases")
        if self.decay is not None:
            steps = max(1, self.releases - self.quiet - 1)
            largest = min(_LARGEST_DECAY, _LARGEST_SPREAD ** (1.0 / steps))
            if require_finite("decay", self.decay, at_least=1) > largest:
                raise ConfigurationError("decay", self.decay, f"at most {largest:.4g} at so many releases")

    def encoder(self) -> Array:
        """E, (n, n), lower triangular: release k reads batches 1 … k."""
        return _quiet_factors(self.releases, self.quiet, self.decay).encoder

    def decoder(self) -> Array:
        """F = P E⁻¹, lower triangular."""
        return _quiet_factors(self.releases, self.quiet, self.decay).decoder

    def worst_error(self) -> float:
        """The largest row norm of F among the releases that are read."""
        return float(np.linalg.norm(self.decoder()[self.quiet :], axis=1).max())


@lru_cache(maxsize=8)
def _square_root(releases: int) -> Factors:
    coefficients = square_root_coefficients(releases)
    length, root = norm(coefficients) * (1.0 + SLACK), lag_matrix(coefficients)
    return _frozen(Factors(root / length, root * length, 0.0))


@lru_cache(maxsize=8)
def optimal_factors(releases: int, decay: float | None = None) -> Factors:
    """Minimise the worst row norm of F, or the decaying sum of their squares, over all encoders.

    Those whose columns have length 1, that is: privacy costs the same for all of them.

    For weights u on the releases and v on the batches, each summing to 1, the trace norm of diag(√u) P
    diag(√v) is at most the minimum sought, with equality at the best weights (duality of γ₂). Each sweep
    multiplies a release's weight by its squared error, twice over, and a batch's weight by its squared column
    norm likewise; at the fixed point both are level. With given weights on the releases those on the batches
    alone are sought: the square of the trace norm is then the least weighted sum of squared errors. The
    number of sweeps is fixed, so that all machines compute the same encoder up to rounding.
    """
    target, given = prefix_sums(releases), decay is not None
    u = v = np.full(releases, 1.0 / releases)
    if decay is not None:
        u = decay ** -np.arange(releases, dtype=np.float64)
        u /= u.sum()
    with single_threaded_blas():  # threads that wait for each other: ten times slower
        for _ in range(_SWEEPS_GIVEN if given else _SWEEPS):
            weighted, basis, singular = _right_vectors(target, u, v)
            if not given:
                u = _level(u * (((weighted @ basis) ** 2 @ (1.0 / singular)) / u) ** 2)
            v = _level(v * ((basis**2 @ singular) / v) ** (1 if given else 2))
        _, basis, singular = _right_vectors(target, u, v)
    gram = (basis * singular) @ basis.T / np.sqrt(np.outer(v, v))  # EᵀE, whatever the rotation of E
    encoder = cholesky(gram[::-1, ::-1], lower=False)[::-1, ::-1]  # flipped twice: lower triangular
    encoder = np.tril(encoder / np.linalg.norm(encoder, axis=0)) * (1.0 - SLACK)
    decoder = solve_triangular(encoder, target.T, trans="T", lower=True).T
    return _frozen(Factors(encoder, np.tril(decoder), float(singular.sum())))


def least_worst_error(workload: Array) -> float:
    """The least worst row norm of F over all factorisations F·E of a workload, columns of E no longer than 1.

    The trace norm above at the best weights, for any lower-triangular matrix in place of P.
    """
    size = len(workload)
    u = v = np.full(size, 1.0 / size)
    with single_threaded_blas():
        for _ in range(_SWEEPS_GIVEN):
            weighted, basis, singular = _right_vectors(workload, u, v)
            u = _level(u * (((weighted @ basis) ** 2 @ (1.0 / singular)) / u) ** 2)
            v = _level(v * ((basis**2 @ singular) / v) ** 2)
        return float(_right_vectors(workload, u, v)[2].sum())


@lru_cache(maxsize=8)
def _quiet_factors(releases: int, quiet: int, decay: float | None) -> Factors:
    """The optimum for the releases after the first ``quiet``; what came before enters with the first of them.

    The column of an early batch gives a whisper to its own, unread, release, so that E can be inverted, and
    the rest to the first column of the optimum: length 1, no entry negative.
    """
    loud = optimal_factors(releases - quiet, decay)
    if not quiet:
        return loud
    encoder = np.zeros((releases, releases))
    encoder[quiet:, quiet:] = loud.encoder
    encoder[quiet:, :quiet] = math.sqrt(1.0 - _WHISPER**2) * loud.encoder[:, :1]
    encoder[np.arange(quiet), np.arange(quiet)] = _WHISPER * (1.0 - SLACK)
    decoder = solve_triangular(encoder, prefix_sums(releases).T, trans="T", lower=True).T
    return _frozen(Factors(encoder, np.tril(decoder), loud.lower_bound))


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
    """Check what privacy rests on; shared by all who ask, so nobody may write into it."""
    lengths = np.linalg.norm(factors.encoder, axis=0)
    if lengths.max() > 1.0 or np.min(factors.encoder.T @ factors.encoder) < 0.0:
        raise ArithmeticError("an encoder with columns that are longer than 1 or point apart: no privacy")
    factors.encoder.flags.writeable = False
    factors.decoder.flags.writeable = False
    return factors
