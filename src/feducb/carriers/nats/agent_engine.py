"""An agent's engine over NATS."""

from __future__ import annotations

from collections.abc import Mapping

from feducb.agent.mailbox import Mailbox
from feducb.carriers.nats.link import Link, own_signer
from feducb.carriers.nats.link_status import EngineStatus, Log, say_nothing, say_rarely
from feducb.carriers.nats.on_graph import OnGraph
from feducb.carriers.nats.with_controller import WithController
from feducb.carriers.nats.with_keepers import WithKeepers
from feducb.carriers.peering import PeerDriver
from feducb.errors import ConfigurationError, RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol import frames
from feducb.protocol.admission import RefusalCount
from feducb.protocol.engine_table import NatsSettings
from feducb.storage import PeerBook

__all__ = ["NatsEngine"]


class NatsEngine:
    """Ships an agent's outbox and fills its inbox; with a controller or on a graph, as the roster says.

    Guarantees:
        What is sent again is the same bytes. An item is reported sent after the controller, or JetStream for
        every neighbour, said that it has it stored. Raw uploads leave sealed for the controller alone.
    """

    def __init__(
        self,
        settings: NatsSettings,
        terms: Terms | Mapping[str, Terms],
        *,
        log: Log = say_nothing,
        status: EngineStatus | None = None,
    ) -> None:
        if settings.agent is None:
            raise ConfigurationError("engine.agent", None, "the agent's name")
        self.status = status or EngineStatus()
        self._settings, self._agent, self._log = settings, settings.agent, log
        self._roster = settings.read_roster()
        self._signer = own_signer(settings, self._roster.agents[self._agent])
        names = self._roster.agents
        self._terms = dict.fromkeys(names, terms) if isinstance(terms, Terms) else dict(terms)
        if missing := names.keys() - self._terms.keys():
            raise ConfigurationError("terms", sorted(missing), "terms of every agent of the roster")
        if self._roster.edges is not None and settings.state is None:
            raise ConfigurationError("engine.state", None, "a file, on a graph")
        self.refusals = self.status.neighbours = RefusalCount(names)  # on a graph, of others' releases
        self._link = Link(settings, self._agent, self.status, log)

    async def run(self, mailbox: Mailbox) -> None:
        """Until cancelled; raises on wrong settings alone."""
        desk = (self._settings, self._agent, self._roster, self._signer, self.status, mailbox, self._log)
        if self._roster.edges is None:
            with_controller = WithKeepers if self._terms[self._agent].trust.padded else WithController
            await self._link.keep(with_controller(*desk).session)
            return
        assert self._settings.state is not None
        with PeerBook(self._settings.state) as book:
            driver = PeerDriver(
                self._roster.topology(),
                self._agent,
                self._terms,
                seal=frames.OriginSeal(self._roster, self._agent, self._signer),
                roster=self._roster,
                book=book,
                on_refusal=self._say_refused,
            )
            driver.refusals, driver.refusing = self.refusals, self.status.refusing
            await self._link.keep(OnGraph(*desk, driver).session)

    def _say_refused(self, agent: str, brought_by: str, error: RefusedError, count: int) -> None:
        """A neighbour's release was refused."""
        facts = {"agent": agent, "brought_by": brought_by, "reason": error.reason, "text": error.text}
        say_rarely(self._log, "neighbour_refused", count=count, **facts)
