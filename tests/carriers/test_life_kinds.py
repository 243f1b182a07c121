"""Join and leave over a real broker where there is no controller, and where keepers hide rows."""

from __future__ import annotations

import asyncio
import shutil
import sys
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from life_world import CONTROLLER, ENGINE, SEASON, START, World
from nats_world import Broker, cut_in_a_handshake, until

from feducb.carriers import nats_keys as keys
from feducb.carriers.key_requests import make_request, read_request
from feducb.controller.collector import TrustedCollector
from feducb.controller.controller_file import ControllerSettings
from feducb.protocol.graphs import parse_topology
from typed import typed

pytestmark = cut_in_a_handshake


def _typed(*line: str, cwd: Path) -> None:
    done = typed("keys", *line, cwd=cwd)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("trust", ['trust = "nobody"', 'trust = "keepers"\naway = 0\ncolluding = 1'])
def test_sites_join_and_leave_on_a_graph(tmp_path: Path, trust: str) -> None:
    old = ("north", "south", "east")
    broker = Broker(tmp_path / "keys", old, topology=parse_topology("complete:3"))
    broker.start()
    world, folder = World(broker, privacy=trust), broker.folder
    sites = {name: world.settle(name, folder / "agents" / name, agents=3) for name in old}

    async def run() -> None:
        await _make_streams(broker)
        for site in sites.values():
            site.start()
        await world.sum_of(1, *old)

        west = tmp_path / "west"
        west.mkdir()
        _typed("request", "west", "--federation", "tests", cwd=west)
        more = ("--season", "2", "--near", ",".join(old))
        _typed("add", str(folder), "west.request.json", *more, cwd=west)
        broker.reload()
        await _make_streams(broker)
        shutil.copytree(folder / "agents" / "west", west, dirs_exist_ok=True)
        sites["west"] = world.settle("west", west, agents=3)
        sites["west"].start()
        await world.sum_of(2, *old)
        await world.some_visitors()  # it decides at once, uniformly: nobody sends it anything yet

        await world.open_season(*old, "west")
        assert [site.agent.settings.agents for site in sites.values()] == [4, 4, 4, 4]
        await world.sum_of(1, *old, "west")
        assert set(sites["west"].status.members) == {*old, "west"}

        _typed("remove", str(folder), "north", "--season", "3", cwd=tmp_path)
        shutil.copyfile(folder / "federation.3.json", west / "federation.3.json")
        await world.sum_of(2, *old, "west")  # it is one of them to the end of the season
        await world.some_visitors()
        await world.open_season("south", "east", "west")
        broker.reload()
        await world.sum_of(1, "south", "east", "west")
        assert set(sites["south"].status.members) == {"south", "east", "west"}
        await world.some_visitors()
        stay = [site for name, site in sites.items() if name != "north"]
        await until(lambda: not any(site.status.refused_by for site in stay))
        for site in sites.values():
            assert site.restarts == 0
            await site.stop()

    try:
        asyncio.run(run())
    finally:
        broker.stop()


def test_on_a_graph_a_key_is_changed_at_once_while_a_newcomer_waits_for_its_season(tmp_path: Path) -> None:
    old = ("north", "south", "east")
    broker = Broker(tmp_path / "keys", old, topology=parse_topology("complete:3"))
    broker.start()
    world, folder = World(broker), broker.folder
    sites = {name: world.settle(name, folder / "agents" / name, agents=3) for name in old}

    async def run() -> None:
        await _make_streams(broker)
        for site in sites.values():
            site.start()
        await world.sum_of(1, *old)
        asked = read_request(make_request(tmp_path / "west", "west", federation="tests"))
        keys.add(folder, asked, season=3, near=old)
        assert keys.rotate(folder, agents=["south"]).since == 3
        broker.reload()
        await sites["south"].stop()
        sites["south"].start()
        await world.sum_of(2, *old)
        assert set(sites["north"].status.members) == set(old)
        for site in sites.values():
            await site.stop()

    try:
        asyncio.run(run())
    finally:
        broker.stop()


