"""Sufficient statistics of linear regression: Gram G = Σ x xᵀ, moment u = Σ y x, and a count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Statistics", "add", "merge", "pool", "subtract", "zeros"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Sums over records (x, y). Raw: they never leave the agent.

    Attributes:
        gram: (..., d, d), Σ x xᵀ.
        moment: (..., d), Σ y x.
        count: how many records each sum holds.
    """

    gram: Array
    moment: Array
    count: int


def zeros(dim: int, shape: tuple[int, ...] = ()) -> Statistics:
    """Statistics of no records, for every index of ``shape``."""
    return Statistics(np.zeros((*shape, dim, dim)), np.zeros((*shape, dim)), 0)


def add(statistics: Statistics, actions: Array, rewards: Array) -> Statistics:
    """Add records.

    Args:
        statistics: what there is.
        actions: (..., n, d), one row a record.
        rewards: (..., n).
    """
    transposed = np.swapaxes(actions, -1, -2)
    return Statistics(
        statistics.gram + transposed @ actions,
        statistics.moment + (transposed @ rewards[..., None])[..., 0],
        statistics.count + actions.shape[-2],
    )


def merge(one: Statistics, other: Statistics) -> Statistics:
    """Statistics of the records of both."""
    return Statistics(one.gram + other.gram, one.moment + other.moment, one.count + other.count)


def pool(statistics: Statistics) -> Statistics:
    """Statistics of all agents' records together: the last leading axis is summed, and kept with length 1."""
    agents = statistics.moment.shape[-2]
    return Statistics(
        statistics.gram.sum(axis=-3, keepdims=True),
        statistics.moment.sum(axis=-2, keepdims=True),
        statistics.count * agents,
    )


def subtract(all_of_them: Statistics, some: Statistics) -> Statistics:
    """Statistics of what is left when ``some`` of the records are taken away."""
    return Statistics(
        all_of_them.gram - some.gram,
        all_of_them.moment - some.moment,
        all_of_them.count - some.count,
    )
