"""Sums that reach an agent: admitted or refused, written down, and acted on from then on."""

from __future__ import annotations

from sqlite3 import Connection

from feducb.agent import own_phase
from feducb.agent.inbox import Inbox
from feducb.agent.learnt import MOST_POINTS
from feducb.agent.own_reading import OwnReading
from feducb.agent.remembered import fading_of
from feducb.agent.season_roll import Renewal
from feducb.agent.state import State
from feducb.agent.warning import CHANGED, PARAMETER_BOUND, contradicts
from feducb.errors import FeducbError, RefusedError
from feducb.protocol import messages
from feducb.protocol.admission import require_definite
from feducb.protocol.messages import GridSum
from feducb.storage import agent_tables

__all__ = ["absorb", "hear", "recall"]


def absorb(state: State, own: OwnReading, total: GridSum, *, agents: int | None, sealed: int) -> bool:
    """Act on a sum from now on, if it is newer than the one before (`Agent.absorb`)."""
    settings, season = state.settings, state.store.season
    try:
        if settings.trust.padded:
            raise RefusedError("malformed", "a sum without proof, expected a row that is over")
        if not settings.trust.leaves:
            raise RefusedError("malformed", "a sum, expected none: this agent is alone (trust self)")
        new = state.inbox.admit(total, settings, season, agents)
    except ValueError:
        with state.writing() as db:
            state.counters.add("refused_sums")
            own_phase.note_refused(db, settings, season, total)
        state.misheard = total.season == season
        raise
    if state.closed:
        return False  # the sum at the close stays the one that is read
    told_again = bool(sealed) and total.number == state.inbox.number(0)
    if new or told_again:  # a carrier that did not say before who was done may do so now
        with state.writing() as db:
            if new:
                _act_on(state, db, total)
            own_phase.note_sealed(db, settings, total, sealed)
            own.close_if_over(db)
    return new


def recall(state: State, renewal: Renewal | None, total: GridSum, agents: int | None) -> bool:
    """Remember a sum of a season before the agent's first, as if it had been there; whether it is new.

    What the others promised in it follows from the roster of that season and the own file. Where that does
    not go with the sum, or sums before the last would be needed too (records fade), it is left.
    """
    if renewal is None or state.settings.start is None or not state.settings.trust.leaves:
        return False
    try:
        then, _ = renewal(total.season)
        Inbox().admit(total, then, total.season, agents)
        if fading_of(then, state.settings.drift) is not None:
            return False
        starts = then.common_calendar.starts(total.season)
    except (FeducbError, OSError, ValueError):
        return False
    payload, terms = messages.encode(total), then.terms.to_json()
    told = agent_tables.RememberedSum(
        total.season, total.group, total.number, payload, then.to_json(), starts, terms
    )
    with state.writing() as db:
        new = agent_tables.tell_sum(db, told)
    if new:
        state.reload()
    return new


def hear(state: State, own: OwnReading, data: bytes) -> bool:
    """Take in what is said about secure sums; whether it is new (`Agent.hear`)."""
    try:
        with state.writing() as db:
            new, told = state.store.hear(db, data)
            if told is not None:
                _act_on_rows(state, db, messages.decode(told))
            own.close_if_over(db)
    except RefusedError:
        state.misheard = True
        raise
    return new


def _act_on_rows(state: State, db: Connection, total: GridSum) -> None:
    """Act on what rows tell, unless it cannot be true: then it is counted, and the next may mend it."""
    try:
        require_definite(total)
        state.inbox.admit(total, state.settings, state.store.season)
    except ValueError:
        state.counters.add("refused_sums")
        return
    _act_on(state, db, total)


def _act_on(state: State, db: Connection, total: GridSum) -> None:
    if contradicts(total.read(), state.settings):
        agent_tables.add_warning(db, PARAMETER_BOUND)
    state.inbox.put(db, total, keep=state.memory.fading is not None)
    state.counters.add("sums")
    state.learn(total.group)
    if state.memory.disagrees(total.group, state.inbox.read(total.group)):
        agent_tables.add_warning(db, CHANGED)
    learnt = state.learnt(total.group)
    if learnt.belief is not None:
        agent_tables.add_learnt(
            db,
            group=total.group,
            number=total.number,
            read_at=state.now() / 1000.0,
            body=learnt.point(),
            most=MOST_POINTS,
        )
