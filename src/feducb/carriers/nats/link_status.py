"""What is known about an engine's link: counts, the last troubles in words, and when to say them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from feducb.protocol.admission import REASONS, Receipt, RefusalCount

__all__ = ["EngineStatus", "Log", "say_nothing", "say_rarely", "worth_saying"]

Log = Callable[..., None]  # an event's name, and facts about it


def say_nothing(event: str, **facts: object) -> None:
    """A log that nobody keeps."""


def say_rarely(log: Log, event: str, *, count: int, **facts: object) -> None:
    """Say what happened so many times, when that is worth it."""
    if worth_saying(count):
        log(event, **facts, count=count)


def worth_saying(count: int) -> bool:
    """Whether this is the 1st, 2nd, 4th, … time: trouble that lasts does not fill the log."""
    return count & (count - 1) == 0


@dataclass(slots=True)
class EngineStatus:
    """What an engine has done; for dashboards and logs, without private data. Times: seconds since 1970."""

    connected: bool = False
    sessions: int = 0  # how many there were
    failures: int = 0  # attempts and sessions that failed since one lasted
    sent: int = 0  # releases or uploads that the other side has on disk
    last_receipt_at: float | None = None  # when it last said so
    absorbed: int = 0  # sums that were new
    newest: tuple[int, int] | None = None  # season and number of the newest one
    members: tuple[str, ...] = ()  # who is in it
    refused: Counter[str] = field(default_factory=Counter)  # own messages that were, by reason
    last_refusal: str = ""  # in the other side's words
    last_refusal_at: float | None = None
    refused_by: dict[str, str] = field(default_factory=dict)  # on a graph, which neighbours do, and why
    # On a graph, others' releases that were refused here; and by agent whose newest one was, why.
    neighbours: RefusalCount = field(default_factory=lambda: RefusalCount(()))
    refusing: dict[str, str] = field(default_factory=dict)
    sum_refused: str = ""  # why the newest sum was refused here; empty if it was not
    rows: dict[str, Any] | None = None  # where rows are padded: for whom the open one waits, and in words
    errors: Counter[str] = field(default_factory=Counter)  # by kind
    clock_off: float | None = None  # seconds by which the own clock is ahead of the controller's, at least
    unanswered: int = 0  # exchanges in a row that failed although there was a connection
    last_error: str = ""  # in words
    last_error_at: float | None = None

    def fail(self, error: BaseException) -> int:
        """Count an error; kinds are types, so there are few. Returns how many of its kind there were."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        kind = type(error).__name__
        self.errors[kind] += 1
        self.last_error, self.last_error_at = f"{kind}: {error}"[:500], time.time()
        return self.errors[kind]

    def arrived(self) -> None:
        """A message is on the other side's disk."""
        self.sent += 1
        self.last_receipt_at = time.time()

    def refuse(self, receipt: Receipt) -> int:
        """Count a refusal of an own message; returns how many there were for this reason."""
        reason = receipt.reason if receipt.reason in REASONS else "malformed"
        self.refused[reason] += 1
        self.last_refusal, self.last_refusal_at = f"{reason}: {receipt.text}"[:500], time.time()
        return self.refused[reason]

    def compare_clocks(self, theirs: float, sent: float, received: float) -> None:
        """Note by how much the own clock is off theirs at least: they read it between these two moments."""
        early, late = sent - theirs, received - theirs
        self.clock_off = early if early > 0.0 else late if late < 0.0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """In plain values, for an operator."""
        return {
            "connected": self.connected,
            "sessions": self.sessions,
            "failures": self.failures,
            "last_error": self.last_error or None,
            "last_error_at": self.last_error_at,
            "sent": self.sent,
            "last_receipt_at": self.last_receipt_at,
            "refused": dict(sorted(self.refused.items())),
            "last_refusal": self.last_refusal or None,
            "last_refusal_at": self.last_refusal_at,
            "refused_by": dict(sorted(self.refused_by.items())),
            "refused_neighbours": self.neighbours.as_dict(),
            "refusing": dict(self.refusing),
            "sum_refused": self.sum_refused or None,
            "unanswered": self.unanswered,
            "newest": self.newest,
            "members": list(self.members),
            "clock_off": self.clock_off,
            "rows": self.rows,
        }
