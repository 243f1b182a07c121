"""An agent's sessions with a controller: releases or sealed uploads up, sums down."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from feducb.carriers import nats_subjects as subjects
from feducb.carriers.nats.clock_talk import ask_time
from feducb.carriers.nats.desk import Desk
from feducb.carriers.nats.earlier_talk import MOST, ask_before
from feducb.carriers.nats.link import apart, counting
from feducb.carriers.nats.link_status import say_rarely
from feducb.carriers.nats.roster_talk import ask_roster
from feducb.errors import ConfigurationError
from feducb.protocol import frames, sums
from feducb.protocol.admission import Receipt
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.protocol.sealing import seal_for

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

__all__ = ["WithController"]

_HEARD = 256  # sums that wait to be absorbed
_REFUSED_AGAIN = 60.0  # seconds until a release that was refused is offered again
_EARLY = ("season", "order")


@dataclass(frozen=True, slots=True)
class WithController(Desk):
    """Sessions of an agent whose roster has a controller."""

    refused: dict[Parcel, float] = field(default_factory=dict)  # when to offer it again

    async def session(self, client: Client) -> None:
        """Hear sums, ask for the newest, send what waits; until the connection is lost."""
        heard: asyncio.Queue[bytes] = asyncio.Queue(maxsize=_HEARD)

        async def on_sum(message: Msg) -> None:
            if heard.full():
                heard.get_nowait()  # a newer one replaces it
            heard.put_nowait(message.data)

        await apart(client.subscribe(subjects.topic(self.roster.federation, "sum"), cb=on_sum))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(heard))
            group.create_task(self._ask(client))
            group.create_task(self._ask_roster(client))
            if self.agent in self.roster.agents:  # who comes with a later season plays by sums till then
                group.create_task(self._send(client))

    async def _ask_roster(self, client: Client) -> None:
        """For the next version, and for the time: whoever sends nothing learns it here."""
        while True:
            with counting(self.status, self.log):
                await ask_roster(client, self.settings, self.agent, status=self.status, log=self.log)
                await ask_time(client, self.settings, self.roster, self.agent, self.status)
            await asyncio.sleep(self.settings.refresh * random.uniform(0.75, 1.25))

    async def _listen(self, heard: asyncio.Queue[bytes]) -> None:
        while True:
            await self._take(await heard.get())

    async def _take(self, data: bytes) -> None:
        if (named := self._read(data)) is not None:
            await self.absorb(named.names, named.total, named.sealed)

    def _read(self, data: bytes) -> sums.NamedSum | None:
        """A sum that the controller signed; None, and it is said, if it is none."""
        assert self.roster.controller is not None
        try:
            context = ("sum", self.roster.federation, subjects.CONTROLLER)
            return sums.decode(frames.unframe(self.roster.controller, data, *context))
        except ValueError as error:
            self.fail("sum_refused", error)
            return None

    async def _ask(self, client: Client) -> None:
        """For the newest sum: at the start, and now and then in case a publication was missed."""
        subject = subjects.topic(self.roster.federation, "ask", self.agent)
        told = False
        while True:
            pause = self.settings.retry
            with counting(self.status, self.log):
                if not told:
                    await self._ask_earlier(client, subject)
                    told = True
                reply = await apart(client.request(subject, b"", timeout=self.settings.timeout))
                pause = self.settings.refresh
                if reply.data:
                    await self._take(reply.data)
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))

    async def _ask_earlier(self, client: Client, subject: str) -> None:
        """For sums of seasons before the agent's first, newest first, until it has them.

        Where an answer did not come it goes on from there, also in a later session or season: the file knows
        how far it got.
        """
        for _ in range(MOST):
            season = await self.mailbox.earliest()
            reply = await apart(client.request(subject, ask_before(season), timeout=self.settings.timeout))
            named = self._read(reply.data) if reply.data else None
            if named is None or named.season >= season:  # an older controller tells the newest one
                return
            if not await self.mailbox.absorb(named.total, agents=len(named.names)):
                return

    async def _send(self, client: Client) -> None:
        while True:
            trouble = False
            for item in await self.mailbox.outbox():
                if self.refused.get(item, 0.0) > time.monotonic():
                    trouble = True
                    continue
                receipt = None
                with counting(self.status, self.log):
                    receipt = await self._deliver(client, item)
                if receipt is None:
                    trouble = True
                    break  # in order: releases before it first
                await self._note(item, receipt)
            await (asyncio.sleep(self.settings.retry) if trouble else self.mailbox.wait())

    async def _note(self, item: Parcel, receipt: Receipt) -> None:
        if receipt.status == "refused":
            why = {"reason": receipt.reason, "text": receipt.text}
            facts = {"season": item.season, "number": item.number, **why}
            say_rarely(self.log, "release_refused", count=self.status.refuse(receipt), **facts)
            early = receipt.reason in _EARLY  # the controller is not that far yet
            self.refused[item] = time.monotonic() + (self.settings.retry if early else _REFUSED_AGAIN)
            return
        await self.mailbox.mark_sent(item)
        self.refused.pop(item, None)
        self.status.arrived()

    def _sealed(self, payload: bytes) -> bytes:
        """A raw upload as it travels: for the controller's eyes alone."""
        if self.roster.sealing is None:
            raise ConfigurationError("engine.roster", str(self.settings.roster), "one with a sealing key")
        return seal_for(self.roster.sealing, payload, self.roster.federation, self.agent)

    async def _deliver(self, client: Client, item: Parcel) -> Receipt:
        """One item to the controller; returns when it is on its disk, or refused."""
        assert self.roster.controller is not None
        fed, kind, data = self.roster.federation, ParcelKind.ROW, item.body
        if not item.padded:  # a row under pads is signed already
            kind = item.kind
            body = self._sealed(item.body) if kind is ParcelKind.UPLOAD else item.released()
            data = frames.frame(self.signer, body, kind, fed, self.agent)
        subject, sent = subjects.topic(fed, kind, self.agent), time.time()
        reply = await apart(client.request(subject, data, timeout=self.settings.timeout))
        context = ("receipt", self.roster.federation, self.agent)
        receipt = frames.read_receipt(data, frames.unframe(self.roster.controller, reply.data, *context))
        if receipt.at is not None:
            self.status.compare_clocks(receipt.at, sent, time.time())
        return receipt
