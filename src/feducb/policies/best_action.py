"""The best action in one compiled call. Import it late: numba takes most of a second to load.

The quadratic forms go through BLAS; what is compiled is everything around it, which in numpy costs several
times more than the arithmetic. Sums come out in another order than in `upper_confidence_bounds`, so the
kernel says how close the runner-up came and leaves what rounding could turn around to the caller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64
from numpy.typing import NDArray

from feducb.policies.kernels import HEADER, LARGEST, SMALLEST, UNDECIDED, compiled, kept
from feducb.policies.lines import MANY, lines_of_many

__all__ = ["best_action", "best_actions"]

Array = NDArray[np.float64]

_ROWS = 256  # scored at once, so that V⁻¹x is still in the cache when it is read again


def _best_action(actions: Array, state: Array) -> int:
    arms, dim = actions.shape
    if arms == 0 or dim != int(state[0]):
        return UNDECIDED
    if dim >= MANY:
        return int(best_of_many_dimensions(actions, state))
    ellipsoid, euclidean, rounding = state[1], state[2], state[3]
    theta = state[HEADER : HEADER + dim]
    inverse = state[HEADER + dim : HEADER + dim + dim * dim].reshape(dim, dim)
    squares = 0.0
    numbers = actions.reshape(-1)
    for i in range(numbers.size):
        squares += numbers[i] * numbers[i]
    if not SMALLEST < squares < LARGEST:  # so that NaN ends here
        return UNDECIDED

    best, second, index = -np.inf, -np.inf, UNDECIDED
    room = np.empty((min(arms, _ROWS), dim))
    for first in range(0, arms, _ROWS):
        rows = actions[first : first + _ROWS]
        directions = room[: len(rows)]
        np.dot(rows, inverse, directions)
        for k in range(len(rows)):
            mean, squared, length = 0.0, 0.0, 0.0
            for i in range(dim):
                x, direction = rows[k, i], directions[k, i]
                mean += x * theta[i]
                squared += x * direction
                length += direction * direction
            score = mean + ellipsoid * np.sqrt(max(squared, 0.0)) + euclidean * np.sqrt(length)
            if score > best:
                best, second, index = score, best, first + k
            elif score > second:
                second = score
    return index if best - second > rounding * np.sqrt(squares) else UNDECIDED


def _best_of_many_dimensions(actions: Array, state: Array) -> int:
    lines, left = lines_of_many(actions, state, np.bool_(0))
    best, second, index = -np.inf, -np.inf, UNDECIDED
    for place in range(len(left)):
        score = lines[0, place] + lines[1, place]
        if score > best:
            best, second, index = score, best, left[place]
        elif score > second:
            second = score
    return index if best - second > lines[0, len(left)] else UNDECIDED


def _best_actions(actions: Array, state: Array) -> NDArray[np.int64]:
    chosen = np.empty(len(actions), dtype=np.int64)
    for visitor in range(len(actions)):
        chosen[visitor] = best_action(actions[visitor], state)
    return chosen


best_of_many_dimensions: Any = kept(_best_of_many_dimensions)

best_action: Any = compiled(_best_action, int64, 2)
"""(K, d) actions → the index of the best, or `UNDECIDED`: too close, not finite, or not of this shape."""

best_actions: Any = compiled(_best_actions, int64[::1], 3)
"""(R, K, d) actions → (R,) indices, each as `best_action` gives it."""
