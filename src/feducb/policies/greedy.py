"""Greed: the candidate with the highest estimate, as if the estimate were the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from feducb.policies.policy import Indices, certain, draw_evenly, even
from feducb.types import Array, Belief

__all__ = ["Greedy"]


@dataclass(frozen=True, slots=True)
class Greedy:
    """The best candidate by the estimate alone, of equals the first; no bound covers it."""

    name: ClassVar[str] = "greedy"
    needs_coins: ClassVar[bool] = False

    def decide(
        self, belief: Belief | None, candidates: Array, coins: Array | None = None
    ) -> tuple[Indices, Array]:
        """Choose by `Belief.guess` (`Policy.decide`); coins are read only while there is no belief."""
        if belief is None:
            return draw_evenly(coins, candidates.shape[-2])
        means = (candidates @ belief.guess[..., None, :, None])[..., 0]
        index = np.argmax(means, axis=-1)
        return index, np.ones(index.shape)

    def propensities(self, belief: Belief | None, candidates: Array) -> Array:
        """(..., R, K), 1 for the best one; even while there is no belief."""
        if belief is None:
            return even(candidates)
        return certain(self.decide(belief, candidates)[0], candidates.shape[-2])
