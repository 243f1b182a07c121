"""The controller of the tour: what it carries between agents' doors, by whom they trust."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feducb.carriers.flower.agent_door import AgentDoor
from feducb.privacy.terms import Terms
from feducb.protocol.pads import Label
from feducb.protocol.roster import Roster, Signer
from feducb.storage import ReleaseBook, RowBook

__all__ = ["KeepersTable", "RowCarrier", "SumCarrier"]


class KeepersTable:
    """Keys of a federation in which every agent is a keeper too, and what agents' files say of them."""

    def __init__(self, folder: Path, agents: Sequence[str]) -> None:
        from feducb.carriers.nats_keys import init as make_keys  # needs an extra that no other tour does

        self._folder = folder
        self.roster: Roster = make_keys(folder, agents, federation="tour", keepers=agents)
        self.controller_seed = folder / "controller" / "controller.seed"

    def privacy(self) -> str:
        """Lines of an agent's ``[privacy]``."""
        return 'trust = "keepers"\nagents_per_person = 1'

    def engine(self, name: str) -> str:
        """Lines of an agent's ``[engine]``, and its ``[keeper]`` table."""
        roster, seed = self._folder / "federation.json", self._folder / "agents" / name / "agent.seed"
        keeper = self._folder / "keepers" / name / "keeper.seed"
        return f'roster = "{roster}"\nseed = "{seed}"\n[keeper]\nstate = "keeper.db"\nseed = "{keeper}"'


class SumCarrier:
    """Releases in, sums back: every agent adds its own noise."""

    def __init__(self, path: Path, terms: dict[str, Terms]) -> None:
        self.book = ReleaseBook(path, terms)
        self.newest: tuple[int, int] | None = None
        self.members: tuple[str, ...] = ()
        self._payload = b""

    async def visit(self, name: str, door: AgentDoor) -> None:
        """What one agent has for the others, and the newest sum for it."""
        for item in (await asyncio.to_thread(door.outbox)).parcels:
            (receipt,) = self.book.receive([(name, item.released())], now=time.time())
            if receipt.status != "refused":
                await asyncio.to_thread(door.mark_sent, item)
        if self._payload:
            await asyncio.to_thread(door.bring, self._payload)

    def publish(self) -> None:
        """Make what is due."""
        self.book.publish_due(now=time.time())
        if (named := self.book.newest()) is not None:
            self.newest, self.members = (named.total.season, named.total.number), named.names
            self._payload = named.payload

    def rows(self) -> dict[str, Any] | None:
        """There are none."""
        return None


class RowCarrier:
    """Rows under pads in, lists to keepers, rows that are over back."""

    def __init__(self, path: Path, terms: dict[str, Terms], table: KeepersTable) -> None:
        shared = next(iter(terms.values()))
        self.book = RowBook(path, table.roster, shared, Signer(table.controller_seed))
        self.newest: tuple[int, int] | None = None
        self.members: tuple[str, ...] = ()

    async def visit(self, name: str, door: AgentDoor) -> None:
        """What one agent and its keeper have for the others, and what they have not heard yet."""
        box = await asyncio.to_thread(door.outbox)
        self.book.hear([(name, box.card)], now=time.time())
        for item in box.parcels:
            (receipt,) = self.book.receive([(name, item.body)], now=time.time())
            if receipt.status != "refused":
                await asyncio.to_thread(door.mark_sent, item)
        if (ask := self.book.asks().get(name)) is not None:
            self.book.hear([(name, await asyncio.to_thread(door.answer, ask))], now=time.time())
        cards = [] if box.place else self.book.cards()  # before the first row is over
        for news in (*cards, *self.book.since(Label.from_bytes(box.place) if box.place else None)):
            await asyncio.to_thread(door.bring, news)

    def publish(self) -> None:
        """Make the list of the open row, or open it."""
        self.book.publish_due(now=time.time())
        if (row := self.book.newest()) is not None:
            self.newest, self.members = (row.season, row.number), row.names

    def rows(self) -> dict[str, Any]:
        """How the open row stands."""
        return self.book.facts()