async def _make_streams(broker: Broker) -> None:
    await asyncio.to_thread(_typed, "streams", str(broker.folder), "--server", broker.url, cwd=broker.folder)


def test_sites_and_keepers_join_and_leave(tmp_path: Path) -> None:
    """West comes with a keeper of its own; north, a keeper from the start, leaves between two seasons.

    Controller and a keeper are away when the season with west begins, and go on in the one they had open.
    """
    names = ("north", "south", "east")
    broker = Broker(tmp_path / "keys", names, keepers=("north", "south"))
    broker.start()
    world = World(broker, privacy='trust = "keepers"\naway = 0\ncolluding = 1')
    folder = broker.folder
    sites = {name: world.settle(name, folder / "agents" / name, agents=3) for name in names}

    async def run() -> None:
        async with AsyncExitStack() as stack, AsyncExitStack() as away:
            await away.enter_async_context(world.controller())
            await away.enter_async_context(world.keeper(folder / "keepers" / "south"))
            north = await stack.enter_async_context(world.keeper(folder / "keepers" / "north"))
            for site in sites.values():
                site.start()
            await world.sum_of(1, *names)

            west = tmp_path / "west"
            west.mkdir()
            _typed("request", "west", "--federation", "tests", "--keeper", cwd=west)
            _typed("add", str(folder), "west.request.json", "--season", "2", cwd=west)
            broker.reload()
            shutil.copytree(folder / "agents" / "west", west, dirs_exist_ok=True)
            keeping = folder / "keepers" / "west"
            shutil.copyfile(west / "keeper.seed", keeping / "keeper.seed")
            sites["west"] = world.settle("west", west, agents=3)
            sites["west"].start()
            books = [north, await stack.enter_async_context(world.keeper(keeping))]
            for number in (2, 3):
                await world.sum_of(number, *names)
            await away.aclose()

            await world.open_season(*names, "west")
            controller = await stack.enter_async_context(world.controller())
            books.append(await stack.enter_async_context(world.keeper(folder / "keepers" / "south")))
            await world.sum_of(1, *names, "west")
            assert sorted(controller.status.members) == ["east", "north", "south", "west"]
            assert [book.season for book in books] == [2, 2, 2]

            _typed("remove", str(folder), "north", "--season", "3", cwd=tmp_path)
            await world.sum_of(2, *names, "west")
            await until((west / "federation.3.json").exists)  # it asked the controller for it
            await until(lambda: {book._duty_of[1].version for book in books[1:]} == {3})
            await world.open_season("south", "east", "west")
            broker.reload()
            await world.sum_of(1, "south", "east", "west")
            assert sorted(controller.status.members) == ["east", "south", "west"]
            assert not any(book.halted for book in books)
            await world.some_visitors()
            for site in sites.values():
                assert site.restarts == 0
                await site.stop()

    try:
        asyncio.run(run())
    finally:
        broker.stop()


@pytest.mark.parametrize("trust", ['trust = "nobody"', 'trust = "controller"'])
def test_a_newcomer_is_told_what_was_learnt_before_it_came(tmp_path: Path, trust: str) -> None:
    broker = Broker(tmp_path / "keys", ("north", "south"))
    broker.start()
    world, folder = World(broker, privacy=trust), broker.folder
    sites = {name: world.settle(name, folder / "agents" / name, agents=2) for name in ("north", "south")}

    async def run() -> None:
        async with world.controller():
            for site in sites.values():
                site.start()
            for season in (1, 2):
                await world.sum_of(1, *sites)
                await world.sum_of(2, *sites)
                if season == 1:
                    await world.open_season(*sites)
            west = tmp_path / "west"
            west.mkdir()
            _typed("request", "west", "--federation", "tests", cwd=west)
            _typed("add", str(folder), "west.request.json", "--season", "3", cwd=west)
            broker.reload()
            shutil.copytree(folder / "agents" / "west", west, dirs_exist_ok=True)
            world.settle("west", west, agents=2).start()
            await world.sum_of(3, "north", "south", "west")
            await until(lambda: world.sites["west"].agent.earliest() == 1)  # an answer may be late
            await world.open_season("north", "south", "west")
            for name, site in world.sites.items():
                seasons = site.agent.snapshot()["memory"]["seasons"]
                assert [one["season"] for one in seasons] == [2, 1], name
                await site.stop()

    try:
        asyncio.run(run())
    finally:
        broker.stop()


