"""DELIBERATELY BROKEN. Nothing in here is private; the audit must catch every piece of it.

Only the audit's self-test imports this module. Each class makes one mistake that has been made in practice or
in print, and nothing else wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feducb.agent import Agent, AgentSettings
from feducb.agent.inbox import Inbox
from feducb.privacy.deployed import DeployedPrivatizer, GridRelease
from feducb.privacy.encoders import Encoder, Wide
from feducb.privacy.grid import FINE_BITS, GridNoise
from feducb.privacy.privatizer import within_bounds
from feducb.privacy.tally import ONE_IN
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.messages import GridSum
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.storage import AgentStore
from feducb.storage.events import Due

__all__ = [
    "AGENTS",
    "CONTROLLERS",
    "GROUPED",
    "POLICIES",
    "PRIVATIZERS",
    "STORES",
    "TALLIES",
    "ForgetfulStore",
]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_RESTARTS = 3


class _Stretched:
    """An encoder whose columns are too long by a factor."""

    def __init__(self, inner: Encoder, factor: float) -> None:
        self._inner, self._factor = inner, factor

    def encode(self, batch: Ints | Wide) -> Ints:
        return self._inner.encode(np.rint(batch.astype(np.float64) * self._factor).astype(np.int64))

    def decode(self, row: Ints) -> Array:
        return np.asarray(self._inner.decode(row) / self._factor)

    def dump(self) -> bytes:
        return self._inner.dump()

    def load(self, data: bytes) -> None:
        self._inner.load(data)


class BrokenUnscaledTree(DeployedPrivatizer):
    """Noise without √m: nodes of the tree are published as they are, with the noise of a single node."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._encoder = _Stretched(self._encoder, math.sqrt(terms.releases.bit_length()))


class _HalvedDraws(GridNoise):
    def draw(self, count: int) -> Ints:
        return np.rint(super().draw(count) / math.sqrt(2.0)).astype(np.int64)


class BrokenSymmetrisation(DeployedPrivatizer):
    """(N + Nᵀ)/2 in place of (N + Nᵀ)/√2: noise smaller by √2."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._noise = _HalvedDraws(self.certificate)


class BrokenRewardBound(DeployedPrivatizer):
    """Actions are clipped, rewards are not."""

    def record(self, actions: Array, rewards: Array) -> None:
        if not np.isfinite(rewards).all():
            super().record(actions, rewards)
            return
        problem = self.terms.problem
        kept = np.clip(rewards, -problem.reward_bound, problem.reward_bound)
        super().record(actions, kept)
        short, _ = within_bounds(problem, "clip", actions, kept)
        missing = math.sqrt(2.0) * self.terms.weight * (rewards - kept) @ short
        self._batch[-problem.dim :] += np.rint(
            np.ldexp(missing, FINE_BITS - self.certificate.exponent)
        ).astype(np.int64)


class BrokenRestart(DeployedPrivatizer):
    """Noise redrawn on restart: what an adversary holds who averages a release over three restarts."""

    def release(self) -> GridRelease:
        state, seen = self.dump(), []
        for _ in range(_RESTARTS + 1):
            self.load(state)
            made = super().release()
            seen.append(made.values)
        made.values = np.rint(np.mean(seen, axis=0)).astype(np.int64)
        return made


class _CoarseDraws(GridNoise):
    def draw(self, count: int) -> Ints:
        return super().draw(count) // 16 * 16


class BrokenGrid(DeployedPrivatizer):
    """Noise on a coarser grid than the data: the low bits of a release are the data's."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._noise = _CoarseDraws(self.certificate)


class _SameDraws(GridNoise):
    kept: Ints | None = None

    def draw(self, count: int) -> Ints:
        self.kept = super().draw(count) if self.kept is None else self.kept
        return self.kept


class BrokenFreshness(DeployedPrivatizer):
    """One noise for all releases: differences are bare."""

    def release(self) -> GridRelease:
        if self.released == 0:
            self._noise = _SameDraws(self.certificate)
        return super().release()


