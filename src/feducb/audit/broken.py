"""DELIBERATELY BROKEN. Nothing in here is private; the audit must catch every piece of it.

Only the audit's self-test imports this module. Each class makes one mistake that has been made in practice or
in print, and nothing else wrong.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from sqlite3 import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.agent import Agent, AgentSettings
from feducb.agent.durable import Parts
from feducb.agent.inbox import Inbox
from feducb.agent.settling import Settling
from feducb.agent.state import State
from feducb.audit.broken_close import CLOSE_FAULTS
from feducb.audit.broken_lanes import LANE_FAULTS
from feducb.audit.broken_rows import ROW_FAULTS
from feducb.audit.checks import CENTRED, MIXED, ONE_HOTS, PUBLIC, Code
from feducb.models import PublicContexts
from feducb.privacy.deployed import DeployedPrivatizer, GridRelease
from feducb.privacy.encoders import Wide
from feducb.privacy.grid import FINE_BITS, GridNoise, certify
from feducb.privacy.ledger import Entered
from feducb.privacy.privatizer import within_bounds
from feducb.privacy.tally import ONE_IN
from feducb.privacy.terms import Terms
from feducb.protocol.messages import GridSum
from feducb.protocol.parcels import Parcel
from feducb.storage import AgentStore
from feducb.storage.events import Due

__all__ = ["FAULTS"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class BrokenUnscaledTree(DeployedPrivatizer):
    """Noise without √m: nodes of the tree are published as they are, with the noise of a single node."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        factor = math.sqrt(terms.releases.bit_length())
        encode, decode = self._encoder.encode, self._decoder.decode

        def stretched(batch: Ints | Wide) -> Ints:
            return encode(np.rint(batch.astype(np.float64) * factor).astype(np.int64))

        def shrunk(row: Ints) -> Array:
            return decode(row) / factor

        vars(self._encoder).update(encode=stretched)
        vars(self._decoder).update(decode=shrunk)


class _ChangedNoise(DeployedPrivatizer):
    """Noise as certified, changed after it was drawn."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        draw = self._noise.draw

        def draw_changed(count: int) -> Ints:
            return self._changed(draw(count))

        vars(self._noise).update(draw=draw_changed)

    @abstractmethod
    def _changed(self, noise: Ints) -> Ints:
        """What is added in its place."""


class BrokenSymmetrisation(_ChangedNoise):
    """(N + Nᵀ)/2 in place of (N + Nᵀ)/√2: noise smaller by √2."""

    def _changed(self, noise: Ints) -> Ints:
        return np.rint(noise / math.sqrt(2.0)).astype(np.int64)


class BrokenGrid(_ChangedNoise):
    """Noise on a coarser grid than the data: the low bits of a release are the data's."""

    def _changed(self, noise: Ints) -> Ints:
        return noise // 16 * 16


class BrokenFreshness(_ChangedNoise):
    """One noise for all releases: differences are bare."""

    _first: Ints

    def _changed(self, noise: Ints) -> Ints:
        self._first = noise if self.released == 0 else self._first
        return self._first


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
        fine = np.rint(np.ldexp(missing, FINE_BITS - self.certificate.exponent))
        self._batch[-problem.dim :] += fine.astype(np.int64)


class BrokenCentring(DeployedPrivatizer):
    """Rewards are clipped as they come and centred afterwards: up to B + |c| is left of one."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._way_out.problem = replace(terms.problem, reward_centre=0.0)

    def record(self, actions: Array, rewards: Array) -> None:
        super().record(actions, rewards)
        short, _ = within_bounds(self._way_out.problem, self.terms.excess, actions, rewards)
        centre = math.sqrt(2.0) * self.terms.weight * self.terms.problem.reward_centre * short.sum(axis=0)
        fine = np.rint(np.ldexp(centre, FINE_BITS - self.certificate.exponent))
        self._batch[-self.terms.problem.dim :] -= fine.astype(np.int64)


class BrokenBlocks(DeployedPrivatizer):
    """Actions are taken at their word to be one-hots: what is not moves more than one can."""

    def record(self, actions: Array, rewards: Array) -> None:
        for place in np.split(np.arange(self.terms.problem.dim), 2):  # as if each half were an action
            own = np.zeros_like(actions)
            own[:, place] = actions[:, place]
            super().record(own, rewards)


class BrokenZeros(_ChangedNoise):
    """Zeros are read off the data, not off the recipe: what no record has touched has no noise."""

    def _changed(self, noise: Ints) -> Ints:
        return np.where(self._batch.astype(np.bool_), noise, 0)


class BrokenContexts(DeployedPrivatizer):
    """The Gram leaves as it is although contexts are private."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._way_out.model = PublicContexts(terms.model)


