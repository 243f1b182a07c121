"""Tempered optimism: the bonus is scaled by a coin, so that no two visitors need get the same mistake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from feducb.config import require_finite
from feducb.errors import ConfigurationError
from feducb.policies.optimistic import confidence_widths
from feducb.policies.policy import Indices, draw_evenly, even
from feducb.types import Array, Belief

__all__ = ["Tempered", "estimates_and_widths"]


@dataclass(frozen=True, slots=True)
class Tempered:
    """argmax of xᵀθ̂ + c·(width of x): c is 1 with a chance of ``full``, else uniform on [0, 1].

    Between two releases a belief stands still, and pure optimism repeats itself: where candidates repeat, all
    agents play one of them until the next release. The coin spreads them over all that may be best, and
    wastes less on what is merely unknown. Regret: with U the highest upper bound and x₁ the candidate that
    has it, the choice at c loses at most (1 + c)·width(x_c) + (1 − c)·width(x₁), and x₁ itself is played with
    a chance of at least ``full``: twice the sum of widths bounds expected regret as it does for optimism, but
    for a factor of 1 + (1 − full)/(4·full) (docs/theory.md, 7).

    Attributes:
        full: the chance of the whole bonus, above 0 and at most 1; 1 is `Optimistic`.
    """

    full: float = 0.1
    name: ClassVar[str] = "tempered"
    needs_coins: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if require_finite("full", self.full, above=0) > 1:
            raise ConfigurationError("full", self.full, "a chance above 0 and at most 1")

    def scale(self, coins: Array) -> Array:
        """c, from coins that are uniform on [0, 1)."""
        rest = np.maximum(coins - self.full, 0.0) / max(1.0 - self.full, np.finfo(np.float64).tiny)
        return np.where(coins < self.full, 1.0, rest)

    def decide(
        self, belief: Belief | None, candidates: Array, coins: Array | None = None
    ) -> tuple[Indices, Array]:
        """Choose by the scaled bound (`Policy.decide`); even draws while there is no belief."""
        if belief is None:
            return draw_evenly(coins, candidates.shape[-2])
        if coins is None:
            raise ValueError("a tempered choice is drawn at random, so coins are needed")
        means, widths = estimates_and_widths(belief, candidates)
        index = np.argmax(means + self.scale(coins)[..., None] * widths, axis=-1)
        return index, self._chance(means, widths, index)

    def propensities(self, belief: Belief | None, candidates: Array) -> Array:
        """(..., R, K), exact: how much of [0, 1] each candidate's line is the highest on."""
        if belief is None:
            return even(candidates)
        means, widths = estimates_and_widths(belief, candidates)
        every = np.broadcast_to(np.arange(means.shape[-1]), means.shape)
        return np.stack([self._chance(means, widths, every[..., k]) for k in range(means.shape[-1])], axis=-1)

    def _chance(self, means: Array, widths: Array, index: Indices) -> Array:
        """(..., R), the chance of the candidates at ``index``.

        Scores are lines in c, and the highest of them is a candidate's on an interval: above it are those
        that rise faster, from where they cross it on, and those that rise more slowly, up to there. Of equals
        the first is best, as in `decide`.
        """
        here = index[..., None]
        rise = np.take_along_axis(widths, here, axis=-1) - widths
        lead = np.take_along_axis(means, here, axis=-1) - means
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = -lead / rise
        low = np.where(rise > 0.0, crossing, 0.0).max(axis=-1)
        high = np.where(rise < 0.0, crossing, 1.0).min(axis=-1)
        earlier = np.arange(means.shape[-1]) < here
        beaten = ((rise == 0.0) & ((lead < 0.0) | ((lead == 0.0) & earlier))).any(axis=-1)
        length = np.where(beaten, 0.0, np.maximum(np.minimum(high, 1.0) - np.maximum(low, 0.0), 0.0))
        boldest = np.argmax(means + widths, axis=-1) == index
        return np.asarray((1.0 - self.full) * length + self.full * boldest)


def estimates_and_widths(belief: Belief, candidates: Array) -> tuple[Array, Array]:
    """(..., R, K) each: the estimate of each candidate, and the width of its bound."""
    *leading, visitors, arms, dim = candidates.shape
    flat = candidates.reshape(*leading, visitors * arms, dim)
    shape = (*leading, visitors, arms)
    means = (flat @ belief.theta[..., None])[..., 0]
    return means.reshape(shape), confidence_widths(belief, flat).reshape(shape)
