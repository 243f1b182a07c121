"""How an agent plays: decide → observe → absorb.

A *rule* turns what an agent may look at into a belief. `ReleasedPlay` looks at released sums only, so that
between two releases no record can change a decision. `AlonePlay` looks at own records only. `JointPlay` looks
at released sums until the last of them, and from then on at own records and the others' sum. `OwnDataPlay`
adds the agent's own raw records to a released sum at once, as the paper prints it. All of it is state in,
state out, with any leading axes: one agent, or runs × agents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feducb.interfaces import Bound
from feducb.models.confidence import PaperBound
from feducb.models.joint import JointBound, Others
from feducb.models.ridge import Ridge, factorise, update
from feducb.types import Array, Belief, ReleasedSum, Statistics, add, merge, zeros

__all__ = [
    "AlonePlay",
    "JointPlay",
    "Knowledge",
    "OwnDataPlay",
    "ReleasedPlay",
    "Rule",
    "Trigger",
    "UniformPlay",
]

Flags = NDArray[np.bool_]

_NOBODY: Flags = np.zeros((), dtype=np.bool_)
_READ_BITS = 7  # own records are read again after 1/128 to 1/64 more of them


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What an agent knows.

    Attributes:
        belief: scores actions; None before anything was learnt: then actions are drawn uniformly.
        own: the regression S + U, own records included (own-data play only).
        guard: the matrix that the determinant trigger watches (with a trigger only).
        anchor: (...), log det S at the last synchronisation (with a trigger only).
        waited: Δt, rounds since then.
        sums: of an agent's own records (alone, and joint play).
        others: what the others' shared records came to, once all have closed (joint play only).
        newest: where the open season's sums stand (`remembering` only).
    """

    belief: Belief | None = None
    own: Ridge | None = None
    guard: Ridge | None = None
    anchor: Array | None = None
    waited: int = 0
    sums: Statistics | None = None
    others: Others | None = None
    newest: Any = None


class Rule:
    """What an agent may look at, and what it makes of it; by itself, nothing."""

    __slots__ = ()
    acts_on_own_data: ClassVar[bool] = False
    """Whether a record can change the next decision before it was released."""

    def start(self, shape: tuple[int, ...]) -> Knowledge:
        """Before the first round: no belief."""
        return Knowledge()

    def observe(self, knowledge: Knowledge, action: Array, reward: Array) -> Knowledge:
        """After a round, own action (..., d) and reward (...): looks away, records wait for their release."""
        return knowledge

    def wants_sync(self, knowledge: Knowledge) -> Flags:
        """Which agents ask for a synchronisation now: (...), or one False for all."""
        return _NOBODY

    def absorb(self, knowledge: Knowledge, total: ReleasedSum) -> Knowledge:
        """After a synchronisation: the sum over agents replaces the last one."""
        return knowledge


@dataclass(frozen=True, slots=True)
class UniformPlay(Rule):
    """Chooses uniformly, whatever it sees: a baseline that never learns."""


@dataclass(frozen=True, slots=True)
class ReleasedPlay(Rule):
    """Acts on released sums only (``calibrated``).

    Guarantees:
        Decisions are a function of releases, public coins and the visitor's own candidates: post-processing.

    Attributes:
        bound: what a released sum tells about θ*.
        first: the first release worth reading; until then actions are drawn uniformly.
    """

    bound: Bound
    first: int = 1

    def absorb(self, knowledge: Knowledge, total: ReleasedSum) -> Knowledge:
        """The new sum replaces the old; all agents share one belief, hence an axis of length 1."""
        if total.number < self.first:
            return knowledge
        belief = self.bound.belief(
            total.gram[..., None, :, :], total.moment[..., None, :], total.variance[..., None]
        )
        return Knowledge(belief=belief)


class _Recording(Rule, ABC):
    """Keeps own records, and reads them from a round on.

    Reading takes an eigendecomposition, so records are read anew not in every round but whenever there are
    about one in a hundred more.
    """

    __slots__ = ()
    acts_on_own_data: ClassVar[bool] = True
    bound: Any
    first: int

    def reads_at(self, rounds: int) -> bool:
        """Whether records are read after so many rounds: public, the step grows from 1 like a power of 2."""
        step = 1 << max(0, rounds.bit_length() - _READ_BITS)
        return rounds == self.first or (rounds > self.first and rounds % step == 0)

    def start(self, shape: tuple[int, ...]) -> Knowledge:
        """No records."""
        return Knowledge(sums=zeros(self.bound.problem.dim, shape))

    def observe(self, knowledge: Knowledge, action: Array, reward: Array) -> Knowledge:
        """Add a record, its reward less the public centre; read all of them where it is time."""
        reward = reward - self.bound.problem.reward_centre
        none = zeros(self.bound.problem.dim, reward.shape)
        return self.take_in(knowledge, add(none, action[..., None, :], reward[..., None]))

    def take_in(self, knowledge: Knowledge, more: Statistics) -> Knowledge:
        """The sums of some more rounds, up to the next at which records are read."""
        assert knowledge.sums is not None
        sums = merge(knowledge.sums, more)
        knowledge = replace(knowledge, sums=sums)
        return self._read(knowledge) if self.reads_at(sums.count) else knowledge

    @abstractmethod
    def _read(self, knowledge: Knowledge) -> Knowledge:
        """The same after looking at the sums it holds."""


