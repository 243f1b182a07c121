"""A mixture: some share of the decisions drawn evenly, the others made by another policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from feducb.config import require_finite
from feducb.errors import ConfigurationError
from feducb.policies.policy import Indices, Policy, draw, draw_evenly, even, propensities_of
from feducb.policies.uniform import Uniform
from feducb.types import Array, Belief

__all__ = ["Mixture"]


@dataclass(frozen=True, slots=True)
class Mixture:
    """Draws evenly with a chance of ``share``, else decides by ``policy``.

    One coin says which, and what is left of it is the coin of that part: given that it lies below the share,
    its place there is uniform again. A propensity counts both ways to a candidate: share/K + (1 − share)·p.

    Attributes:
        policy: the other policy.
        share: of decisions drawn evenly, from 0 to 1.
    """

    policy: Policy
    share: float
    name: ClassVar[str] = "mixture"

    def __post_init__(self) -> None:
        if require_finite("share", self.share, at_least=0) > 1:
            raise ConfigurationError("share", self.share, "a share from 0 to 1")

    @property
    def needs_coins(self) -> bool:
        """With a share above 0, or where the other policy does."""
        return self.share > 0.0 or self.policy.needs_coins

    @property
    def reaches_all(self) -> bool:
        """Whether every candidate has a chance worth counting on, so that logs can judge any other policy."""
        return self.share > 0.0 or type(self.policy) is Uniform

    def draws_evenly(self, coins: Array) -> NDArray[np.bool_]:
        """Which of the coins (..., R) stand for an even draw."""
        return np.asarray(coins < self.share)

    def decide(
        self, belief: Belief | None, candidates: Array, coins: Array | None = None
    ) -> tuple[Indices, Array]:
        """Choose, by whichever part the coin falls on (`Policy.decide`)."""
        if belief is None:
            return draw_evenly(coins, candidates.shape[-2])
        if not self.needs_coins:
            return self.policy.decide(belief, candidates)
        return self.mix(self.policy.propensities(belief, candidates), coins)

    def mix(self, propensities: Array, coins: Array | None) -> tuple[Indices, Array]:
        """Choose, given the chances (..., R, K) of the other policy."""
        if coins is None:
            raise ValueError("a mixture is drawn at random, so coins are needed")
        evenly = self.draws_evenly(coins)
        fresh = np.where(evenly, coins, coins - self.share) / np.where(evenly, self.share, 1.0 - self.share)
        fresh = np.minimum(fresh, np.nextafter(1.0, 0.0))  # rounding up to 1 is no coin
        index = np.where(evenly, draw_evenly(fresh, propensities.shape[-1])[0], draw(propensities, fresh)[0])
        return index, self._mixed(propensities_of(propensities, index), propensities.shape[-1])

    def propensities(self, belief: Belief | None, candidates: Array) -> Array:
        """(..., R, K), share/K + (1 − share)·p; even while there is no belief."""
        if belief is None:
            return even(candidates)
        return self._mixed(self.policy.propensities(belief, candidates), candidates.shape[-2])

    def _mixed(self, propensities: Array, arms: int) -> Array:
        return self.share / arms + (1.0 - self.share) * propensities
