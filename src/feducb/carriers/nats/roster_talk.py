"""How a new roster gets around: the controller tells it to whoever asks, and it proves itself."""

from __future__ import annotations

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

__all__ = ["answer_roster", "ask_roster", "asks_for_roster"]

_ASKED = b"roster "  # and the newest version that is known


async def ask_roster(
    client: Client, settings: NatsSettings, user: str, *, status: EngineStatus, log: Log
) -> None:
    """Ask the controller whether there is a newer roster, and keep it if there is.

    The first signed one comes by hand: before it, controller and broker may not know the question.
    """
    newest = newest_roster(settings.roster, settings.ca)
    if not newest.signature:
        return
    subject = subjects.topic(newest.federation, "ask", user)
    asked = _ASKED + str(newest.version).encode()
    reply = await apart(client.request(subject, asked, timeout=settings.timeout))
    if not reply.data:
        return
    try:
        roster = keep_roster(settings.roster, settings.ca, reply.data)
    except RefusedError as error:
        say_rarely(log, "roster_refused", count=status.fail(error), reason=error.reason, text=error.text)
        return
    if roster is not None:
        log("roster", version=roster.version, season=roster.since, agents=len(roster.agents))


def asks_for_roster(data: bytes) -> bool:
    """Whether that is what somebody asks for."""
    return data.startswith(_ASKED)


def answer_roster(asked: bytes, newest: Roster, *, most: int) -> bytes:
    """The newest roster, if it is newer than the one that is known there; no more than so many bytes."""
    known = asked.removeprefix(_ASKED)
    if not newest.signature or not known.isdigit() or len(known) > 9 or int(known) >= newest.version:
        return b""
    text = newest.to_json().encode()
    return text if len(text) <= most else b""
