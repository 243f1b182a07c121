"""When an agent reads its own records: at the close of own play, and again as more of them settle."""

from __future__ import annotations

from sqlite3 import Connection

from feducb.agent import own_phase
from feducb.agent.state import State
from feducb.storage import agent_tables

__all__ = ["OwnReading"]


class OwnReading:
    """Reads own records once that is allowed (`own_phase`), and decides by them from then on."""

    def __init__(self, state: State) -> None:
        self.state = state

    def may_close(self) -> bool:
        """Whether everybody's last batch is sealed, and it has not closed yet."""
        state, settings = self.state, self.state.settings
        if not settings.closes or not settings.trust.leaves or state.closed:
            return False
        passed = state.now() >= 1000 * (state.started_at + settings.release_times[-1])
        newest = state.inbox.number(0)
        return passed and own_phase.is_over(state.store, settings, newest, shares=not state.waits)

    def close_if_over(self, db: Connection) -> None:
        """Go on with own records, within a commit, once everybody's last batch is sealed."""
        if self.may_close():
            self.read_own(db)

    def read_own(self, db: Connection) -> None:
        """Read all own records there are, within a commit."""
        state = self.state
        own_phase.read_now(db, state.store, state.now())
        state.counters.add("own_readings")
        known = state.own_belief()
        assert known is not None  # it was just read
        state.chooser.know(0, known[0])
        agent_tables.mark_hearing(db, known[1])
        state.learn_alone()

    def read_again(self, db: Connection) -> None:
        """Read own records, within a commit, if that is allowed by now and enough of them are new."""
        settings = self.state.settings
        if settings.closes and own_phase.read_again(db, settings):
            self.read_own(db)
        elif own_phase.read_held_out(db, settings):
            self.state.learn_alone()