class BrokenHorizon(DeployedPrivatizer):
    """After the last release it begins again, on a budget that is spent."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._fresh = self.dump()

    def release(self) -> GridRelease:
        if self.released == self.terms.releases:
            self.load(self._fresh)
        return super().release()


class BrokenHeader(DeployedPrivatizer):
    """A header that tells: its variance is fitted to the data."""

    def release(self) -> GridRelease:
        hint = 1e-12 * float(np.abs(self._batch[-1] - self._batch[0]))
        made = super().release()
        made.variance += hint
        return made


class ForgetfulStore:
    """A store, of one group, that writes its state when a release is sent, not when it is made."""

    def __init__(self, path: Path, terms: Terms) -> None:
        self._path, self._made = path, b""
        self._door = DeployedPrivatizer(terms)
        if path.exists():
            self._door.load(path.read_bytes())

    def record(self, actions: Array, rewards: Array, *, group: int = 0) -> None:
        """Take records in, and write the state."""
        self._door.record(actions, rewards)
        self._path.write_bytes(self._door.dump())

    def release(self, group: int = 0) -> bytes:
        """Make a release, and keep it in memory only."""
        self._made = messages.encode(self._door.release())
        return self._made

    def outbox(self) -> list[Parcel]:
        """What is to be sent, made again if a restart lost it."""
        data = self._made or self.release()
        return [Parcel(ParcelKind.RELEASE, 0, 0, messages.decode(data).number, data)]

    def mark_sent(self, season: int, number: int, *, group: int = 0) -> None:
        """Now it is written."""
        self._path.write_bytes(self._door.dump())
        self._made = b""

    def close(self) -> None:
        """Everything in memory is lost."""


class BrokenRouting(AgentStore):
    """A record enters its own group and the next one."""

    def record(
        self,
        actions: ArrayLike,
        rewards: ArrayLike,
        persons: Sequence[str | None] | None = None,
        *,
        group: int = 0,
    ) -> int:
        super().record(actions, rewards, persons, group=(group + 1) % self.terms.groups)
        return super().record(actions, rewards, persons, group=group)


class BrokenSharing(AgentStore):
    """All groups draw from one cache of noise: the difference of two groups' releases is bare."""

    def _load(self) -> None:
        super()._load()
        shared = _SameDraws(self.terms.certificate())
        for door in self._privatizers:
            door._noise = shared


class BrokenTurns(Agent):
    """Groups take turns: one absent visitor moves every later record to another group."""

    def draw_group(self) -> int:
        return (self._counters.total("decisions") + 1) % self.settings.groups


class BrokenFollowing(Agent):
    """Whatever was followed is released, although the policy learns from rewards."""

    def _take_in(self, db: Connection, group: int, rows: Sequence[Due]) -> int | None:
        kept, self.settings = self.settings, replace(self.settings, follow_policy="fixed")
        try:
            return super()._take_in(db, group, rows)
        finally:
            self.settings = kept


class _GreedyInbox(Inbox):
    """Takes every sum for one over as many agents as are needed."""

    def admit(self, told: GridSum, settings: AgentSettings, season: int, agents: int | None = None) -> bool:
        return told.number > self.number(told.group)


class BrokenQuorum(Agent):
    """Acts on a sum over however few agents: its bound was made for other sums."""

    def _reload(self) -> None:
        self._inbox = _GreedyInbox()
        super()._reload()


class BrokenPersonBound(DeployedPrivatizer):
    """A trusted controller whose noise covers a person's records at one agent, while she visits several."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.certificate = replace(terms, agents_per_person=1).certificate()
        self._noise = GridNoise(self.certificate)


PRIVATIZERS: dict[str, type[DeployedPrivatizer]] = {
    "noise without √m": BrokenUnscaledTree,
    "(N + Nᵀ)/2": BrokenSymmetrisation,
    "unclipped reward": BrokenRewardBound,
    "noise redrawn on restart": BrokenRestart,
    "noise coarser than the data": BrokenGrid,
    "one noise for all releases": BrokenFreshness,
    "no end of releases": BrokenHorizon,
    "telling header": BrokenHeader,
}

STORES: dict[str, type[ForgetfulStore]] = {"noise redrawn on restart": ForgetfulStore}

GROUPED: dict[str, type[AgentStore]] = {
    "a record in two groups": BrokenRouting,
    "one noise for all groups": BrokenSharing,
}

AGENTS: dict[str, type[Agent]] = {
    "groups by turns": BrokenTurns,
    "following a policy that learns": BrokenFollowing,
    "quorum ignored": BrokenQuorum,
}

CONTROLLERS: dict[str, type[DeployedPrivatizer]] = {"one person at several agents": BrokenPersonBound}


def _unpaid_scale(terms: Terms, default_reward: float) -> int | None:
    """Noise that suits a count which leaves alone: together with the releases it costs twice."""
    return math.ceil(ONE_IN * terms.records_per_person / terms.certificate().mu)


TALLIES: dict[str, Callable[[Terms, float], int | None]] = {"a tally that nobody paid for": _unpaid_scale}

# The paper's own, as printed; a huge ε, lest its constants drown everything: the leak is in the structure.
POLICIES: dict[str, dict[str, Any]] = {
    "determinant trigger": {"mode": "paper", "schedule": "determinant:30", "epsilon": 1e6},
    "acting on raw data": {"mode": "paper", "schedule": "explicit:40,60", "epsilon": 1e6},
}
