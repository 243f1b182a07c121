"""Optimism: the candidate with the highest upper confidence bound; any of them before anything was learnt."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from feducb.types import Array, Belief

__all__ = ["decide", "upper_confidence_bounds"]

Indices = NDArray[np.int64]


def upper_confidence_bounds(belief: Belief, actions: Array, *, exploration: float = 1.0) -> Array:
    """Score actions.

    Args:
        belief: what is known, leading axes ``...`` (they broadcast against those of ``actions``).
        actions: (..., K, d).
        exploration: scales both widths; 1 is the proven bound.

    Returns:
        (..., K), an upper bound on ⟨x, θ*⟩ for each action.
    """
    directions = actions @ belief.inverse  # V⁻¹x, one row an action
    bonus = np.einsum("...kd,...kd->...k", directions, actions)  # ‖x‖²_{V⁻¹}
    np.sqrt(np.maximum(bonus, 0.0, out=bonus), out=bonus)
    bonus *= exploration * belief.ellipsoid_width[..., None]
    if belief.euclidean_width.any():
        length = np.einsum("...kd,...kd->...k", directions, directions)
        np.sqrt(length, out=length)
        length *= exploration * belief.euclidean_width[..., None]
        bonus += length
    bonus += (actions @ belief.theta[..., None])[..., 0]
    return np.asarray(bonus)


def decide(
    belief: Belief | None, actions: Array, *, exploration: float = 1.0, coins: Array | None = None
) -> Indices:
    """Choose for several visitors at once, with the same belief.

    Args:
        belief: what is known, leading axes ``...``; None before anything was learnt.
        actions: (..., R, K, d), the K candidates of each of R visitors.
        exploration: scales the bonus; 1 is the proven bound.
        coins: (..., R), uniform on [0, 1); read only while there is no belief.

    Returns:
        (..., R), the chosen index.
    """
    *leading, visitors, arms, dim = actions.shape
    if belief is None:
        if coins is None:
            raise ValueError("nothing is known yet, so coins are needed to draw actions uniformly")
        return np.asarray(np.minimum((coins * arms).astype(np.int64), arms - 1))
    flat = actions.reshape(*leading, visitors * arms, dim)
    scores = upper_confidence_bounds(belief, flat, exploration=exploration)
    return np.asarray(np.argmax(scores.reshape(*leading, visitors, arms), axis=-1))
