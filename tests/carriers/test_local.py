"""The engine in one process, and the mailbox over an agent's file."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from nats_world import make_terms, record_streams, require_server

from feducb.carriers.local import LocalController, LocalPeers, MemoryMailbox, StoreMailbox
from feducb.carriers.peering import PeerDriver
from feducb.protocol import messages
from feducb.protocol import peers as protocol_peers
from feducb.protocol.graphs import build_topology
from feducb.protocol.peers import Announcement
from feducb.storage import AgentStore, ReleaseBook

NAMES = ("a", "b", "c")


def test_agents_get_the_sum_of_their_newest_releases(tmp_path: Path) -> None:
    terms = make_terms(releases=4)

    async def run() -> None:
        stores = {name: AgentStore.open(tmp_path / f"{name}.db", terms) for name in NAMES}
        boxes = {name: StoreMailbox(store) for name, store in stores.items()}
        with ReleaseBook(tmp_path / "controller.db", dict.fromkeys(NAMES, terms)) as book:
            local = LocalController(book, boxes)
            for _ in range(3):
                made = []
                for name, store in stores.items():
                    store.record(np.full((2, 3), 0.3), np.full(2, 0.5))
                    made.append(messages.decode(store.release()))
                    boxes[name].notify()
                assert await local.step() == 1
                assert await local.step() == 0
                expected = messages.encode(messages.combine(made))
                assert [box.newest[0] for box in boxes.values()] == [expected] * 3
                assert all(store.outbox() == [] for store in stores.values())
        for store in stores.values():
            store.close()

    asyncio.run(run())


def test_a_mailbox_wakes_who_waits_only_for_something_new(tmp_path: Path) -> None:
    terms = make_terms(releases=4)
    streams = record_streams(["a"], terms, 2)["a"]

    async def run() -> None:
        box = MemoryMailbox(streams[:1])
        await asyncio.wait_for(box.wait(), 120)  # not looked at yet
        assert await box.outbox() == streams[:1]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(box.wait(), 0.02)
        box.put(streams[1])
        await asyncio.wait_for(box.wait(), 120)
        for item in streams * 2:  # twice is no error
            await box.mark_sent(item)
        assert await box.outbox() == []
        assert await box.absorb(messages.decode(streams[1].body))
        assert not await box.absorb(messages.decode(streams[0].body))  # older
        assert not await box.absorb(messages.decode(streams[1].body))  # the same
        store = AgentStore.open(tmp_path / "a.db", make_terms(dim=2, releases=2))
        with store, pytest.raises(ValueError, match="another dimension"):
            await StoreMailbox(store).absorb(messages.decode(streams[0].body))

    asyncio.run(run())


def test_on_a_graph_members_of_a_clique_get_their_sum_and_an_absent_one_holds_it_up_without_harm() -> None:
    terms = make_terms(releases=4)
    topology = build_topology("line", NAMES, [(0, 1), (1, 2)], ttl=2)
    streams = record_streams(NAMES, terms, 2)

    async def run() -> None:
        boxes = {name: MemoryMailbox() for name in NAMES}
        local = LocalPeers(topology, dict.fromkeys(NAMES, terms), boxes)
        for name in NAMES:
            boxes[name].put(streams[name][0])
        assert await local.step() == 6  # 1 + 2 + 1 told by their origins, 2 passed on in the middle
        for name in ("a", "b"):
            boxes[name].put(streams[name][1])
        await local.step()
        first = messages.combine([messages.decode(streams[name][0].body) for name in NAMES])
        assert {box.newest[0] for box in boxes.values()} == {messages.encode(first)}
        boxes["c"].put(streams["c"][1])
        await local.step()
        second = messages.combine([messages.decode(streams[name][1].body) for name in NAMES])
        assert {box.newest[0] for box in boxes.values()} == {messages.encode(second)}

    asyncio.run(run())


def test_a_peer_that_hears_garbage_drops_it_and_remembers_no_more_than_it_must() -> None:
    draws = random.Random(3)
    terms = make_terms(releases=200)
    topology = build_topology("line", NAMES, [(0, 1), (1, 2)], ttl=2)
    everybody = dict.fromkeys(NAMES, terms)
    peers = {name: PeerDriver(topology, name, everybody) for name in NAMES}
    stream = record_streams(["a"], terms, 60)["a"]
    passed_on = 0
    for item in stream:
        for packet in peers["a"].announce(item):
            passed_on += len(peers["b"].hear(packet.data, sender="a"))
            for _ in range(20):
                data = bytearray(packet.data)
                for _ in range(draws.randint(1, 3)):
                    data[draws.randrange(len(data))] = draws.getrandbits(8)
                peers["b"].hear(
                    bytes(data[: draws.choice((len(data), draws.randrange(len(data))))]), sender="c"
                )
                peers["b"].hear(draws.randbytes(draws.randint(0, 200)), sender="c")
    assert passed_on == 60
    assert peers["b"].refusals.total > 1_500
    state = peers["b"]._state
    assert max(len(kept) for kept in state.kept.values()) < 15
    assert sum(len(numbers) for numbers in state.forwarded.values()) < 3 * 15


def test_a_release_is_taken_only_as_what_it_is_announced_as() -> None:
    terms = make_terms(releases=4)
    topology = build_topology("line", NAMES, [(0, 1), (1, 2)], ttl=2)
    one, other = (PeerDriver(topology, name, dict.fromkeys(NAMES, terms)) for name in ("a", "b"))
    (packet,) = one.announce(record_streams(["a"], terms, 1)["a"][0])
    message = protocol_peers.decode(packet.data)
    assert isinstance(message, Announcement)
    doubled = messages.encode(messages.combine([messages.decode(message.payload)] * 2))
    for change in ({"number": 2}, {"season": 2}, {"round": 1}, {"payload": doubled}):
        wrong = replace(message, **change)
        assert other.hear(protocol_peers.encode(wrong), sender="a") == []
    assert other.refusals.as_dict() == {"a": {"agents": 1, "number": 3}}
    assert len(other.hear(packet.data, sender="a")) == 1


def test_where_the_server_is_missing_tests_say_so_and_with_ci_they_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="nats-server is not installed"):
        require_server()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="nats-server is not installed, and CI=true"):
        require_server()
