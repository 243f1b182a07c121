"""The best action where there are many dimensions: most are told to be worse without their quadratic form.

Two sieves, each with a proven bound on what it may be off by, let through what could be best. The first costs
2d operations per action: a score is at most xᵀθ̂ + ‖x‖ times the widest that a width can be, which sorts out
much once something is known. The second computes widths in single precision, at half the cost. What is left,
mostly one or two, is scored in double precision, as in `best_action`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.policies.kernels import HEADER, UNDECIDED, kept

__all__ = ["UNUSUAL", "best_by_sieves"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

UNUSUAL = -2  # actions so long or short, or not finite, that single precision does not do
_LEAST, _MOST = 1e-10, 1e10  # of the sum of squares: neither underflow nor overflow on the way

_FEW = 4  # so many are scored at once rather than sieved again


def _width(action: Array, inverse: Array, ellipsoid: float, euclidean: float) -> float:
    squared, length = 0.0, 0.0
    for i in range(len(action)):
        direction = 0.0
        for j in range(len(action)):
            direction += inverse[i, j] * action[j]
        squared += action[i] * direction
        length += direction * direction
    return float(ellipsoid * np.sqrt(max(squared, 0.0)) + euclidean * np.sqrt(length))


def _best_by_sieves(actions: Array, state: Array) -> int:
    """The index of the best, `UNDECIDED`, or `UNUSUAL`.

    Args:
        actions: (K, d).
        state: with the widest that a width is at ‖x‖ = 1, in place 4, and in place 5 what single precision
            may move ‖V⁻¹x‖ and xᵀV⁻¹x by.
    """
    arms, dim = actions.shape
    ellipsoid, euclidean, widest = state[1], state[2], state[4]
    theta = state[HEADER : HEADER + dim]
    inverse = state[HEADER + dim : HEADER + dim + dim * dim].reshape(dim, dim)
    squares, first, left = 0.0, 0, np.empty(arms, np.int64)
    means, lengths, bounds = np.empty(arms), np.empty(arms), np.empty(arms)
    for k in range(arms):
        mean, squared = 0.0, 0.0
        for i in range(dim):
            mean += actions[k, i] * theta[i]
            squared += actions[k, i] * actions[k, i]
        squares += squared
        means[k], lengths[k] = mean, np.sqrt(squared)
        bounds[k] = mean + widest * lengths[k]
        if bounds[k] > bounds[first]:
            first = k
    if not _LEAST < squares < _MOST:  # so that NaN ends here
        return UNUSUAL
    # How close two scores must be for rounding in double precision to turn them around
    rounding, count = state[3] * np.sqrt(squares), 0
    best = means[first] + width(actions[first], inverse, ellipsoid, euclidean)
    for k in range(arms):
        if bounds[k] > best - rounding:
            left[count] = k
            count += 1
    if count > _FEW:
        count = second_sieve(actions, left[:count], means, lengths, state, rounding)

    best, second, index = -np.inf, -np.inf, UNDECIDED
    for k in left[:count]:
        score = means[k] + width(actions[k], inverse, ellipsoid, euclidean)
        if score > best:
            best, second, index = score, best, k
        elif score > second:
            second = score
    return index if best - second > rounding else UNDECIDED


def _second_sieve(
    actions: Array, left: Indices, means: Array, lengths: Array, state: Array, rounding: float
) -> int:
    """Put those first that single precision does not tell to be worse than another; how many they are."""
    ellipsoid, euclidean, off = state[1], state[2], state[5]
    count, dim = len(left), actions.shape[1]
    numbers = dim * dim
    singles = state[HEADER + dim + numbers :].view(np.float32)[:numbers].reshape(dim, dim)
    rows, directions = np.empty((count, dim), np.float32), np.empty((count, dim), np.float32)
    for k in range(count):
        row = actions[left[k]]
        for i in range(dim):
            rows[k, i] = row[i]
    np.dot(rows, singles, directions)
    most, least = np.empty(count), -np.inf
    for k in range(count):
        squared, length = np.float32(0.0), np.float32(0.0)
        for i in range(dim):
            squared += rows[k, i] * directions[k, i]
            length += directions[k, i] * directions[k, i]
        size = lengths[left[k]]
        root, error = np.sqrt(max(float(squared), 0.0)), off * size * size
        # |√a − √b| is at most √|a − b|, and at most |a − b| over either
        slack = abs(ellipsoid) * (np.sqrt(error) if root * root <= error else error / root)
        slack += abs(euclidean) * off * size
        score = means[left[k]] + ellipsoid * root + euclidean * np.sqrt(float(length))
        most[k], least = score + slack, max(least, score - slack)
    kept_so_far = 0
    for k in range(count):
        if most[k] > least - rounding:
            left[kept_so_far] = left[k]
            kept_so_far += 1
    return kept_so_far


width: Any = kept(_width)
second_sieve: Any = kept(_second_sieve)
best_by_sieves: Any = kept(_best_by_sieves)
