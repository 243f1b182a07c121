"""A tempered choice and its chance in one compiled call. Import it late, as `best_action`.

Estimates and widths make lines in c, as in `Tempered`; what rounding could turn around is left to that. A
line that is nowhere the highest bounds no other's share of [0, 1], so that `lines` may leave it out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int64, types
from numpy.typing import NDArray

from feducb.policies.kernels import UNDECIDED, compiled, kept
from feducb.policies.lines import lines_of

__all__ = ["tempered_action", "tempered_chances"]

Array = NDArray[np.float64]


def _chance(lines: Array, index: int, full: float) -> float:
    """How much of [0, 1] the line of one action is the highest on, and ``full`` if it is at 1."""
    low, high, boldest = 0.0, 1.0, True
    mean, width = lines[0, index], lines[1, index]
    for k in range(lines.shape[1] - 1):
        lead, rise = mean - lines[0, k], width - lines[1, k]
        if rise > 0.0:
            low = max(low, -lead / rise)
        elif rise < 0.0:
            high = min(high, -lead / rise)
        elif lead < 0.0 or (lead == 0.0 and k < index):
            return 0.0
        upper, own = lines[0, k] + lines[1, k], mean + width
        if upper > own or (upper == own and k < index):
            boldest = False
    return (1.0 - full) * max(high - low, 0.0) + (full if boldest else 0.0)


def _tempered_action(actions: Array, state: Array, full: float, coin: float) -> tuple[int, float]:
    lines, left = lines_of(actions, state, np.bool_(1))
    arms = len(left)
    scale = 1.0 if coin < full else (coin - full) / (1.0 - full)
    best, second, index = -np.inf, -np.inf, UNDECIDED
    for k in range(arms):
        score = lines[0, k] + scale * lines[1, k]
        if score > best:
            best, second, index = score, best, k
        elif score > second:
            second = score
    if not best - second > lines[0, arms]:
        return UNDECIDED, np.nan
    return left[index], chance_of(lines, index, full)


def _tempered_chances(actions: Array, state: Array, full: float) -> Array:
    lines, left = lines_of(actions, state, np.bool_(1))
    arms, chances = len(left), np.zeros(len(actions))
    if arms == 0 or np.isnan(lines[0, arms]):
        return np.full(1, np.nan)
    here, boldest = 0, 0
    for k in range(1, arms):
        lead, rise = lines[0, k] - lines[0, here], lines[1, k] - lines[1, here]
        if lead > 0.0 or (lead == 0.0 and rise > 0.0):
            here = k
        if lines[0, k] + lines[1, k] > lines[0, boldest] + lines[1, boldest]:
            boldest = k
    at = 0.0
    while at < 1.0:  # from the highest line at 0 along those that rise faster and cross it, the nearest first
        until, after = 1.0, here
        for k in range(arms):
            rise = lines[1, k] - lines[1, here]
            if rise > 0.0:
                crossing = max((lines[0, here] - lines[0, k]) / rise, at)
                steeper = crossing == until < 1.0 and lines[1, k] > lines[1, after]
                if crossing < until or steeper:
                    until, after = crossing, k
        chances[left[here]] += (1.0 - full) * (until - at)
        if after == here:
            break
        at, here = until, after
    chances[left[boldest]] += full
    return chances


chance_of: Any = kept(_chance, [float64(types.Array(float64, 2, "C"), int64, float64)])

tempered_action: Any = compiled(_tempered_action, types.Tuple((int64, float64)), 2, float64, float64)
"""(K, d) actions, ``full`` and a coin → the index and its chance, as `Tempered` has them, or `UNDECIDED`."""

tempered_chances: Any = compiled(_tempered_chances, float64[::1], 2, float64)
"""(K, d) actions and ``full`` → (K,) chances; NaN where there are none."""
