"""A federation whose agents decide all the time, over a real broker; seasons roll by its clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from nats_world import Broker, until

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.agent.mailbox import Engine
from feducb.carriers.controller_process import Renewal
from feducb.carriers.engine_choice import engine_of
from feducb.carriers.keeper_process import _renew, _renew_for
from feducb.carriers.local import AgentMailbox
from feducb.carriers.nats import NatsController, NatsKeeper
from feducb.carriers.nats.link_status import say_nothing
from feducb.controller.controller_file import ControllerSettings
from feducb.controller.keeper_file import KeeperSettings
from feducb.protocol.calendar import LINGER
from feducb.protocol.signed_roster import stamp
from feducb.storage import RowBook
from feducb.storage.keeper_book import KeeperBook
from typed import typed

START, SEASON, RELEASES = 1_800_000_000.0, 3600.0, 4
DEADLINE = 600.0  # of a controller with a quorum, by the clock that the test drives
AGENT = """
version = 2
[agent]
name = "{name}"
store = "{name}.db"
[problem]
dim = 2
[privacy]
epsilon = 1.0
delta = 1e-6
{privacy}
[federation]
agents = {agents}
{more}
[releases]
season = "1h"
start = 2027-01-15T08:00:00Z
schedule = "periodic"
releases = 4
[rewards]
window = "1s"
"""
ENGINE = """
[engine]
kind = "nats"
servers = ["{url}"]
federation = "tests"
roster = "federation.json"
seed = "{seed}"
ca = "ca.pem"
state = "peers.db"
timeout = 2.0
retry = 0.05
refresh = 0.3
"""
CONTROLLER = """
[controller]
state = "controller.db"
"""


class Box(AgentMailbox):
    """Wakes its engine when there is something to send."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.mail = asyncio.Event()
        self.mail.set()

    async def wait(self) -> None:
        await self.mail.wait()
        self.mail.clear()


@dataclass
class Site:
    """An agent's process: its file, its engine, and visitors who come all the time."""

    folder: Path
    world: World
    agent: Agent = field(init=False)
    status: Any = None
    decided: int = 0
    restarts: int = -1
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        season = self.world.season
        file = read_agent_file(self.folder / "agent.toml")
        if not file.store.exists():
            file = read_agent_file(self.folder / "agent.toml", season=season)
        self.agent = Agent.open(
            file.store, file.agent, first_season=season, clock=self.world.clock, member=file.member()
        )
        self.agent.renewal, self.agent.comes_in = file.renewed, file.place()
        self.agent.wait_for(file.joins())
        run, self.status = engine_of(file)
        assert run is not None
        self.box = Box(self.agent)
        self._tasks = [asyncio.ensure_future(self._carry(run)), asyncio.ensure_future(self._visitors())]
        self.restarts += 1

    async def _carry(self, run: Engine) -> None:
        """Run the engine, anew with every season, as the service does."""
        while True:
            season, work = self.agent.store.season, asyncio.ensure_future(run(self.box))
            try:
                while self.agent.store.season == season:
                    assert not work.done(), work
                    await asyncio.sleep(0.05)
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def _visitors(self) -> None:
        """One after the other, for ever; an error would end the test."""
        while True:
            self.agent.reward(self.agent.decide([[1.0, 0.0], [0.0, 1.0]]).id, 0.5)
            self.decided += 1
            await asyncio.sleep(0.02)

    def tick(self) -> None:
        self.agent.tick(alone=False)
        self.box.mail.set()

    @property
    def model(self) -> str:
        return str(self.agent.snapshot()["model"][0])

    async def lose(self) -> None:
        """The machine is gone, and the agent's file with it."""
        await self.stop()
        for path in self.folder.glob("*.db*"):
            path.unlink()

    async def stop(self) -> None:
        for task in self._tasks:
            assert not task.done(), task
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.agent.close()


