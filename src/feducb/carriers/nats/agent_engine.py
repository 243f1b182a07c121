"""An agent's engine over NATS."""

from __future__ import annotations

import asyncio
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
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.signed_roster import stamp
from feducb.storage import PeerBook

__all__ = ["NatsEngine"]

_LOOK = 1.0  # seconds between looks at whether the season, or its roster, is another one

Promises = Terms | Mapping[str, Terms]  # of all alike, or by name


def _of_everybody(terms: Promises, roster: Roster) -> dict[str, Terms]:
    everybody = dict.fromkeys(roster.agents, terms) if isinstance(terms, Terms) else dict(terms)
    if missing := roster.agents.keys() - everybody.keys():
        raise ConfigurationError("terms", sorted(missing), "terms of every agent of the roster")
    return everybody


class NatsEngine:
    """Ships an agent's outbox and fills its inbox; with a controller or on a graph, as the roster says.

    Guarantees:
        What is sent again is the same bytes. An item is reported sent after the controller, or JetStream for
        every neighbour, said that it has it stored. Raw uploads leave sealed for the controller alone.
    """

    def __init__(
        self,
        settings: NatsSettings,
        terms: Promises,
        *,
        log: Log = say_nothing,
        status: EngineStatus | None = None,
    ) -> None:
        """Settings are checked now.

        Args:
            settings: how the federation is reached.
            terms: of all agents, or of each.
            log: where trouble is said.
            status: to go on with, where an engine before this one had it.
        """
        if settings.agent is None:
            raise ConfigurationError("engine.agent", None, "the agent's name")
        self.status = status or EngineStatus()
        self._settings, self._agent, self._log = settings, settings.agent, log
        self._terms = terms
        promised = [terms] if isinstance(terms, Terms) else terms.values()
        self._bound = any(one.trust.padded for one in promised)  # rows of a season, to the keys of its start
        newest = settings.read_roster()
        if self._agent in newest.agents and not self._bound:  # else `Member` has the season's
            own_signer(settings, newest.agents[self._agent])
        if newest == settings.read_roster(newest.since - 1):  # else some may be in another season alone
            _of_everybody(terms, newest)
        if newest.edges is not None and settings.state is None:
            raise ConfigurationError("engine.state", None, "a file, on a graph")
        self.refusals = self.status.neighbours = RefusalCount(newest.names)  # on a graph, of others' releases
        self._link = Link(settings, self._agent, self.status, log)

    async def run(self, mailbox: Mailbox) -> None:
        """Until cancelled, by the roster of each season; raises on wrong settings alone."""
        while True:
            season = await mailbox.season()
            roster = self._settings.read_roster(season, newest_keys=not self._bound)
            work = asyncio.ensure_future(self._work(mailbox, roster))
            watch = asyncio.ensure_future(self._until_another(mailbox, roster, season))
            try:
                await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
                for done in (work, watch):
                    if done.done():
                        done.result()
            finally:
                for task in (work, watch):
                    task.cancel()
                await asyncio.gather(work, watch, return_exceptions=True)

    async def _until_another(self, mailbox: Mailbox, roster: Roster, season: int) -> None:
        """Until the open season has another roster."""
        seen = (season, stamp(self._settings.roster))
        while True:
            await asyncio.sleep(min(_LOOK, self._settings.refresh))
            now = await mailbox.season()
            if (now, stamp(self._settings.roster)) == seen:
                continue
            seen = (now, stamp(self._settings.roster))
            try:
                other = self._settings.read_roster(now, newest_keys=not self._bound)
            except ConfigurationError as error:  # a file that somebody is just putting there
                say_rarely(self._log, "roster_refused", count=self.status.fail(error), text=str(error))
                continue
            if other != roster:
                return

    async def _work(self, mailbox: Mailbox, roster: Roster) -> None:
        signer = Signer(self._settings.seed)
        desk = (self._settings, self._agent, roster, signer, self.status, mailbox, self._log)
        if roster.edges is None:
            trust = _of_everybody(self._terms, roster)[roster.names[0]].trust
            with_controller = WithKeepers if trust.padded else WithController
            await self._link.keep(with_controller(*desk).session)
            return
        if self._agent not in roster.agents:
            await asyncio.Event().wait()  # on a graph nobody sends to one that is not on it yet
        assert self._settings.state is not None
        with PeerBook(self._settings.state) as book:
            driver = PeerDriver(
                roster.topology(),
                self._agent,
                _of_everybody(self._terms, roster),
                seal=frames.OriginSeal(roster, self._agent, signer),
                roster=roster,
                book=book,
                on_refusal=self._say_refused,
            )
            driver.refusals, driver.refusing = self.refusals, self.status.refusing
            await self._link.keep(OnGraph(*desk, driver).session)

    def _say_refused(self, agent: str, brought_by: str, error: RefusedError, count: int) -> None:
        """A neighbour's release was refused."""
        facts = {"agent": agent, "brought_by": brought_by, "reason": error.reason, "text": error.text}
        say_rarely(self._log, "neighbour_refused", count=count, **facts)
