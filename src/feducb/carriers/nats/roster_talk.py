"""How a new roster gets around: the controller tells it to whoever asks, and it proves itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from feducb.carriers import nats_subjects as subjects
from feducb.carriers.nats.link import apart
from feducb.carriers.nats.link_status import EngineStatus, Log, say_rarely
from feducb.errors import RefusedError
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.roster import Roster
from feducb.protocol.signed_roster import keep_roster, newest_roster

if TYPE_CHECKING:
    from nats.aio.client import Client

__all__ = ["answer_roster", "ask_roster", "asks_for_roster", "in_time"]

_ASKED = b"roster "  # and the newest version that is known


async def ask_roster(
    client: Client, settings: NatsSettings, user: str, *, status: EngineStatus, log: Log
) -> None:
    """Ask the controller for the next version of the roster, and for the one after it, until there is none.

    The first signed one comes by hand: before it, controller and broker may not know the question.
    """
    roster: Roster | None = newest_roster(settings.roster, settings.ca)
    while roster is not None and roster.signature:
        subject = subjects.topic(roster.federation, "ask", user)
        asked = _ASKED + str(roster.version).encode()
        reply = await apart(client.request(subject, asked, timeout=settings.timeout))
        if not reply.data:
            return
        try:
            roster = keep_roster(settings.roster, settings.ca, reply.data)
        except RefusedError as error:
            count = status.fail(error)
            say_rarely(log, "roster_refused", count=count, reason=error.reason, text=error.text)
            return
        if roster is not None:
            log("roster", version=roster.version, season=roster.since, agents=len(roster.agents))


def asks_for_roster(data: bytes) -> bool:
    """Whether that is what somebody asks for."""
    return data.startswith(_ASKED)


def in_time(rosters: Sequence[Roster], bound: int, season: int) -> list[Roster]:
    """Those that may be told where rows of the open season are bound to one version: not what is too late.

    Who took a later one of the same season would be in none of its rows. What comes after such a one waits
    with it, since versions are told in order.
    """
    return list(takewhile(lambda one: one.version <= bound or one.since > season, rosters))


def answer_roster(asked: bytes, told: Sequence[Roster], *, most: int) -> bytes:
    """The next version after the one that is known there, if there is one; no more than so many bytes.

    Not the newest: one between holds in the seasons before the newest does, and is no news after it.

    Args:
        asked: the question.
        told: the versions that may be told, oldest first.
        most: of bytes; a version that is longer is passed over.
    """
    known = asked.removeprefix(_ASKED)
    if not known.isdigit() or len(known) > 9:
        return b""
    later = (one.to_json().encode() for one in told if one.signature and one.version > int(known))
    return next((text for text in later if len(text) <= most), b"")
