"""Which carrier an agent's file asks for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from feducb.agent.agent_file import AgentFile
from feducb.agent.mailbox import Engine, EngineFacts, Mailbox
from feducb.errors import ConfigurationError
from feducb.privacy.terms import Terms
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
    settings = NatsSettings.from_table(file.engine, base=file.path.parent)
    settings = replace(settings, agent=settings.agent or file.agent.name)

    def terms_of(season: int) -> Terms | Mapping[str, Terms]:
        """They follow from how many agents the season's roster has."""
        agent = file.agent if season == file.season else file.of_season(season).agent
        return agent.terms_of_all or agent.terms

    engine = NatsEngine(settings, terms_of, log=_tell)
    return engine.run, engine.status


def _tell(event: str, **facts: object) -> None:
    """The engine's word in the service's log: all but one are trouble."""
    log.log(logging.INFO if event == "connected" else logging.WARNING, event, extra=facts)


async def _leave_it_to_the_door(mailbox: Mailbox) -> None:
    await asyncio.Event().wait()
