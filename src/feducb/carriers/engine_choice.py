"""Which carrier an agent's file asks for."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace

from feducb.agent.agent_file import AgentFile, read_agent_file
from feducb.agent.kept import misfit, stored_settings
from feducb.agent.mailbox import Engine, EngineFacts, Mailbox
from feducb.errors import ConfigurationError, StoreError
from feducb.protocol.engine_table import NatsSettings
from feducb.system import optional

__all__ = ["engine_of"]

log = logging.getLogger("feducb.service")


def engine_of(file: AgentFile) -> tuple[Engine | None, EngineFacts | None]:
    """What carries this agent's releases, None if it is on its own; and how that goes, if it is known."""
    kind = file.engine.get("kind", "none")
    if kind == "none":
        if file.agent.agents > 1:
            reason = "the federation has more agents, but nothing carries releases"
            log.warning("no_engine", extra={"reason": reason})
        return None, None
    if kind == "door":  # somebody else comes to /v1/outbox and /v1/inbox: Flower's ClientApp, for one
        return _leave_it_to_the_door, None
    if kind != "nats":
        raise ConfigurationError("engine.kind", kind, "none, nats or door")
    with optional("NATS", "nats"):
        from feducb.carriers.nats import NatsEngine
        from feducb.carriers.nats.link_status import EngineStatus
    status = EngineStatus()

    def engine_now() -> NatsEngine:
        """By what the files say by now: it is asked anew with every season."""
        now = read_agent_file(file.path)
        opened = now.agent
        with suppress(StoreError):  # a file of an earlier version, or none yet
            opened = now.agent if misfit(now.store, now.agent) is None else stored_settings(now.store)
        settings = NatsSettings.from_table(now.engine, base=now.path.parent)
        settings = replace(settings, agent=settings.agent or opened.name)
        return NatsEngine(settings, opened.terms_of_all or opened.terms, log=_tell, status=status)

    engine_now()  # whatever is wrong with it is said now

    async def run(mailbox: Mailbox) -> None:
        await engine_now().run(mailbox)

    return run, status


def _tell(event: str, **facts: object) -> None:
    """The engine's word in the service's log: all but one are trouble."""
    log.log(logging.INFO if event == "connected" else logging.WARNING, event, extra=facts)


async def _leave_it_to_the_door(mailbox: Mailbox) -> None:
    await asyncio.Event().wait()
