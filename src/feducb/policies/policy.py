"""What a policy is, and what policies are made of: even chances, a certain candidate, a draw by a coin."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from feducb.types import Array, Belief

__all__ = [
    "Indices",
    "Policy",
    "certain",
    "draw",
    "draw_evenly",
    "draw_one_evenly",
    "even",
    "propensities_of",
]

Indices = NDArray[np.int64]


class Policy(Protocol):
    """How one candidate is chosen: (belief, candidates, coin) → (index, propensity).

    Frozen and without state: equal arguments give equal answers. Shapes are those of R visitors who face the
    same belief, with leading axes ``...`` (runs, agents) that the belief shares or broadcasts along.

    Guarantees:
        A policy sees a belief, the visitor's own candidates and a coin, never a record. In the durable agent
        beliefs are made of released sums alone, so that whatever a policy does costs no privacy: it is
        post-processing. A propensity is the exact chance, over the coin, of the index beside it.
    """

    @property
    def name(self) -> str:
        """What it is called in settings, as in `POLICIES`."""
        ...

    @property
    def needs_coins(self) -> bool:
        """Whether coins are read once there is a belief; without one they always are."""
        ...

    def decide(
        self, belief: Belief | None, candidates: Array, coins: Array | None = None
    ) -> tuple[Indices, Array]:
        """Choose for several visitors at once.

        Args:
            belief: what is known, leading axes ``...``; None before anything was learnt: then every policy
                draws evenly.
            candidates: (..., R, K, d), the K candidates of each of R visitors.
            coins: (..., R), independent and uniform on [0, 1).

        Returns:
            (..., R), the chosen index, and (..., R), the chance with which it was chosen.
        """
        ...

    def propensities(self, belief: Belief | None, candidates: Array) -> Array:
        """(..., R, K), the chance of each candidate; those of a visitor sum to 1."""
        ...


def even(candidates: Array) -> Array:
    """(..., R, K), the same chance for each candidate."""
    return np.full(candidates.shape[:-1], 1.0 / candidates.shape[-2])


def certain(index: Indices, arms: int) -> Array:
    """(..., K), all of the chance on one candidate."""
    return np.asarray(np.arange(arms) == index[..., None], dtype=np.float64)


def draw_evenly(coins: Array | None, arms: int) -> tuple[Indices, Array]:
    """An index for each coin, all equally likely, and their chance."""
    index = np.minimum((_require(coins) * arms).astype(np.int64), arms - 1)
    return np.asarray(index), np.full(index.shape, 1.0 / arms)


def draw_one_evenly(coin: float, arms: int) -> tuple[int, float]:
    """`draw_evenly` for one visitor: without arrays, a tenth of the time."""
    return min(int(coin * arms), arms - 1), 1.0 / arms


def draw(propensities: Array, coins: Array | None) -> tuple[Indices, Array]:
    """Invert the cumulated chances (..., R, K) at coins (..., R); what has no chance is never drawn."""
    cumulated = np.cumsum(propensities, axis=-1)
    total = cumulated[..., -1]
    target = np.minimum(_require(coins) * total, np.nextafter(total, 0.0))
    index = np.argmax(cumulated > target[..., None], axis=-1)
    return index, propensities_of(propensities, index)


def propensities_of(propensities: Array, index: Indices) -> Array:
    """(..., R), the chance of the chosen candidates among (..., R, K)."""
    return np.asarray(np.take_along_axis(propensities, index[..., None], axis=-1)[..., 0])


def _require(coins: Array | None) -> Array:
    if coins is None:
        raise ValueError("a choice is drawn at random here, so coins are needed")
    return coins
