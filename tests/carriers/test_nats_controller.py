"""Agents and a controller over a real nats-server with TLS and nkeys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nats_world import Broker, make_terms, record_streams, run_agents, running, until

from feducb.carriers import nats_subjects as subjects
from feducb.carriers.local import LocalController, MemoryMailbox, StoreMailbox
from feducb.carriers.nats import EngineStatus, Link, NatsController, NatsEngine
from feducb.carriers.nats.clock_talk import answer_time, ask_time, asks_for_time
from feducb.controller.collector import TrustedCollector, open_collector
from feducb.protocol import messages
from feducb.storage import AgentStore, Quorum, ReleaseBook

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    one = Broker(tmp_path / "keys", NAMES)
    one.start()
    yield one
    one.stop()


def test_four_agents_with_200_releases_get_the_sums_of_the_engine_in_one_process(
    broker: Broker, tmp_path: Path
) -> None:
    terms = make_terms()
    streams = record_streams(NAMES, terms, 200)
    everybody = dict.fromkeys(NAMES, terms)

    async def over_nats() -> dict[str, MemoryMailbox]:
        boxes = {name: MemoryMailbox(streams[name], keep_all=True) for name in NAMES}
        with ReleaseBook(tmp_path / "controller.db", everybody) as book:
            controller = NatsController(broker.controller_settings(), book)
            engines, agents = run_agents(broker, dict(boxes), terms)
            async with running(controller.run(), *agents):
                await until(lambda: all(_number(box) == 200 for box in boxes.values()))
                await until(lambda: all(engine.status.sent == 200 for engine in engines.values()))
            assert all([await box.outbox() == [] for box in boxes.values()])
        return boxes

    async def in_one_process() -> dict[str, MemoryMailbox]:
        boxes = {name: MemoryMailbox(streams[name], keep_all=True) for name in NAMES}
        with ReleaseBook(tmp_path / "local.db", everybody) as book:
            assert await LocalController(book, boxes).step() == 200
        return boxes

    networked, local = asyncio.run(over_nats()), asyncio.run(in_one_process())
    for name in NAMES:
        assert len(local[name].history) == 200
        assert networked[name].history == local[name].history  # byte for byte, all 200 of them


def _number(box: MemoryMailbox) -> int:
    return messages.decode(box.newest[0]).number if box.newest else 0


def test_a_trusted_controller_adds_noise_once_and_what_it_is_sent_is_sealed(
    broker: Broker, tmp_path: Path
) -> None:
    """The sum is within 8 deviations of the truth: false alarm below 9 coordinates × 2e-15."""
    terms = make_terms(trust="controller", releases=5)
    actions, rewards = np.full((4, 3), 0.3), np.full(4, 0.5)

    async def run() -> None:
        stores = {name: AgentStore.open(tmp_path / f"{name}.db", terms) for name in NAMES}
        boxes = {name: StoreMailbox(store) for name, store in stores.items()}
        collector = open_collector(tmp_path / "controller.db", dict.fromkeys(NAMES, terms))
        assert isinstance(collector, TrustedCollector)
        controller = NatsController(broker.controller_settings(), collector)
        engines, agents = run_agents(broker, dict(boxes), terms)
        seen: list[bytes] = []
        raw: list[bytes] = []

        async def watch(message: Any) -> None:
            seen.append(message.data)

        broker_sees = Link(broker.controller_settings(), subjects.CONTROLLER, EngineStatus())
        async with broker_sees.connected() as client, running(controller.run(), *agents):
            await client.subscribe("feducb.tests.upload.*", cb=watch)
            for number in range(1, 6):
                for name, store in stores.items():
                    store.record(actions, rewards)
                    raw.append(store.upload())
                    boxes[name].notify()
                await until(lambda number=number: all(_number(box) == number for box in boxes.values()))  # type: ignore[misc]
            await until(lambda: all(store.uploads() == [] for store in stores.values()))
        told = messages.decode(boxes["a"].newest[0])
        assert {box.newest[0] for box in boxes.values()} == {collector.store.replay(1, 5)}
        assert engines["a"].status.members == NAMES
        truth = 5 * len(NAMES) * actions.T @ actions
        deviations = (told.read().gram - truth) / np.sqrt(2 * told.variance)
        assert np.abs(deviations).max() < 8
        assert len(seen) >= len(raw) == 20
        for one in seen:
            assert not any(part in one for upload in raw for part in (upload, upload[:8], upload[-16:]))
        for store in stores.values():
            store.close()
        collector.close()

    asyncio.run(run())


def test_who_is_away_is_left_out_after_the_deadline_and_back_in_the_next_sum(
    broker: Broker, tmp_path: Path
) -> None:
    terms = make_terms(releases=10)
    streams = record_streams(NAMES, terms, 4)
    boxes = {name: MemoryMailbox(keep_all=True) for name in NAMES}

    async def run() -> None:
        # The three that are always here are a quorum, so that however late one of them is, it is waited for.
        book = ReleaseBook(tmp_path / "c.db", dict.fromkeys(NAMES, terms), quorum=3, deadline=0.3)
        without_d = book.quorum
        controller = NatsController(broker.controller_settings(), book)
        present = {name: box for name, box in boxes.items() if name != "d"}
        engines, agents = run_agents(broker, dict(present), terms)
        async with running(controller.run(), *agents):
            for number in (1, 2):
                for name in present:
                    boxes[name].put(streams[name][number - 1])
                await until(lambda number=number: all(_number(box) == number for box in present.values()))  # type: ignore[misc]
            assert engines["a"].status.members == ("a", "b", "c")
            told = messages.decode(boxes["a"].newest[0])
            parts = [messages.decode(streams[name][1].body) for name in present]
            assert told.agents == 3
            assert told.variance == pytest.approx(sum(part.variance for part in parts), rel=1e-12)
            book.quorum = Quorum(everybody=4, enough=4, deadline=None)
            # d joins late: it catches up with the federation's number, and hears the newest sum at once.
            for number in (1, 2, 3):
                boxes["d"].put(streams["d"][number - 1])
            late, joined = run_agents(broker, {"d": boxes["d"]}, terms)
            async with running(*joined):
                await until(lambda: boxes["d"].absorbed > 0)
                for name in present:
                    boxes[name].put(streams[name][2])
                await until(lambda: all(_number(box) == 3 for box in boxes.values()))
                assert late["d"].status.members == NAMES
            # d leaves, and the others go on
            book.quorum = without_d
            for name in present:
                boxes[name].put(streams[name][3])
            await until(lambda: all(_number(box) == 4 for box in present.values()))
            assert engines["a"].status.members == ("a", "b", "c")
            # d comes back: it hears what it missed
            again, back = run_agents(broker, {"d": boxes["d"]}, terms)
            async with running(*back):
                await until(lambda: _number(boxes["d"]) == 4)
                assert again["d"].status.members == ("a", "b", "c")
        assert {box.newest[0] for box in boxes.values()} == {book.published(1, 4).payload}
        book.close()

    asyncio.run(run())


def test_broker_and_controller_may_come_late_and_go_without_a_word(broker: Broker, tmp_path: Path) -> None:
    terms = make_terms(releases=10)
    streams = record_streams(NAMES, terms, 2)
    boxes = {name: MemoryMailbox() for name in NAMES}
    everybody = dict.fromkeys(NAMES, terms)

    async def run() -> None:
        engines, agents = run_agents(broker, dict(boxes), terms)
        async with running(*agents):
            for name in NAMES:
                boxes[name].put(streams[name][0])
            await until(lambda: engines["a"].status.errors["NoRespondersError"] > 1)  # no controller yet
            with ReleaseBook(tmp_path / "c.db", everybody) as book:
                async with running(NatsController(broker.controller_settings(), book).run()):
                    await until(lambda: all(_number(box) == 1 for box in boxes.values()))
                    broker.kill()
                    await until(lambda: not any(one.status.connected for one in engines.values()))
                    for name in NAMES:
                        boxes[name].put(streams[name][1])
                    broker.start()
                    await until(lambda: all(_number(box) == 2 for box in boxes.values()))
                assert {box.newest[0] for box in boxes.values()} == {book.published(1, 2).payload}
        assert engines["a"].status.sessions == 2

    asyncio.run(run())


def test_who_sends_nothing_compares_clocks_with_the_controller_too(broker: Broker, tmp_path: Path) -> None:
    """As when its own was set back, so that nothing is due by it."""
    terms, status = make_terms(), EngineStatus()
    asked: list[bytes] = []

    async def run() -> None:
        with ReleaseBook(tmp_path / "controller.db", dict.fromkeys(NAMES, terms)) as book:
            controller = NatsController(broker.controller_settings(), book)
            engine = NatsEngine(broker.settings("a"), terms, status=status)
            async with running(controller.run(), engine.run(MemoryMailbox([]))):
                await until(lambda: status.clock_off is not None)
            answer = answer_time(controller._signer, "tests", "a", b"time of another question")
            assert answer.startswith(b"time of another question")
            roster = broker.settings("a").read_roster()
            status.clock_off = None
            await ask_time(_Says(answer), broker.settings("a"), roster, "a", status)  # type: ignore[arg-type]
            assert status.clock_off is None  # told again, it proves nothing

    class _Says:
        """A server that gives its own answer."""

        def __init__(self, data: bytes) -> None:
            self.data = data

        async def request(self, _: str, question: bytes, *, timeout: float) -> _Says:
            asked.append(question)
            return self

    asyncio.run(run())
    assert (status.sent, [asks_for_time(one) for one in asked]) == (0, [True])


def test_a_session_ends_with_its_connection_even_where_the_client_fails_to_say_so(broker: Broker) -> None:
    """nats-py marks itself closed, writes what is left, and calls back last: if that write fails, never."""

    async def run() -> None:
        status = EngineStatus()
        link = Link(broker.controller_settings(), subjects.CONTROLLER, status)
        clients: list[Any] = []

        async def session(client: Any) -> None:
            clients.append(client)
            await asyncio.Event().wait()

        async with running(link.keep(session)):
            await until(lambda: len(clients) == 1)

            async def fail() -> None:
                raise ConnectionResetError

            clients[0]._transport.drain = fail
            clients[0]._pending, clients[0]._pending_data_size = [b"PING\r\n"], 6
            broker.kill()
            await until(lambda: clients[0].is_closed)
            broker.start()
            await until(lambda: len(clients) == 2)
        assert status.errors["DisconnectedError"] == 1

    asyncio.run(run())
