"""Join, leave and rotate over a real broker: nobody restarts but who must, and no decision is refused."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from life_world import DEADLINE, RELEASES, SEASON, START, Site, World
from nats_world import Broker, cut_in_a_handshake, until

from feducb.agent import upkeep
from feducb.carriers import nats_keys as keys
from feducb.carriers.key_requests import make_request, read_request
from typed import typed

pytestmark = cut_in_a_handshake
PAGE = (Path(__file__).parents[2] / "docs" / "life.md").read_text(encoding="utf-8")


def _type(start: str, where: Path, *, folder: Path | None = None) -> None:
    """Run the command of the page that starts so."""
    line = next(line for line in PAGE.splitlines() if line.startswith(f"    {start}"))
    words = line.strip().partition("    #")[0].split()
    plain = {"federation": str(folder), "clinics": "tests"}
    done = typed(*(plain.get(word, word) for word in words[1:]), cwd=where)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    broker = Broker(tmp_path / "keys", ("north", "south"))
    broker.start()
    yield World(broker)
    broker.stop()


def _join(world: World, west: Path) -> Site:
    """The site makes its key, the operator signs and gives the roster to the controller; a reload."""
    folder = world.broker.folder
    west.mkdir()
    _type("feducb keys request west", west)
    _type("feducb keys add", west, folder=folder)
    for name in ("north", "south"):
        (folder / "agents" / name / "federation.2.json").unlink()  # they ask the controller for it
    world.broker.reload()
    shutil.copytree(folder / "agents" / "west", west, dirs_exist_ok=True)
    return world.settle("west", west, agents=2)


def test_sites_join_leave_and_change_keys_while_the_others_go_on(world: World, tmp_path: Path) -> None:
    folder = world.broker.folder
    north, south = (world.settle(name, folder / "agents" / name, agents=2) for name in ("north", "south"))

    async def run() -> None:
        north.start()
        south.start()
        async with world.controller() as controller:
            await world.sum_of(1, "north", "south")

            west = _join(world, tmp_path / "west")
            west.start()
            # It is not in this season's sums, and plays by them all the same.
            await until(lambda: west.model == "1.1")
            await world.sum_of(2, "north", "south", "west")
            assert list(controller.status.members) == ["north", "south"]
            assert (west.agent.outbox(), controller.refusals.total) == ([], 0)
            # The others have the roster, from the controller, by themselves.
            await until(lambda: all((site.folder / "federation.2.json").exists() for site in (north, south)))
            await world.some_visitors()

            await world.open_season("north", "south", "west")
            assert [site.agent.settings.agents for site in world.sites.values()] == [3, 3, 3]
            await world.sum_of(1, "north", "south", "west")
            assert list(controller.status.members) == ["north", "south", "west"]
            await world.some_visitors()

            # Rotate: south makes a new key itself, and is restarted with it; nobody else is.
            new = south.folder / "new"
            _type("feducb keys request south", south.folder)
            assert read_request(new / "south.request.json").before == world.broker.roster.agents["south"]
            _type("feducb keys rotate federation --request", new, folder=folder)
            world.broker.reload()
            await south.stop()
            shutil.copyfile(new / "agent.seed", south.folder / "agent.seed")
            south.start()
            await world.sum_of(2, "north", "south", "west")

            # Leave: north is cut off at the server; its own people are served on.
            _type("feducb keys remove", tmp_path, folder=folder)
            world.broker.reload()
            await until(lambda: not north.status.connected)
            await until(lambda: all((site.folder / "federation.4.json").exists() for site in (south, west)))
            await world.some_visitors()

            await world.open_season("south", "west")
            assert south.agent.settings.agents == 2
            await world.sum_of(1, "south", "west")
            assert list(controller.status.members) == ["south", "west"]
            await world.some_visitors()
        restarts = {name: site.restarts for name, site in world.sites.items()}
        assert restarts == {"north": 0, "south": 1, "west": 0}
        for site in world.sites.values():
            await site.stop()

    asyncio.run(run())


def _coming(world: World, site: Path, *, season: int, near: tuple[str, ...] = ()) -> None:
    """A newcomer is signed for a later season, so that a version waits."""
    request = read_request(make_request(site, site.name, federation="tests"))
    keys.add(world.broker.folder, request, season=season, near=near)


def test_keys_are_changed_at_once_while_a_newcomer_waits_for_its_season(world: World, tmp_path: Path) -> None:
    """An agent's, then the controller's: each is restarted with its own, and the season goes on."""
    folder = world.broker.folder
    north, south = (world.settle(name, folder / "agents" / name, agents=2) for name in ("north", "south"))

    async def run() -> None:
        north.start()
        south.start()
        async with world.controller() as controller:
            await world.sum_of(1, "north", "south")
            _coming(world, tmp_path / "west", season=3)
            assert keys.rotate(folder, agents=["south"]).since == 3
            for version in (2, 3):  # it asks the controller for them
                (north.folder / f"federation.{version}.json").unlink()
            world.broker.reload()
            await south.stop()
            south.start()
            await world.sum_of(2, "north", "south")
            assert list(controller.status.members) == ["north", "south"]
            await until(lambda: all((north.folder / f"federation.{one}.json").exists() for one in (2, 3)))

        keys.rotate(folder, controller=True)
        world.broker.reload()
        async with world.controller() as controller:
            await world.sum_of(3, "north", "south")
            assert list(controller.status.members) == ["north", "south"]
            assert north.agent.settings.agents == 2
        for site in world.sites.values():
            await site.stop()

    asyncio.run(run())


def test_who_was_away_is_told_each_version_that_came(world: World, tmp_path: Path) -> None:
    """One newcomer from season 2 on and another from 3: in season 2 there are three of them, everywhere."""
    folder = world.broker.folder
    north, south = (world.settle(name, folder / "agents" / name, agents=2) for name in ("north", "south"))

    async def run() -> None:
        south.start()
        async with world.controller():
            for name, season in (("west", 2), ("east", 3)):
                _coming(world, tmp_path / name, season=season)
            for version in (2, 3):
                (north.folder / f"federation.{version}.json").unlink()
            world.broker.reload()
            await asyncio.sleep(1.5)  # the controller looks once a second
            north.start()
            await until((north.folder / "federation.3.json").exists)
            await world.open_season("north", "south")
            assert [site.agent.settings.agents for site in (north, south)] == [3, 3]
        for site in world.sites.values():
            await site.stop()

    asyncio.run(run())


def test_a_restored_agent_comes_back_in_its_season_or_plays_by_the_sums_of_the_others(
    world: World, tmp_path: Path
) -> None:
    """Before the next release is due it goes on; after that it is silent, and hears what the others say."""
    folder = world.broker.folder
    north, south = (
        world.settle(name, folder / "agents" / name, agents=2, quorum=1) for name in ("north", "south")
    )

    async def run() -> None:
        north.start()
        south.start()
        async with world.controller(quorum=1) as controller:
            await world.sum_of(1, "north", "south")
            upkeep.backup(north.folder / "north.db", tmp_path / "north-copy.db")
            await north.lose()
            opened = upkeep.restore(tmp_path / "north-copy.db", north.folder / "north.db", clock=world.clock)
            assert opened.sends
            north.start()
            await world.sum_of(2, "north", "south")
            assert list(controller.status.members) == ["north", "south"]

            await north.lose()  # with the release that it made since the backup
            opened = upkeep.restore(tmp_path / "north-copy.db", north.folder / "north.db", clock=world.clock)
            assert not opened.sends
            north.start()
            world.set_clock(START + 3 * SEASON / RELEASES + 1)
            for site in (north, south):
                site.tick()
            await until(lambda: (controller._collector.waits() or {}).get("here") == ["south"])
            world.set_clock(world.clock() + DEADLINE)
            await until(lambda: {north.model, south.model} == {"1.3"})
            assert list(controller.status.members) == ["south"]
            assert controller.refusals.total == 0
            await world.some_visitors()
            await world.open_season("north", "south")
            await world.sum_of(1, "north", "south")
            assert list(controller.status.members) == ["north", "south"]
        for site in world.sites.values():
            await site.stop()

    asyncio.run(run())