@dataclass
class World:
    """Everybody, each in a folder of its own, with what `feducb keys` gave it."""

    broker: Broker
    privacy: str = ""  # further lines of the table
    season: int = 1
    sites: dict[str, Site] = field(default_factory=dict)
    _at: tuple[float, float] = field(default_factory=lambda: (START, time.monotonic()))

    def clock(self) -> float:
        """It goes on from where it was set."""
        moment, since = self._at
        return moment + time.monotonic() - since

    def set_clock(self, moment: float) -> None:
        self._at = (moment, time.monotonic())

    def settle(self, name: str, folder: Path, *, agents: int, quorum: int | None = None) -> Site:
        """Write what a site's operator writes."""
        engine = ENGINE.format(url=self.broker.url, seed="agent.seed")
        more = "" if quorum is None else f"quorum = {quorum}"
        known = {"name": name, "agents": agents, "more": more, "privacy": self.privacy}
        (folder / "agent.toml").write_text(AGENT.format(**known) + engine)
        self.sites[name] = Site(folder, self)
        return self.sites[name]

    @asynccontextmanager
    async def controller(self, *, quorum: int | None = None) -> AsyncIterator[NatsController]:
        """The controller's process; with a quorum it waits for others until `DEADLINE`."""
        path = self.broker.folder / "controller" / "controller.toml"
        if not path.exists():
            first = next(iter(self.sites.values())).folder
            promised = typed("agent", "terms", cwd=first)
            assert promised.returncode == 0, promised.stderr
            engine = ENGINE.format(url=self.broker.url, seed="controller.seed")
            engine += 'sealing = "controller.x25519"\n'
            times = "" if quorum is None else f"quorum = {quorum}\ndeadline = {DEADLINE}\n"
            path.write_text(CONTROLLER + times + promised.stdout + engine)
        settings = ControllerSettings.read(path)
        collector = settings.open()
        link = NatsController(settings.engine, collector, clock=self.clock)

        def renew(path: Path) -> None:
            ControllerSettings.read(path, season=collector.season + 1).renew(collector)

        if isinstance(collector, RowBook):
            collector.renewal = lambda season: ControllerSettings.read(path, season=season).renew(collector)
        async with self._at_work(link.run(), path, renew, lambda: collector.season):
            yield link
        collector.close()

    @asynccontextmanager
    async def keeper(self, folder: Path) -> AsyncIterator[KeeperBook]:
        """A keeper's process, with a folder of its own."""
        path = folder / "keeper.toml"
        if not path.exists():
            promised = typed("agent", "terms", cwd=next(iter(self.sites.values())).folder)
            assert promised.returncode == 0, promised.stderr
            engine = ENGINE.format(url=self.broker.url, seed="keeper.seed") + f'agent = "{folder.name}"\n'
            path.write_text('[keeper]\nstate = "keeper.db"\n' + promised.stdout + engine)
        settings = KeeperSettings.read(path)
        book = settings.open()
        link = NatsKeeper(settings.engine, book, clock=self.clock)

        book.renewal = partial(_renew_for, path, book, say_nothing)
        async with self._at_work(link.run(), path, lambda one: _renew(one, book), lambda: book.season):
            yield book
        book.close()

    @asynccontextmanager
    async def _at_work(
        self,
        work: Coroutine[Any, Any, None],
        path: Path,
        renew: Callable[[Path], None],
        season: Callable[[], int],
    ) -> AsyncIterator[None]:
        """A process that looks after its file and its roster."""
        roster = path.parent / "federation.json"
        renewal = Renewal(path, renew, say_nothing, beside=lambda: (season(), stamp(roster)))

        async def look() -> None:
            while True:
                renewal.look()
                await asyncio.sleep(0.1)

        tasks = [asyncio.ensure_future(work), asyncio.ensure_future(look())]
        try:
            yield
            assert not any(task.done() for task in tasks), tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def sum_of(self, number: int, *names: str) -> None:
        """Let time pass to a release, and wait for the sum at these agents."""
        self.set_clock(START + (self.season - 1) * SEASON + number * SEASON / RELEASES + 1)
        model = f"{self.season}.{number}"
        await self._ticking(lambda: all(self.sites[name].model == model for name in names))

    async def open_season(self, *names: str) -> None:
        """Let the season end: the clock opens the next one, a tenth of a season later at most."""
        self.season += 1
        self.set_clock(START + (self.season - 1 + LINGER) * SEASON + 1)
        await self._ticking(lambda: all(self.sites[name].agent.store.season == self.season for name in names))

    async def _ticking(self, reached: Callable[[], bool]) -> None:
        def there() -> bool:
            for site in self.sites.values():
                site.tick()
            return reached()

        await until(there)

    async def some_visitors(self) -> None:
        """Everybody decides on."""
        before = {name: site.decided for name, site in self.sites.items()}
        end = time.monotonic() + 60
        while any(site.decided <= before[name] for name, site in self.sites.items()):
            assert time.monotonic() < end
            await asyncio.sleep(0.01)
