"""How an agent reads sums, and how sure it may be of them: what follows from its settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from feducb.agent.release_plan import waits
from feducb.models.mixture import MixtureBound
from feducb.models.play import JointPlay, ReleasedPlay
from feducb.privacy.grid import rounding_radius
from feducb.privacy.mechanisms import Mechanism
from feducb.protocol.closing import closing_estimator, joint_rule, shares_of
from feducb.protocol.estimators import Estimator, alone_estimator, calibrated_estimator
from feducb.protocol.federation import EVERYTHING
from feducb.types import ReleasedSum

if TYPE_CHECKING:
    from feducb.agent.settings import AgentSettings

__all__ = ["FALSE_ALARM", "as_planned", "estimator_of", "rule_for", "rule_of", "share_of_alpha", "watch_of"]

FALSE_ALARM = 0.01  # chance, over a season, of warning of a parameter bound that holds
_AS_PLANNED = 1.01  # a sum has at most so many times the planned variance: the grid adds 0.2 %


def estimator_of(settings: AgentSettings) -> Estimator:
    """How sums are read, and which mechanism goes with it (`AgentSettings.estimator`)."""
    if not settings.trust.leaves:
        return alone_estimator(settings.federation, settings.decisions, alpha=settings.alpha)
    expected = (
        round(settings.decisions * (due - waits(settings)) / settings.season)
        for due in settings.release_times
    )
    rounds = tuple(max(1, (settings.history + one) // settings.groups) for one in expected)
    if settings.play == "own":
        promised = _promised_mechanism(settings)
        horizon, team = settings.history + settings.decisions, range(settings.agents)
        made = closing_estimator(settings.federation, rounds, team, horizon=horizon, promised=promised)
        shared = shared_rule(made)
        if shared.first < len(rounds):
            return made
        # In a simulation the last sum is there at the close. Here it may be in use before that, until a
        # controller says that it is sealed: then the shared phase has read it, with its share of α.
        was_read = replace(made, rule=replace(shared, first=0))
        rule = joint_rule(settings.federation, was_read, team, horizon=horizon)
        return replace(made, rule=replace(rule, shared=shared))
    return calibrated_estimator(
        settings.federation,
        rounds,
        settings.team,
        alpha=settings.share_of_alpha(),
        promised=_promised_mechanism(settings),
    )


def _promised_mechanism(settings: AgentSettings) -> Mechanism | None:
    """That of the open season; None if there is none, or if it is not the one that is asked for."""
    if settings.promised is None or settings.promised.releases != settings.releases:
        return None
    mechanism = settings.promised.factors
    return mechanism if settings.mechanism in ("auto", mechanism.name) else None


def rule_of(settings: AgentSettings) -> ReleasedPlay:
    """How the agent plays: as in a simulation, with room for what the grid adds to noise."""
    rule = shared_rule(settings.estimator)
    return replace(rule, bound=replace(_mixture(rule), rounding=rounding_radius(settings.problem.dim)))


def shared_rule(estimator: Estimator) -> ReleasedPlay:
    """How sums are read: under own play until the close."""
    rule = estimator.rule.shared if isinstance(estimator.rule, JointPlay) else estimator.rule
    assert isinstance(rule, ReleasedPlay)
    return rule


def share_of_alpha(settings: AgentSettings, past: int = 0) -> float:
    """α of one estimator's readings, beside those of earlier seasons (`AgentSettings.share_of_alpha`)."""
    alpha = settings.alpha / (
        settings.groups * settings.cliques * float(settings.sets_of_agents) ** (1 + past)
    )
    return alpha * shares_of(settings.federation)[0] if settings.play == "own" else alpha


def rule_for(settings: AgentSettings, total: ReleasedSum) -> ReleasedPlay:
    """How a sum is read, by the noise that it has (`AgentSettings.rule_for`)."""
    if settings.as_planned(total):
        return settings.rule
    alpha = EVERYTHING.shares[0] * settings.share_of_alpha()
    threshold = math.log(max(1, settings.releases - settings.rule.first + 1) / alpha)
    return replace(settings.rule, bound=replace(_mixture(settings.rule), log_threshold=threshold))


def as_planned(settings: AgentSettings, total: ReleasedSum) -> bool:
    """Whether a sum has the noise that its threshold was simulated with."""
    assert settings.estimator.privatizer is not None
    privatizer = settings.estimator.privatizer
    scale = float(np.linalg.norm(privatizer.noise_scale))
    planned = (scale * privatizer.mechanism.error(total.number)) ** 2
    return planned <= float(total.variance) <= _AS_PLANNED * planned


def watch_of(settings: AgentSettings) -> MixtureBound:
    """The confidence set, empty with a chance of at most `FALSE_ALARM` a season (`AgentSettings.watch`)."""
    bound, read = _mixture(settings.rule), max(1, settings.releases - settings.rule.first + 1)
    alpha = FALSE_ALARM / settings.groups / settings.sets_of_agents
    both, gram = (share * alpha for share in EVERYTHING.shares)
    gram_bound = settings.terms.model.gram_radius(settings.problem.dim, read, gram)
    return replace(bound, log_threshold=math.log(read / both), gram_radius=gram_bound)


def _mixture(rule: ReleasedPlay) -> MixtureBound:
    """The confidence set of a rule, which of the models that are deployed is always this one."""
    assert isinstance(rule.bound, MixtureBound)
    return rule.bound
