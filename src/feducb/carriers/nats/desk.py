"""What the sessions of an agent work with, with a controller or on a graph."""

from __future__ import annotations

from dataclasses import dataclass

from feducb.agent.mailbox import Mailbox
from feducb.carriers.nats.link_status import EngineStatus, Log, say_rarely
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.messages import GridSum
from feducb.protocol.roster import Roster, Signer

__all__ = ["Desk"]


@dataclass(frozen=True, slots=True)
class Desk:
    """What the sessions of an agent have in common."""

    settings: NatsSettings
    agent: str  # the own name
    roster: Roster
    signer: Signer  # in the own name
    status: EngineStatus
    mailbox: Mailbox
    log: Log  # where trouble is said

    def fail(self, event: str, error: Exception) -> None:
        """Count an error and say it."""
        count = self.status.fail(error)
        say_rarely(self.log, event, error=self.status.last_error, count=count)

    async def absorb(self, names: tuple[str, ...], total: GridSum, sealed: int = 0) -> None:
        """Hand a sum over; one that the agent does not want is counted."""
        try:
            new = await self.mailbox.absorb(total, agents=len(names), sealed=sealed)
        except ValueError as error:
            self.status.sum_refused = str(error)[:500]
            self.fail("sum_refused", error)
            return
        if new:
            self.status.sum_refused = ""
            self.status.absorbed += 1
            self.status.newest, self.status.members = (total.season, total.number), names