class BrokenRewardMove(DeployedPrivatizer):
    """With public contexts: noise for a reward that goes from 0 to B, where it may go from −B to B."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        half = replace(terms.problem, reward_bound=0.5 * terms.problem.reward_bound)
        self.certificate = replace(terms, problem=half).certificate()
        self._noise = GridNoise(self.certificate)


class BrokenRestart(DeployedPrivatizer):
    """Noise redrawn on restart: what an adversary holds who averages a release over three restarts."""

    def release(self) -> GridRelease:
        state, seen = self.dump(), []
        for _ in range(4):
            self.load(state)
            made = super().release()
            seen.append(made.values)
        made.values = np.rint(np.mean(seen, axis=0)).astype(np.int64)
        return made


class ForgetfulStore(AgentStore):
    """Keeps a release in memory until it is sent: after a crash before that it is made again."""

    _before = b""

    def release(self, group: int = 0) -> bytes:
        self._before = self._before or self.database.serialize()
        return super().release(group)

    def outbox(self) -> list[Parcel]:
        for group, stream in enumerate(self._privatizers):
            if stream.pending:
                self.release(group)
        return super().outbox()

    def close(self) -> None:
        lost = self._before and not self.closed and super().outbox()
        super().close()
        if lost:
            self.path.write_bytes(self._before)


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


class BrokenRouting(AgentStore):
    """A record enters its own group and the next one."""

    def record(self, *records: Any, group: int = 0, **how: Any) -> int:
        super().record(*records, group=(group + 1) % self.terms.groups, **how)
        return super().record(*records, group=group, **how)


class BrokenSharing(AgentStore):
    """All groups draw from one cache of noise: the difference of two groups' releases is bare."""

    def _load(self) -> None:
        super()._load()
        shared = cache(self._privatizers[0]._noise.draw)
        for door in self._privatizers:
            vars(door._noise).update(draw=shared)


class _Turns(State):
    def draw_group(self) -> int:
        return (self.counters.total("decisions") + 1) % self.settings.groups


class BrokenTurns(Agent):
    """Groups take turns: one absent visitor moves every later record to another group."""

    _parts = Parts(state=_Turns)


class _Following(Settling):
    def take_in(self, db: Connection, group: int, rows: Sequence[Due]) -> int | None:
        kept = self.state.settings
        self.state.settings = replace(kept, follow_policy="fixed")
        try:
            return super().take_in(db, group, rows)
        finally:
            self.state.settings = kept


class BrokenFollowing(Agent):
    """Whatever was followed is released, although the policy learns from rewards."""

    _parts = Parts(settling=_Following)


class _GreedyInbox(Inbox):
    """Takes every sum for one over as many agents as are needed."""

    def admit(self, total: GridSum, settings: AgentSettings, season: int, agents: int | None = None) -> bool:
        return total.number > self.number(total.group)


class _AnyQuorum(State):
    def reload(self) -> None:
        self.inbox = _GreedyInbox()
        super().reload()


class BrokenQuorum(Agent):
    """Acts on a sum over however few agents: its bound was made for other sums."""

    _parts = Parts(state=_AnyQuorum)


class _RawMemory(State):
    raw: tuple[Array, Array] | None = None

    def learn(self, group: int) -> None:
        for one in self.memory.earlier:
            if self.raw is not None:
                gram, moment = self.raw
                one.totals[group] = replace(one.totals[group], gram=gram, moment=moment)
        super().learn(group)


