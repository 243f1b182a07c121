"""What a mechanism for continual sums is.

A factorisation P = F·E of the n×n prefix-sum matrix P. An agent that inserts batches b_1 … b_n publishes E·b
+ z with fresh Gaussian z; anyone decodes with F and reads the prefix sums plus correlated noise F·z. E has r
≥ n rows, of which release k publishes the next ``rows(k)`` (one, but for trees that publish several nodes at
once).

Guarantees (matrix mechanism, Denisov et al. 2022; adaptive inputs: docs/theory.md):
    If every column of E is at most 1 long, one record that enters one batch moves E·b by at most its own
    size, whatever the earlier releases made the later batches be; so noise √v makes the whole stream
    (R²/√v)-GDP, and release k carries variance v·‖row_k(F)‖². If also (EᵀE)_ij ≥ 0, a person with p records
    moves it by at most p times that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from feducb.config import require_integer
from feducb.types import Array

__all__ = ["SLACK", "Factorisation", "Mechanism", "Memory"]

Memory = Sequence[Array | None]
"""What a mechanism keeps of its fresh draws between releases."""

SLACK = 1e-12  # encoders are shrunk by this, so that rounding never lifts a column norm above 1


class Mechanism(Protocol):
    """A factorisation for a fixed number of releases."""

    @property
    def name(self) -> str:
        """What it is called in settings and statements."""
        ...

    @property
    def releases(self) -> int:
        """n, fixed in advance: noise is calibrated to it."""
        ...

    def __hash__(self) -> int:
        """Mechanisms are values: what is derived from one is kept with it."""
        ...

    def rows(self, release: int) -> int:
        """How many rows of E release k publishes."""
        ...

    def encoder(self) -> Array:
        """E, (r, n). Takes n² memory: for small n."""
        ...

    def decoder(self) -> Array:
        """F, (n, r). Takes n² memory: for small n."""
        ...

    def error(self, release: int) -> float:
        """‖row_k(F)‖: the noise of release k (counted from 1), in units of the fresh noise."""
        ...

    def worst_error(self) -> float:
        """The largest of them."""
        ...

    def correlate(self, memory: Memory, release: int, fresh: Array) -> tuple[Memory, Array]:
        """Take release k's fresh draws; return what to remember and row k of F·z.

        Args:
            memory: what the last call returned; empty before release 1.
            release: k, counted from 1.
            fresh: (rows(k), ..., q), unit Gaussian.
        """
        ...


class Factorisation:
    """What shipped mechanisms share; each gives at least one of ``decoder`` and ``correlate``."""

    __slots__ = ()
    releases: int

    def __post_init__(self) -> None:
        require_integer("releases", self.releases, at_least=1)

    def rows(self, release: int) -> int:
        """One row per release."""
        return 1

    def decoder(self) -> Array:
        """F, by streaming unit draws through."""
        counts = [self.rows(release) for release in range(1, self.releases + 1)]
        draws, first, out = np.eye(sum(counts)), 0, []
        memory: Memory = ()
        for release, count in enumerate(counts, start=1):
            memory, row = self.correlate(memory, release, draws[first : first + count])
            out.append(row)
            first += count
        return np.array(out)

    def error(self, release: int) -> float:
        """‖row_k(F)‖, read off the matrix."""
        return norm(self.decoder()[release - 1])

    def worst_error(self) -> float:
        """The largest row norm of F."""
        return float(np.linalg.norm(self.decoder(), axis=1).max())

    def correlate(self, memory: Memory, release: int, fresh: Array) -> tuple[Memory, Array]:
        """Row k of F times all draws so far, which are kept."""
        draws = (*memory, fresh[0])
        kept = np.stack([draw for draw in draws if draw is not None])
        return draws, mix(self.decoder()[release - 1, :release], kept)


def prefix_sums(releases: int) -> Array:
    """P, the lower-triangular matrix of ones."""
    return np.tri(releases)


def mix(weights: Array, parts: Array) -> Array:
    """Σ_i weights_i parts_i, entry by entry: to the last bit the same whatever stands beside an entry."""
    return np.asarray((weights.reshape(-1, *(1,) * (parts.ndim - 1)) * parts).sum(axis=0))


def lag_matrix(coefficients: Array) -> Array:
    """The lower-triangular Toeplitz matrix with these coefficients in its first column."""
    size = len(coefficients)
    lags = np.subtract.outer(np.arange(size), np.arange(size))
    return np.where(lags >= 0, coefficients[np.maximum(lags, 0)], 0.0)


def square_root_coefficients(releases: int) -> Array:
    """1, 1/2, 3/8, …: C(2j, j)/4^j, the power series of (1 − z)^(−1/2)."""
    steps = np.arange(1, releases, dtype=np.float64)
    return np.concatenate([[1.0], np.cumprod((2.0 * steps - 1.0) / (2.0 * steps))])


def norm(values: Array) -> float:
    """Euclidean length, by a dot product: nothing is squared and copied first."""
    return math.sqrt(float(np.dot(values, values)))
