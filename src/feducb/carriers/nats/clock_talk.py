"""What time it is at the controller: asked now and then, since a clock that was set back sends nothing.

The answer is signed and has the question in it, so that the server cannot tell an older one again.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from feducb.carriers import nats_subjects as subjects
from feducb.carriers.nats.link import apart
from feducb.carriers.nats.link_status import EngineStatus
from feducb.protocol import frames
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.roster import Roster, Signer

if TYPE_CHECKING:
    from nats.aio.client import Client

__all__ = ["answer_time", "ask_time", "asks_for_time"]

_ASKED = b"time "  # and what nobody can know before
_KNOWN_BY = 16  # bytes of that
_KIND = "time"


async def ask_time(
    client: Client, settings: NatsSettings, roster: Roster, agent: str, status: EngineStatus
) -> None:
    """Ask the controller, and compare clocks; one of an earlier version answers something else."""
    assert roster.controller is not None
    question, sent = _ASKED + secrets.token_bytes(_KNOWN_BY), time.time()
    subject = subjects.topic(roster.federation, "ask", agent)
    reply = await apart(client.request(subject, question, timeout=settings.timeout))
    received = time.time()
    with suppress(ValueError):
        body = frames.unframe(roster.controller, reply.data, _KIND, roster.federation, agent)
        if body.startswith(question):
            status.compare_clocks(float(body.removeprefix(question)), sent, received)


def asks_for_time(data: bytes) -> bool:
    """Whether that is what somebody asks."""
    return data.startswith(_ASKED) and len(data) == len(_ASKED) + _KNOWN_BY


def answer_time(signer: Signer, federation: str, agent: str, question: bytes) -> bytes:
    """The answer for the agent that asked."""
    return frames.frame(signer, question + repr(time.time()).encode(), _KIND, federation, agent)
