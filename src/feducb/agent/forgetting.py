"""What an agent forgets by itself: content of events, their rows, and what is left of both in its log."""

from __future__ import annotations

import time

from feducb.agent.settling import CHUNK
from feducb.agent.state import State
from feducb.storage import agent_tables, events

__all__ = ["forget", "sweep"]

_SWEEP_SECONDS = 10.0
_CURVE_HOURS = 30 * 24  # for which the learning curve is kept
_LEAST_MEMORY = 60_000  # milliseconds for which an id is remembered after its window, at least


def forget(state: State, moment: int) -> None:
    """Take the content of retained events away once that is over, and their rows a window later."""
    retain = round(1000 * state.settings.keep_events)
    remember = max(round(1000 * state.settings.window), _LEAST_MEMORY)
    db = state.store.database
    if 0 < retain < remember and events.any_content(db, before=moment - retain):
        with state.writing() as db:
            events.strip(db, before=moment - retain, limit=4 * CHUNK)
    oldest = moment - max(retain, remember)
    if events.any_old(db, before=oldest):
        with state.writing() as db:
            events.forget(db, before=oldest, limit=4 * CHUNK)
    if state.unswept and time.monotonic() - state.swept_at > _SWEEP_SECONDS:
        sweep(state)


def sweep(state: State) -> None:
    """Cut the file's log off, which still holds content that the file itself has forgotten."""
    with state.writing() as db:
        agent_tables.forget_before(db, state.now() // 3_600_000 - _CURVE_HOURS)
    state.store.cut_log()
    state.swept_at, state.unswept = time.monotonic(), False
