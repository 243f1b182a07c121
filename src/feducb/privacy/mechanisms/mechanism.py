"""What a mechanism for continual sums is.

A factorisation P = F·E of the n×n prefix-sum matrix P. An agent that inserts batches b_1 … b_n publishes E·b
+ z with fresh Gaussian z; anyone decodes with F and reads the prefix sums plus correlated noise F·z. E has r
≥ n rows, of which release k publishes the next ``rows(k)``.

Guarantees (matrix mechanism, Denisov et al. 2022; adaptive inputs: docs/theory.md):
    If every column of E is at most 1 long, one record that enters one batch moves E·b by at most its own
    size, whatever the earlier releases made the later batches be; so noise √v makes the whole stream
    (R²/√v)-GDP, and release k carries variance v·‖row_k(F)‖². A person with p records moves it by at most p
    times that, and less if no two of them share a batch (`reach.person_reach`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from feducb.config import require_integer
from feducb.types import Array

__all__ = ["SLACK", "Mechanism", "Memory"]

Memory = Sequence[Array | None]
"""What a mechanism keeps of its fresh draws between releases."""

SLACK = 1e-12  # encoders are shrunk by this, so that rounding never lifts a column norm above 1


@dataclass(frozen=True, slots=True)
class Mechanism(ABC):
    """A factorisation for a fixed number of releases. A value: what is derived from one is kept with it.

    A mechanism gives E, and at least one of ``decoder`` and ``correlate``; the other follows from it.

    Attributes:
        name: what it is called in settings and statements.
        releases: n, fixed in advance: noise is calibrated to it.
    """

    name: ClassVar[str]
    releases: int

    def __post_init__(self) -> None:
        require_integer("releases", self.releases, at_least=1)

    def rows(self, release: int) -> int:
        """How many rows of E release k publishes: one, but for trees that publish several nodes at once."""
        return 1

    @abstractmethod
    def encoder(self) -> Array:
        """E, (r, n). Takes n² memory: for small n."""

    def decoder(self) -> Array:
        """F, (n, r), by streaming unit draws through. Takes n² memory: for small n."""
        counts = [self.rows(release) for release in range(1, self.releases + 1)]
        draws, first, out = np.eye(sum(counts)), 0, []
        memory: Memory = ()
        for release, count in enumerate(counts, start=1):
            memory, row = self.correlate(memory, release, draws[first : first + count])
            out.append(row)
            first += count
        return np.array(out)

    def error(self, release: int) -> float:
        """‖row_k(F)‖: the noise of release k (counted from 1), in units of the fresh noise."""
        return norm(self.decoder()[release - 1])

    def worst_error(self) -> float:
        """The largest of them."""
        return float(np.linalg.norm(self.decoder(), axis=1).max())

    def correlate(self, memory: Memory, release: int, fresh: Array) -> tuple[Memory, Array]:
        """Take release k's fresh draws; return what to remember (here all of them) and row k of F·z.

        Args:
            memory: what the last call returned; empty before release 1.
            release: k, counted from 1.
            fresh: (rows(k), ..., q), unit Gaussian.
        """
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
