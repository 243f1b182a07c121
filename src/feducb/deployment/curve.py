"""What an agent's decisions were worth over time, beside what uniform choice would have been worth.

Kept as sums a step of time, for the agent's own people. Decisions enter when their window has closed, under
the time at which they were made, with the reward that counted or the default: an average of rewards that
came would be too high wherever only successes are reported.

Uniform choice is estimated from the same decisions. One of K candidates that was shown with chance p stands
for w = (1 / K) / p decisions of a uniform chooser (inverse propensity, normalised by Σ w). That is honest
only where every candidate could be shown: before anything was learnt, or with ``uniform_share`` above 0.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable
from typing import Any

from feducb.store.events import Due

__all__ = ["Curve", "points", "width_for"]

_WIDTHS = (1, 5, 15, 60, 300, 900, 3600)  # seconds
_MOST_POINTS = 168  # a week of hours
_LEAST_EFFECTIVE = 20.0  # uniform decisions' worth of evidence; with less, no baseline is shown
_COLUMNS = (
    "decisions",
    "rewards",
    "settled",
    "value",  # Σ r of what settled
    "value_square",  # Σ r²
    "weight",  # Σ w
    "weighted",  # Σ w r
    "weight_square",  # Σ w²
    "weighted_square",  # Σ w² r
    "weighted_square_square",  # Σ w² r²
)


def width_for(season: float) -> int:
    """Seconds of one step: an hour, or less where a season is short."""
    return max((one for one in _WIDTHS if one <= season / 60), default=_WIDTHS[0])


class Curve:
    """What is new since the last commit; written with the commit that it describes."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._new: dict[int, list[float]] = {}

    def decided(self, moment: int) -> None:
        """A decision, at so many milliseconds since 1970."""
        self._at(moment)[0] += 1

    def rewarded(self, moment: int) -> None:
        """A reward that came in time."""
        self._at(moment)[1] += 1

    def settled(self, rows: Iterable[Due], *, default: float, uniform: bool, only_choice: bool) -> None:
        """Decisions whose windows have closed.

        Args:
            rows: of them.
            default: what counts where no reward came.
            uniform: whether propensities are the agent's own, and so cover all candidates if below 1.
            only_choice: whether a visitor with one candidate counts: only where the others do.
        """
        for row in rows:
            if row.decided_at is None:
                continue
            reward = default if row.reward is None else row.reward
            sums = self._at(row.decided_at)
            sums[2] += 1
            sums[3] += reward
            sums[4] += reward * reward
            chance, count = row.propensity, row.candidates
            if not uniform or not chance or not count or (chance >= 1.0 and not (count == 1 and only_choice)):
                continue
            weight = 1.0 / (count * chance)
            square = weight * weight
            sums[5] += weight
            sums[6] += weight * reward
            sums[7] += square
            sums[8] += square * reward
            sums[9] += square * reward * reward

    def flush(self, db: sqlite3.Connection) -> None:
        """Write what is new, in the transaction that it describes."""
        db.executemany(_ADD, [(self.width, start, *sums) for start, sums in self._new.items()])
        self._new.clear()

    def clear(self) -> None:
        """Forget what was not written."""
        self._new.clear()

    def _at(self, moment: int) -> list[float]:
        start = moment // (1000 * self.width) * self.width
        sums = self._new.get(start)
        if sums is None:
            sums = self._new[start] = [0.0] * len(_COLUMNS)
        return sums


_ADD = (
    f"INSERT INTO curve (width, start, {', '.join(_COLUMNS)}) VALUES (?, ?{', ?' * len(_COLUMNS)})"
    " ON CONFLICT (width, start) DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in _COLUMNS)
)


def points(db: sqlite3.Connection, width: int) -> dict[str, Any]:
    """The newest steps, oldest first, and uniform choice over all of them together."""
    rows = db.execute(
        f"SELECT start, {', '.join(_COLUMNS)} FROM curve WHERE width = ? ORDER BY start DESC LIMIT ?",
        (width, _MOST_POINTS),
    ).fetchall()
    rows.reverse()
    whole = [sum(column) for column in list(zip(*rows, strict=True))[1:]] if rows else [0.0] * len(_COLUMNS)
    return {
        "width": width,
        "points": [
            {"start": start, "decisions": int(sums[0]), "rewards": int(sums[1]), **_estimates(sums)}
            for start, *sums in rows
        ],
        "whole": _estimates(whole),
    }


def _estimates(sums: list[float]) -> dict[str, Any]:
    """Means and their standard errors; None where there is nothing to say."""
    _, _, count, value, square, weight, weighted, ww, wwr, wwrr = sums
    mean = value / count if count else None
    error = None
    if mean is not None and count > 1:
        error = math.sqrt(max(square / count - mean * mean, 0.0) / (count - 1))
    uniform = uniform_error = None
    if ww > 0.0 and weight * weight / ww >= _LEAST_EFFECTIVE:
        uniform = weighted / weight
        spread = wwrr - 2.0 * uniform * wwr + uniform * uniform * ww
        uniform_error = math.sqrt(max(spread, 0.0)) / weight
    return {
        "settled": int(count),
        "value": mean,
        "value_error": error,
        "uniform": uniform,
        "uniform_error": uniform_error,
    }
