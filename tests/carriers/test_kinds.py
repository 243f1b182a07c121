"""Whether something is raw or released is what its store says of it, never what its bytes look like."""

from __future__ import annotations

import asyncio
import base64
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nats_world import Broker, make_terms, record_streams, run_agents, running, until

from feducb.agent.agent_http import ServiceError
from feducb.carriers import nats_subjects as subjects
from feducb.carriers.flower.agent_door import AgentDoor
from feducb.carriers.flower.exchange import Ask
from feducb.carriers.flower.site import visit
from feducb.carriers.local import LocalController, LocalPeers, MemoryMailbox, StoreMailbox
from feducb.carriers.nats import EngineStatus, Link, NatsController
from feducb.controller.collector import open_collector
from feducb.errors import ConfigurationError
from feducb.protocol.graphs import build_topology
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.storage import AgentStore, RowBook

NAMES = ("a", "b", "c", "d")
TERMS = make_terms(releases=5)
TRUSTING = make_terms(releases=5, trust="controller")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    one = Broker(tmp_path / "keys", NAMES)
    one.start()
    yield one
    one.stop()


def _upload(path: Path) -> bytes:
    with AgentStore.open(path, TRUSTING) as store:
        store.record(np.full((4, 3), 0.3), np.full(4, 0.5))
        return store.upload()


def test_a_store_says_what_waits(tmp_path: Path) -> None:
    with AgentStore.open(tmp_path / "a.db", TERMS) as store:
        store.release()
        assert [item.kind for item in store.outbox()] == [ParcelKind.RELEASE]
    with AgentStore.open(tmp_path / "b.db", TRUSTING) as store:
        store.upload()
        (item,) = asyncio.run(StoreMailbox(store).outbox())
        assert item.kind is ParcelKind.UPLOAD
        with pytest.raises(ConfigurationError, match="a release"):
            item.released()


def test_over_nats_a_raw_upload_leaves_sealed_whatever_its_bytes_and_a_release_as_it_is(
    broker: Broker,
) -> None:
    """Uploads that look like a release, and a release that looks like an upload."""
    looks_released = record_streams(["a"], TERMS, 1)["a"][0].body
    looks_raw = b"RAW2" + looks_released[4:]
    boxes = {
        "a": MemoryMailbox([Parcel(ParcelKind.UPLOAD, 1, 0, 1, looks_released)]),
        "b": MemoryMailbox([Parcel(ParcelKind.UPLOAD, 1, 0, 1, b"\0" * 92)]),
        "c": MemoryMailbox([Parcel(ParcelKind.RELEASE, 1, 0, 1, looks_raw)]),
    }
    seen: dict[tuple[str, str], list[bytes]] = defaultdict(list)

    async def watch(message: Any) -> None:
        kind, agent = message.subject.split(".")[-2:]
        seen[kind, agent].append(message.data)

    async def run() -> None:
        _, agents = run_agents(broker, dict(boxes), TRUSTING)
        broker_sees = Link(broker.controller_settings(), subjects.CONTROLLER, EngineStatus())
        async with broker_sees.connected() as client:
            for kind in ParcelKind:
                await client.subscribe(subjects.topic("tests", kind, "*"), cb=watch)
            await client.flush()
            async with running(*agents):
                await until(lambda: len(seen) == 3)

    asyncio.run(run())
    assert set(seen) == {("upload", "a"), ("upload", "b"), ("release", "c")}
    assert not any(looks_released[8:40] in one for one in seen["upload", "a"])
    assert not any(b"\0" * 32 in one for one in seen["upload", "b"])
    assert all(looks_raw in one for one in seen["release", "c"])


