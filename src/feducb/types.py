"""What travels between the folders: raw sums, released sums, and what is believed after reading one.

Gram is G = Σ x xᵀ, moment u = Σ y x. Raw sums (`Statistics`) never leave an agent; a `ReleasedSum` came out
of a privatizer; a `Belief` is what a model makes of one, and all that a policy sees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "Belief",
    "Indices",
    "ReleasedSum",
    "Statistics",
    "add",
    "merge",
    "pool",
    "zeros",
]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Sums over records (x, y). Raw: they never leave the agent.

    Attributes:
        gram: (..., d, d), Σ x xᵀ.
        moment: (..., d), Σ y x.
        count: how many records each sum holds.
        squares: (...), Σ y², which tells how far rewards scatter; infinite where nobody kept it. It is in no
            release.
    """

    gram: Array
    moment: Array
    count: int
    squares: Array | float = math.inf


@dataclass(frozen=True, slots=True)
class ReleasedSum:
    """The sum of all agents' newest releases. It replaces the sum before it, and is never added to it.

    Attributes:
        number: k, of the releases in it.
        gram: (..., d, d).
        moment: (..., d).
        variance: (...), w = Σ v_i ‖row_k(F_i)‖² over the agents in it.
        agents: how many took part.
    """

    number: int
    gram: Array
    moment: Array
    variance: Array
    agents: int


@dataclass(frozen=True, slots=True)
class Belief:
    """What an agent knows about θ*, ready to score actions.

    Attributes:
        theta: (..., d), θ̂, around which the bound holds.
        inverse: (..., d, d), V⁻¹.
        ellipsoid_width: (...), β, the factor of ‖x‖_{V⁻¹}.
        euclidean_width: (...), b, the factor of ‖V⁻¹x‖₂.
        estimate: (..., d), the likeliest θ*, for those who act on it alone; θ̂ if not given. The middle of a
            set that is made to hold for the worst case is not the best guess.
    """

    theta: Array
    inverse: Array
    ellipsoid_width: Array
    euclidean_width: Array
    estimate: Array | None = None

    @property
    def guess(self) -> Array:
        """(..., d), what to act on where nothing has to be proven."""
        return self.theta if self.estimate is None else self.estimate

    def centre(self, exploration: float) -> Array:
        """(..., d), around what a part of the bonus is added: θ̂ if it is whole, else nothing is proven."""
        return self.theta if exploration >= 1.0 else self.guess


def zeros(dim: int, shape: tuple[int, ...] = ()) -> Statistics:
    """Statistics of no records, for every index of ``shape``."""
    return Statistics(np.zeros((*shape, dim, dim)), np.zeros((*shape, dim)), 0, np.zeros(shape))


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
        statistics.squares + (rewards**2).sum(axis=-1),
    )


def merge(one: Statistics, other: Statistics) -> Statistics:
    """Statistics of the records of both."""
    return Statistics(
        one.gram + other.gram,
        one.moment + other.moment,
        one.count + other.count,
        one.squares + other.squares,
    )


def pool(statistics: Statistics) -> Statistics:
    """Statistics of all agents' records together: the last leading axis is summed, and kept with length 1."""
    agents = statistics.moment.shape[-2]
    return Statistics(
        statistics.gram.sum(axis=-3, keepdims=True),
        statistics.moment.sum(axis=-2, keepdims=True),
        statistics.count * agents,
    )
