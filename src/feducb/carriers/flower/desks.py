"""What the ServerApp does with what sites bring, by whom agents trust: sums of releases, or of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from feducb.carriers.flower.exchange import MOST_MESSAGES, Answer
from feducb.controller.collector import open_collector
from feducb.errors import ConfigurationError
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.admission import Receipt
from feducb.protocol.calendar import Calendar
from feducb.protocol.pads import Label
from feducb.protocol.roster import Roster, Signer
from feducb.storage import RowBook
from feducb.storage.flower_book import FlowerBook

__all__ = ["Desk", "RowDesk", "SumDesk", "open_desk", "seconds"]

_MOST_TOLD = MOST_MESSAGES // 16  # rows in one question, so that none is large


class Desk(Protocol):
    """Takes in, publishes, and knows what to tell whom; a call that returned is on disk."""

    def take(self, key: str, answer: Answer, *, now: float) -> list[Receipt]:
        """Take a site's parcels in, then its keeper's words: a receipt for each, in this order.

        Args:
            key: the digest of the SuperNode's key, which Flower has checked.
            answer: what the site says.
            now: in seconds since 1970.
        """
        ...

    def settle(self, *, now: float) -> list[str]:
        """Publish what is due; whatever is new, in words for the log."""
        ...

    def news(self, place: bytes | None) -> list[bytes]:
        """What an agent is told that is as far as this; None if that is not known yet."""
        ...

    def rows_for(self, agent: str) -> bytes:
        """The list that the keeper at this agent has not answered; nothing if there is none."""
        ...

    def close(self) -> None:
        """Give the file back."""
        ...


class SumDesk:
    """Releases: an agent is known by its SuperNode's key, and gets the newest sum."""

    def __init__(self, book: FlowerBook) -> None:
        self.book = book
        self._newest = b""

    def take(self, key: str, answer: Answer, *, now: float) -> list[Receipt]:
        """Releases alone."""
        return self.book.receive([(key, payload) for payload in answer.parcels], now=now)

    def settle(self, *, now: float) -> list[str]:
        """Sums."""
        self.book.publish_due(now=now)
        named = self.book.newest()
        if named is None or named.payload == self._newest:
            return []
        self._newest, total = named.payload, messages.decode(named.payload)
        return [f"sum {total.number} of season {total.season}: {total.agents} agents"]

    def news(self, place: bytes | None) -> list[bytes]:
        """The newest sum."""
        return [self._newest] if self._newest else []

    def rows_for(self, agent: str) -> bytes:
        """There are no keepers."""
        return b""

    def close(self) -> None:
        """Give the file back."""
        self.book.close()


class RowDesk:
    """Padded rows: an agent says who it is, and the signature in what it sends proves it.

    So no SuperNode's key stands for a name, and whoever carries a row can only carry it.
    """

    def __init__(self, book: RowBook) -> None:
        self.book = book
        self._cards: list[bytes] = []
        self._asks: dict[str, bytes] = {}
        self._waiting = ""

    def take(self, key: str, answer: Answer, *, now: float) -> list[Receipt]:
        """Rows, and keepers' cards and answers."""
        rows = self.book.receive([(answer.agent, payload) for payload in answer.parcels], now=now)
        return rows + self.book.hear([(answer.agent, word) for word in answer.words], now=now)

    def settle(self, *, now: float) -> list[str]:
        """Lists, and rows that open; what the open row waits for is said when that changes."""
        said = [
            f"row {row.number} of season {row.season}: "
            + (f"{len(row.names)} agents" if row.names else "closed empty")
            for row in self.book.publish_due(now=now)
        ]
        self._cards, self._asks = self.book.cards(), self.book.asks()
        waiting = self.book.facts()["waiting"]
        if waiting and waiting != self._waiting:
            said.append(waiting)
        self._waiting = waiting
        return said

    def news(self, place: bytes | None) -> list[bytes]:
        """The rows that were over since. Then keepers' cards, at every visit: they are small.

        In this order, so that whoever is a season behind hears the end of its own before it refuses a card.
        """
        if place is None:
            return self._cards
        return self.book.since(Label.from_bytes(place) if place else None)[:_MOST_TOLD] + self._cards

    def rows_for(self, agent: str) -> bytes:
        """The open row's list."""
        return self._asks.get(agent, b"")

    def close(self) -> None:
        """Give the file back."""
        self.book.close()


def open_desk(run_config: Mapping[str, Any]) -> Desk:
    """The desk that the run's settings ask for, with the book that they name."""
    book = _path(run_config, "book")
    terms = Terms.from_json(_path(run_config, "terms").read_text(encoding="utf-8"))
    quorum, deadline = run_config.get("quorum") or None, seconds(run_config, "deadline-seconds")
    close_after = seconds(run_config, "close-after-seconds")
    if not terms.trust.padded:
        if close_after:
            raise ConfigurationError("close-after-seconds", close_after, "0, but under trust keepers")
        agents = run_config.get("agents", 0)
        return SumDesk(FlowerBook(book, terms, agents=agents, quorum=quorum, deadline=deadline))
    roster = Roster.read(_path(run_config, "roster"))
    opened = open_collector(
        book,
        dict.fromkeys(roster.agents, terms),
        quorum=quorum,
        deadline=deadline or None,
        close_after=close_after or None,
        season=run_config.get("season", 1),
        calendar=_calendar(run_config),
        signing=(roster, Signer(_path(run_config, "seed"))),
    )
    assert isinstance(opened, RowBook)
    return RowDesk(opened)


def _calendar(run_config: Mapping[str, Any]) -> Calendar | None:
    """Which season runs when, as at the agents; None if the run is told a number."""
    start = run_config.get("start") or ""
    if not start:
        return None
    try:
        moment = datetime.fromisoformat(str(start))
    except ValueError:
        moment = datetime.min
    if moment.tzinfo is None:
        raise ConfigurationError("start", start, "a time with its zone, such as 2027-01-01T00:00:00Z")
    return Calendar(
        moment.timestamp(), seconds(run_config, "season-seconds"), run_config.get("first-season", 1)
    )


def seconds(run_config: Mapping[str, Any], name: str) -> float:
    """A time among the run's settings."""
    value = run_config.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ConfigurationError(name, value, "seconds, at least 0")
    return float(value)


def _path(run_config: Mapping[str, Any], name: str) -> Path:
    path = Path(str(run_config.get(name, "")))
    if not path.is_absolute():
        raise ConfigurationError(name, run_config.get(name), "an absolute path at the SuperLink")
    return path
