"""An agent's sessions where rows are padded: rows up; keepers' cards and rows that are over down."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from feducb.carriers import nats_subjects as subjects
from feducb.carriers.nats.link import apart, counting
from feducb.carriers.nats.with_controller import WithController
from feducb.errors import RefusedError
from feducb.protocol import frames
from feducb.protocol.secure_rows import is_card, who_is_in

if TYPE_CHECKING:
    from nats.aio.client import Client

__all__ = ["WithKeepers"]


@dataclass(frozen=True, slots=True)
class WithKeepers(WithController):
    """Sessions of an agent whose rows leave under pads."""

    behind: asyncio.Event = field(default_factory=asyncio.Event)  # a row was missed, so ask at once

    async def _take(self, data: bytes) -> None:
        """A row that is over, as it was told to all; it proves itself."""
        await self._hear(data)

    async def _hear(self, data: bytes) -> bool:
        """Hand over what is said about secure sums; whether it was new."""
        try:
            new = await self.mailbox.hear(data)
        except ValueError as error:
            if isinstance(error, RefusedError) and error.reason == "order":
                self.behind.set()
                return False
            self.status.sum_refused = str(error)[:500]
            self.fail("sum_refused", error)
            return False
        if new and not is_card(data):
            label, self.status.members = who_is_in(data, self.roster)
            self.status.newest, self.status.absorbed = (label.season, label.row), self.status.absorbed + 1
            self.status.sum_refused, self.status.rows = "", None
        return new

    async def _ask(self, client: Client) -> None:
        """For what is new: at the start, when a row was missed, and now and then."""
        subject = subjects.topic(self.roster.federation, "ask", self.agent)
        while True:
            pause = self.settings.retry
            self.behind.clear()
            with counting(self.status, self.log):
                place = await self.mailbox.place()
                reply = await apart(client.request(subject, place, timeout=self.settings.timeout))
                pause = 0.0 if await self._take_news(reply.data) else self.settings.refresh
            try:
                async with asyncio.timeout(pause * random.uniform(0.75, 1.25)):
                    await self.behind.wait()
            except TimeoutError:
                continue

    async def _take_news(self, data: bytes) -> bool:
        """Whether any of it was new: then there may be more."""
        assert self.roster.controller is not None
        context = ("news", self.roster.federation, self.agent)
        standing, *items = frames.split(frames.unframe(self.roster.controller, data, *context))
        new = [await self._hear(item) for item in items]
        told = json.loads(standing)
        self.status.rows = told if isinstance(told, dict) else None
        return any(new)
