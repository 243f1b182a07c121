"""Which actions can be best, where there are many dimensions: most are told to be worse in single precision.

An action's score is a line in c, mean + c·width, at c = 1 for `Optimistic` and anywhere in [0, 1] for
`Tempered`. Quadratic forms in single precision, with a proven bound on what they are off by, put every line
between a lower and an upper one. What lies below the highest lower line wherever that
is looked at cannot be best, nor does it bound the part of [0, 1] on which another is; the rest, mostly a few,
is scored in double precision. Where much is known, widths of at most ‖x‖ times the widest there is tell
enough, without quadratic forms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.policies.kernels import HEADER, kept

__all__ = ["survivors", "width_of"]

Array = NDArray[np.float64]
Singles = NDArray[np.float32]
Indices = NDArray[np.int64]

_LEAST, _MOST = 1e-10, 1e10  # of the sum of squares: neither underflow nor overflow on the way
_FEW = 4  # so many are scored at once rather than sieved again
_TRIED = 6  # lengths are looked at first if they are likely to sort out one in so many
_LANES = 128  # actions whose forms are summed side by side, in the nearest cache
_MOST_PARTS = 16  # of [0, 1], each with its highest lower line


def _width_of(action: Array, inverse: Array, ellipsoid: float) -> float:
    squared = 0.0
    for i in range(len(action)):
        direction = 0.0
        for j in range(len(action)):
            direction += inverse[i, j] * action[j]
        squared += action[i] * direction
    return float(ellipsoid * np.sqrt(max(squared, 0.0)))


def _survivors(actions: Array, state: Array, tempered: bool) -> Indices:
    """The indices of those that may be best, rising; none if the actions are unusual: too long, not finite.

    Args:
        actions: (K, d).
        state: with sieves (`kernels`).
        tempered: at any c in [0, 1], or at 1 alone.
    """
    arms, dim = actions.shape
    theta = state[HEADER : HEADER + dim]
    lines, lengths = np.empty((3, arms)), np.empty(arms)  # means, least and most width
    squares, boldest, likeliest = 0.0, 0, 0
    for k in range(arms):
        mean, squared = 0.0, 0.0
        for i in range(dim):
            mean += actions[k, i] * theta[i]
            squared += actions[k, i] * actions[k, i]
        squares += squared
        lengths[k] = np.sqrt(squared)
        lines[0, k], lines[1, k], lines[2, k] = mean, 0.0, state[4] * lengths[k]
        if mean > lines[0, likeliest]:
            likeliest = k
        if mean + lines[2, k] > lines[0, boldest] + lines[2, boldest]:
            boldest = k
    left = np.arange(arms)
    if not _LEAST < squares < _MOST:  # so that NaN ends here
        return left[:0]
    # How close two scores must be for rounding in double precision to turn them around
    rounding = state[3] * np.sqrt(squares)
    likely, worse = lines[0, boldest] + state[6] * lengths[boldest], 0
    for k in range(arms):
        worse += lines[0, k] + lines[2, k] < likely
    if _TRIED * worse > arms:
        inverse, ahead = state[HEADER + dim : HEADER + dim + dim * dim].reshape(dim, dim), np.empty((3, 2))
        for place in range(2):
            k = boldest if place else likeliest
            ahead[0, place], ahead[1, place] = lines[0, k], width_of(actions[k], inverse, state[1])
        left = sift(lines, highest(ahead, tempered), rounding)
    if len(left) > _FEW:
        closer = bound_widths(actions, left, lines, lengths, state)
        places = sift(closer, highest(closer, tempered), rounding)
        for place in range(len(places)):
            places[place] = left[places[place]]
        left = places
    return left


def _bound_widths(actions: Array, left: Indices, lines: Array, lengths: Array, state: Array) -> Array:
    """(3, n): means, least and most widths of some: |√a − √b| is at most √|a − b|, and |a − b|/√a."""
    dim, ellipsoid, off = actions.shape[1], state[1], state[5]
    side = dim + dim % 2
    lower = state[HEADER + dim + dim * dim :].view(np.float32).reshape(side, side)
    closer = np.empty((3, len(left)))
    for first in range(0, len(left), _LANES):
        some = left[first : first + _LANES]
        rows = actions[first : first + _LANES]
        if len(left) < len(actions):
            rows = np.empty((len(some), dim))
            for k in range(len(some)):
                for i in range(dim):
                    rows[k, i] = actions[some[k], i]
        singles = np.empty((side, len(some)), np.float32)
        for k in range(len(some)):
            singles[side - 1, k] = 0.0
        for i in range(dim):
            for k in range(len(rows)):
                singles[i, k] = rows[k, i]
        squared = forms(singles, lower)
        for k in range(len(some)):
            content, length = max(np.float64(squared[k]), 0.0), lengths[some[k]]
            root, error = np.sqrt(content), off * length * length
            slack = np.sqrt(error) if content <= error else error / root
            closer[0, first + k] = lines[0, some[k]]
            closer[1, first + k] = ellipsoid * max(root - slack, 0.0)
            closer[2, first + k] = ellipsoid * (root + slack)
    return closer


def _forms(singles: Singles, lower: Singles) -> Singles:
    """(K,), xᵀLx for (d, K) actions, d even: two rows and four columns of L at once, actions side by side."""
    dim, arms = singles.shape
    sums = np.zeros(arms, np.float32)
    one, other = np.empty(arms, np.float32), np.empty(arms, np.float32)
    for i in range(0, dim, 2):
        a, b, c = lower[i, i], lower[i + 1, i], lower[i + 1, i + 1]
        for k in range(arms):
            one[k] = a * singles[i, k]
            other[k] = b * singles[i, k] + c * singles[i + 1, k]
        j = 0
        while j + 4 <= i:
            a0, a1, a2, a3 = lower[i, j], lower[i, j + 1], lower[i, j + 2], lower[i, j + 3]
            b0, b1, b2, b3 = lower[i + 1, j], lower[i + 1, j + 1], lower[i + 1, j + 2], lower[i + 1, j + 3]
            for k in range(arms):
                x0, x1, x2, x3 = singles[j, k], singles[j + 1, k], singles[j + 2, k], singles[j + 3, k]
                one[k] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
                other[k] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
            j += 4
        if j < i:  # two are left
            a0, a1, b0, b1 = lower[i, j], lower[i, j + 1], lower[i + 1, j], lower[i + 1, j + 1]
            for k in range(arms):
                x0, x1 = singles[j, k], singles[j + 1, k]
                one[k] += a0 * x0 + a1 * x1
                other[k] += b0 * x0 + b1 * x1
        for k in range(arms):
            sums[k] += one[k] * singles[i, k] + other[k] * singles[i + 1, k]
    return sums


def _highest(lines: Array, tempered: bool) -> Array:
    """(n, 4): parts of [0, 1], from and to, and what the highest lower line is at either end.

    Any lower line would do, so that ties and rounding do no harm.
    """
    parts, crossings = np.empty((_MOST_PARTS, 4)), np.empty(lines.shape[1])
    here, start = 0, 0.0 if tempered else 1.0
    for k in range(1, lines.shape[1]):
        lead = lines[0, k] - lines[0, here] + start * (lines[1, k] - lines[1, here])
        if lead > 0.0 or (lead == 0.0 and lines[1, k] > lines[1, here]):
            here = k
    for part in range(_MOST_PARTS):
        mean, width = lines[0, here], lines[1, here]
        until, after = 1.0, here
        if part + 1 < _MOST_PARTS and start < 1.0:
            for k in range(lines.shape[1]):
                rise = lines[1, k] - width
                crossings[k] = max((mean - lines[0, k]) / rise, start) if rise > 0.0 else 1.0
            for k in range(lines.shape[1]):
                if crossings[k] < until:
                    until, after = crossings[k], k
        parts[part, 0], parts[part, 1] = start, until
        parts[part, 2], parts[part, 3] = mean + start * width, mean + until * width
        if after == here:
            return parts[: part + 1]
        here, start = after, until
    return parts


def _sift(lines: Array, parts: Array, rounding: float) -> Indices:
    """Which upper lines come up to the highest lower ones somewhere."""
    up, count = np.zeros(lines.shape[1], np.uint8), 0
    for part in range(len(parts)):
        start, until = parts[part, 0], parts[part, 1]
        at_start, at_end = parts[part, 2] - rounding, parts[part, 3] - rounding
        for k in range(lines.shape[1]):
            mean, width = lines[0, k], lines[2, k]
            up[k] |= (mean + start * width >= at_start) | (mean + until * width >= at_end)
    kept_places = np.empty(len(up), np.int64)
    for k in range(len(up)):
        if up[k]:
            kept_places[count] = k
            count += 1
    return kept_places[:count]


width_of: Any = kept(_width_of)
forms: Any = kept(_forms)
bound_widths: Any = kept(_bound_widths)
highest: Any = kept(_highest)
sift: Any = kept(_sift)
survivors: Any = kept(_survivors)
