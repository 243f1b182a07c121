"""The controller's link over NATS: messages in, receipts and sums out."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from feducb.carriers import nats_subjects as subjects
from feducb.carriers.nats.clock_talk import answer_time, asks_for_time
from feducb.carriers.nats.earlier_talk import asked_before
from feducb.carriers.nats.hearing import Hearing
from feducb.carriers.nats.keeper_talk import KeeperTalk
from feducb.carriers.nats.link import Link, apart, own_signer
from feducb.carriers.nats.link_status import EngineStatus, Log, say_nothing, say_rarely
from feducb.carriers.nats.roster_talk import answer_roster, asks_for_roster, in_time
from feducb.controller.collector import Collector
from feducb.errors import ConfigurationError, RefusedError
from feducb.protocol import frames
from feducb.protocol.admission import Receipt, RefusalCount, refusal
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.parcels import ParcelKind
from feducb.protocol.roster import Roster
from feducb.protocol.sealing import open_sealed
from feducb.protocol.signed_roster import stamp
from feducb.protocol.sums import Published
from feducb.storage import RowBook

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

__all__ = ["NatsController"]

_BATCH = 256
_LOOK = 1.0  # seconds between looks at the clock
_TOGETHER = 0.002  # seconds after the first message of a batch for others, so that they share its commit
_HELD = 16  # messages of an agent that wait for the disk; what comes on top, it sends again
_EXPECTED = {ParcelKind.UPLOAD: "a sealed upload", ParcelKind.ROW: "a row under pads"}


class _Opened(NamedTuple):
    """A message whose sender is known, and its payload."""

    kind: str
    name: str  # of an agent or a keeper
    sender: str  # the same, or how a keeper is connected
    payload: bytes
    message: Msg


class NatsController:
    """The controller's link. One thread, which opened the collector."""

    def __init__(
        self,
        settings: NatsSettings,
        collector: Collector | RowBook,
        *,
        log: Log = say_nothing,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.status = EngineStatus()
        self._settings, self._collector, self._log = settings, collector, log
        self._roster = self._of_season()
        self._rosters = settings.read_rosters()
        self._seen = (collector.season, stamp(settings.roster))
        if self._roster.controller is None:
            raise ConfigurationError("engine.roster", str(settings.roster), "one with a controller")
        self._signer = own_signer(settings, self._roster.controller)
        self._private = _read_sealing(settings)
        self._clock = clock
        self._talk = KeeperTalk(collector) if isinstance(collector, RowBook) else None
        self.refusals = RefusalCount(_senders(self._roster, self._newest_roster))
        self.last_refusals: dict[str, dict[str, Any]] = {}  # of each sender: ``at``, ``reason`` and ``text``
        self.heard: dict[str, float] = {}  # by sender, when a message last came, in seconds since 1970
        self._newest: bytes | None = None
        if (newest := collector.newest()) is not None:
            self._note_sum(newest)  # of an earlier life; known before the broker is reached
        self._link = Link(settings, subjects.CONTROLLER, self.status, log)

    async def run(self) -> None:
        """Serve, over as many connections as it takes, until cancelled."""
        await self._link.keep(self.session)

    async def session(self, client: Client) -> None:
        """Serve until the connection is lost."""
        waiting: asyncio.Queue[_Opened] = asyncio.Queue()
        held: Counter[str] = Counter()

        async def on_message(message: Msg) -> None:
            kind, name = message.subject.split(".")[-2:]
            sender = subjects.keeper_user(name) if kind in subjects.KINDS_FROM_KEEPERS else name
            if held[sender] >= _HELD:
                self.status.errors["overload"] += 1  # no receipt: it is sent again
                return
            opened = await self._on_message(client, kind, name, sender, message)
            if opened is not None:
                held[sender] += 1
                waiting.put_nowait(opened)

        # A subscription each: whoever floods fills its own queue, and takes turns with the others.
        async with asyncio.TaskGroup() as group:
            group.create_task(Hearing(client, on_message, self._note_flood).follow(self._subjects))
            group.create_task(self._exchange_all(client, waiting, held))

    def _take_roster(self) -> None:
        """Look whether somebody put a new roster there, or the season is another one."""
        seen = (self._collector.season, stamp(self._settings.roster))
        if seen == self._seen:
            return
        self._seen = seen
        try:
            rosters, roster = self._settings.read_rosters(), self._of_season()
        except ConfigurationError as error:  # one that does not prove itself, or is half there
            say_rarely(self._log, "roster_refused", count=self.status.fail(error), text=str(error))
            return
        newest = rosters[-1]
        if newest.version > self._newest_roster.version:
            facts = {"version": newest.version, "season": newest.since, "agents": len(newest.agents)}
            self._log("roster", **facts)
        self._roster, self._rosters = roster, rosters
        self.refusals.names = _senders(roster, newest)

    @property
    def _newest_roster(self) -> Roster:
        return self._rosters[-1]

    def _of_season(self) -> Roster:
        """That of the open season: with keepers the one that it was opened with, whatever came later."""
        if isinstance(self._collector, RowBook):
            return self._collector.roster
        return self._settings.read_roster(self._collector.season, newest_keys=True)

    def _answer_roster(self, asked: bytes, most: int) -> bytes:
        told = self._rosters
        if self._talk is not None:
            told = in_time(told, self._roster.version, self._collector.season)
        return answer_roster(asked, told, most=most)

    async def _exchange_all(
        self, client: Client, waiting: asyncio.Queue[_Opened], held: Counter[str]
    ) -> None:
        if isinstance(self._collector, RowBook):
            self._collector.listen(now=self._clock())
        if (newest := self._collector.newest()) is not None:
            await self._publish(client, newest)
        batch: list[_Opened] = []  # what an earlier session took in may be due
        while True:
            await self._exchange(client, batch)
            held.subtract(one.sender for one in batch)
            batch = await self._next_batch(waiting)

    def _subjects(self) -> Iterator[str]:
        """Everybody's, each by itself; whoever comes with a new roster may ask for sums at once."""
        self._take_roster()
        fed = self._roster.federation
        for agent in self._roster.agents | self._newest_roster.agents:
            yield from (subjects.topic(fed, kind, agent) for kind in subjects.kinds_from_agents(self._roster))
        if self._talk is not None:
            for keeper in self._roster.keepers | self._newest_roster.keepers:
                yield from (subjects.topic(fed, kind, keeper) for kind in subjects.KINDS_FROM_KEEPERS)
                yield subjects.topic(fed, "ask", subjects.keeper_user(keeper))

    def _note_flood(self, subject: str) -> None:
        """Somebody sends more than it may; the broker drops what is too much, and it sends that again."""
        self.status.errors["overload"] += 1
        kind, name = subject.split(".")[-2:]
        say_rarely(self._log, "flood", count=self.status.errors["overload"], agent=name, kind=kind)

    async def _on_message(
        self, client: Client, kind: str, name: str, sender: str, message: Msg
    ) -> _Opened | None:
        """Answer what needs no disk; return what does."""
        if not message.reply.startswith(f"{subjects.inbox(sender)}."):
            self.refusals.add(sender, "sender")  # nobody could be told
            return None
        self.heard[sender] = time.time()
        try:
            if kind == "ask":
                await apart(client.publish(message.reply, self._tell(client, name, message.data)))
                return None
            return _Opened(kind, name, sender, self._open(kind, name, message.data), message)
        except RefusedError as error:
            await self._answer(client, message, sender, refusal(error))
            return None

    def _tell(self, client: Client, agent: str, place: bytes) -> bytes:
        """What an agent asks for: the newest sum, or where rows are padded all that it has not heard."""
        if asks_for_roster(place):
            return self._answer_roster(place, client.max_payload)
        if asks_for_time(place):
            return answer_time(self._signer, self._roster.federation, agent, place)
        if self._talk is None:
            before = asked_before(place)
            return (self._newest or b"") if before is None else self._framed_before(before)
        news = self._talk.news(place, most=client.max_payload)
        return frames.frame(self._signer, news, "news", self._roster.federation, agent)

    def _framed_before(self, season: int) -> bytes:
        """The last sum of the newest season before one, signed; none if there is none."""
        assert not isinstance(self._collector, RowBook)
        named = self._collector.last_before(season)
        context = ("sum", self._roster.federation, subjects.CONTROLLER)
        return b"" if named is None else frames.frame(self._signer, named.body, *context)

    async def _next_batch(self, waiting: asyncio.Queue[_Opened]) -> list[_Opened]:
        """What has arrived, and what arrives at about the same time; empty when a deadline has passed."""
        due = self._collector.next_due()
        wait = _LOOK if due is None else min(_LOOK, max(due - self._clock(), 0.0))  # a season may be over
        if self._talk is not None and (again := self._talk.next_ask()) is not None:
            wait = min(wait, again)
        batch: list[_Opened] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                batch.append(await waiting.get())
        while not waiting.empty() and len(batch) < _BATCH:
            batch.append(waiting.get_nowait())
        if batch:
            with suppress(TimeoutError):
                async with asyncio.timeout(_TOGETHER):
                    while len(batch) < min(_BATCH, len(self._roster.agents)):
                        batch.append(await waiting.get())
        return batch

    async def _exchange(self, client: Client, batch: list[_Opened]) -> None:
        """One commit for all that came; then the sums that are due, for which everybody waits; receipts."""
        words = [one for one in batch if one.kind in subjects.KINDS_FROM_KEEPERS]  # first: a row may open
        batch = [one for one in batch if one.kind not in subjects.KINDS_FROM_KEEPERS]
        heard = await self._hear(client, words)
        receipts, due = self._collector.exchange(
            [(one.name, one.payload) for one in batch], now=self._clock()
        )
        for named in due:
            await self._publish(client, named)
        await self._ask_keepers(client)
        await asyncio.sleep(0)  # sums are on their way before receipts are signed
        for one, receipt in zip([*words, *batch], [*heard, *receipts], strict=True):
            await self._answer(client, one.message, one.sender, receipt)

    async def _hear(self, client: Client, words: list[_Opened]) -> list[Receipt]:
        """Take keepers' cards and answers in; new cards are told to all."""
        if not words or not isinstance(self._collector, RowBook) or self._talk is None:
            return []
        receipts = self._collector.hear([(one.name, one.payload) for one in words], now=self._clock())
        for one, receipt in zip(words, receipts, strict=True):
            if one.kind == "card":
                self._talk.forget(one.name)
                if receipt.status == "stored":
                    await apart(client.publish(subjects.topic(self._roster.federation, "sum"), one.payload))
        return receipts

    async def _ask_keepers(self, client: Client) -> None:
        if self._talk is None:
            return
        due = self._talk.asks_due()
        for keeper, ask in due.items():
            await apart(client.publish(subjects.topic(self._roster.federation, "list", keeper), ask))
        if due and self._talk.again:
            say_rarely(self._log, "row_waits", count=self._talk.again, keepers=list(due))

    def _open(self, kind: str, name: str, data: bytes) -> bytes:
        if kind in (ParcelKind.ROW, *subjects.KINDS_FROM_KEEPERS):  # the book checks who signed
            if self._talk is None:
                raise RefusedError("malformed", "a row under pads, which this controller does not take")
            return data
        return self._unframed(kind, name, data)

    def _key_of(self, agent: str) -> str:
        """Also of who comes with a later season: the book says who is in it.

        One that has left may be heard still, until the broker cuts it off.
        """
        key = (self._newest_roster.agents | self._roster.agents).get(agent)
        if key is None:
            raise RefusedError("sender", f"{agent[:64]!r} is not of this federation any more")
        return key

    def _unframed(self, kind: str, agent: str, data: bytes) -> bytes:
        context = (kind, self._roster.federation, agent)
        try:
            body = frames.unframe(self._key_of(agent), data, *context)
        except RefusedError:
            self._take_roster()  # it may have a new key, which was put there just now
            body = frames.unframe(self._key_of(agent), data, *context)
        if kind == ParcelKind.RELEASE:
            if self._collector.takes is not ParcelKind.RELEASE:
                raise RefusedError("malformed", f"a release, expected {_EXPECTED[self._collector.takes]}")
            return body
        if self._collector.takes is not ParcelKind.UPLOAD or self._private is None:
            raise RefusedError("malformed", "a raw upload, which this controller does not take")
        return open_sealed(self._private, body, self._roster.federation, agent)

    async def _answer(self, client: Client, message: Msg, sender: str, receipt: Receipt) -> None:
        if receipt.status == "refused":
            count = self.refusals.add(sender, receipt.reason)
            self.last_refusals[sender] = {"at": time.time(), "reason": receipt.reason, "text": receipt.text}
            facts = {"agent": sender[:64], "reason": receipt.reason, "text": receipt.text}
            say_rarely(self._log, "refused", count=count, **facts)
        else:
            self.status.sent += 1
        body = frames.write_receipt(message.data, receipt._replace(at=time.time()))
        signed = frames.frame(self._signer, body, "receipt", self._roster.federation, sender)
        await apart(client.publish(message.reply, signed))

    def _note_sum(self, named: Published) -> None:
        self.status.newest = (named.season, named.number)
        self.status.members = named.names

    async def _publish(self, client: Client, named: Published) -> None:
        self._newest = body = named.body
        if self._talk is None:  # a row that is over is signed already
            context = ("sum", self._roster.federation, subjects.CONTROLLER)
            self._newest = frames.frame(self._signer, body, *context)
        await apart(client.publish(subjects.topic(self._roster.federation, "sum"), self._newest))
        self._note_sum(named)
        self.status.absorbed += 1
        facts = {"season": named.season, "number": named.number, "agents": len(named.names)}
        self._log("sum", **facts, bytes=len(body))


def _senders(*rosters: Roster) -> set[str]:
    """By which names messages come."""
    agents = {name for roster in rosters for name in roster.agents}
    return agents | {subjects.keeper_user(name) for roster in rosters for name in roster.keepers}


def _read_sealing(settings: NatsSettings) -> bytes | None:
    if settings.sealing is None:
        return None
    try:
        private = bytes.fromhex(settings.sealing.read_text().strip())
        if len(private) != 32:
            raise ValueError
    except ValueError:
        raise ConfigurationError("engine.sealing", str(settings.sealing), "a key of 32 bytes") from None
    return private
