"""What one record may not change under own play: when all close, what was decided until then, what leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from feducb.audit.findings import Check
from feducb.audit.invariance import OTHER, STEADY_WORLD, ReplacedRecord, Trace, watch
from feducb.config import Budget
from feducb.models.play import JointPlay
from feducb.privacy.terms import Terms
from feducb.protocol.estimators import Estimator
from feducb.protocol.federation import Federation, Tuning
from feducb.protocol.schedules import Explicit
from feducb.simulation.plan import Team, make_plan
from feducb.simulation.reference import run_block
from feducb.worlds.world import Environment

__all__ = ["Closing", "check_after_close", "check_close", "check_shared_phase"]

Closing = Callable[[Federation, int, Sequence[int]], Estimator]
"""How a team shares and closes, as `own_estimator` says it."""

_AGENTS, _HORIZON = (0, 1), 60
_SCHEDULE = Explicit((10, 20, 30))
_EPSILON = 200.0  # large, and every sum is read, so that records show before the close too: no check is idle
_PLACES = [(agent, at) for agent in _AGENTS for at in (1, 5, 10, 11, 20, 21, 30, 31, 45, 59)]


def check_close(closing: Closing, terms: Terms) -> Check:
    """Replace one record at a time: all release rounds stay, of which the last is the close."""
    plain, changed, _ = _traces(closing, terms.budget.delta)
    moved = [place for place, other in changed.items() if other.rounds != plain.rounds]
    return Check(
        "the close",
        not moved and bool(plain.rounds),
        f"{len(moved)} of {len(changed)} replaced records moved a release round",
    )


def check_shared_phase(closing: Closing, terms: Terms) -> Check:
    """Replace one record at a time: up to the close no other decision changes before its release."""
    plain, changed, close = _traces(closing, terms.budget.delta)
    moved, counted = [], 0
    for (agent, at), other in changed.items():
        same = plain.decided == other.decided
        same[agent, at - 1] = True  # the replaced visitor's own decision is hers
        release = next((one for one in plain.rounds if one >= at), close)
        counted += not same[:, release:close].all()
        moved += [(agent, at)] if not same[:, : min(release, close)].all() else []
    return Check(
        "shared phase",
        not moved and counted > 0,
        f"{len(moved)} of {len(changed)} replaced records changed a decision of the shared phase before "
        f"their release; {counted} changed one after it, as they may",
    )


def check_after_close(closing: Closing, terms: Terms) -> Check:
    """Replace one record at a time after the close: nothing that leaves changes, nor what others decide."""
    plain, changed, close = _traces(closing, terms.budget.delta)
    later = {place: other for place, other in changed.items() if place[1] > close}
    moved, counted = [], 0
    for (agent, at), other in later.items():
        same = plain.decided == other.decided
        counted += not same[agent, at:].all()
        elsewhere = [one for one in _AGENTS if one != agent]
        moved += [(agent, at)] if plain.left != other.left or not same[elsewhere].all() else []
    return Check(
        "after the close",
        not moved and counted > 0,
        f"{len(moved)} of {len(later)} replaced records left their agent or showed at another; {counted} "
        "changed what their own agent decided, as they may",
    )


@lru_cache(maxsize=1)
def _traces(closing: Closing, delta: float) -> tuple[Trace, dict[tuple[int, int], Trace], int]:
    """With every record as it is; by agent and round, with one replaced; and when agents close."""
    federation = Federation(
        problem=STEADY_WORLD.problem,
        agents=len(_AGENTS),
        budget=Budget(epsilon=_EPSILON, delta=delta),
        schedule=_SCHEDULE,
        play="own",
        tuning=Tuning(patience=0.0),
    )
    estimator = closing(federation, _HORIZON, _AGENTS)
    assert isinstance(estimator.rule, JointPlay)

    def trace(world: Environment) -> Trace:
        plan = make_plan(federation, world, horizon=_HORIZON, runs=1, seed=0)
        plan = replace(plan, teams=(Team(_AGENTS, (estimator,)),))
        decided, left, played = watch(lambda look: run_block(plan, range(1), observer=look))
        return Trace(decided, left, played.release_rounds[0], None)

    changed = {place: trace(ReplacedRecord(STEADY_WORLD, *place, *OTHER)) for place in _PLACES}
    return trace(STEADY_WORLD), changed, estimator.rule.first
