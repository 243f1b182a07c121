"""Whom a controller hears, and how much of each: a subscription a subject, good for so many messages.

When they are used up the broker itself stops delivering (an unsubscription ahead of time), and the sender is
told that nobody listens. So a flood ends at the broker: it takes no place on the connection that everybody's
messages come in on, and none of them is looked at.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from feducb.carriers.nats.link import apart

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

__all__ = ["Allowance", "Hearing"]

_LOOK = 0.25  # seconds between looks at who has used up what


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much of one kind anybody may send: enough for an agent that comes back after a long time."""

    burst: int = 512  # messages at once
    rate: float = 64.0  # a second, after that
    unread: int = 2048  # that wait to be looked at; no more than as many bytes:
    unread_bytes: int = 2**24


_USUAL = Allowance()


@dataclass(slots=True)
class _Heard:
    subscription: Subscription
    granted: int  # messages that the broker lets through
    since: float  # when they were granted


class Hearing:
    """The subscriptions of one session; one task calls it."""

    def __init__(
        self,
        client: Client,
        on_message: Callable[[Msg], Awaitable[None]],
        on_used_up: Callable[[str], None],
        allowance: Allowance = _USUAL,
    ) -> None:
        self._client, self._on_message, self._allowance = client, on_message, allowance
        self._on_used_up = on_used_up  # is told the subject of whoever sent more than that
        self._heard: dict[str, _Heard] = {}

    async def follow(self, wanted: Callable[[], Iterable[str]]) -> None:
        """Hear these subjects, and those that are wanted later, until cancelled; refill what is used up."""
        while True:
            for subject in wanted():
                if subject not in self._heard:
                    await self._grant(subject, self._allowance.burst)
            await self.refill(time.monotonic())
            await asyncio.sleep(_LOOK)

    async def refill(self, now: float) -> None:
        """A bucket that fills at the rate: grant what is in it where more than half of it was used."""
        for subject, heard in list(self._heard.items()):
            used = heard.subscription.delivered
            if 2 * used < heard.granted:
                continue
            gained = int(self._allowance.rate * (now - heard.since))
            left = heard.granted - used
            if gained and left <= 0:
                self._on_used_up(subject)
            if gained and (left <= 0 or left + gained >= self._allowance.burst):
                await self._grant(subject, min(self._allowance.burst, max(0, left) + gained))
                if left > 0:  # whoever is heard twice for a moment says nothing new
                    await apart(heard.subscription.unsubscribe())

    async def _grant(self, subject: str, messages: int) -> None:
        reading = await apart(
            self._client.subscribe(
                subject,
                cb=self._on_message,
                pending_msgs_limit=self._allowance.unread,
                pending_bytes_limit=self._allowance.unread_bytes,
            )
        )
        await apart(reading.unsubscribe(limit=messages))
        self._heard[subject] = _Heard(reading, messages, time.monotonic())
