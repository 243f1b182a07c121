"""What an agent's decisions were worth over time, beside what uniform choice would have been worth.

Kept as sums a step of time, for the agent's own people. Decisions enter when their window has closed, under
the time at which they were made, with the reward that counted or the default: an average of rewards that
came would be too high wherever only successes are reported.

Uniform choice is estimated from the same decisions. One of K candidates that was shown with chance p stands
for w = (1 / K) / p decisions of a uniform chooser (inverse propensity, normalised by Σ w). That is honest
only where every candidate could be shown: before anything was learnt, with ``uniform_share`` above 0, or
under the uniform policy.
For a chart that can be read, steps are also put together until they have enough decisions (`smooth`): by how
many came, never by what they brought.
Steps are put together until 20 of their decisions can be expected to have been drawn uniformly. Which ones
go together depends on chances alone: choosing steps by what was drawn in them would bend the estimate.
"""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from feducb.storage import agent_tables
from feducb.storage.agent_tables import CURVE_COLUMNS
from feducb.storage.events import ALONE, Due

__all__ = ["Curve", "points", "width_for"]

_WIDTHS = (1, 5, 15, 60, 300, 900, 3600)  # seconds
_MOST_POINTS = 168  # a week of hours
_SMOOTH = 24  # points of a chart, at most
_LEAST_SMOOTH = 30  # decisions of each
_LEAST_DRAWN = 20.0  # decisions that are expected to have been drawn uniformly, for an estimate


def width_for(season: float) -> int:
    """Seconds of one step: an hour, or less where a season is short."""
    return max((one for one in _WIDTHS if one <= season / 60), default=_WIDTHS[0])


class Curve:
    """What is new since the last commit; written with the commit that it describes."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._new: defaultdict[int, list[float]] = defaultdict(lambda: [0.0] * len(CURVE_COLUMNS))

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
            uniform: whether propensities are the agent's own and, if below 1, cover all candidates.
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
            if (
                row.lane == ALONE
                or not uniform
                or not chance
                or not count
                or (chance >= 1.0 and not (count == 1 and only_choice))
            ):
                continue
            weight = 1.0 / (count * chance)
            square = weight * weight
            sums[5] += _uniform_chance(row, chance, count)
            sums[6] += weight
            sums[7] += weight * reward
            sums[8] += square
            sums[9] += square * reward
            sums[10] += square * reward * reward

    def flush(self, db: sqlite3.Connection) -> None:
        """Write what is new, in the transaction that it describes."""
        agent_tables.add_to_curve(db, self.width, self._new)
        self._new.clear()

    def _at(self, moment: int) -> list[float]:
        return self._new[moment // (1000 * self.width) * self.width]


def _uniform_chance(row: Due, chance: float, count: int) -> float:
    """The share s of uniform draws behind p = s / K + (1 − s) [chosen is preferred]."""
    if count == 1:
        return 1.0
    return (1.0 - chance) * count / (count - 1) if row.chosen == row.preferred else chance * count


def points(db: sqlite3.Connection, width: int) -> dict[str, Any]:
    """The newest steps, oldest first, and all of them together."""
    rows = agent_tables.read_curve(db, width, most=_MOST_POINTS)
    steps = [list(sums) for _, *sums in rows]
    made = [
        {"start": start, "decisions": int(sums[0]), "rewards": int(sums[1]), **_own(sums), **_uniform(None)}
        for start, *sums in rows
    ]
    for block in _blocks(steps):
        together = _uniform(_total([steps[place] for place in block]))
        for place in block:
            made[place] |= together
    whole = _total(steps)
    enough = whole[5] >= _LEAST_DRAWN
    return {
        "width": width,
        "points": made,
        "smooth": _smooth([start for start, *_ in rows], steps, width),
        "whole": _own(whole) | _uniform(whole if enough else None),
    }


def _smooth(starts: list[int], steps: list[list[float]], width: int) -> list[dict[str, Any]]:
    """The same by decisions: blocks of about as many each."""
    settled = sum(sums[2] for sums in steps)
    least = max(_LEAST_SMOOTH, settled / _SMOOTH)
    blocks: list[list[int]] = [[]]
    for place, sums in enumerate(steps):
        if not sums[2]:
            continue
        if sum(steps[one][2] for one in blocks[-1]) >= least:
            blocks.append([])
        blocks[-1].append(place)
    if len(blocks) > 1 and sum(steps[one][2] for one in blocks[-1]) < least:
        short = blocks.pop()
        blocks[-1] += short
    return [
        {
            "start": starts[block[0]],
            "end": starts[block[-1]] + width,
            **_own(_total([steps[place] for place in block])),
        }
        for block in blocks
        if block
    ]


def _total(steps: list[list[float]]) -> list[float]:
    return [sum(column) for column in zip(*steps, strict=True)] if steps else [0.0] * len(CURVE_COLUMNS)


def _blocks(steps: list[list[float]]) -> list[list[int]]:
    """Places of steps that are estimated together; those in which nothing can be are in none."""
    blocks: list[list[int]] = []
    waiting: list[int] = []
    drawn = 0.0
    for place, sums in enumerate(steps):
        if sums[5] <= 0.0:
            continue
        waiting.append(place)
        drawn += sums[5]
        if drawn >= _LEAST_DRAWN - 1e-6:  # a sum of shares
            blocks.append(waiting)
            waiting, drawn = [], 0.0
    if waiting and blocks:
        blocks[-1] += waiting
    return blocks


def _own(sums: list[float]) -> dict[str, Any]:
    """What the agent's decisions brought on average, and its standard error; None if there is none."""
    count, value, square = sums[2:5]
    mean = value / count if count else None
    error = None
    if mean is not None and count > 1:
        error = math.sqrt(max(square / count - mean * mean, 0.0) / (count - 1))
    return {"settled": int(count), "value": mean, "value_error": error}


def _uniform(sums: list[float] | None) -> dict[str, Any]:
    """What uniform choice would have brought, and its standard error."""
    if sums is None:
        return {"uniform": None, "uniform_error": None}
    weight, weighted, ww, wwr, wwrr = sums[6:]
    mean = weighted / weight
    spread = wwrr - 2.0 * mean * wwr + mean * mean * ww
    return {"uniform": mean, "uniform_error": math.sqrt(max(spread, 0.0)) / weight}
