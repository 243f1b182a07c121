"""What becomes of a decision that was made: its reward, a discard, or a default shown in its place."""

from __future__ import annotations

from sqlite3 import Connection

from feducb.agent.decision import Outcome
from feducb.agent.ids import kept_tag, key_of, new_tag, numbers_of
from feducb.agent.requests import require_id, require_reward
from feducb.agent.state import State
from feducb.errors import ConfigurationError
from feducb.storage import events

__all__ = ["discard", "reward", "shown_without"]


def reward(state: State, id: str, value: float) -> Outcome:
    """Write a reward down, the first that comes within its window (`Agent.reward`)."""
    require_id(id)
    try:
        worth = require_reward(value, state.settings.problem)
    except ConfigurationError:
        if isinstance(value, float | int) and not isinstance(value, bool):
            with state.writing() as db:
                known = _find(state, db, id)
                if known is not None and _outcome(state, known) is Outcome.RECORDED:
                    events.mark_refused(db, known.number)
        raise
    with state.writing() as db:
        outcome = _outcome(state, known := _find(state, db, id))
        if outcome is Outcome.RECORDED:
            assert known is not None
            if known.reward is None:
                events.set_reward(db, known.number, worth)
                state.counters.add("rewards")
                state.curve.rewarded(state.now())
                return outcome
            outcome = Outcome.REPEATED
        state.counters.add(f"{outcome}_rewards")
    return outcome


def discard(state: State, id: str) -> Outcome:
    """Take a decision back while its window is open (`Agent.discard`)."""
    require_id(id)
    with state.writing() as db:
        outcome = _outcome(state, known := _find(state, db, id))
        if outcome is Outcome.RECORDED:
            assert known is not None
            events.discard(db, [known.number])
            state.counters.add("discarded")
            return Outcome.DISCARDED
    return Outcome.REPEATED if outcome is Outcome.DISCARDED else outcome


def shown_without(state: State, id: str) -> Outcome:
    """Discard a decision in whose place a default was shown, or take its id (`Agent.shown_without`)."""
    require_id(id)
    with state.writing() as db:
        known = _find(state, db, id)
        outcome = _outcome(state, known)
        if outcome is Outcome.DISCARDED:
            return Outcome.REPEATED
        if outcome is Outcome.LATE:
            state.counters.add("late_fallbacks")
            return outcome
        if known is None:
            own = key_of(state.id_key, require_id(id, new=True))
            events.insert_discarded(
                db,
                number=state.counters.total("decisions") + 1,
                tag=kept_tag(state.id_key, new_tag()),
                id=own,
                closes_at=state.now() + round(1000 * state.settings.window),
            )
            state.counters.add("decisions")
        else:
            events.discard(db, [known.number])
        state.counters.add("discarded")
        state.counters.add("fallbacks")
    return Outcome.DISCARDED


def _find(state: State, db: Connection, id: str) -> events.Row | None:
    """By the id that was made up here, or by the application's own."""
    for number, tag in numbers_of(state.id_key, id):
        if (row := events.find_numbered(db, number, tag)) is not None:
            return row
    return events.find(db, key_of(state.id_key, id))


def _outcome(state: State, known: events.Row | None) -> Outcome:
    if known is None:
        return Outcome.UNKNOWN
    if known.state == events.DISCARDED:
        return Outcome.DISCARDED
    # By the clock, not by whether it was settled yet: what enters must not depend on how busy we are.
    late = known.state == events.TAKEN or state.now() >= known.closes_at
    return Outcome.LATE if late else Outcome.RECORDED
