"""What the sessions of an agent work with, with a controller or on a graph."""

from __future__ import annotations

from dataclasses import dataclass

from feducb.agent.mailbox import Mailbox
from feducb.carriers.nats.link_status import EngineStatus, Log, say_nothing, worth_saying
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.messages import GridSum
from feducb.protocol.roster import Roster, Signer

__all__ = ["Desk"]


@dataclass(frozen=True, slots=True)
class Desk:
    """What the sessions of an agent work with.

    Attributes:
        settings: how the federation is reached.
        agent: the own name.
        roster: everybody.
        signer: signs in the own name.
        status: what has been done.
        mailbox: the agent's.
        log: where trouble is said.
    """

    settings: NatsSettings
    agent: str
    roster: Roster
    signer: Signer
    status: EngineStatus
    mailbox: Mailbox
    log: Log = say_nothing

    def fail(self, event: str, error: Exception) -> None:
        """Count an error and say it, the 1st, 2nd, 4th, … time."""
        count = self.status.fail(error)
        if worth_saying(count):
            self.log(event, error=self.status.last_error, count=count)

    async def absorb(self, names: tuple[str, ...], total: GridSum) -> None:
        """Hand a sum over; one that the agent does not want is counted."""
        try:
            new = await self.mailbox.absorb(total, agents=len(names))
        except ValueError as error:
            self.status.sum_refused = str(error)[:500]
            self.fail("sum_refused", error)
            return
        if new:
            self.status.sum_refused = ""
            self.status.absorbed += 1
            self.status.newest, self.status.members = (total.season, total.number), names