@dataclass(frozen=True, slots=True)
class AlonePlay(_Recording):
    """Each agent acts on its own records, and nothing leaves it: what a federation is held against.

    The bound is the one that federations play with, without noise.

    Attributes:
        bound: what own sums tell about θ*.
        first: how many rounds are drawn uniformly before that.
    """

    bound: Bound
    first: int = 1

    def _read(self, knowledge: Knowledge) -> Knowledge:
        assert knowledge.sums is not None
        gram, moment = knowledge.sums.gram, knowledge.sums.moment
        return replace(knowledge, belief=self.bound.belief(gram, moment, np.zeros(moment.shape[:-1])))


@dataclass(frozen=True, kw_only=True, slots=True)
class JointPlay(_Recording):
    """Share first, then act on everything one knows (``play="own"``).

    Guarantees:
        Up to the last release decisions are those of ``shared``, which looks away from own records: all that
        is ever released is a function of what was decided without them. After it nothing is released.

    Attributes:
        shared: how agents play before the last release.
        bound: what own sums and the others' tell together, after it.
        first: the round of the last release, after which all close.
        last: its number.
    """

    shared: ReleasedPlay
    bound: JointBound
    first: int
    last: int

    def absorb(self, knowledge: Knowledge, total: ReleasedSum) -> Knowledge:
        """As ``shared`` does, but for the last sum: what it holds beside own records is the others'."""
        assert knowledge.sums is not None
        if total.number < self.last:
            return replace(knowledge, belief=self.shared.absorb(knowledge, total).belief)
        own = knowledge.sums
        gram, moment = total.gram[..., None, :, :] - own.gram, total.moment[..., None, :] - own.moment
        return self._read(replace(knowledge, others=Others.of(gram, moment)))

    def _read(self, knowledge: Knowledge) -> Knowledge:
        if knowledge.others is None:
            return knowledge
        assert knowledge.sums is not None
        return replace(knowledge, belief=self.bound.belief(knowledge.sums, knowledge.others))


@dataclass(frozen=True, kw_only=True, slots=True)
class Trigger:
    """The determinant test of Alg. 1, l. 12.

    Attributes:
        threshold: D.
        offset: M(ρ_max − ρ_min).
    """

    threshold: float
    offset: float


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnDataPlay(Rule):
    """Acts on the last released sum plus own raw records (``paper``).

    Not private against an interactive user: one reward changes later actions at once, and with them what
    is released, by far more than the noise was made for.

    Attributes:
        bound: the radius.
        prior: what S is before the first synchronisation, times the identity (Alg. 1, l. 1: Mρ_min).
        trigger: asks for synchronisations; none if the schedule is public.
    """

    acts_on_own_data: ClassVar[bool] = True
    bound: PaperBound
    prior: float
    trigger: Trigger | None = None

    def start(self, shape: tuple[int, ...]) -> Knowledge:
        """S = prior · I, U = 0."""
        dim = self.bound.problem.dim
        return self._restart(
            np.broadcast_to(self.prior * np.eye(dim), (*shape, dim, dim)), np.zeros((*shape, dim))
        )

    def observe(self, knowledge: Knowledge, action: Array, reward: Array) -> Knowledge:
        """U ← U + x xᵀ, ū ← ū + y x (Alg. 1, l. 10); y less the public centre."""
        assert knowledge.own is not None
        reward = reward - self.bound.problem.reward_centre
        own = update(knowledge.own, action, reward)
        guard = knowledge.guard and update(knowledge.guard, action, reward)
        return Knowledge(self.bound.belief(own), own, guard, knowledge.anchor, knowledge.waited + 1)

    def wants_sync(self, knowledge: Knowledge) -> Flags:
        """Alg. 1, l. 12, with D/(Δt + 1): ``waited`` has counted this round already."""
        if self.trigger is None or knowledge.guard is None or knowledge.anchor is None:
            return _NOBODY
        growth = knowledge.guard.log_det - knowledge.anchor
        return np.asarray(growth >= self.trigger.threshold / knowledge.waited)

    def absorb(self, knowledge: Knowledge, total: ReleasedSum) -> Knowledge:
        """S is replaced, U ← 0 (Alg. 1, l. 20; differs from the paper: not ρ_min I)."""
        assert knowledge.own is not None
        shape = knowledge.own.gram.shape
        return self._restart(
            np.broadcast_to(total.gram[..., None, :, :], shape),
            np.broadcast_to(total.moment[..., None, :], shape[:-1]),
        )

    def _restart(self, gram: Array, moment: Array) -> Knowledge:
        own = factorise(gram, moment)
        guard = None
        if self.trigger is not None:
            offset = self.trigger.offset * np.eye(gram.shape[-1])
            guard = factorise(gram + offset, np.zeros_like(moment))
        return Knowledge(belief=self.bound.belief(own), own=own, guard=guard, anchor=own.log_det, waited=0)
