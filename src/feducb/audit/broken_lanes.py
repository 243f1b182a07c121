"""DELIBERATELY BROKEN, as `broken` is: raw records that leave their lane. The audit must catch each."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection

from feducb.agent import Agent, own_phase
from feducb.audit.checks import Code
from feducb.storage import agent_tables, events, own_sums

__all__ = ["LANE_FAULTS"]


class BrokenHoldout(Agent):
    """A deployed agent that releases records of visitors who were held out, like any others."""

    def _take_in(self, db: Connection, group: int, rows: Sequence[events.Due]) -> int | None:
        return super()._take_in(db, group, [row._replace(lane=None) for row in rows])


class BrokenLane(Agent):
    """A deployed agent that decides for everybody by what it learnt from visitors who were held out."""

    def read_own_again(self, db: Connection) -> None:
        super().read_own_again(db)
        if self._chooser.alone is not None:
            self._chooser.know(0, self._chooser.alone.belief)


class BrokenJoining(Agent):
    """A deployed agent that goes on by what it learnt alone once it shares."""

    def _begin_own(self, db: Connection, kept: agent_tables.KeptSettings | None) -> None:
        super()._begin_own(db, kept)
        if self.settings.closes and own_sums.count(db):
            own_phase.read_now(db, self.store, self._now())


LANE_FAULTS = {
    "a release with records of who was held out": Code(lanes=BrokenHoldout),
    "decisions by records of who was held out": Code(lanes=BrokenLane),
    "decisions by what was learnt alone, in the shared phase": Code(lanes=BrokenJoining),
}