class _IntoMemory(Settling):
    def take_in(self, db: Connection, group: int, rows: Sequence[Due]) -> int | None:
        state, problem = self.state, self.state.settings.problem
        assert isinstance(state, _RawMemory)
        actions = np.frombuffer(b"".join(row.action for row in rows)).reshape(-1, problem.dim)
        rewards = np.array([row.reward or 0.0 for row in rows]) - problem.reward_centre
        gram, moment = state.raw or (np.zeros((problem.dim, problem.dim)), np.zeros(problem.dim))
        state.raw = gram + actions.T @ actions, moment + actions.T @ rewards
        return super().take_in(db, group, rows)


class BrokenMemory(Agent):
    """Remembers a season by its own raw sums in place of the released one."""

    _parts = Parts(state=_RawMemory, settling=_IntoMemory)


class BrokenPersonBound(DeployedPrivatizer):
    """A trusted controller whose noise covers a person's records at one agent, while she visits several."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.certificate = replace(terms, agents_per_person=1).certificate()
        self._noise = GridNoise(self.certificate)


class BrokenReach(DeployedPrivatizer):
    """Noise for p records in different releases as if these had nothing in common: √p times that of one."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.certificate = certify(
            terms.budget,
            sensitivity=math.sqrt(2.0) * terms.radius,
            coordinates=self.certificate.coordinates,
            releases=terms.releases,
            reach=math.sqrt(terms.records_per_person),
        )
        self._noise = GridNoise(self.certificate)


class BrokenSpacing(AgentStore):
    """Counts a person's records, and forgets which releases they were in."""

    def _entered(self, db: Connection, hashes: Sequence[bytes | None]) -> dict[bytes, Entered]:
        known = super()._entered(db, hashes)
        return {person: one._replace(last=one.last - self.terms.spacing) for person, one in known.items()}


def _unpaid_scale(terms: Terms, default_reward: float) -> int:
    """Noise that suits a count which leaves alone: together with the releases it costs twice."""
    return math.ceil(ONE_IN * terms.records_per_person / terms.certificate().mu)


FAULTS = {
    "noise without √m": Code(privatizer=BrokenUnscaledTree, mechanism="tree"),
    "(N + Nᵀ)/2": Code(privatizer=BrokenSymmetrisation),
    "unclipped reward": Code(privatizer=BrokenRewardBound, epsilon=1.0),  # the free bound can pass a small ε
    "rewards centred after they are clipped": Code(privatizer=BrokenCentring, changes=CENTRED),
    "blocks by their word": Code(variant=BrokenBlocks, changes=ONE_HOTS),
    "zeros read off the data": Code(variant=BrokenZeros, changes=MIXED),
    "contexts that are not public": Code(variant=BrokenContexts),
    "half of a reward's move": Code(variant=BrokenRewardMove, changes=PUBLIC),
    "noise redrawn on restart": Code(privatizer=BrokenRestart, store=ForgetfulStore),
    "noise coarser than the data": Code(privatizer=BrokenGrid),
    "one noise for all releases": Code(privatizer=BrokenFreshness),
    "no end of releases": Code(privatizer=BrokenHorizon),
    "telling header": Code(privatizer=BrokenHeader),
    "a record in two groups": Code(groups=BrokenRouting),
    "one noise for all groups": Code(groups=BrokenSharing),
    "groups by turns": Code(agent=BrokenTurns),
    "following a policy that learns": Code(agent=BrokenFollowing),
    "quorum ignored": Code(agent=BrokenQuorum),
    "raw sums remembered": Code(agent=BrokenMemory),
    "one person at several agents": Code(controller=BrokenPersonBound),
    "spaced records taken for unrelated": Code(privatizer=BrokenReach),
    "spacing forgotten": Code(store=BrokenSpacing),
    "a tally that nobody paid for": Code(tally=_unpaid_scale),
    **ROW_FAULTS,
    **CLOSE_FAULTS,
    **LANE_FAULTS,
    # The paper's own, as printed; a huge ε, lest its constants drown everything: the leak is structural.
    "determinant trigger": Code(policy={"mode": "paper", "schedule": "determinant:30", "epsilon": 1e6}),
    "acting on raw data": Code(policy={"mode": "paper", "schedule": "explicit:40,60", "epsilon": 1e6}),
}
