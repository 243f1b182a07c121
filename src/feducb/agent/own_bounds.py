"""How an agent reads its own records, by themselves or with the others' sum, as its settings say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from feducb.models.joint import JointBound
from feducb.models.mixture import MixtureBound
from feducb.models.play import AlonePlay, JointPlay
from feducb.privacy.grid import rounding_radius
from feducb.protocol.closing import joint_rule
from feducb.protocol.estimators import alone_estimator
from feducb.types import Belief, ReleasedSum, Statistics

if TYPE_CHECKING:
    from feducb.agent.settings import AgentSettings

__all__ = ["alone_bound", "held_out_rule", "joint_for", "joint_with", "reads_own", "unheard"]


def joint_for(settings: AgentSettings, total: ReleasedSum) -> JointBound:
    """Under own play, how the sum at the close is read together with own records (`rule_for`)."""
    rule, variance = settings.estimator.rule, float(total.variance)
    if total.number != settings.releases or not settings.as_planned(total):
        shared = replace(settings.estimator, rule=replace(settings.rule, first=0))  # sums may have been read
        horizon = settings.history + settings.decisions
        rule = joint_rule(
            settings.federation, shared, range(settings.agents), horizon=horizon, variance=variance
        )
    assert isinstance(rule, JointPlay)
    return replace(rule.bound, variance=variance, rounding=rounding_radius(settings.problem.dim))


def joint_with(settings: AgentSettings, total: ReleasedSum, records: float, past: int) -> JointBound:
    """How others' sums, also of earlier seasons, are read with own records (`AgentSettings.joint_with`).

    Each season's noise is off Gaussian noise by a part of its own, and these add up at most.
    """
    variance, rounding = float(total.variance), rounding_radius(settings.problem.dim)
    shared = replace(settings.estimator, rule=replace(settings.rule, first=0))  # what was remembered was read
    rule = joint_rule(
        settings.federation,
        shared,
        range(settings.agents),
        horizon=settings.history + settings.decisions,
        variance=variance,
        records=records,
    )
    return replace(rule.bound, variance=variance, rounding=math.sqrt(1.0 + past) * rounding)


def reads_own(settings: AgentSettings, before: int, now: int) -> bool:
    """Whether own records are read anew now that there are so many, in the own phase: public."""
    rule = settings.estimator.rule
    assert isinstance(rule, JointPlay | AlonePlay)
    if isinstance(rule, JointPlay):
        rule = replace(rule, first=0)  # the close came, however many there were by then
    return any(map(rule.reads_at, range(before + 1, now + 1)))


def alone_bound(settings: AgentSettings) -> MixtureBound:
    """Under own play, how own records are read by themselves."""
    rule = settings.estimator.rule
    if isinstance(rule, JointPlay):
        return rule.bound.alone
    assert isinstance(rule, AlonePlay)
    assert isinstance(rule.bound, MixtureBound)
    return rule.bound


def unheard(settings: AgentSettings, own: Statistics) -> Belief:
    """Under own play, what own records tell where there is no sum of others to go with them."""
    rule = settings.estimator.rule
    if isinstance(rule, JointPlay):
        return rule.bound.unheard(own)
    return settings.alone.belief(own.gram, own.moment, np.zeros(()))


def held_out_rule(settings: AgentSettings) -> AlonePlay:
    """Under released play, how an agent alone plays that has the held out visitors and no others."""
    visits = max(1, round(settings.holdout * settings.decisions))
    rule = alone_estimator(settings.federation, visits, alpha=settings.alpha).rule
    assert isinstance(rule, AlonePlay)
    return rule
