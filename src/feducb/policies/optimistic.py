"""Optimism: the candidate with the highest upper confidence bound; any of them before anything was learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from feducb.config import require_finite
from feducb.errors import ConfigurationError
from feducb.policies.policy import Indices, certain, draw_evenly, even
from feducb.types import Array, Belief

__all__ = ["Optimistic", "best_by_bound", "confidence_widths", "upper_confidence_bounds"]

_MOST_EXPLORATION = 1e6  # more would overflow single precision, in which compiled kernels score


@dataclass(frozen=True, slots=True)
class Optimistic:
    """argmax of the upper confidence bound, of equals the first (Alg. 1, l. 8): the policy of the paper.

    Attributes:
        exploration: scales both widths; 1 is the proven bound. Below it, they go around `Belief.guess`.
    """

    exploration: float = 1.0
    name: ClassVar[str] = "optimistic"
    needs_coins: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if require_finite("exploration", self.exploration, at_least=0) > _MOST_EXPLORATION:
            raise ConfigurationError("exploration", self.exploration, f"at most {_MOST_EXPLORATION:g}")

    def decide(
        self, belief: Belief | None, candidates: Array, coins: Array | None = None
    ) -> tuple[Indices, Array]:
        """Choose by the bound (`Policy.decide`); coins are read only while there is no belief."""
        if belief is None:
            return draw_evenly(coins, candidates.shape[-2])
        index = best_by_bound(belief, candidates, exploration=self.exploration)
        return index, np.ones(index.shape)

    def propensities(self, belief: Belief | None, candidates: Array) -> Array:
        """(..., R, K), 1 for the best one; even while there is no belief."""
        if belief is None:
            return even(candidates)
        return certain(best_by_bound(belief, candidates, exploration=self.exploration), candidates.shape[-2])


def best_by_bound(belief: Belief, candidates: Array, *, exploration: float = 1.0) -> Indices:
    """(..., R), which of the candidates (..., R, K, d) has the highest bound: of equals the first."""
    *leading, visitors, arms, dim = candidates.shape
    flat = candidates.reshape(*leading, visitors * arms, dim)
    scores = upper_confidence_bounds(belief, flat, exploration=exploration)
    return np.asarray(np.argmax(scores.reshape(*leading, visitors, arms), axis=-1))


def upper_confidence_bounds(belief: Belief, actions: Array, *, exploration: float = 1.0) -> Array:
    """Score actions.

    Args:
        belief: what is known, leading axes ``...`` (they broadcast against those of ``actions``).
        actions: (..., K, d).
        exploration: scales both widths; 1 is the proven bound.

    Returns:
        (..., K), an upper bound on ⟨x, θ*⟩ for each action.
    """
    bounds = confidence_widths(belief, actions, scale=exploration)
    bounds += (actions @ belief.centre(exploration)[..., None])[..., 0]
    return bounds


def confidence_widths(belief: Belief, actions: Array, *, scale: float = 1.0) -> Array:
    """(..., K), ``scale`` times β‖x‖_{V⁻¹} + b‖V⁻¹x‖ for each of the actions (..., K, d)."""
    directions = actions @ belief.inverse  # V⁻¹x, one row per action
    widths = np.einsum("...kd,...kd->...k", directions, actions)  # ‖x‖²_{V⁻¹}
    np.sqrt(np.maximum(widths, 0.0, out=widths), out=widths)
    widths *= scale * belief.ellipsoid_width[..., None]
    if belief.euclidean_width.any():
        length = np.einsum("...kd,...kd->...k", directions, directions)
        np.sqrt(length, out=length)
        length *= scale * belief.euclidean_width[..., None]
        widths += length
    return np.asarray(widths)
