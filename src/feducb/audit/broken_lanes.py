"""DELIBERATELY BROKEN, as `broken` is: raw records that leave their lane. The audit must catch each."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection

from feducb.agent import Agent, own_phase
from feducb.agent.durable import Parts
from feducb.agent.own_reading import OwnReading
from feducb.agent.season_opening import SeasonOpening
from feducb.agent.settling import Settling
from feducb.audit.checks import Code
from feducb.storage import agent_tables, events, own_sums

__all__ = ["LANE_FAULTS"]


class _NoLanes(Settling):
    def take_in(self, db: Connection, group: int, rows: Sequence[events.Due]) -> int | None:
        return super().take_in(db, group, [row._replace(lane=None) for row in rows])


class BrokenHoldout(Agent):
    """A deployed agent that releases records of visitors who were held out, like any others."""

    _parts = Parts(settling=_NoLanes)


class _ForEverybody(OwnReading):
    def read_again(self, db: Connection) -> None:
        super().read_again(db)
        chooser = self.state.chooser
        if chooser.alone is not None:
            chooser.know(0, chooser.alone.belief)


class BrokenLane(Agent):
    """A deployed agent that decides for everybody by what it learnt from visitors who were held out."""

    _parts = Parts(own=_ForEverybody)


class _ReadAtOnce(SeasonOpening):
    def begin_own(self, db: Connection, kept: agent_tables.KeptSettings | None) -> None:
        super().begin_own(db, kept)
        state = self.state
        if state.settings.closes and own_sums.count(db):
            own_phase.read_now(db, state.store, state.now())


class BrokenJoining(Agent):
    """A deployed agent that goes on by what it learnt alone once it shares."""

    _parts = Parts(opening=_ReadAtOnce)


LANE_FAULTS = {
    "a release with records of who was held out": Code(lanes=BrokenHoldout),
    "decisions by records of who was held out": Code(lanes=BrokenLane),
    "decisions by what was learnt alone, in the shared phase": Code(lanes=BrokenJoining),
}
