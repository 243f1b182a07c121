"""The running agent's outbox and inbox, for the engine in the same process."""

from __future__ import annotations

import asyncio

from feducb.protocol.messages import GridSum
from feducb.protocol.parcels import Parcel
from feducb.service.commits import GroupCommit

__all__ = ["ServiceMailbox"]


class ServiceMailbox:
    """`feducb.agent.mailbox.Mailbox` over the service's agent."""

    def __init__(self, commit: GroupCommit) -> None:
        self._commit = commit
        self._mail = asyncio.Event()
        self._mail.set()  # what an earlier life left
        self.begun = asyncio.Event()  # another season was opened

    async def outbox(self) -> list[Parcel]:
        """What waits to be sent."""
        self._mail.clear()
        return await self._commit(lambda agent: agent.outbox())

    async def mark_sent(self, item: Parcel) -> None:
        """Note on disk that a parcel has arrived."""
        await self._commit.apart(lambda agent: agent.mark_sent(item))

    async def absorb(self, total: GridSum, *, agents: int | None = None, sealed: int = 0) -> bool:
        """Take a sum in."""
        return await self._commit(lambda agent: agent.absorb(total, agents=agents, sealed=sealed))

    async def hear(self, data: bytes) -> bool:
        """Take in what is said about secure sums."""
        return await self._commit(lambda agent: agent.hear(data))

    async def place(self) -> bytes:
        """The newest row that is over."""
        return await self._commit(lambda agent: agent.place())

    async def season(self) -> int:
        """The open one."""
        return await self._commit(lambda agent: agent.store.season)

    async def earliest(self) -> int:
        """The oldest that the file knows of."""
        return await self._commit(lambda agent: agent.earliest())

    async def wait(self) -> None:
        """Until something new may be in the outbox."""
        await self._mail.wait()

    def begin(self) -> None:
        """Another season was opened: whoever carries looks at everybody's keys and terms anew."""
        self.begun.set()
        self._mail.set()

    def ring(self) -> None:
        """Something new is in the outbox."""
        self._mail.set()
