"""DELIBERATELY BROKEN, as `broken` is: mistakes in the close of own play. The audit must catch each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from feducb.audit.checks import Code
from feducb.models.play import JointPlay, Knowledge
from feducb.protocol.closing import own_estimator
from feducb.protocol.estimators import Estimator
from feducb.protocol.federation import Federation

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


CLOSE_FAULTS = {
    "raw records in the shared phase": Code(closing=_raw),
    "a release after the close": Code(closing=_early),
    "a close by what records say": Code(closing=_by_data),
}
