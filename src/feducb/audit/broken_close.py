"""DELIBERATELY BROKEN, as `broken` is: mistakes in the close of own play. The audit must catch each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from feducb.agent import Agent
from feducb.agent.durable import Parts
from feducb.agent.own_reading import OwnReading
from feducb.agent.settling import Settling
from feducb.audit.checks import CLOSES, Code
from feducb.models.play import JointPlay, Knowledge
from feducb.protocol.closing import own_estimator
from feducb.protocol.estimators import Estimator
from feducb.protocol.federation import Federation
from feducb.storage import agent_tables, events, own_sums
from feducb.trust import NOBODY

__all__ = ["CLOSE_FAULTS"]


class BrokenSharedPhase(JointPlay):
    """Looks at own records before the close too, as an agent alone would."""

    def reads_at(self, rounds: int) -> bool:
        return True

    def _read(self, knowledge: Knowledge) -> Knowledge:
        if knowledge.others is not None:
            return super()._read(knowledge)
        assert knowledge.sums is not None
        gram, moment = knowledge.sums.gram, knowledge.sums.moment
        alone = self.bound.alone.belief(gram, moment, np.zeros(moment.shape[:-1]))
        return replace(knowledge, belief=alone)


class BrokenMoment(JointPlay):
    """Asks for the last release when its own records have told enough."""

    def wants_sync(self, knowledge: Knowledge) -> NDArray[np.bool_]:
        assert knowledge.sums is not None
        if knowledge.others is not None or 3 * knowledge.sums.count <= 2 * self.first:
            return np.zeros((), dtype=np.bool_)
        return np.asarray(np.linalg.norm(knowledge.sums.moment, axis=-1) > 0.3 * self.first)


def _raw(federation: Federation, horizon: int, team: Sequence[int]) -> Estimator:
    return _played_by(BrokenSharedPhase, own_estimator(federation, horizon, team))


def _early(federation: Federation, horizon: int, team: Sequence[int]) -> Estimator:
    """Closes one release too early: records of the own phase are in the last sum."""
    shared = own_estimator(federation, horizon, team)
    assert isinstance(shared.rule, JointPlay)
    rounds = shared.release_rounds
    return replace(shared, rule=replace(shared.rule, first=rounds[-2], last=len(rounds) - 1))


def _by_data(federation: Federation, horizon: int, team: Sequence[int]) -> Estimator:
    shared = _played_by(BrokenMoment, own_estimator(federation, horizon, team))
    return replace(shared, release_rounds=shared.release_rounds[:-1])


def _played_by(kind: type[JointPlay], shared: Estimator) -> Estimator:
    own = {one.name: getattr(shared.rule, one.name) for one in fields(JointPlay)}
    return replace(shared, rule=kind(**own))


class EagerSettling(Settling):
    """Looks at own records with each settling."""

    def settle(self, group: int, rows: Sequence[events.Due]) -> None:
        super().settle(group, rows)
        state, store = self.state, self.state.store
        own = own_sums.everything(store.database)
        if state.settings.closes and not state.closed and own is not None:
            terms, real = store.terms, store.real(own.values)
            gram, moment = terms.model.read(real, dim=terms.problem.dim, weight=terms.weight)
            rule = state.settings.estimator.rule
            assert isinstance(rule, JointPlay)
            state.chooser.know(group, rule.bound.alone.belief(gram, moment, np.zeros(())))


class BrokenAgentSharedPhase(Agent):
    """A deployed agent that looks at its own records whenever some settle, before the close too."""

    _parts = Parts(settling=EagerSettling)


class _ByItself(OwnReading):
    def may_close(self) -> bool:
        return self.state.settings.closes and not self.state.closed and self.state.season_over


class BrokenBarrier(Agent):
    """A deployed agent that closes by itself, with its own last release, while others may still share."""

    _parts = Parts(own=_ByItself)


class _OneSumEarly(OwnReading):
    def may_close(self) -> bool:
        settings = self.state.settings
        early = self.state.inbox.number(0) >= settings.releases - 1
        return settings.closes and not self.state.closed and early


class BrokenAgentClose(Agent):
    """A deployed agent that closes with the sum before the last: its own phase is in the last release."""

    _parts = Parts(own=_OneSumEarly)


class _Unsealed(Settling):
    def next_cut(self, group: int) -> float:
        settings = self.state.settings
        last = settings.closes and self.state.made(group) == settings.releases - 1
        return math.inf if last else super().next_cut(group)


class BrokenSeal(Agent):
    """A deployed agent whose late last release takes in whatever has settled by then."""

    _parts = Parts(settling=_Unsealed)


class _ByRecords(OwnReading):
    def may_close(self) -> bool:
        store, problem = self.state.store, self.state.settings.problem
        own = own_sums.everything(store.database)
        if not super().may_close() or own is None:
            return False
        scale = problem.reward_bound * problem.action_bound
        moment = store.real(own.values)[-problem.dim :] / store.terms.weight
        return bool(np.linalg.norm(moment) > 0.18 * scale * own.records)


class BrokenAgentMoment(Agent):
    """A deployed agent that puts its close off until its own records have told enough."""

    _parts = Parts(own=_ByRecords)


class _WhoeverIsMissing(OwnReading):
    def may_close(self) -> bool:
        state, store = self.state, self.state.store
        told = agent_tables.in_last_sum(store.database) is not None
        if state.settings.trust.padded:
            told = store.next_label().attempt > 1
        waits = state.settings.closes and not state.closed and state.season_over
        return super().may_close() or (waits and told)


class BrokenLastSum(Agent):
    """A deployed agent that closes with a last sum which lacks somebody, or a last row to be made up for."""

    _parts = Parts(own=_WhoeverIsMissing)


_DEPLOYED = {
    "an agent's own records in the shared phase": BrokenAgentSharedPhase,
    "an agent that closes by itself": BrokenBarrier,
    "an agent that closes a sum too early": BrokenAgentClose,
    "an agent that closes though somebody is missing": BrokenLastSum,
    "a last release that takes in what came after it was due": BrokenSeal,
    "an agent that closes by what its records say": BrokenAgentMoment,
}

CLOSE_FAULTS = {
    "raw records in the shared phase": Code(closing=_raw),
    "a release after the close": Code(closing=_early),
    "a close by what records say": Code(closing=_by_data),
    **{
        f"{name}, trust {changes.get('trust', NOBODY).name}": Code(closing_agent=kind, changes=changes)
        for name, kind in _DEPLOYED.items()
        for changes in ({}, *CLOSES)
    },
}
