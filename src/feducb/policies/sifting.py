"""Sifting: an even draw among the candidates that are not clearly worse than another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from feducb.config import require_finite
from feducb.policies.policy import Indices, draw, draw_evenly, even
from feducb.policies.tempered import estimates_and_widths
from feducb.types import Array, Belief

__all__ = ["Sifting"]


@dataclass(frozen=True, slots=True)
class Sifting:
    """Drops each candidate whose bound lies below another's, with widths divided by ``boldness``.

    Attributes:
        boldness: 1 drops what the confidence set rules out; more drops more.
    """

    boldness: float = 4.0
    name: ClassVar[str] = "sifting"
    needs_coins: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_finite("boldness", self.boldness, above=0)

    def decide(
        self, belief: Belief | None, candidates: Array, coins: Array | None = None
    ) -> tuple[Indices, Array]:
        """Choose evenly among what is left (`Policy.decide`); of all while there is no belief."""
        if belief is None:
            return draw_evenly(coins, candidates.shape[-2])
        return draw(self.propensities(belief, candidates), coins)

    def propensities(self, belief: Belief | None, candidates: Array) -> Array:
        """(..., R, K), the same chance for each that is left."""
        if belief is None:
            return even(candidates)
        means, widths = estimates_and_widths(belief, candidates)
        half = widths / self.boldness
        left = means + half >= np.max(means - half, axis=-1, keepdims=True)
        return np.asarray(left / left.sum(axis=-1, keepdims=True))
