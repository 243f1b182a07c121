"""Under own play nothing that leaves depends on raw records but by their release: sound and leaking closes.

That each planted fault is seen by its own check alone is in `test_audit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from feducb.agent import Agent, AgentSettings
from feducb.agent.durable import Parts
from feducb.agent.inbox import Inbox
from feducb.agent.own_reading import OwnReading
from feducb.agent.settling import Settling
from feducb.agent.state import State
from feducb.audit import own_play
from feducb.audit.broken_close import (
    CLOSE_FAULTS,
    BrokenBarrier,
    BrokenLastSum,
    BrokenSharedPhase,
    EagerSettling,
    _played_by,
)
from feducb.audit.checks import CLOSES
from feducb.audit.findings import Check
from feducb.audit.own_agents import check_agent_close
from feducb.audit.own_play import Closing, check_after_close, check_close, check_shared_phase
from feducb.audit.own_season import Close, play_season, settings_of
from feducb.config import Budget, Problem
from feducb.models.play import JointPlay, Knowledge
from feducb.privacy.terms import Terms
from feducb.protocol.closing import own_estimator
from feducb.protocol.estimators import Estimator
from feducb.protocol.federation import Federation
from feducb.protocol.messages import GridSum
from feducb.protocol.schedules import Explicit
from feducb.storage import events

TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=8.0, delta=1e-6), releases=3)


def test_what_is_shipped_closes_at_a_public_round_and_is_not_idle() -> None:
    plain, changed, close = own_play._traces(own_estimator, 1e-6)
    assert plain.rounds == (10, 20, 30)
    assert close == 30
    assert len(changed) == 20
    for check in (check_close, check_shared_phase, check_after_close):
        assert check(own_estimator, TERMS).passed


def test_what_left_differs_only_from_a_record_s_release_on() -> None:
    plain, changed, _ = own_play._traces(own_estimator, 1e-6)
    for (agent, at), other in changed.items():
        moved = {who for who in plain.left if plain.left[who] != other.left[who]}
        assert ((agent, at) in moved) == (at in plain.rounds)
        assert all(when >= at for _, when in moved)
        assert bool(moved) == (at <= 30)


@pytest.mark.parametrize(
    ("name", "check", "told"),
    [
        (
            "raw records in the shared phase",
            check_shared_phase,
            "8 of 20 replaced records changed a decision",
        ),
        ("a release after the close", check_after_close, "4 of 10 replaced records left their agent"),
        ("a close by what records say", check_close, "2 of 20 replaced records moved a release round"),
    ],
)
def test_a_planted_fault_is_told_by_its_records(
    name: str, check: Callable[[Closing, Terms], Check], told: str
) -> None:
    closing = CLOSE_FAULTS[name].closing
    assert closing is not None
    found = check(closing, TERMS)
    assert not found.passed
    assert found.detail.startswith(told)


def _released_to_the_end(federation: Federation, horizon: int, team: Sequence[int]) -> Estimator:
    """Never opens its own phase, so that nothing is tested after the close."""
    shared = own_estimator(federation, horizon, team)
    assert isinstance(shared.rule, JointPlay)
    return replace(shared, rule=replace(shared.rule, last=len(shared.release_rounds) + 1))


def test_a_close_after_which_nobody_looks_at_own_records_makes_the_check_idle() -> None:
    found = check_after_close(_released_to_the_end, TERMS)
    assert not found.passed
    assert found.detail.startswith("0 of 6")
    assert "; 0 changed" in found.detail


def test_the_close_by_data_is_one_that_a_record_moves() -> None:
    closing: Closing | None = CLOSE_FAULTS["a close by what records say"].closing
    assert closing is not None
    plain, changed, _ = own_play._traces(closing, 1e-6)
    assert len(plain.rounds) == 3
    assert plain.rounds[:2] == (10, 20)
    assert {other.rounds[-1] for other in changed.values()} > {plain.rounds[-1]}


class _RawAtTheEnd(BrokenSharedPhase):
    """Looks at raw records in the last few rounds before the close alone."""

    def _read(self, knowledge: Knowledge) -> Knowledge:
        late = knowledge.sums is not None and knowledge.sums.count > 0.8 * self.first
        return super()._read(knowledge) if late or knowledge.others is not None else knowledge


def _one_more(federation: Federation, horizon: int, team: Sequence[int]) -> Estimator:
    """The last sum closes, and yet another release follows."""
    shared = own_estimator(federation, horizon, team)
    longer = own_estimator(replace(federation, schedule=Explicit((10, 20, 30, 45))), horizon, team)
    assert isinstance(shared.rule, JointPlay)
    return replace(longer, rule=shared.rule)


def test_small_variations_of_a_fault_do_not_slip_through() -> None:
    def late(federation: Federation, horizon: int, team: Sequence[int]) -> Estimator:
        return _played_by(_RawAtTheEnd, own_estimator(federation, horizon, team))

    assert not check_shared_phase(late, TERMS).passed
    assert not check_after_close(_one_more, TERMS).passed


class _EagerAtTheEnd(EagerSettling):
    def settle(self, group: int, rows: Sequence[events.Due]) -> None:
        if self.state.season_over:
            super().settle(group, rows)
        else:
            Settling.settle(self, group, rows)


class _WhileWaiting(Agent):
    """Keeps to released sums until its own last release, and not until all have closed."""

    _parts = Parts(settling=_EagerAtTheEnd)


class _AnySum(State):
    class _Inbox(Inbox):
        def admit(
            self, total: GridSum, settings: AgentSettings, season: int, agents: int | None = None
        ) -> bool:
            return total.number > self.number(total.group)

    def reload(self) -> None:
        self.inbox = self._Inbox()
        super().reload()


class _AnyLastSum(Agent):
    """Closes with a last sum over however few."""

    _parts = Parts(state=_AnySum)


class _ASecondMore(Settling):
    def next_cut(self, group: int) -> float:
        last = self.state.made(group) == self.state.settings.releases - 1
        return super().next_cut(group) + 1000 * last


class _LastBatchStaysOpen(Agent):
    """What settles late is added to the last release, if that is made late, one second of it alone."""

    _parts = Parts(settling=_ASecondMore)


class _SeesTheNewest(Settling):
    def settle(self, group: int, rows: Sequence[events.Due]) -> None:
        assert isinstance(self.own, _ASecondLate)
        self.own.newest = rows[-1].reward
        super().settle(group, rows)


class _ASecondLate(OwnReading):
    newest: float | None = None

    def may_close(self) -> bool:
        late = self.state.now() > 1000 * self.state.started_at + 27_500
        return super().may_close() and ((self.newest or 0.0) >= 0.0 or late)


class _PutsItOff(Agent):
    """Closes a second late if what settled last was a bad one."""

    _parts = Parts(own=_ASecondLate, settling=_SeesTheNewest)


class _ByNumber(OwnReading):
    def may_close(self) -> bool:
        state = self.state
        return not state.closed and state.inbox.number(0) >= state.settings.releases


class _WhateverIsInIt(Agent):
    """Goes by the number of a trusted controller's sum, and not by its word that all have sealed theirs."""

    _parts = Parts(own=_ByNumber)


