"""What every carrier must keep: the one in this process, and the skeleton in docs/extending/carrier.md."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
from nats_world import make_terms, record_streams

from feducb.agent.mailbox import Mailbox
from feducb.carriers.local import LocalController, MemoryMailbox
from feducb.controller.collector import Collector
from feducb.protocol import messages
from feducb.protocol.parcels import Parcel
from feducb.storage import ReleaseBook
from page_code import run_page

NAMES = ("a", "b", "c")
TERMS = make_terms(releases=8)
ROUNDS = 5


class Carrier(Protocol):
    """Somebody who carries, one step at a time."""

    async def step(self) -> int: ...


Connect = Callable[[Path, Collector, Mapping[str, Mailbox]], Carrier]
CONNECT: dict[str, Connect] = {
    "local": lambda folder, collector, mailboxes: LocalController(collector, mailboxes),
    "the page's skeleton": run_page("extending/carrier.md")["FolderCarrier"],
}
ALL = pytest.mark.parametrize("connect", CONNECT.values(), ids=CONNECT)


@pytest.fixture(scope="module")
def streams() -> dict[str, list[Parcel]]:
    return record_streams(NAMES, TERMS, ROUNDS)


def _total(streams: Mapping[str, list[Parcel]], round_: int) -> bytes:
    return messages.encode(messages.combine([messages.decode(streams[name][round_].body) for name in NAMES]))


def _book(folder: Path) -> ReleaseBook:
    return ReleaseBook(folder / "controller.db", dict.fromkeys(NAMES, TERMS))


@ALL
def test_every_agent_gets_every_sum_to_the_last_bit(
    connect: Connect, streams: dict[str, list[Parcel]], tmp_path: Path
) -> None:
    async def run() -> None:
        boxes = {name: MemoryMailbox(keep_all=True) for name in NAMES}
        with _book(tmp_path) as book:
            carrier = connect(tmp_path / "net", book, boxes)
            for round_ in range(ROUNDS):
                for name, box in boxes.items():
                    box.put(streams[name][round_])
                assert await carrier.step() == 1
                assert await carrier.step() == 0  # nothing new: nothing is made, nothing changes
                for box in boxes.values():
                    assert await box.outbox() == []
                    assert box.newest[0] == _total(streams, round_)
                    assert box.absorbed == round_ + 1

    asyncio.run(run())


@ALL
def test_no_sum_is_made_of_some_where_all_are_asked_for(
    connect: Connect, streams: dict[str, list[Parcel]], tmp_path: Path
) -> None:
    async def run() -> None:
        boxes = {name: MemoryMailbox() for name in NAMES}
        with _book(tmp_path) as book:
            carrier = connect(tmp_path / "net", book, boxes)
            for name in NAMES[:-1]:
                boxes[name].put(streams[name][0])
            assert await carrier.step() == 0
            assert [box.newest for box in boxes.values()] == [{}, {}, {}]
            boxes[NAMES[-1]].put(streams[NAMES[-1]][0])
            assert await carrier.step() == 1
            assert {box.newest[0] for box in boxes.values()} == {_total(streams, 0)}

    asyncio.run(run())


@ALL
def test_a_restart_of_everything_between_any_two_steps_loses_and_repeats_nothing(
    connect: Connect, streams: dict[str, list[Parcel]], tmp_path: Path
) -> None:
    draws = random.Random(11)

    async def run() -> None:
        waiting = {name: list(stream) for name, stream in streams.items()}
        boxes = {name: MemoryMailbox() for name in NAMES}
        while any(waiting.values()):
            name = draws.choice([name for name, items in waiting.items() if items])
            boxes[name].put(waiting[name].pop(0))
            with _book(tmp_path) as book:
                await connect(tmp_path / "net", book, boxes).step()
        fresh = {
            name: MemoryMailbox() for name in NAMES
        }  # agents that forgot everything get the newest again
        with _book(tmp_path) as book:
            assert await connect(tmp_path / "net", book, fresh).step() == 0
        for box in (*boxes.values(), *fresh.values()):
            assert box.newest[0] == _total(streams, ROUNDS - 1)

    asyncio.run(run())


@ALL
def test_who_sends_rubbish_or_speaks_for_another_stops_nobody(
    connect: Connect, streams: dict[str, list[Parcel]], tmp_path: Path
) -> None:
    async def run() -> None:
        boxes = {name: MemoryMailbox() for name in NAMES}
        with _book(tmp_path) as book:
            carrier = connect(tmp_path / "net", book, boxes)
            boxes["a"].put(replace(streams["a"][0], body=b"rubbish", number=7))
            for name, box in boxes.items():
                box.put(streams[name][0])
            assert await carrier.step() == 1
            assert {box.newest[0] for box in boxes.values()} == {_total(streams, 0)}

    asyncio.run(run())


@ALL
def test_what_was_sent_twice_counts_once(
    connect: Connect, streams: dict[str, list[Parcel]], tmp_path: Path
) -> None:
    async def run() -> None:
        boxes = {name: MemoryMailbox() for name in NAMES}
        with _book(tmp_path) as book:
            carrier = connect(tmp_path / "net", book, boxes)
            for name, box in boxes.items():
                box.put(streams[name][0])
            await carrier.step()
            for name, box in boxes.items():  # nobody heard that it had arrived
                box.put(streams[name][0])
            assert await carrier.step() == 0
            assert {box.newest[0] for box in boxes.values()} == {_total(streams, 0)}
            assert [box.absorbed for box in boxes.values()] == [1, 1, 1]

    asyncio.run(run())