def test_who_lacks_the_roster_when_its_season_begins_takes_it_over_before_its_first_row(
    tmp_path: Path,
) -> None:
    """A keeper and an agent open a season with the roster before, and hear of the new one afterwards."""
    names = ("north", "south", "east")
    broker = Broker(tmp_path / "keys", names, keepers=("north", "south"))
    broker.start()
    world = World(broker, privacy='trust = "keepers"\naway = 0\ncolluding = 1')
    folder = broker.folder
    sites = {name: world.settle(name, folder / "agents" / name, agents=3) for name in names}

    async def run() -> None:
        async with AsyncExitStack() as stack:
            south = await stack.enter_async_context(world.keeper(folder / "keepers" / "south"))
            books = [south, await stack.enter_async_context(world.keeper(folder / "keepers" / "north"))]
            for site in sites.values():
                site.start()
            async with world.controller():
                await world.sum_of(1, *names)
            await world.open_season(*names)  # nobody tells them of a new roster
            await until(lambda: [book.season for book in books] == [2, 2])

            west = tmp_path / "west"
            west.mkdir()
            _typed("request", "west", "--federation", "tests", cwd=west)
            _typed("add", str(folder), "west.request.json", "--season", "2", cwd=west)
            for late in (*(folder / "agents" / name for name in names), *(folder / "keepers").iterdir()):
                (late / "federation.2.json").unlink()
            broker.reload()
            shutil.copytree(folder / "agents" / "west", west, dirs_exist_ok=True)
            sites["west"] = world.settle("west", west, agents=3)
            sites["west"].start()
            assert {site.agent.settings.agents for site in sites.values()} == {3, 4}
            assert {len(book.duty.roster.agents) for book in books} == {3}

            controller = await stack.enter_async_context(world.controller())
            for number in (1, 2):
                await world.sum_of(number, *names, "west")
            assert sorted(controller.status.members) == ["east", "north", "south", "west"]
            assert {len(book.duty.roster.agents) for book in books} == {4}
            await world.some_visitors()
            for site in sites.values():
                assert site.restarts == 0
                await site.stop()

    try:
        asyncio.run(run())
    finally:
        broker.stop()


def test_a_roster_that_comes_after_its_season_began_holds_from_the_next_one_on_where_there_are_keepers(
    tmp_path: Path,
) -> None:
    """Rows of the season are bound to the one before: nobody is told of the new one, and all may restart."""
    names = ("north", "south", "east")
    broker = Broker(tmp_path / "keys", names, keepers=("north", "south"))
    broker.start()
    world = World(broker, privacy='trust = "keepers"\naway = 0\ncolluding = 1')
    folder = broker.folder
    sites = {name: world.settle(name, folder / "agents" / name, agents=3) for name in names}

    async def run() -> None:
        for number in (1, 2):
            async with AsyncExitStack() as stack:
                for name in ("north", "south"):
                    await stack.enter_async_context(world.keeper(folder / "keepers" / name))
                await stack.enter_async_context(world.controller())
                for site in sites.values():
                    site.start()
                await world.sum_of(number, *names)
                if number == 1:
                    west = tmp_path / "west"
                    west.mkdir()
                    _typed("request", "west", "--federation", "tests", cwd=west)
                    _typed("add", str(folder), "west.request.json", "--season", "1", cwd=west)
                    await world.sum_of(2, *names)
                    for site in sites.values():
                        await site.stop()
                    continue
                await world.sum_of(3, *names)
                shutil.copytree(folder / "agents" / "west", west, dirs_exist_ok=True)
                broker.reload()
                sites["west"] = world.settle("west", west, agents=3)
                sites["west"].start()
                await world.open_season(*names, "west")
                await world.sum_of(1, *names, "west")
                for site in sites.values():
                    await site.stop()

    try:
        asyncio.run(run())
    finally:
        broker.stop()