NOBODY, CONTROLLER, KEEPERS = TRUSTS = [replace(TERMS, **changes) for changes in ({}, *CLOSES)]
by_trust = pytest.mark.parametrize("terms", TRUSTS, ids=lambda terms: terms.trust.name)


@pytest.mark.parametrize(
    ("kind", "terms"),
    [
        *((kind, terms) for kind in (_WhileWaiting, _LastBatchStaysOpen, _PutsItOff) for terms in TRUSTS),
        (_AnyLastSum, NOBODY),
        (_WhateverIsInIt, CONTROLLER),
    ],
)
def test_small_variations_of_a_fault_in_a_deployed_agent_do_not_slip_through(
    kind: type[Agent], terms: Terms
) -> None:
    assert not check_agent_close(kind, terms).passed


@by_trust
def test_whoever_closes_while_a_last_batch_is_open_is_named(terms: Terms) -> None:
    """The last agent seals its last batch after the others; where the last sum lacks it, long after."""
    settings = settings_of(terms)
    for kind, lacks, hasty in (
        (Agent, False, []),
        (Agent, True, []),
        (BrokenBarrier, False, ["agent-1", "agent-0"]),
        (BrokenLastSum, True, ["agent-0", "agent-1"]),
    ):
        trace = play_season(kind, Close(settings, lacks), changed=None)
        assert trace.hasty == hasty
        assert trace.sealed


@by_trust
def test_deployed_agents_pass_whatever_the_terms_and_are_not_idle(terms: Terms) -> None:
    others = replace(terms, problem=Problem(dim=7), budget=Budget(epsilon=0.5, delta=1e-9))
    found = check_agent_close(Agent, others)
    assert found.passed, found
    assert "8 of 8 changed decisions" in found.detail


@by_trust
def test_all_close_at_once_or_nobody_does(terms: Terms) -> None:
    """A sum that lacks an agent is final, unless its rows are made up for."""
    settings = settings_of(terms)
    whole, short = (play_season(Agent, Close(settings, lacks), changed=None) for lacks in (False, True))
    assert set(whole.closed.values()) == {27}
    assert set(short.closed.values()) == ({32} if terms is KEEPERS else set())
    assert len(whole.closed) == 3
    assert whole.sealed
    assert short.sealed
