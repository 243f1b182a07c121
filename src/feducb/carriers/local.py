"""Everybody in one process: what the other engines are compared with, and what a user's tests can run.

mailboxes = {name: StoreMailbox(store) for name, store in stores.items()}
await LocalController(collector, mailboxes).step()      # outboxes in, sums back
await LocalKeepers(book, mailboxes, keepers).step()     # where rows are padded
await LocalPeers(topology, terms, mailboxes).step()     # the same on a graph
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping

from feducb.agent.durable import Agent
from feducb.agent.mailbox import Mailbox
from feducb.carriers.peering import PeerDriver, tell_members
from feducb.controller.collector import Collector
from feducb.errors import RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.admission import RefusalCount
from feducb.protocol.graphs import Topology
from feducb.protocol.messages import GridSum
from feducb.protocol.pads import Label
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.protocol.roster import Roster
from feducb.storage import AgentStore
from feducb.storage.keeper_book import KeeperBook
from feducb.storage.row_book import RowBook

__all__ = ["AgentMailbox", "LocalController", "LocalKeepers", "LocalPeers", "MemoryMailbox", "StoreMailbox"]

_Version = tuple[int, int]  # season, number


class MemoryMailbox:
    """A mailbox over releases that were recorded: an outbox that is a list."""

    def __init__(self, items: Iterable[Parcel] = (), *, keep_all: bool = False) -> None:
        self._items = list(items)
        self._news = asyncio.Event()
        self._news.set()
        self._keep_all = keep_all
        self._versions: dict[int, _Version] = {}
        self.newest: dict[int, bytes] = {}  # by group, the newest sum that was absorbed
        self.absorbed = 0  # how many were
        self.history: dict[tuple[int, int, int], bytes] = {}  # by (season, group, number), if ``keep_all``

    def put(self, item: Parcel) -> None:
        """Have one more to send."""
        self._items.append(item)
        self._news.set()

    async def outbox(self) -> list[Parcel]:
        """What is not yet reported sent."""
        self._news.clear()
        return list(self._items)

    async def mark_sent(self, item: Parcel) -> None:
        """Take it off the list, if it is on it."""
        if item in self._items:
            self._items.remove(item)

    async def absorb(self, total: GridSum, *, agents: int | None = None, sealed: int = 0) -> bool:
        """Keep a sum if it is newer than the one before."""
        version = total.season, total.number
        if self._versions.get(total.group, (0, 0)) >= version:
            return False
        self._versions[total.group] = version
        payload = self.newest[total.group] = messages.encode(total)
        self.absorbed += 1
        if self._keep_all:
            self.history[total.season, total.group, total.number] = payload
        return True

    async def hear(self, data: bytes) -> bool:
        """It keeps sums alone."""
        raise RefusedError("malformed", "this mailbox is for releases")

    async def place(self) -> bytes:
        """None."""
        return b""

    async def season(self) -> int:
        """That of the newest item, or the first."""
        return max((item.season for item in self._items), default=1)

    async def earliest(self) -> int:
        """It remembers no other."""
        return await self.season()

    async def wait(self) -> None:
        """Until `put` or `notify` was called since the outbox was looked at."""
        await self._news.wait()

    def notify(self) -> None:
        """The outbox may have something new."""
        self._news.set()


class StoreMailbox(MemoryMailbox):
    """A mailbox over an agent's file; call `notify` after a release or an upload.

    Sums are kept in memory: an engine brings the newest again after a restart. The store is used in the
    thread that opened it, which must be the event loop's.
    """

    def __init__(self, store: AgentStore, *, keep_all: bool = False) -> None:
        super().__init__(keep_all=keep_all)
        self.store = store

    async def outbox(self) -> list[Parcel]:
        """Releases, or uploads where the controller is trusted."""
        self._news.clear()
        if self.store.terms.trust.padded:
            return self.store.rows()
        return self.store.uploads() if self.store.terms.trust.raw else self.store.outbox()

    async def mark_sent(self, item: Parcel) -> None:
        """On disk before this returns."""
        if item.padded:
            self.store.mark_row_sent(item)
        elif item.kind is ParcelKind.UPLOAD:
            self.store.acknowledge(item.season, item.number)
        else:
            self.store.mark_sent(item.season, item.number, group=item.group)

    async def absorb(self, total: GridSum, *, agents: int | None = None, sealed: int = 0) -> bool:
        """Refuse sums of another dimension."""
        dim = self.store.terms.problem.dim
        if total.dim != dim:
            raise ValueError(f"a sum of another dimension, expected {dim}")
        return await super().absorb(total, agents=agents, sealed=sealed)

    async def hear(self, data: bytes) -> bool:
        """What is said about secure sums: what rows tell is absorbed."""
        with self.store.writing() as db:
            new, told = self.store.hear(db, data)
        if told is not None:
            await self.absorb(messages.decode(told))
        return new

    async def season(self) -> int:
        """The file's."""
        return self.store.season

    async def place(self) -> bytes:
        """The newest row that is over."""
        return self.store.place()


