"""The controller's link over NATS: messages in, receipts and sums out."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from feducb.carriers import nats_subjects as subjects
from feducb.carriers.nats.link import Link, apart, own_signer
from feducb.carriers.nats.link_status import EngineStatus, Log, say_nothing, say_rarely
from feducb.controller.collector import Collector
from feducb.errors import ConfigurationError, RefusedError
from feducb.protocol import frames, sums
from feducb.protocol.admission import Receipt, RefusalCount, refusal
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.parcels import ParcelKind
from feducb.protocol.roster import open_sealed

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

__all__ = ["NatsController"]

_BATCH = 256
_TOGETHER = 0.002  # seconds after the first message of a batch for others, so that they share its commit
_HELD = 16  # messages of an agent that wait for the disk; what comes on top, it sends again
_UNREAD = 2048  # messages of an agent that wait to be looked at; no more than as many bytes:
_UNREAD_BYTES = 2**24


class _Opened(NamedTuple):
    """A message whose sender is known, and its payload."""

    agent: str
    payload: bytes
    message: Msg


class NatsController:
    """The controller's link. One thread, which opened the collector."""

    def __init__(self, settings: NatsSettings, collector: Collector, *, log: Log = say_nothing) -> None:
        self.status = EngineStatus()
        self._roster = settings.read_roster()
        if self._roster.controller is None:
            raise ConfigurationError("engine.roster", str(settings.roster), "one with a controller")
        self._signer = own_signer(settings, self._roster.controller)
        self._private = _read_sealing(settings)
        self._collector, self._log = collector, log
        self.refusals = RefusalCount(self._roster.agents)
        self.last_refusals: dict[str, dict[str, Any]] = {}  # of each agent: ``at``, ``reason`` and ``text``
        self.heard: dict[str, float] = {}  # by agent, when a message of its last came, in seconds since 1970
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
            kind, agent = message.subject.split(".")[-2:]
            if held[agent] >= _HELD:
                self.status.errors["overload"] += 1  # no receipt: it is sent again
                return
            opened = await self._on_message(client, kind, agent, message)
            if opened is not None:
                held[agent] += 1
                waiting.put_nowait(opened)

        # A subscription each: whoever floods fills its own queue, and takes turns with the others.
        for agent in self._roster.agents:
            for kind in ("release", "upload", "ask"):
                subject = subjects.topic(self._roster.federation, kind, agent)
                reading = client.subscribe(
                    subject, cb=on_message, pending_msgs_limit=_UNREAD, pending_bytes_limit=_UNREAD_BYTES
                )
                await apart(reading)
        if (newest := self._collector.newest()) is not None:
            await self._publish(client, newest)
        batch: list[_Opened] = []  # what an earlier session took in may be due
        while True:
            await self._exchange(client, batch)
            held.subtract(one.agent for one in batch)
            batch = await self._next_batch(waiting)

    async def _on_message(self, client: Client, kind: str, agent: str, message: Msg) -> _Opened | None:
        """Answer what needs no disk; return what does."""
        if not message.reply.startswith(f"{subjects.inbox(agent)}."):
            self.refusals.add(agent, "sender")  # nobody could be told
            return None
        self.heard[agent] = time.time()
        if kind == "ask":
            await apart(client.publish(message.reply, self._newest or b""))
            return None
        try:
            return _Opened(agent, self._open(kind, agent, message.data), message)
        except RefusedError as error:
            await self._answer(client, message, agent, refusal(error))
            return None

    async def _next_batch(self, waiting: asyncio.Queue[_Opened]) -> list[_Opened]:
        """What has arrived, and what arrives at about the same time; empty when a deadline has passed."""
        due = self._collector.next_due()
        batch: list[_Opened] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(None if due is None else max(due - time.time(), 0.0)):
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
        receipts, due = self._collector.exchange([(one.agent, one.payload) for one in batch], now=time.time())
        for named in due:
            await self._publish(client, named)
        await asyncio.sleep(0)  # sums are on their way before receipts are signed
        for one, receipt in zip(batch, receipts, strict=True):
            await self._answer(client, one.message, one.agent, receipt)

    def _open(self, kind: str, agent: str, data: bytes) -> bytes:
        body = frames.unframe(self._roster.agents[agent], data, kind, self._roster.federation, agent)
        if kind == ParcelKind.RELEASE:
            if self._collector.takes is not ParcelKind.RELEASE:
                raise RefusedError("malformed", "a release, expected a sealed upload")
            return body
        if self._collector.takes is not ParcelKind.UPLOAD or self._private is None:
            raise RefusedError("malformed", "a raw upload, which this controller does not take")
        return open_sealed(self._private, body, self._roster.federation, agent)

    async def _answer(self, client: Client, message: Msg, agent: str, receipt: Receipt) -> None:
        if receipt.status == "refused":
            count = self.refusals.add(agent, receipt.reason)
            self.last_refusals[agent] = {"at": time.time(), "reason": receipt.reason, "text": receipt.text}
            facts = {"agent": agent[:64], "reason": receipt.reason, "text": receipt.text}
            say_rarely(self._log, "refused", count=count, **facts)
        else:
            self.status.sent += 1
        body = frames.write_receipt(message.data, receipt)
        signed = frames.frame(self._signer, body, "receipt", self._roster.federation, agent)
        await apart(client.publish(message.reply, signed))

    def _note_sum(self, named: sums.NamedSum) -> None:
        self.status.newest = (named.total.season, named.total.number)
        self.status.members = named.names

    async def _publish(self, client: Client, named: sums.NamedSum) -> None:
        body = sums.encode(named)
        self._newest = frames.frame(self._signer, body, "sum", self._roster.federation, subjects.CONTROLLER)
        await apart(client.publish(subjects.topic(self._roster.federation, "sum"), self._newest))
        self._note_sum(named)
        self.status.absorbed += 1
        season, number = named.total.season, named.total.number
        self._log("sum", season=season, number=number, agents=len(named.names), bytes=len(body))


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
