"""What is wrong with an agent, a controller or a keeper, as data: found by conditions over plain facts.

There is one list of conditions for each of the three (`agent.health`, `controller.controller_health`), and
whoever shows how somebody stands asks it: page, status and its exit status, log, metrics. A condition reads
facts that are shown anyway, and returns a sentence that says what is wrong and what to do, or None. Moments
are absolute in sentences, so that none changes while nothing does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

__all__ = [
    "DOUBTFUL",
    "GREEN",
    "STOPPED",
    "TROUBLE",
    "WRONG",
    "Condition",
    "Facts",
    "News",
    "Plain",
    "Severity",
    "exit_status",
    "find",
    "moment",
    "some_of",
]

Facts = Mapping[str, Any]
Severity = Literal["wrong", "doubtful"]
WRONG: Final[Severity] = "wrong"  # something does not happen that should
DOUBTFUL: Final[Severity] = "doubtful"  # it goes on, but may not do what is hoped for

# Exit statuses of `feducb agent | controller | keeper status`; 2 is bad input, as everywhere.
GREEN, STOPPED, TROUBLE = 0, 1, 3

_NAMED = 5  # agents in one sentence
Plain = dict[str, str]  # ``kind``, ``severity``, ``says``


class Condition(NamedTuple):
    """A kind of trouble, and how it is found: ``sentence`` returns what to say, or None if all is well."""

    kind: str
    severity: Severity
    sentence: Callable[[Facts], str | None]


def find(conditions: Sequence[Condition], facts: Facts) -> list[Plain]:
    """All that is wrong, as plain data; what does not happen before what is doubtful.

    Args:
        conditions: one of the lists.
        facts: how somebody stands; ``at`` says when.
    """
    found = [(one, says) for one in conditions if (says := one.sentence(facts))]
    found.sort(key=lambda pair: pair[0].severity != WRONG)
    return [{"kind": one.kind, "severity": one.severity, "says": says} for one, says in found]


def exit_status(troubles: Iterable[Plain]) -> int:
    """Of a command that says how somebody stands: 0 green, 1 it does not run, 3 there is trouble."""
    kinds = {one["kind"] for one in troubles}
    return STOPPED if "stopped" in kinds else TROUBLE if kinds else GREEN


class News:
    """What came and what is over since the last look, by kind, for a log."""

    def __init__(self) -> None:
        self._known: dict[str, Plain] = {}

    def since(self, troubles: Iterable[Plain]) -> tuple[list[Plain], list[Plain]]:
        """What came, and what is over."""
        now = {one["kind"]: one for one in troubles}
        came = [one for kind, one in now.items() if kind not in self._known]
        over = [one for kind, one in self._known.items() if kind not in now]
        self._known = now
        return came, over


def moment(at: float) -> str:
    """As sentences name it."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def some_of(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
