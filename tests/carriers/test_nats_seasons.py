"""A federation over a real nats-server whose seasons roll by the clock, which the test drives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from nats_world import Broker, running, until

from feducb.agent import Agent, AgentSettings, Outcome
from feducb.carriers.local import AgentMailbox
from feducb.carriers.nats import NatsController, NatsEngine, NatsKeeper, make_streams
from feducb.config import Budget, Problem
from feducb.controller.collector import open_collector
from feducb.protocol.graphs import parse_topology
from feducb.protocol.hiding import Member
from feducb.protocol.roster import Signer
from feducb.storage.keeper_book import KeeperBook
from feducb.trust import require_trust

START, SEASON, RELEASES = 1_800_000_000.0, 600.0, 3
NAMES = ("north", "south", "west", "east")
SETTINGS = AgentSettings(
    problem=Problem(dim=2),
    budget=Budget(epsilon=4.0, delta=1e-6),
    agents=4,
    agents_per_person=1,
    decisions=1000,
    releases=RELEASES,
    schedule="periodic",
    season=SEASON,
    window=20.0,
    start=START,
)


class RungMailbox(AgentMailbox):
    """A mailbox that is looked into again and again, as the service rings it."""

    async def wait(self) -> None:
        await asyncio.sleep(0.02)


class Rolling:
    """Everybody's files, at work over a broker, by one clock."""

    def __init__(self, broker: Broker, folder: Path, stack: ExitStack, trust: str) -> None:
        self.now, self.broker, self.trust = START + 1.0, broker, trust
        self.refused = 0
        settings = replace(SETTINGS, trust=require_trust("nobody" if broker.topology else trust))
        if broker.topology is not None:
            cliques = {
                name: (tuple(broker.topology.labels[one] for one in broker.topology.members(place)))
                for place, name in enumerate(broker.topology.labels)
            }
            settings = replace(
                settings,
                trust=require_trust(trust),
                clique=cliques["north"],
                cliques=len(broker.topology.cliques),
            )
        self.settings = settings
        self.agents: dict[str, Agent] = {}
        for name in NAMES:
            seed = broker.folder / "agents" / name / "agent.seed"
            padded = settings.trust.padded
            self.agents[name] = stack.enter_context(
                Agent.open(
                    folder / f"{name}.db",
                    replace(settings, name=name),
                    clock=self.clock,
                    member=Member(name, broker.roster, Signer(seed)) if padded else None,
                )
            )
        self.works: list[Awaitable[None]] = []
        if broker.topology is None:
            self._make_controller(folder, stack)
        for name, agent in self.agents.items():
            engine = NatsEngine(broker.settings(name), settings.terms)
            self.works.append(engine.run(RungMailbox(agent)))

    def _make_controller(self, folder: Path, stack: ExitStack) -> None:
        broker, settings = self.broker, self.settings
        calendar, own = settings.common_calendar, broker.controller_settings()
        signer = Signer(own.seed)
        terms = dict.fromkeys(NAMES, settings.terms)
        padded = settings.trust.padded
        self.collector = open_collector(
            folder / "controller.db",
            terms,
            calendar=calendar,
            signing=(broker.roster, signer) if padded else None,
        )
        stack.callback(self.collector.close)
        self.works.append(NatsController(own, self.collector, clock=self.clock).run())
        self.keepers: dict[str, KeeperBook] = {}
        for name in broker.keepers:
            mine = broker.keeper_settings(name)
            book = KeeperBook(
                folder / f"{name}.keeper.db",
                name,
                broker.roster,
                settings.terms,
                Signer(mine.seed),
                calendar=calendar,
            )
            stack.callback(book.close)
            self.keepers[name] = book
            self.works.append(NatsKeeper(mine, book, clock=self.clock).run())

    def clock(self) -> float:
        return self.now

    def visit(self) -> None:
        """A visitor at every agent, whose reward comes at once, and whatever is due."""
        for agent in self.agents.values():
            decision = agent.decide(np.eye(2) / 2)
            if agent.reward(decision.id, 0.5) is not Outcome.RECORDED:
                self.refused += 1
            agent.tick(alone=False)

    async def reach(self, season: int, number: int) -> None:
        """Until everybody has this sum: visitors come meanwhile."""

        def there() -> bool:
            self.visit()
            stands = [(one.store.season, one._state.inbox.number(0)) for one in self.agents.values()]
            return all(place >= (season, number) for place in stands)

        await until(there)


async def _three_seasons(rolling: Rolling) -> None:
    async with running(*rolling.works):
        for season in (1, 2, 3):
            for number in range(1, RELEASES):
                rolling.now = max(
                    rolling.now, START + (season - 1) * SEASON + number * SEASON / RELEASES + 1.0
                )
                await rolling.reach(season, number)
            rolling.now = START + season * SEASON  # the last release is due, and the season is over
            await until(lambda: rolling.visit() or _at(rolling, season + 1))  # type: ignore[func-returns-value] # noqa: B023


def _at(rolling: Rolling, season: int) -> bool:
    return {agent.store.season for agent in rolling.agents.values()} == {season}


def _check(rolling: Rolling) -> None:
    assert rolling.refused == 0
    for agent in rolling.agents.values():
        ledger, counts = agent.ledger(), agent.snapshot()["counts"]
        made = [(one.season, len({entry.number for entry in one.entries})) for one in ledger.accounts]
        assert made == [(1, RELEASES), (2, RELEASES), (3, RELEASES), (4, 0)]
        assert [one.dropped for one in ledger.accounts] == [0] * 4
        assert counts["decisions"] == counts["rewards"]
        assert counts.get("refused_sums", 0) == 0
        assert agent.trouble == ""


@pytest.mark.parametrize("trust", ["nobody", "controller", "keepers:1:1"])
def test_a_federation_rolls_through_three_seasons_and_nobody_restarts(tmp_path: Path, trust: str) -> None:
    keepers = ("north", "south") if trust.startswith("keepers") else ()
    broker = Broker(tmp_path / "keys", NAMES, keepers=keepers)
    broker.start()
    try:
        with ExitStack() as stack:
            rolling = Rolling(broker, tmp_path, stack, trust)
            asyncio.run(_three_seasons(rolling))
            _check(rolling)
            newest = rolling.collector.newest()
            assert newest is not None
            assert (newest.season, newest.number) == (3, RELEASES)
            assert sorted(newest.names) == sorted(NAMES)
            for name, book in rolling.keepers.items():
                query = "SELECT season, count(*) FROM answers GROUP BY season"
                assert dict(book.database.execute(query)) == dict.fromkeys((1, 2, 3), RELEASES), name
                assert not book.halted
    finally:
        broker.stop()


@pytest.mark.parametrize("trust", ["nobody", "keepers"])
def test_peers_on_a_graph_roll_through_three_seasons(tmp_path: Path, trust: str) -> None:
    topology = replace(parse_topology("complete:4", ttl=1), labels=NAMES)
    broker = Broker(tmp_path / "keys", NAMES, topology=topology)
    broker.start()
    try:
        with ExitStack() as stack:
            asyncio.run(make_streams(broker.admin_settings()))
            rolling = Rolling(broker, tmp_path, stack, trust)
            asyncio.run(_three_seasons(rolling))
            _check(rolling)
    finally:
        broker.stop()
