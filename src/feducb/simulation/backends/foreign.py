"""What compiled kernels were written for, by exact type: a subclass may play otherwise unseen.

Mechanisms are not among them: all noise goes through the privatizer, whichever mechanism it holds.
"""

from __future__ import annotations

from collections.abc import Iterator

from feducb.config import Problem
from feducb.models.confidence import PaperBound
from feducb.models.linear import Linear
from feducb.models.play import AlonePlay, JointPlay, OwnDataPlay, ReleasedPlay, Trigger, UniformPlay
from feducb.policies import Optimistic, Tempered
from feducb.privacy.privatizer import Privatizer
from feducb.simulation.plan import Plan
from feducb.worlds.synthetic import PaperEnvironment

__all__ = ["foreign"]

_COMPILED: dict[str, tuple[type, ...]] = {
    "environment": (PaperEnvironment,),
    "problem": (Problem,),
    "model": (Linear,),
    "policy": (Optimistic, Tempered),
    "rule": (UniformPlay, ReleasedPlay, AlonePlay, JointPlay, OwnDataPlay),
    "policy on own data": (Optimistic,),
    "bound on own data": (PaperBound,),
    "trigger": (Trigger,),
    "privatizer": (Privatizer,),
}


def foreign(plan: Plan) -> str | None:
    """The first part of a plan that kernels were not written for, in words; None if there is none."""
    if not plan.seasons.plain:
        return "several seasons, and fading, are not compiled"
    for what, part in _parts(plan):
        if type(part) not in _COMPILED[what]:
            known = ", ".join(one.__name__ for one in _COMPILED[what])
            return f"the {what} {type(part).__name__} is not compiled, only {known}"
    assert isinstance(plan.environment, PaperEnvironment)
    if plan.environment.heterogeneity and isinstance(plan.estimators[0].rule, OwnDataPlay):
        return "own-data play of agents that differ is not compiled"
    if plan.problem.reward_centre:
        return "a reward_centre other than 0 is not compiled"
    return None


def _parts(plan: Plan) -> Iterator[tuple[str, object]]:
    """Everything that decides how a plan is played, the whole before its parts."""
    yield "environment", plan.environment
    yield "problem", plan.problem
    yield "model", plan.federation.model
    yield "policy", plan.federation.policy
    for estimator in plan.estimators:
        rule, privatizer = estimator.rule, estimator.privatizer
        yield "rule", rule
        if isinstance(rule, ReleasedPlay | AlonePlay | JointPlay | OwnDataPlay):
            yield "problem", rule.bound.problem
        if isinstance(rule, OwnDataPlay):  # other bounds are asked for beliefs, whatever they are
            yield "policy on own data", plan.federation.policy
            yield "bound on own data", rule.bound
            if rule.trigger is not None:
                yield "trigger", rule.trigger
        if privatizer is not None:
            yield "privatizer", privatizer
            yield "problem", privatizer.problem
            yield "model", privatizer.model
