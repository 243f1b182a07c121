"""Agents that miss rows, where nothing opens but the sum of all rows (`trust.Keepers`; docs/theory.md, 9).

Each release is a row of its own, encoded by every agent and decoded as a sum. Who is there builds it, once:
its records so far enter the row's column, and are never moved again. With more than D away the row is closed
empty, and made up for at once: who has not built it yet does so now, the others add noise alone. If too many
are away again nothing opens. Who misses a row keeps its records for the next row that it builds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.privacy.mechanisms import Memory
from feducb.privacy.noise import NoiseSource
from feducb.privacy.privatizer import Privatizer, PrivatizerState, Release
from feducb.protocol.synchronisation import pooled
from feducb.simulation.plan import Plan, Team
from feducb.trust import Keepers
from feducb.types import Array, Statistics
from feducb.worlds.streams import Purpose, Streams

__all__ = ["Attendance", "SecureRows", "attend", "rows_of"]

Flags = NDArray[np.bool_]

_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Attendance:
    """What agents did for one row: (agents,) each.

    Attributes:
        built: their records have entered the row's column.
        sent: their row is in the sum that opened; nobody's if none did.
        listed: their noise is, which may come alone.
    """

    built: Flags
    sent: Flags
    listed: Flags


def attend(there: Flags, quorum: int) -> Attendance:
    """Who does what, from who is there at the first attempt and at the second: (2, agents)."""
    first, second = there
    if first.sum() >= quorum:
        return Attendance(first, first, first)
    late, opens = second & ~first, second.sum() >= quorum
    return Attendance(first | late, late & opens, second & opens)


@dataclass(frozen=True, slots=True)
class _Listed:
    """The noise of those in a sum, in units of the noise of all: a sum is read as if nobody were missing.

    Attributes:
        source: draws for each agent, or once for all of them.
        listed: (agents,).
    """

    source: NoiseSource
    listed: Flags

    def draw(self, rows: int, count: int) -> Array:
        """(rows, 1, 1, count)."""
        drawn, agents = self.source.draw(rows, count), len(self.listed)
        if drawn.shape[-2] == 1:
            return np.asarray(drawn * np.sqrt(self.listed.sum() / agents))
        return np.asarray((drawn * self.listed[:, None]).sum(axis=-2, keepdims=True) / np.sqrt(agents))


class SecureRows:
    """The way out of the agents of one run: batches in columns, rows as they are built, sums as they open.

    Attributes:
        made: how many rows there were, opened or not.
    """

    def __init__(
        self,
        privatizer: Privatizer,
        *,
        quorum: int,
        absence: float,
        coins: Sequence[np.random.Generator],
    ) -> None:
        """Nothing is built yet.

        Args:
            privatizer: the agents'.
            quorum: how many a row needs to open.
            absence: the chance that an agent misses an attempt.
            coins: each agent's own.
        """
        dim, mechanism = privatizer.problem.dim, privatizer.mechanism
        self._privatizer, self._encoder = pooled(privatizer), mechanism.encoder()
        self._quorum, self._absence, self._coins = quorum, absence, coins
        # A moment stands below its Gram.
        self._columns = np.zeros((mechanism.releases, len(coins), dim + 1, dim))
        self._opened: Memory = ()
        self._noise: Memory = ()
        self.made = 0

    def release(self, total: Statistics, noise: NoiseSource) -> Release | None:
        """The next row, decoded with all before it; None if it did not open, and agents keep what they know.

        Args:
            total: (1, agents), all records so far.
            noise: each agent's, or one for all.
        """
        self.made += 1
        there = np.array([one.random(_ATTEMPTS) >= self._absence for one in self._coins]).T
        row = attend(there, self._quorum)
        stacked = np.concatenate([total.gram, total.moment[..., None, :]], axis=-2)[0]
        before, now = self._columns[: self.made - 1], self._columns[self.made - 1]
        now[row.built] = (stacked - before.sum(axis=0))[row.built]
        weights = self._encoder[self.made - 1, : self.made]
        summed = np.tensordot(weights, self._columns[: self.made], axes=1)[row.sent].sum(axis=0)
        mechanism = self._privatizer.mechanism
        self._opened, decoded = mechanism.correlate(self._opened, self.made, summed[None])
        state = PrivatizerState(
            Statistics(decoded[None, None, :-1], decoded[None, None, -1], total.count),
            self.made - 1,
            self._noise,
        )
        after, release = self._privatizer.release(state, _Listed(noise, row.listed))
        self._noise = after.memory
        return release if row.listed.any() else None


def rows_of(plan: Plan, team: Team, run: int) -> SecureRows | None:
    """Those of a team in one run; None where nobody is ever away."""
    if not plan.absence:
        return None
    (estimator,) = team.estimators
    assert estimator.privatizer is not None
    assert isinstance(plan.trust, Keepers)
    return SecureRows(
        estimator.privatizer,
        quorum=plan.trust.quorum(len(team.agents)),
        absence=plan.absence,
        coins=Streams(plan.seed).grid(range(run, run + 1), team.agents, Purpose.ABSENCE)[0],
    )
