"""Uniform play: every candidate with the same chance, whatever is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from feducb.policies.policy import Indices, draw_evenly, even
from feducb.types import Array, Belief

__all__ = ["Uniform"]


@dataclass(frozen=True, slots=True)
class Uniform:
    """1/K for each of K candidates: the data that it leaves can judge any other policy."""

    name: ClassVar[str] = "uniform"
    needs_coins: ClassVar[bool] = True

    def decide(
        self, belief: Belief | None, candidates: Array, coins: Array | None = None
    ) -> tuple[Indices, Array]:
        """Draw evenly, whatever is believed (`Policy.decide`)."""
        return draw_evenly(coins, candidates.shape[-2])

    def propensities(self, belief: Belief | None, candidates: Array) -> Array:
        """(..., R, K), 1/K each."""
        return even(candidates)