class AgentMailbox:
    """A mailbox over an agent in the same thread; looked into every few milliseconds, if one waits."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def outbox(self) -> list[Parcel]:
        """What waits to be sent."""
        return self.agent.outbox()

    async def mark_sent(self, item: Parcel) -> None:
        """It has arrived."""
        self.agent.mark_sent(item)

    async def absorb(self, total: GridSum, *, agents: int | None = None, sealed: int = 0) -> bool:
        """Take a sum in."""
        return self.agent.absorb(total, agents=agents, sealed=sealed)

    async def hear(self, data: bytes) -> bool:
        """What is said about secure sums."""
        return self.agent.hear(data)

    async def place(self) -> bytes:
        """The newest row that is over."""
        return self.agent.place()

    async def season(self) -> int:
        """The open one."""
        return self.agent.store.season

    async def earliest(self) -> int:
        """The oldest that the file knows of."""
        return self.agent.earliest()

    async def wait(self) -> None:
        """A moment."""
        await asyncio.sleep(0.005)


class LocalController:
    """A controller and its agents' mailboxes in one process."""

    def __init__(self, collector: Collector, mailboxes: Mapping[str, Mailbox]) -> None:
        self._collector, self._mailboxes = collector, mailboxes
        self.refusals = RefusalCount(mailboxes)

    async def step(self, *, now: float | None = None) -> int:
        """Empty all outboxes once, publish what is due; returns how many sums there were."""
        at = time.time() if now is None else now
        for name, mailbox in self._mailboxes.items():
            outbox = await mailbox.outbox()
            items = [item for item in outbox if item.kind is self._collector.takes]
            for _ in range(len(outbox) - len(items)):
                self.refusals.add(name, "malformed")
            receipts = self._collector.receive([(name, item.body) for item in items], now=at)
            for item, receipt in zip(items, receipts, strict=True):
                if receipt.status == "refused":
                    self.refusals.add(name, receipt.reason)
                else:
                    await mailbox.mark_sent(item)
        made = self._collector.publish_due(now=at)
        newest = self._collector.newest()
        for mailbox in self._mailboxes.values():
            for named in made or ([newest] if newest is not None else []):
                await mailbox.absorb(named.total, agents=len(named.names), sealed=named.sealed)
        return len(made)


class LocalKeepers:
    """A controller, keepers and agents' mailboxes in one process, where rows are padded.

    Attributes:
        keepers: their books, by name; those that are left out are away.
        refusals: of rows, by agent.
        answers_refused: of lists, by keeper and reason.
        hearing_refused: of cards and rows that are over, by agent and reason.
    """

    def __init__(
        self, book: RowBook, mailboxes: Mapping[str, Mailbox], keepers: Mapping[str, KeeperBook]
    ) -> None:
        self._book, self._mailboxes, self.keepers = book, mailboxes, dict(keepers)
        self.refusals = RefusalCount(mailboxes)
        self.answers_refused: Counter[tuple[str, str]] = Counter()
        self.hearing_refused: Counter[tuple[str, str]] = Counter()

    async def step(self, *, now: float | None = None) -> int:
        """Tell all what is new, empty all outboxes once, open what can be; returns how many rows were."""
        at = time.time() if now is None else now
        self._book.hear([(name, one.card()) for name, one in self.keepers.items()], now=at)
        await self._tell()
        for name, mailbox in self._mailboxes.items():
            items = [item for item in await mailbox.outbox() if item.padded]
            receipts = self._book.receive([(name, item.body) for item in items], now=at)
            for item, receipt in zip(items, receipts, strict=True):
                if receipt.status == "refused":
                    self.refusals.add(name, receipt.reason)
                else:
                    await mailbox.mark_sent(item)
        made = len(self._book.publish_due(now=at))
        self._ask(at)
        made += len(self._book.publish_due(now=at))
        await self._tell()
        return made

    def _ask(self, at: float) -> None:
        for name, ask in self._book.asks().items():
            if name not in self.keepers:
                continue
            try:
                self._book.hear([(name, self.keepers[name].answer(ask))], now=at)
            except RefusedError as error:
                self.answers_refused[name, error.reason] += 1

    async def _tell(self) -> None:
        for name, mailbox in self._mailboxes.items():
            place = await mailbox.place()
            for data in (*self._book.since(Label.from_bytes(place) if place else None), *self._book.cards()):
                try:
                    await mailbox.hear(data)
                except RefusedError as error:  # of another season or other terms: its own affair
                    self.hearing_refused[name, error.reason] += 1


class LocalPeers:
    """All agents of a graph and the links between them in one process."""

    def __init__(
        self,
        topology: Topology,
        terms: Mapping[str, Terms],
        mailboxes: Mapping[str, Mailbox],
        *,
        roster: Roster | None = None,
    ) -> None:
        self._topology, self._mailboxes = topology, mailboxes
        self.drivers = {name: PeerDriver(topology, name, terms, roster=roster) for name in mailboxes}

    async def step(self) -> int:
        """Publish all outboxes and let everything arrive; returns how many packets were sent."""
        sent, new = 0, True
        while new:
            sent += await self._carry()
            told = [await tell_members(self.drivers[name], box) for name, box in self._mailboxes.items()]
            new = any(told)  # then there may be more to send
        for name, mailbox in self._mailboxes.items():
            for names, total in self.drivers[name].new_sums():
                await mailbox.absorb(total, agents=len(names))
        return sent

    async def _carry(self) -> int:
        flying: deque[tuple[str, str, bytes]] = deque()
        for name, mailbox in self._mailboxes.items():
            for item in await mailbox.outbox():
                packets = self.drivers[name].announce(item)
                flying += [(name, self._topology.labels[one.to], one.data) for one in packets]
                await mailbox.mark_sent(item)
        sent = len(flying)
        while flying:
            sender, to, data = flying.popleft()
            if to in self.drivers:
                packets = self.drivers[to].hear(data, sender=sender)
                flying += [(to, self._topology.labels[one.to], one.data) for one in packets]
                sent += len(packets)
        return sent
