"""What a controller's link does besides where rows are padded: asks keepers, and tells agents what is new."""

from __future__ import annotations

import json
import time
from typing import Any

from feducb.protocol import frames
from feducb.protocol.pads import Label
from feducb.storage import RowBook

__all__ = ["KeeperTalk"]

_ASK_AGAIN = 3.0  # seconds
_NEWS_BYTES = 2**18  # of one reply; an agent asks again until there is nothing new
_NEWS_ROWS = 64  # and no more rows than this
_WORTH_SAYING = 10.0  # seconds that a row waits before others are told for whom


class KeeperTalk:
    """Who was asked when, and what an agent has not heard yet."""

    def __init__(self, book: RowBook) -> None:
        self._book = book
        self._asked: dict[str, tuple[bytes, float]] = {}  # by keeper: which list, and when
        self.again = 0  # how often keepers were asked once more for the same list

    def asks_due(self) -> dict[str, bytes]:
        """Lists to send now: new ones at once, others again and again, always the same bytes."""
        now, asks = time.monotonic(), self._book.asks()
        due, fresh = {}, False
        for keeper, ask in asks.items():
            last, at = self._asked.get(keeper, (b"", 0.0))
            if last != ask or now - at >= _ASK_AGAIN:
                due[keeper], fresh = ask, fresh or last != ask
        if due:
            self.again = 0 if fresh else self.again + 1
        sent = {keeper: (ask, now) for keeper, ask in due.items()}
        self._asked = {keeper: one for keeper, one in (self._asked | sent).items() if keeper in asks}
        return due

    def next_ask(self) -> float | None:
        """In how many seconds a keeper is to be asked again; None if all have answered."""
        if not self._asked:
            return None
        return max(0.0, min(at for _, at in self._asked.values()) + _ASK_AGAIN - time.monotonic())

    def forget(self, keeper: str) -> None:
        """It has just come: ask it at once."""
        self._asked.pop(keeper, None)

    def standing(self) -> dict[str, Any]:
        """For whom the open row waits; in words once that has lasted."""
        facts = self._book.facts()
        names = ("row", "attempt", "waits_for_keepers", "waits_for_agents", "waiting")
        told = {name: facts[name] for name in names}
        if facts["since"] is not None and time.time() - facts["since"] < _WORTH_SAYING:
            told |= {"waits_for_keepers": [], "waits_for_agents": [], "waiting": ""}
        return told

    def news(self, place: bytes, *, most: int) -> bytes:
        """What to tell an agent: for whom the open row waits, keepers' cards, rows that are over.

        Args:
            place: the label of the newest row that it knows to be over; empty if it knows none.
            most: bytes that a message may have.
        """
        parts = [json.dumps(self.standing()).encode(), *self._book.cards()]
        left = min(most, _NEWS_BYTES) - sum(map(len, parts)) - 1024
        for opened in self._book.since(Label.from_bytes(place) if place else None, most=_NEWS_ROWS):
            left -= len(opened) + 4
            if left < 0:
                break
            parts.append(opened)
        return frames.join(parts)
