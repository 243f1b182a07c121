"""Estimates and widths of the actions that can be best, compiled. Import it late, as `best_action`.

The score of an action is a line in c, estimate + c·width. Three ways lead to the same lines but for rounding:
BLAS, which is the plain one; entry by entry, where actions are mostly zero, as those of recipes with terms
per action are: the cost goes with the square of an action's own entries, not of all; and past sieves, where
there are many dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import boolean, float64, int64, types
from numpy.typing import NDArray

from feducb.policies.kernels import HEADER, LARGEST, SMALLEST, compiled, kept
from feducb.policies.sieves import survivors, width_of

__all__ = ["MANY", "bound_of", "lines_of", "lines_of_many"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

MANY = 24  # dimensions from which it pays to look for zeros, and at bounds of scores, first
_ZEROS = 4  # an action is mostly zero if at most one in so many entries is not


def _lines_of(actions: Array, state: Array, tempered: bool) -> Any:
    """(2, n + 1) and (n,): estimates and widths of actions, and of which: those that can be best, rising.

    The last column is the rounding of a score. What `Tempered` has no lines for (no actions, of another
    length, not finite) has a rounding of NaN.

    Args:
        actions: (K, d).
        state: as `kernels` says.
        tempered: whether c may be anything in [0, 1], or is 1.
    """
    arms, dim = actions.shape
    if arms > 0 and dim == int(state[0]) and dim >= MANY:
        return lines_of_many(actions, state, tempered)
    return by_products(actions, state)


def _lines_of_many(actions: Array, state: Array, tempered: bool) -> Any:
    """`lines_of`, of many dimensions."""
    if state[2] == 0.0 and mostly_zero(actions):
        return by_entries(actions, state)
    if state[5] > 0.0:
        left = survivors(actions, state, tempered)
        if len(left) == 1:  # whatever it scores
            return np.zeros((2, 2)), left
        if len(left) > 1:
            return of_some(actions, left, state)
    return by_products(actions, state)


def _mostly_zero(actions: Array) -> bool:
    """Whether all are."""
    arms, dim = actions.shape
    for k in range(arms):
        entries = 0
        for i in range(dim):
            entries += actions[k, i] != 0.0
        if _ZEROS * entries > dim:
            return False
    return True


def _by_products(actions: Array, state: Array) -> tuple[Array, Indices]:
    """Of all actions, the quadratic forms through BLAS."""
    arms, dim = actions.shape
    lines, every = np.empty((2, arms + 1)), np.arange(arms)
    lines[:, arms] = np.nan
    if arms == 0 or dim != int(state[0]):
        return lines, every
    theta = state[HEADER : HEADER + dim]
    inverse = state[HEADER + dim : HEADER + dim + dim * dim].reshape(dim, dim)
    squares, directions = 0.0, np.dot(actions, inverse)
    for k in range(arms):
        mean, squared, length = 0.0, 0.0, 0.0
        for i in range(dim):
            x, direction = actions[k, i], directions[k, i]
            mean += x * theta[i]
            squared += x * direction
            length += direction * direction
            squares += x * x
        lines[0, k] = mean
        lines[1, k] = state[1] * np.sqrt(max(squared, 0.0)) + state[2] * np.sqrt(length)
    if SMALLEST < squares < LARGEST:
        lines[:, arms] = state[3] * np.sqrt(squares)
    return lines, every


def _by_entries(actions: Array, state: Array) -> tuple[Array, Indices]:
    """Of all actions, from their entries other than zero; where b = 0, for ‖V⁻¹x‖ would take whole rows."""
    arms, dim = actions.shape
    theta = state[HEADER : HEADER + dim]
    inverse = state[HEADER + dim : HEADER + dim + dim * dim].reshape(dim, dim)
    lines, squares = np.empty((2, arms + 1)), 0.0
    places, values = np.empty(dim, np.int64), np.empty(dim)
    for k in range(arms):
        count, mean, squared = 0, 0.0, 0.0
        for i in range(dim):
            x = actions[k, i]
            if x != 0.0:
                places[count], values[count] = i, x
                count += 1
                mean += x * theta[i]
                squares += x * x
        for i in range(count):
            row, direction = inverse[places[i]], 0.0
            for j in range(count):
                direction += row[places[j]] * values[j]
            squared += values[i] * direction
        lines[0, k], lines[1, k] = mean, state[1] * np.sqrt(max(squared, 0.0))
    lines[:, arms] = state[3] * np.sqrt(squares) if SMALLEST < squares < LARGEST else np.nan
    return lines, np.arange(arms)


def _of_some(actions: Array, left: Indices, state: Array) -> tuple[Array, Indices]:
    """Of some actions, which are finite; where b = 0."""
    count, dim = len(left), actions.shape[1]
    theta = state[HEADER : HEADER + dim]
    inverse = state[HEADER + dim : HEADER + dim + dim * dim].reshape(dim, dim)
    lines, squares = np.empty((2, count + 1)), 0.0
    for place in range(count):
        action, mean = actions[left[place]], 0.0
        for i in range(dim):
            mean += action[i] * theta[i]
            squares += action[i] * action[i]
        lines[0, place], lines[1, place] = mean, width_of(action, inverse, state[1])
    lines[:, count] = state[3] * np.sqrt(squares)
    return lines, left


def _bound_of(action: Array, state: Array) -> float:
    if state[2] == 0.0 and mostly_zero(action.reshape(1, -1)):
        lines, _ = by_entries(action.reshape(1, -1), state)
        return float(lines[0, 0] + lines[1, 0])
    dim, mean, squared, length = len(action), 0.0, 0.0, 0.0
    theta = state[HEADER : HEADER + dim]
    inverse = state[HEADER + dim : HEADER + dim + dim * dim].reshape(dim, dim)
    for i in range(dim):
        direction = 0.0
        for j in range(dim):
            direction += inverse[i, j] * action[j]
        mean += action[i] * theta[i]
        squared += action[i] * direction
        length += direction * direction
    return float(mean + state[1] * np.sqrt(max(squared, 0.0)) + state[2] * np.sqrt(length))


mostly_zero: Any = kept(_mostly_zero)
by_products: Any = kept(_by_products)
by_entries: Any = kept(_by_entries)
of_some: Any = kept(_of_some)
lines_of_many: Any = kept(_lines_of_many)

lines_of: Any = compiled(_lines_of, types.Tuple((float64[:, ::1], int64[::1])), 2, boolean)

bound_of: Any = compiled(_bound_of, float64, 1)
"""(d,), an action of the belief's length → its upper confidence bound."""
