"""An agent's sessions on a graph, over JetStream; and who makes its streams."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from feducb.carriers import nats_subjects as subjects
from feducb.carriers import peer_receipts
from feducb.carriers.nats.desk import Desk
from feducb.carriers.nats.link import Link, apart, counting
from feducb.carriers.nats.link_status import EngineStatus, say_rarely
from feducb.carriers.peering import Packet, PeerDriver, tell_members
from feducb.errors import ConfigurationError
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.pads import Label
from feducb.protocol.parcels import Parcel

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

__all__ = ["OnGraph", "make_streams"]

_FETCH = 64
_FETCH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class OnGraph(Desk):
    """Sessions of an agent on a graph, over JetStream."""

    driver: PeerDriver
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    _announced: set[Parcel] = field(default_factory=set)  # in this session; rows stay in the outbox for long
    _again: list[Packet] = field(default_factory=list)  # own releases, once more

    async def session(self, client: Client) -> None:
        """Read what neighbours sent, send what waits; until the connection is lost."""
        stream = client.jetstream(timeout=self.settings.timeout)
        self._announced.clear()
        self.status.refused_by.clear()  # they answer what is announced again
        self._again[:] = self.driver.begin_session()
        await self._absorb_new()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear(stream))
            group.create_task(self._send(stream))
            group.create_task(self._offer_again(stream))

    async def _send(self, stream: JetStreamContext) -> None:
        while True:
            trouble = True
            with counting(self.status, self.log):
                await self._send_outbox(stream)
                trouble = False
            await (asyncio.sleep(self.settings.retry) if trouble else self.mailbox.wait())

    async def _send_outbox(self, stream: JetStreamContext) -> None:
        """Send what was not sent in this session, and what the agent makes of what it is told by that."""
        async with self._sending:
            if self._again:
                await self._publish(stream, self._again)
                self._again.clear()
            waiting = await self._not_announced()
            while waiting:
                for item in waiting:
                    packets = self.driver.announce(item)
                    self.driver.commit()
                    await self._publish(stream, packets)
                    await self.mailbox.mark_sent(item)
                    self._announced.add(item)
                    self.status.arrived()
                    await self._absorb_new()
                waiting = await self._not_announced()

    async def _offer_again(self, stream: JetStreamContext) -> None:
        """While a neighbour refuses own releases: it may have had another roster, or not that season yet."""
        while True:
            await asyncio.sleep(self.settings.refresh)
            if self.status.refused_by:
                self._again[:] = self.driver.begin_session()
                self._announced.clear()
                with counting(self.status, self.log):
                    await self._send_outbox(stream)

    async def _not_announced(self) -> list[Parcel]:
        outbox = await self.mailbox.outbox()
        self._announced.intersection_update(outbox)
        return [item for item in outbox if item not in self._announced]

    async def _hear(self, stream: JetStreamContext) -> None:
        name = subjects.stream_name(self.roster.federation)
        reader = await apart(stream.pull_subscribe_bind(durable=self.agent, stream=name))
        while True:
            try:
                messages = await apart(reader.fetch(_FETCH, timeout=_FETCH_SECONDS))
            except TimeoutError:
                continue
            passed_on: list[Packet] = []
            for message in messages:
                sender = message.subject.split(".")[-2]
                if peer_receipts.is_receipt(message.data):
                    self._note_receipt(sender, message.data)
                    continue
                answered = peer_receipts.HEADER in (message.headers or {})
                passed_on += self.driver.hear(message.data, sender=sender, answered=answered)
            self.driver.commit()
            await self._publish(stream, passed_on)
            for message in messages:
                await apart(message.ack())
            if await self._absorb_new():
                await self._send_outbox(stream)
            await self._publish(stream, self.driver.answers())

    def _note_receipt(self, neighbour: str, data: bytes) -> None:
        receipt = peer_receipts.read(data)
        if receipt.status != "refused":
            if self.status.refused_by.pop(neighbour, None) is not None and not self.status.refused_by:
                self.status.last_receipt_at = time.time()
            return
        self.status.refused_by[neighbour] = f"{receipt.reason}: {receipt.text}"
        why = {"by": neighbour, "reason": receipt.reason, "text": receipt.text}
        say_rarely(self.log, "release_refused", count=self.status.refuse(receipt), **why)

    async def _publish(self, stream: JetStreamContext, packets: list[Packet]) -> None:
        """Returns when JetStream has them all."""
        names = self.driver.names
        async with asyncio.TaskGroup() as group:
            for one in packets:
                subject = subjects.edge(self.roster.federation, self.agent, names[one.to])
                headers = {"Nats-Msg-Id": one.identity, peer_receipts.HEADER: "1"}
                group.create_task(apart(stream.publish(subject, one.data, headers=headers)))

    async def _absorb_new(self) -> bool:
        """Hand over sums, or what members said about rows; whether there may be more to send by that."""
        for names, total in self.driver.new_sums():
            await self.absorb(names, total)
        if not self.driver.untold():
            return False
        place = await self.mailbox.place()
        told = await tell_members(self.driver, self.mailbox)
        if told and (now := await self.mailbox.place()) != place:
            label = Label.from_bytes(now)
            self.status.absorbed += 1
            self.status.newest, self.status.members = (label.season, label.row), self.driver.members
        return told


async def make_streams(settings: NatsSettings, *, days: float = 30.0, per_link: int = 4096) -> None:
    """Make the stream of a graph and one durable consumer per agent; once more changes nothing.

    Args:
        settings: with the administrator's seed, and without an agent.
        days: how long a message is kept for an agent that is away.
        per_link: how many messages a link keeps; the newest replace the oldest, as releases do.
    """
    import nats.js.errors
    from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

    roster = settings.read_roster()
    if roster.edges is None:
        raise ConfigurationError("engine.roster", str(settings.roster), "one with edges: a graph")
    name = subjects.stream_name(roster.federation)
    wanted = StreamConfig(
        name=name,
        subjects=[subjects.edge(roster.federation, "*", "*")],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        max_age=days * 86_400.0,
        max_msgs_per_subject=per_link,
        duplicate_window=600.0,
        num_replicas=1,
    )
    async with Link(settings, subjects.ADMIN, EngineStatus()).connected() as client:
        manager: Any = client.jetstream(timeout=settings.timeout)
        try:
            await manager.stream_info(name)
            await manager.update_stream(wanted)
        except nats.js.errors.NotFoundError:
            await manager.add_stream(wanted)
        for agent in roster.agents:
            consumer = ConsumerConfig(
                durable_name=agent,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=10.0,
                max_ack_pending=4 * _FETCH,
                filter_subject=subjects.edge(roster.federation, "*", agent),
            )
            await manager.add_consumer(name, consumer)