def test_a_trusted_controller_takes_no_raw_upload_that_came_as_a_release(
    broker: Broker, tmp_path: Path
) -> None:
    raw = _upload(tmp_path / "a.db")
    boxes = {"a": MemoryMailbox([Parcel(ParcelKind.RELEASE, 1, 0, 1, raw)])}

    async def run() -> None:
        collector = open_collector(tmp_path / "controller.db", dict.fromkeys(NAMES, TRUSTING))
        controller = NatsController(broker.controller_settings(), collector)
        _, agents = run_agents(broker, dict(boxes), TRUSTING)
        async with running(controller.run(), *agents):
            await until(lambda: controller.refusals.total > 0)
        assert collector.progress() == {}
        assert controller.last_refusals["a"]["reason"] == "malformed"
        collector.close()

    asyncio.run(run())


def test_on_a_graph_no_raw_upload_is_announced_even_if_its_bytes_are_a_release() -> None:
    streams = record_streams(NAMES, TERMS, 1)
    (item,) = streams["a"]
    boxes = {name: MemoryMailbox(streams[name]) for name in NAMES}
    boxes["a"] = MemoryMailbox([replace(item, kind=ParcelKind.UPLOAD)])
    edges = [(one, other) for one in range(4) for other in range(one)]
    graph = build_topology("complete", NAMES, edges, ttl=1)
    peers = LocalPeers(graph, dict.fromkeys(NAMES, TERMS), boxes)
    with pytest.raises(ConfigurationError, match="a release"):
        peers.drivers["a"].announce(replace(item, kind=ParcelKind.UPLOAD))
    assert len(peers.drivers["a"].announce(item)) == 3


@pytest.mark.parametrize("kind", ParcelKind)
def test_a_controller_in_the_same_process_takes_in_what_it_is_meant_for_alone(
    tmp_path: Path, kind: ParcelKind
) -> None:
    """Bytes that it would read, under the other kind."""
    terms = TERMS if kind is ParcelKind.UPLOAD else TRUSTING
    released = record_streams(["a"], TERMS, 1)["a"][0].body
    payload = released if kind is ParcelKind.UPLOAD else _upload(tmp_path / "a.db")
    collector = open_collector(tmp_path / "controller.db", {"a": terms})
    assert not isinstance(collector, RowBook)
    box = MemoryMailbox([Parcel(kind, 1, 0, 1, payload)])
    local = LocalController(collector, {"a": box})
    assert asyncio.run(local.step()) == 0
    assert collector.progress() == {}
    assert local.refusals.total == 1
    other = ParcelKind.RELEASE if kind is ParcelKind.UPLOAD else ParcelKind.UPLOAD
    box = MemoryMailbox([Parcel(other, 1, 0, 1, payload)])
    assert asyncio.run(LocalController(collector, {"a": box}).step()) == 1
    collector.close()


class _Door(AgentDoor):
    """A door whose agent lists what it is given."""

    def __init__(self, *items: dict[str, Any]) -> None:
        super().__init__("http://127.0.0.1:1", key="key")
        self._items = items

    def _send(self, method: str, path: str, asked: dict[str, Any] | None = None) -> Any:
        return {"items": list(self._items)}


def test_over_flower_no_raw_upload_goes_out_even_if_its_bytes_are_a_release() -> None:
    payload = record_streams(["a"], TERMS, 1)["a"][0].body
    listed = {"season": 1, "group": 0, "number": 1, "payload": base64.b64encode(payload).decode()}
    ask = Ask(nonce=bytes(16))
    assert visit(_Door(listed | {"kind": "release"}), ask).parcels == (payload,)
    for kind, why in (("upload", "raw"), ("row", "a row of"), ("make-up", "a row of")):
        answer = visit(_Door(listed | {"kind": kind}), ask)
        assert (answer.parcels, len(answer.problems)) == ((), 1)
        assert why in answer.problems[0]


@pytest.mark.parametrize("said", [{}, {"kind": "RAW1"}, {"kind": None}])
def test_an_outbox_that_does_not_say_what_it_holds_is_not_carried(said: dict[str, Any]) -> None:
    listed = {"season": 1, "group": 0, "number": 1, "payload": ""}
    with pytest.raises(ServiceError, match=r"kind|is not a valid ParcelKind"):
        _Door(listed | said).outbox()
