"""Agents on a graph over a real JetStream with TLS and nkeys: no controller."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from nats_world import Broker, cut_in_a_handshake, make_terms, record_streams, run_agents, running, until

from feducb.carriers import nats_subjects as subjects
from feducb.carriers.local import LocalPeers, MemoryMailbox
from feducb.carriers.nats import EngineStatus, Link, NatsEngine, make_streams
from feducb.config import Budget
from feducb.protocol import frames, messages, peers
from feducb.protocol.engine_health import REFUSED
from feducb.protocol.graphs import parse_topology
from feducb.protocol.parcels import Parcel
from feducb.protocol.peers import Announcement
from feducb.protocol.roster import Signer

NAMES = tuple("abcdefgh")
RELEASES = 40


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Broker]:
    one = Broker(tmp_path / "keys", NAMES, topology=parse_topology("ring:8", ttl=2))
    one.start()
    asyncio.run(make_streams(one.admin_settings()))
    yield one
    one.stop()


def _number(box: MemoryMailbox, group: int = 0) -> int:
    return messages.decode(box.newest[group]).number if group in box.newest else 0


@pytest.mark.parametrize("groups", [1, 2])
def test_eight_agents_on_a_ring_get_the_sums_of_the_engine_in_one_process(ring: Broker, groups: int) -> None:
    terms = make_terms(releases=RELEASES, groups=groups)
    streams = record_streams(NAMES, terms, RELEASES // groups)
    topology = ring.roster.topology()

    async def over_nats() -> dict[str, MemoryMailbox]:
        boxes = {name: MemoryMailbox(streams[name], keep_all=True) for name in NAMES}
        engines, agents = run_agents(ring, dict(boxes), terms)
        async with running(*agents):
            last = RELEASES // groups
            await until(lambda: all(_number(box, g) == last for box in boxes.values() for g in range(groups)))
        assert all(engine.refusals.total == 0 for engine in engines.values())
        assert engines["a"].status.members == tuple(NAMES[i] for i in topology.members(0))
        return boxes

    async def in_one_process() -> dict[str, dict[tuple[int, int, int], bytes]]:
        boxes = {name: MemoryMailbox(keep_all=True) for name in NAMES}
        local = LocalPeers(topology, dict.fromkeys(NAMES, terms), boxes)
        for position in range(len(streams["a"])):  # one by one, so that it sees every version
            for name in NAMES:
                boxes[name].put(streams[name][position])
            await local.step()
        return {name: box.history for name, box in boxes.items()}

    networked, local = asyncio.run(over_nats()), asyncio.run(in_one_process())
    for name in NAMES:
        assert len(local[name]) == RELEASES
        assert networked[name].history.items() <= local[name].items()  # versions may be skipped, none differs
        for group in range(groups):
            last = (1, group, RELEASES // groups)
            assert networked[name].history[last] == local[name][last]


def test_an_agent_that_lost_its_memory_and_its_link_catches_up(ring: Broker) -> None:
    terms = make_terms(releases=20)
    streams = record_streams(NAMES, terms, 12)
    boxes = {name: MemoryMailbox() for name in NAMES}

    async def run() -> None:
        others = {name: box for name, box in boxes.items() if name != "b"}
        _, agents = run_agents(ring, dict(others), terms)
        async with running(*agents):
            for name in NAMES:
                for item in streams[name][:2]:
                    boxes[name].put(item)
            engine = NatsEngine(ring.settings("b"), terms)
            async with running(engine.run(boxes["b"])):
                await until(lambda: all(_number(box) == 2 for box in boxes.values()))
            for name in others:  # b is away; more is released than anybody remembers
                for item in streams[name][2:]:
                    boxes[name].put(item)
            clique = [NAMES[i] for i in ring.roster.topology().members(1)]
            outside = [name for name in others if name not in clique]
            await until(lambda: all(_number(boxes[name]) == 12 for name in outside if _alone(ring, name)))
            ring.kill()
            ring.start()
            # b comes back with its file and nothing else, and makes the releases it missed
            boxes["b"] = MemoryMailbox(streams["b"][2:])
            engine = NatsEngine(ring.settings("b"), terms)
            async with running(engine.run(boxes["b"])):
                await until(lambda: all(_number(box) == 12 for box in boxes.values()))
        sums = {boxes[name].newest[0] for name in clique}
        parts = [messages.decode(streams[name][11].body) for name in clique]
        assert sums == {messages.encode(messages.combine(parts))}

    asyncio.run(run())


def _alone(ring: Broker, name: str) -> bool:
    """Whether an agent's clique does not need b."""
    topology = ring.roster.topology()
    return 1 not in topology.members(NAMES.index(name))


