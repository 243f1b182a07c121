"""A keeper's link over NATS: lists in, answers out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from feducb.carriers import nats_subjects as subjects
from feducb.carriers.nats.link import Link, apart, counting, own_signer
from feducb.carriers.nats.link_status import EngineStatus, Log, say_nothing, say_rarely
from feducb.carriers.nats.roster_talk import ask_roster
from feducb.errors import ConfigurationError, RefusedError
from feducb.protocol import frames
from feducb.protocol.admission import Receipt
from feducb.protocol.engine_table import NatsSettings
from feducb.storage.keeper_book import KeeperBook

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

__all__ = ["NatsKeeper"]

_LOOK = 0.25  # seconds between looks at the clock
_HEARD = 4  # lists that wait; the controller asks again
_REFUSED_AGAIN = 5  # so many times the retry time until a card that was refused is shown again


class NatsKeeper:
    """A keeper's link. One thread, which opened the book.

    Guarantees:
        What is sent is what the book has on disk: one answer a row, the same bytes each time.
    """

    def __init__(
        self,
        settings: NatsSettings,
        book: KeeperBook,
        *,
        log: Log = say_nothing,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.status = EngineStatus()
        self._settings, self._book, self._log = settings, book, log
        self._rolled, self._clock = asyncio.Event(), clock
        self._duty = book.duty
        self._roster = book.duty.roster  # that the season was opened with
        if settings.agent is None or settings.agent not in self._roster.keepers:
            expected = f"a keeper: {', '.join(self._roster.keepers) or 'the roster has none'}"
            raise ConfigurationError("engine.agent", settings.agent, expected)
        self._keeper = settings.agent
        own_signer(settings, self._roster.keepers[self._keeper])
        self._link = Link(settings, subjects.keeper_user(self._keeper), self.status, log)

    async def run(self) -> None:
        """Serve, over as many connections as it takes, until cancelled."""
        await self._link.keep(self.session)

    async def session(self, client: Client) -> None:
        """Show the card, answer lists; until the connection is lost."""
        lists: asyncio.Queue[bytes] = asyncio.Queue(maxsize=_HEARD)

        async def on_list(message: Msg) -> None:
            if lists.full():
                lists.get_nowait()  # a newer one replaces it
            lists.put_nowait(message.data)

        subject = subjects.topic(self._roster.federation, "list", self._keeper)
        await apart(client.subscribe(subject, cb=on_list))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_the_clock())
            group.create_task(self._show_card(client))
            group.create_task(self._answer(client, lists))
            group.create_task(self._ask_roster(client))

    async def _ask_roster(self, client: Client) -> None:
        user = subjects.keeper_user(self._keeper)
        while True:
            with counting(self.status, self._log):
                await ask_roster(client, self._settings, user, status=self.status, log=self._log)
            await asyncio.sleep(self._settings.refresh)

    async def _follow_the_clock(self) -> None:
        """Open the next season when it is time to, and show its card at once; also one for a late roster."""
        while True:
            self._book.roll(now=self._clock())
            if self._book.duty is not self._duty:
                self._duty = self._book.duty
                self._roster = self._duty.roster
                self._log("season", season=self._book.season, roster=self._roster.version)
                self._rolled.set()
            await asyncio.sleep(_LOOK)

    async def _show_card(self, client: Client) -> None:
        """Now and then: the controller may be of another season still, and it sees who is here."""
        while True:
            receipt = None
            self._rolled.clear()
            with counting(self.status, self._log):
                receipt = await self._say(client, "card", self._book.card())
            wait = self._settings.refresh
            if receipt is None or receipt.status == "refused":
                wait = self._settings.retry * (1 if receipt is None else _REFUSED_AGAIN)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._rolled.wait()

    async def _answer(self, client: Client, lists: asyncio.Queue[bytes]) -> None:
        while True:
            data = await lists.get()
            try:
                answer = self._book.answer(data)
            except RefusedError as error:
                count = self._book.refusals[error.reason]
                say_rarely(self._log, "list_refused", reason=error.reason, text=error.text, count=count)
                continue
            with counting(self.status, self._log):  # what is not received is asked for again
                await self._say(client, "answer", answer)

    async def _say(self, client: Client, kind: str, data: bytes) -> Receipt:
        """To the controller; returns when it is on its disk, or refused."""
        assert self._roster.controller is not None
        subject = subjects.topic(self._roster.federation, kind, self._keeper)
        reply = await apart(client.request(subject, data, timeout=self._settings.timeout))
        context = ("receipt", self._roster.federation, subjects.keeper_user(self._keeper))
        receipt = frames.read_receipt(data, frames.unframe(self._roster.controller, reply.data, *context))
        if receipt.status == "refused":
            facts = {"what": kind, "reason": receipt.reason, "text": receipt.text}
            say_rarely(self._log, "refused", count=self.status.refuse(receipt), **facts)
        elif kind == "answer":
            self.status.arrived()
        else:
            self.status.last_receipt_at = time.time()
        return receipt
