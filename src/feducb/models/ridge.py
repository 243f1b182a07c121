"""Ridge regression kept ready to decide: V⁻¹, θ̂ = V⁻¹u and log det V, under rank-one updates.

Cholesky gives the first inverse; each record then costs O(d²). Rounding drifts, so after
``REFACTORISE_EVERY`` updates the inverse is made afresh from V, which is a plain sum and does not drift.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feducb.types import Array

__all__ = ["REFACTORISE_EVERY", "Ridge", "factorise", "update"]

REFACTORISE_EVERY = 512


@dataclass(frozen=True, slots=True)
class Ridge:
    """A regression's state.

    Attributes:
        gram: (..., d, d), V, regulariser included.
        moment: (..., d), u.
        inverse: (..., d, d), V⁻¹.
        log_det: (...), log det V.
        updates: rank-one updates since the last factorisation.
    """

    gram: Array
    moment: Array
    inverse: Array
    log_det: Array
    updates: int = 0

    @property
    def theta(self) -> Array:
        """(..., d), the estimate θ̂ = V⁻¹u."""
        return np.asarray((self.inverse @ self.moment[..., None])[..., 0])


def factorise(gram: Array, moment: Array) -> Ridge:
    """Make the state from V and u by Cholesky; raises ``LinAlgError`` if V is not positive definite."""
    lower = np.linalg.cholesky(gram)
    half = np.linalg.inv(lower)
    diagonal = np.diagonal(lower, axis1=-2, axis2=-1)
    return Ridge(
        gram=gram,
        moment=moment,
        inverse=np.swapaxes(half, -1, -2) @ half,
        log_det=2.0 * np.log(diagonal).sum(axis=-1),
    )


def update(ridge: Ridge, action: Array, reward: Array) -> Ridge:
    """Add one record: V ← V + x xᵀ, u ← u + y x (Sherman–Morrison, matrix determinant lemma).

    Args:
        ridge: the state.
        action: (..., d).
        reward: (...).
    """
    gram = ridge.gram + action[..., :, None] * action[..., None, :]
    moment = ridge.moment + reward[..., None] * action
    if ridge.updates + 1 >= REFACTORISE_EVERY:
        return factorise(gram, moment)
    direction = (ridge.inverse @ action[..., None])[..., 0]
    growth = 1.0 + np.einsum("...d,...d->...", direction, action)
    scaled = direction / growth[..., None]
    return Ridge(
        gram=gram,
        moment=moment,
        inverse=ridge.inverse - direction[..., :, None] * scaled[..., None, :],
        log_det=ridge.log_det + np.log(growth),
        updates=ridge.updates + 1,
    )