def test_a_trusted_controller_starts_again_after_a_roster_came_late(tmp_path: Path) -> None:
    """Its noise covers as many agents as there were at the season's start: it goes on with those."""
    broker = Broker(tmp_path / "keys", ("north", "south"))
    folder, path = broker.folder, broker.folder / "controller" / "controller.toml"
    first = World(broker, privacy='trust = "controller"').settle(
        "north", folder / "agents" / "north", agents=2
    )
    promised = typed("agent", "terms", cwd=first.folder)
    assert promised.returncode == 0, promised.stderr
    engine = ENGINE.format(url=broker.url, seed="controller.seed") + 'sealing = "controller.x25519"\n'
    path.write_text(CONTROLLER + promised.stdout + engine)
    settings = ControllerSettings.read(path)
    with closing(settings.open()) as collector:
        collector.publish_due(now=START + 1.0)
        assert collector.season == 1
    _typed("request", "west", "--federation", "tests", cwd=tmp_path)
    _typed("add", str(folder), "west.request.json", "--season", "1", cwd=tmp_path)
    again = ControllerSettings.read(path)
    assert list(again.terms) == ["north", "south"]
    assert list(ControllerSettings.read(path, season=2).terms) == ["north", "south", "west"]
    with closing(again.open()) as collector:
        ControllerSettings.read(path, season=2).renew(collector)
        collector.publish_due(now=START + SEASON * 1.2)
        assert collector.season == 2
        assert isinstance(collector, TrustedCollector)
        assert collector.store.terms.agents_per_person == 3
    path.write_text(path.read_text().replace("releases = 4", "releases = 5"))  # for the next season
    with closing(ControllerSettings.read(path).open()) as collector:
        assert isinstance(collector, TrustedCollector)
        assert collector.store.terms.releases == 4
        collector.publish_due(now=START + SEASON * 2.2)
        assert collector.store.terms.releases == 5


def test_with_keepers_new_keys_hold_from_their_season_on(tmp_path: Path) -> None:
    """As `feducb keys rotate` says: put in place before the season begins, without a restart; once it has
    begun the server is reloaded, and the controller alone restarted."""
    names = ("north", "south", "east")
    broker = Broker(tmp_path / "keys", names, keepers=("north", "south"))
    broker.start()
    world = World(broker, privacy='trust = "keepers"\naway = 0\ncolluding = 1')
    folder = broker.folder
    sites = {name: world.settle(name, folder / "agents" / name, agents=3) for name in names}
    seeds = [folder / "agents" / "east" / "agent.seed", folder / "keepers" / "north" / "keeper.seed"]
    seeds += [folder / "controller" / name for name in ("controller.seed", "controller.x25519")]
    before = {path: path.read_bytes() for path in seeds}

    async def run() -> None:
        async with AsyncExitStack() as stack:
            books = [
                await stack.enter_async_context(world.keeper(folder / "keepers" / name))
                for name in ("north", "south")
            ]
            async with world.controller() as controller:
                for site in sites.values():
                    site.start()
                await world.sum_of(1, *names)
                keys.rotate(folder, agents=["east"], keepers=["north"], controller=True, season=2)
                after = {path: path.read_bytes() for path in before}
                for path, seed in before.items():
                    path.write_bytes(seed)  # they are put in place later
                await sites["east"].stop()
                sites["east"].start()  # until then the key before is the one to start with
                await world.sum_of(2, *names)
                for path in seeds:
                    path.write_bytes(after[path])
                await world.open_season(*names)
                await until(
                    lambda: controller._collector.season == 2 and {one.season for one in books} == {2}
                )
            broker.reload()
            async with world.controller() as controller:
                await world.sum_of(1, *names)
                assert sorted(controller.status.members) == sorted(names)
            assert [site.restarts for site in sites.values()] == [0, 0, 1]
            for site in sites.values():
                await site.stop()

    try:
        asyncio.run(run())
    finally:
        broker.stop()