def test_a_new_season_replaces_the_old_one_on_every_agent(ring: Broker) -> None:
    terms = make_terms(releases=5)
    first, second = (record_streams(NAMES, terms, 3, season=season) for season in (1, 2))
    boxes = {name: MemoryMailbox() for name in NAMES}

    async def run() -> None:
        _, agents = run_agents(ring, dict(boxes), terms)
        async with running(*agents):
            for name in NAMES:
                for item in (*first[name], second[name][0]):
                    boxes[name].put(item)
            await until(lambda: all(_seasoned(box) == (2, 1) for box in boxes.values()))

    asyncio.run(run())


def _seasoned(box: MemoryMailbox) -> tuple[int, int] | None:
    if not box.newest:
        return None
    told = messages.decode(box.newest[0])
    return told.season, told.number


def test_what_a_neighbour_makes_up_is_refused_and_the_others_go_on(ring: Broker) -> None:
    terms = make_terms(releases=5)
    streams = record_streams(NAMES, terms, 2)
    forged = record_streams(["b"], terms, 1, seed=8)["b"]
    boxes = {name: MemoryMailbox() for name in NAMES}
    signer = Signer(ring.settings("b").seed)

    def packet(item: Parcel, *, origin: int = 1, signed_for: str = "b") -> bytes:
        payload = frames.frame(signer, item.body, "release", "tests", signed_for)
        return peers.encode(Announcement(origin, 0, item.number, item.number - 1, 2, payload))

    async def run() -> None:
        engines, agents = run_agents(ring, dict(boxes), terms)
        status = EngineStatus()
        async with running(*agents), Link(ring.settings("b"), "b", status).connected() as client:
            for name, box in boxes.items():
                box.put(streams[name][0])
            await until(lambda: all(_number(box) == 1 for box in boxes.values()))
            stream, to_c = client.jetstream(), subjects.edge("tests", "b", "c")
            await stream.publish(to_c, b"garbage")
            await stream.publish(to_c, packet(streams["a"][1], origin=0))  # in a's name, signed by b for b
            await stream.publish(to_c, packet(streams["a"][1], origin=0, signed_for="a"))
            await stream.publish(to_c, packet(streams["b"][1], signed_for="a"))
            await stream.publish(to_c, packet(forged[0]))  # a number that is known, with other content
            await stream.publish(to_c, packet(streams["b"][0]))  # the same once more: not even counted
            await until(lambda: engines["c"].refusals.total == 5)
            with pytest.raises(TimeoutError):  # h is no neighbour of b
                await stream.publish(subjects.edge("tests", "b", "h"), packet(streams["b"][0]), timeout=0.3)
            await until(lambda: "permissions violation" in status.last_error.lower())
            for name, box in boxes.items():
                box.put(streams[name][1])
            await until(lambda: all(_number(box) == 2 for box in boxes.values()))
        found = engines["c"].refusals.as_dict()
        assert found == {"a": {"signature": 2}, "b": {"malformed": 1, "replay": 1, "signature": 1}}
        assert sum(engine.refusals.total for engine in engines.values()) == 5  # nothing of it was passed on

    asyncio.run(run())


