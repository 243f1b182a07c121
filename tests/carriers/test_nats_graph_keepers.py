"""Cliques whose rows are masked in pairs, over a real JetStream: sums are those of the rows."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
from nats_world import Broker, cut_in_a_handshake, running, until

from clique_world import CliqueWorld
from feducb.carriers import nats_subjects as subjects
from feducb.carriers.local import LocalPeers, StoreMailbox
from feducb.carriers.nats import EngineStatus, Link, NatsEngine, make_streams
from feducb.protocol import peers
from feducb.protocol.graphs import parse_topology
from feducb.protocol.pads import Label
from feducb.protocol.peers import Announcement
from feducb.protocol.roster import Signer

NAMES = tuple("abcdef")
RELEASES = 5


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Broker]:
    """Two cliques of three, whose words go through each other."""
    one = Broker(tmp_path / "keys", NAMES, topology=parse_topology("ring:6", ttl=2))
    one.start()
    asyncio.run(make_streams(one.admin_settings()))
    yield one
    one.stop()


def world_on(ring: Broker, folder: Path, *, groups: int = 1) -> CliqueWorld:
    folder.mkdir()
    signers = {name: Signer(ring.settings(name).seed) for name in NAMES}
    return CliqueWorld(
        folder, names=NAMES, releases=RELEASES, groups=groups, roster=ring.roster, signers=signers
    )


class Peer:
    """An agent's file and its engine, which can be ended and begun again."""

    def __init__(self, ring: Broker, world: CliqueWorld, name: str) -> None:
        self._ring, self._world, self.name = ring, world, name
        self._stack = AsyncExitStack()

    async def begin(self) -> None:
        self.box = StoreMailbox(self._world.stores[self.name])
        self.engine = NatsEngine(self._ring.settings(self.name), self._world.terms(self.name))
        await self._stack.enter_async_context(running(self.engine.run(self.box)))

    async def end(self) -> None:
        await self._stack.aclose()

    def settle(self) -> None:
        """Build what can be built."""
        store = self._world.stores[self.name]
        for group in range(self._world.groups):
            if store.may_build(group):
                self._world.settle(self.name, group)
                self.box.notify()

    def row(self, group: int = 0) -> int:
        return self._world.stores[self.name].next_label(group).row


def require_sums(world: CliqueWorld, *, last: int = RELEASES) -> None:
    """Everybody has read the sum of its clique's rows, bit for bit, each once."""
    for name in NAMES:
        for group in range(world.groups):
            read = world.read[name, group][1::2]  # each is looked at before it is used
            assert len(read) == last
            for number, values in enumerate(read, start=1):
                np.testing.assert_array_equal(values, world.expected(name, number, group))
        assert world.stores[name].halted == ""


@pytest.mark.parametrize("groups", [1, 2])
def test_two_cliques_on_a_ring_get_the_sums_of_their_rows(ring: Broker, tmp_path: Path, groups: int) -> None:
    world = world_on(ring, tmp_path / "agents", groups=groups)
    assert {world.members[name].clique for name in NAMES} == {("a", "b", "c"), ("d", "e", "f")}

    async def run() -> None:
        some = [Peer(ring, world, name) for name in NAMES]
        for peer in some:
            await peer.begin()

        def over() -> bool:
            for peer in some:
                peer.settle()
            return all(peer.row(group) > RELEASES for peer in some for group in range(groups))

        await until(over)
        assert all(peer.engine.refusals.total == 0 for peer in some)
        assert {peer.engine.status.newest for peer in some} == {(1, RELEASES)}
        assert some[0].engine.status.members == ("a", "b", "c")
        for peer in some:
            await peer.end()

    with world.watched():
        asyncio.run(run())
    require_sums(world)
    world.close()


@cut_in_a_handshake
def test_sums_stay_those_of_the_rows_though_agents_and_broker_are_ended_at_any_moment(
    ring: Broker, tmp_path: Path
) -> None:
    """60 ends of agents and 3 kills of the broker, at moments drawn from a seed."""
    world, draws, ends = world_on(ring, tmp_path / "agents"), random.Random(5), 0

    async def run() -> None:
        nonlocal ends
        some = {name: Peer(ring, world, name) for name in NAMES}
        for peer in some.values():
            await peer.begin()
        while ends < 60 or not all(peer.row() > RELEASES for peer in some.values()):
            most = 1 + ends // 12  # so that something is under way until the last of them
            for peer in some.values():
                if peer.row() <= most and draws.random() < 0.5:
                    peer.settle()
            await asyncio.sleep(draws.choice((0.0, 0.01, 0.05)))
            if ends < 60:
                peer = some[draws.choice(NAMES)]
                await peer.end()
                world.reopen(peer.name)
                if ends % 20 == 10:
                    ring.kill()
                    ring.start()
                await peer.begin()
                ends += 1
        await until(lambda: all(peer.row() > RELEASES for peer in some.values()))
        assert all(peer.engine.refusals.total == 0 for peer in some.values())
        for peer in some.values():
            await peer.end()

    with world.watched():
        asyncio.run(run())
    require_sums(world)
    world.close()


