"""What an engine sees of an agent.

An agent never waits for the network to decide. It writes releases into its outbox, on disk, and acts on the
newest sum in its inbox. An engine carries one to the others and brings the other; it may be slow, cut off,
killed or started twice: whatever it sends again is the same bytes, whatever it brings again changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from feducb.protocol.messages import GridSum
from feducb.protocol.parcels import Parcel

__all__ = ["Engine", "EngineFacts", "Mailbox"]


class EngineFacts(Protocol):
    """What an engine tells about itself, for an operator: no private data."""

    def as_dict(self) -> dict[str, Any]:
        """``connected``, ``sessions``, ``sent``, ``last_receipt_at``, ``refused`` at least.

        What is wrong follows from them: `protocol.engine_health` has the names that it looks at.
        """
        ...


class Mailbox(Protocol):
    """An agent's outbox and inbox, for one engine. All calls are safe to repeat."""

    async def outbox(self) -> list[Parcel]:
        """What is on disk and not yet reported sent: releases, or raw uploads for a trusted controller."""
        ...

    async def mark_sent(self, item: Parcel) -> None:
        """The other side has it on disk."""
        ...

    async def absorb(self, total: GridSum, *, agents: int | None = None, sealed: int = 0) -> bool:
        """Take a sum in, on disk before this returns; False if it is not newer.

        Args:
            total: the sum, decoded where it arrived (`protocol.messages`).
            agents: how many are in it, for a trusted controller's release, which counts as one.
            sealed: likewise, how many have all their batches of the season in it (`sums.NamedSum`).

        Raises:
            ValueError: it is not one of this agent's federation, or below its quorum. Report it and
                go on.
        """
        ...

    async def hear(self, data: bytes) -> bool:
        """Take in what is said about secure sums, on disk before this returns; False if it is not new.

        Args:
            data: a keeper's card, or a row that is over (`protocol.secure_rows`).

        Raises:
            RefusedError: it does not prove itself, or is not the next. Report it and go on.
        """
        ...

    async def place(self) -> bytes:
        """The newest row that is over, as 16 bytes; none if there is none: from where to tell more."""
        ...

    async def season(self) -> int:
        """The open one."""
        ...

    async def earliest(self) -> int:
        """The oldest season that the agent knows of: who has sums of earlier ones may tell it those."""
        ...

    async def wait(self) -> None:
        """Return when the outbox may have something new; at once if it has not been looked at since."""
        ...


Engine = Callable[[Mailbox], Awaitable[None]]
"""What carries an agent's releases, for as long as it is awaited."""
