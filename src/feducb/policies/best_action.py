"""The best action in one compiled call. Import it late: numba takes most of a second to load.

The quadratic forms go through BLAS; what is compiled is everything around it, which in numpy costs several
times more than the arithmetic. Sums come out in another order than in `upper_confidence_bounds`, so the
kernel says how close the runner-up came and leaves what rounding could turn around to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import float64, int64, njit, types
from numpy.typing import NDArray

__all__ = ["HEADER", "LARGEST", "SMALLEST", "UNDECIDED", "best_action", "best_actions", "compiled", "kept"]

Array = NDArray[np.float64]

HEADER = 4  # d, β, b and the rounding of a score for actions of length 1, before θ̂ and V⁻¹
UNDECIDED = -1
SMALLEST, LARGEST = 1e-200, 1e200  # of the sum of squares: neither underflow nor overflow on the way
_ROWS = 256  # scored at once, so that V⁻¹x is still in the cache when it is read again


def compiled(function: Callable[..., Any], result: Any, dimensions: int, *more: Any) -> Any:
    """Compile for actions with this many axes, writable or not, the state, and arguments of more types."""
    state = types.Array(float64, 1, "C")
    return kept(
        function,
        [
            result(types.Array(float64, dimensions, "C", readonly=readonly), state, *more)
            for readonly in (False, True)
        ],
    )


def kept(function: Callable[..., Any], signatures: list[Any]) -> Any:
    """Compile, and keep the result on disk if possible."""
    fast = {"contract", "reassoc"}  # not "nnan" or "ninf": what is not finite must be seen
    try:
        return njit(signatures, cache=True, fastmath=fast)(function)
    except RuntimeError:  # nowhere to write
        return njit(signatures, fastmath=fast)(function)


def _best_action(actions: Array, state: Array) -> int:
    arms, dim = actions.shape
    if arms == 0 or dim != int(state[0]):
        return UNDECIDED
    ellipsoid, euclidean, rounding = state[1], state[2], state[3]
    theta = state[HEADER : HEADER + dim]
    inverse = state[HEADER + dim :].reshape(dim, dim)
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


def _best_actions(actions: Array, state: Array) -> NDArray[np.int64]:
    chosen = np.empty(len(actions), dtype=np.int64)
    for visitor in range(len(actions)):
        chosen[visitor] = best_action(actions[visitor], state)
    return chosen


best_action: Any = compiled(_best_action, int64, 2)
"""(K, d) actions → the index of the best, or `UNDECIDED`: too close, not finite, or not of this shape."""

best_actions: Any = compiled(_best_actions, int64[::1], 3)
"""(R, K, d) actions → (R,) indices, each as `best_action` gives it."""