@cut_in_a_handshake
@pytest.mark.parametrize("away", ["b", "c"])
def test_words_that_a_broker_lost_are_sent_again_by_those_who_said_and_those_who_passed_them_on(
    ring: Broker, tmp_path: Path, away: str
) -> None:
    """It loses all it has while somebody is away: b is between a and c, c hears a through b alone."""
    world = world_on(ring, tmp_path / "agents")

    async def run() -> None:
        some = {name: Peer(ring, world, name) for name in NAMES}
        for name, peer in some.items():
            if name != away:
                await peer.begin()
                peer.settle()
        await until(lambda: all(some[name].row() == 2 for name in "def"))
        if away == "c":
            await until(lambda: len(world.stores["b"].database.execute("SELECT 1 FROM said").fetchall()) == 1)
        ring.kill()
        shutil.rmtree(ring.folder / "server" / "jetstream")
        ring.start()
        await make_streams(ring.admin_settings())
        await some[away].begin()
        some[away].settle()
        await until(lambda: all(peer.row() == 2 for peer in some.values()))
        for peer in some.values():
            await peer.end()

    with world.watched():
        asyncio.run(run())
    require_sums(world, last=1)
    world.close()


def test_copies_change_nothing_and_what_is_made_up_is_refused(ring: Broker, tmp_path: Path) -> None:
    world = world_on(ring, tmp_path / "agents")

    async def run() -> None:
        some = {name: Peer(ring, world, name) for name in NAMES}
        for peer in some.values():
            await peer.begin()
            peer.settle()
        await until(lambda: all(peer.row() == 2 for peer in some.values()))
        word = world.words("b")[0]
        async with Link(ring.settings("b"), "b", EngineStatus()).connected() as client:
            stream, to_c = client.jetstream(), subjects.edge("tests", "b", "c")

            async def say(origin: int, number: int, payload: bytes) -> None:
                message = Announcement(origin, 0, number, number - 1, 2, payload)
                await stream.publish(to_c, peers.encode(message))

            await say(1, 1, word)  # a copy
            await say(1, 3, word)  # under another number
            await say(0, 3, word)  # in another's name
            await say(1, 3, word[:-1] + bytes([word[-1] ^ 1]))
            await say(1, 3, b"garbage")
            await until(lambda: some["c"].engine.refusals.total == 4)
        assert some["c"].engine.refusals.as_dict() == {
            "a": {"sender": 1},
            "b": {"malformed": 1, "number": 1, "signature": 1},
        }
        for peer in some.values():
            peer.settle()
        await until(lambda: all(peer.row() == 3 for peer in some.values()))
        for peer in some.values():
            await peer.end()

    with world.watched():
        asyncio.run(run())
    require_sums(world, last=2)
    world.close()


@pytest.mark.parametrize("memory", [True, False])
def test_an_agent_put_back_from_a_backup_halts_and_the_rows_before_stand(
    ring: Broker, tmp_path: Path, memory: bool
) -> None:
    """With the peers' file of today it hears its own words; without, that the others are further on."""
    world = world_on(ring, tmp_path / "agents")

    async def run() -> None:
        copied = world.copy("a")
        some = {name: Peer(ring, world, name) for name in NAMES}
        for peer in some.values():
            await peer.begin()
            peer.settle()
        await until(lambda: all(peer.row() == 2 for peer in some.values()))
        await some["a"].end()
        require_sums(world, last=1)
        world.put_back("a", copied)
        if not memory:
            state = ring.settings("a").state
            assert state is not None
            state.unlink()
        await some["a"].begin()
        if not memory:
            some["a"].settle()  # another row 1: nobody wants it
        for name in ("b", "c"):
            some[name].settle()
        await until(lambda: "another copy" in world.stores["a"].halted)
        some["a"].settle()
        assert not world.stores["a"].may_build()
        assert [world.stores[name].next_label() for name in ("b", "c")] == [Label(1, 0, 2)] * 2
        for peer in some.values():
            await peer.end()

    with world.watched():
        asyncio.run(run())
    world.close()


def test_in_one_process_the_same_words_give_the_same_sums(tmp_path: Path) -> None:
    names = tuple("abcde")
    edges = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"))
    world = CliqueWorld(tmp_path, names=names, edges=edges, ttl=4, releases=3)

    async def run() -> None:
        roster = world.members["a"].roster
        boxes = {name: StoreMailbox(world.stores[name]) for name in names}
        terms = {name: world.terms(name) for name in names}
        for number in range(1, 4):
            for name in names:
                world.settle(name)
            local = LocalPeers(roster.topology(), terms, boxes, roster=roster)  # remembers nothing
            await local.step()
            sums = {box.newest[0] for box in boxes.values()}
            assert len(sums) == 1
            for name in names:
                np.testing.assert_array_equal(world.read[name, 0][-1], world.expected(name, number))
            assert all(driver.refusals.total == 0 for driver in local.drivers.values())

    with world.watched():
        asyncio.run(run())
    world.close()