def test_messages_that_look_like_the_servers_do_not_stall_a_neighbour(ring: Broker) -> None:
    """More of them than a consumer may have unacknowledged; once in a while one that cannot be decoded."""
    terms = make_terms(releases=10)
    streams = record_streams(NAMES, terms, 2)
    boxes = {name: MemoryMailbox(streams[name][:1]) for name in NAMES}
    line = f"HPUB {subjects.edge('tests', 'd', 'c')} _INBOX.d.x 16 16\r\n".encode()

    async def run() -> None:
        engines, agents = run_agents(ring, dict(boxes), terms)
        async with running(*agents):
            await until(lambda: all(_number(box) == 1 for box in boxes.values()))
            async with Link(ring.settings("d"), "d", EngineStatus()).connected() as client:
                for index in range(600):
                    status = b"\xff\xff\xff" if index % 50 == 0 else b"404"
                    await client._send_command(line + b"NATS/1.0 " + status + b"\r\n\r\n\r\n")
                await client.flush()
            for name, box in boxes.items():
                box.put(streams[name][1])
            await until(lambda: all(_number(box) == 2 for box in boxes.values()))
            await until(lambda: engines["c"].refusals.total > 0)
        assert {name: engine.status.sessions for name, engine in engines.items()} == dict.fromkeys(NAMES, 1)

    asyncio.run(run())


def test_an_agent_learns_that_its_neighbours_refuse_it_and_that_they_no_longer_do(ring: Broker) -> None:
    """One agent promises less noise than was agreed, and mends that with the next season."""
    terms = make_terms(releases=5)
    louder = replace(terms, budget=Budget(epsilon=8.0, delta=1e-6))
    first = record_streams(NAMES, terms, 1) | record_streams(["b"], louder, 1)
    second = record_streams(NAMES, terms, 1, season=2)
    boxes = {name: MemoryMailbox(first[name]) for name in NAMES}
    others = {name: box for name, box in boxes.items() if name != "b"}

    async def run() -> None:
        _, agents = run_agents(ring, dict(others), terms)
        async with running(*agents):
            wrong = NatsEngine(ring.settings("b"), louder)
            async with running(wrong.run(boxes["b"])):
                await until(lambda: wrong.status.refused_by.keys() == {"a", "c"})
                assert "refuse what this agent sends. a: variance" in _refused(wrong)
                assert wrong.status.refused["variance"] >= 2
            right = NatsEngine(ring.settings("b"), terms)
            async with running(right.run(boxes["b"])):
                await until(lambda: right.status.refused_by.keys() == {"a", "c"})  # of what it says once more
                for name, box in boxes.items():
                    box.put(second[name][0])
                await until(lambda: all(_seasoned(box) == (2, 1) for box in boxes.values()))
                await until(lambda: right.status.refused_by == {})
                assert _refused(right) == ""

    asyncio.run(run())


def _refused(engine: NatsEngine) -> str:
    """What status and page say about own messages that are refused."""
    return REFUSED.sentence({"engine": engine.status.as_dict()}) or ""


@cut_in_a_handshake
def test_the_last_release_arrives_though_the_broker_lost_all_it_had_acknowledged(ring: Broker) -> None:
    """A power cut, at its worst: JetStream said that it has them, and its whole store is gone."""
    terms = make_terms(releases=1)
    streams = record_streams(NAMES, terms, 1)
    boxes = {name: MemoryMailbox(streams[name]) for name in NAMES}
    others = {name: box for name, box in boxes.items() if name != "b"}

    async def run() -> None:
        engines, agents = run_agents(ring, dict(others), terms)
        async with running(*agents):
            await until(lambda: not any(box._items for box in others.values()))  # acknowledged, all of them
            ring.kill()
            shutil.rmtree(ring.folder / "server" / "jetstream")
            ring.start()
            await make_streams(ring.admin_settings())
            late = NatsEngine(ring.settings("b"), terms)  # nothing was delivered to it before the cut
            async with running(late.run(boxes["b"])):
                await until(lambda: all(_number(box) == 1 for box in boxes.values()))
        assert all(engine.refusals.total == 0 for engine in engines.values())

    asyncio.run(run())
