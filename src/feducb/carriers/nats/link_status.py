"""What is known about an engine's link: counts, the last troubles in words, and when to say them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from feducb.protocol.admission import REASONS, Receipt, RefusalCount

__all__ = ["EngineStatus", "Log", "say_nothing", "worth_saying"]

_MOST_NAMED = 3  # neighbours in one sentence

Log = Callable[..., None]  # an event's name, and facts about it


def say_nothing(event: str, **facts: object) -> None:
    """A log that nobody keeps."""


def worth_saying(count: int) -> bool:
    """Whether this is the 1st, 2nd, 4th, … time: trouble that lasts does not fill the log."""
    return count & (count - 1) == 0


@dataclass(slots=True)
class EngineStatus:
    """What an engine has done; for dashboards and logs, without private data.

    Attributes:
        connected: whether there is a session now.
        sessions: how many there were.
        failures: attempts and sessions that failed since one lasted.
        sent: releases or uploads that the other side has on disk.
        last_receipt_at: when it last said so, in seconds since 1970.
        absorbed: sums that were new.
        newest: season and number of the newest one.
        members: who is in it.
        refused: own messages that were refused, by reason.
        last_refusal: the last one, in the other side's words.
        last_refusal_at: when it came.
        neighbours: on a graph, others' releases that were refused here, by agent and reason.
        refusing: on a graph, by agent whose newest release was refused here, why.
        sum_refused: why the newest sum was refused; empty if it was not.
        errors: by kind.
        unanswered: exchanges in a row that failed although there was a connection.
        last_error: the last one, in words.
        last_error_at: when it happened.
    """

    connected: bool = False
    sessions: int = 0
    failures: int = 0
    sent: int = 0
    last_receipt_at: float | None = None
    absorbed: int = 0
    newest: tuple[int, int] | None = None
    members: tuple[str, ...] = ()
    refused: Counter[str] = field(default_factory=Counter)
    last_refusal: str = ""
    last_refusal_at: float | None = None
    neighbours: RefusalCount = field(default_factory=lambda: RefusalCount.of(()))
    refusing: dict[str, str] = field(default_factory=dict)
    sum_refused: str = ""
    errors: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0
    last_error: str = ""
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

    @property
    def trouble(self) -> str | None:
        """What is wrong now, as a sentence; None if nothing is known to be."""
        if not self.connected:
            return f"The broker is not reached. {self.last_error}" if self.failures else None
        if self.last_refusal_at is not None and self.last_refusal_at > (self.last_receipt_at or 0.0):
            return f"Releases are refused. {self.last_refusal}"
        if self.refusing:
            why = "; ".join(f"{name}: {text}" for name, text in sorted(self.refusing.items())[:_MOST_NAMED])
            more = len(self.refusing) - _MOST_NAMED
            return f"Releases of neighbours are refused here. {why}" + (f"; {more} more" if more > 0 else "")
        if self.sum_refused:
            return f"Sums are refused here. {self.sum_refused}"
        if self.unanswered > 1:
            return f"The broker is reached, but nobody answers. {self.last_error}"
        return None

    def as_dict(self) -> dict[str, Any]:
        """In plain values, for an operator."""
        return {
            "connected": self.connected,
            "trouble": self.trouble,
            "sessions": self.sessions,
            "failures": self.failures,
            "last_error": self.last_error or None,
            "last_error_at": self.last_error_at,
            "sent": self.sent,
            "last_receipt_at": self.last_receipt_at,
            "refused": dict(sorted(self.refused.items())),
            "last_refusal": self.last_refusal or None,
            "last_refusal_at": self.last_refusal_at,
            "refused_neighbours": self.neighbours.as_dict(),
        }
