"""Secure sums over NATS beside plain ones: how long until every one of a thousand agents has the sum.

    python benchmarks/secure_sums.py [--agents 1000] [--keepers 3] [--rounds 3] [--json FILE]

The same agents, all in this process, with a controller (and keepers) in processes of their own, TLS and nkeys
on loopback, d = 10. A round under trust "nobody", a round under "keepers", and so on: from the moment
everybody's message is in its outbox until the last agent has read the sum and checked all signatures (one of
the controller, and one of each keeper). `agents_cpu` is what that takes of this process, all agents together.
A keeper's answer is timed here as well, in a process that does nothing else. Needs nats-server and the nats
extra.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from over_nats import World, run

from feducb.carriers.local import MemoryMailbox
from feducb.carriers.nats import NatsEngine
from feducb.config import Budget, Problem
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.hiding import Cover
from feducb.protocol.keeping import quorum_of
from feducb.protocol.pads import Charter, Label, SeasonKey
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import Ask, KeyCard, Opened, PaddedRow, is_card
from feducb.storage.keeper_book import KeeperBook
from feducb_lab.experiments.measured import write_tables

DIM, RELEASES = 10, 1000


class TimedMailbox(MemoryMailbox):
    """Reads what it hears as an agent does, without a file; knows when each sum came in."""

    def __init__(self, roster: Roster, terms: Terms) -> None:
        super().__init__()
        self._roster, self._terms = roster, terms
        self._charter = Charter.of(roster, terms, 1)
        self.cards: dict[str, KeyCard] = {}
        self.over = b""
        self.heard: dict[int, float] = {}

    async def absorb(self, total: messages.GridSum, *, agents: int | None = None, sealed: int = 0) -> bool:
        """Note when."""
        new = await super().absorb(total, agents=agents)
        self.heard.setdefault(total.number, time.perf_counter())
        return new

    async def hear(self, data: bytes) -> bool:
        """A keeper's card or a row that is over."""
        if is_card(data):
            card = KeyCard.read(data, self._charter, self._roster)
            new = card.keeper not in self.cards
            self.cards[card.keeper] = card
            return new
        count, quorum = self._terms.model.coordinates(DIM), quorum_of(self._terms)
        opened = Opened.read(data, self._charter, self._roster, coordinates=count, quorum=quorum)
        assert not opened.refused
        new, self.over = opened.label.row not in self.heard, opened.label.to_bytes()
        self.heard.setdefault(opened.label.row, time.perf_counter())
        return new

    async def place(self) -> bytes:
        """The newest row that is over."""
        return self.over


def make_terms(agents: int, trust: str) -> Terms:
    """As the files of the controller and the keepers say."""
    known = {"problem": Problem(dim=DIM), "budget": Budget(epsilon=1.0, delta=1e-6), "releases": RELEASES}
    return Terms(**known, trust=trust, agents=agents)  # type: ignore[arg-type]


class Rows:
    """What agents send: releases, or rows of noise alone under pads. How noise is drawn is not timed."""

    def __init__(self, world: World, terms: Terms, boxes: dict[str, TimedMailbox]) -> None:
        self._roster = Roster.read(world.folder / "federation.json")
        self._charter, self._boxes = Charter.of(self._roster, terms, 1), boxes
        self._door, self._draws = DeployedPrivatizer(terms), np.random.default_rng(9)
        self._covers: dict[str, Cover] = {}
        for name in world.names if terms.trust.padded else ():
            signer = Signer(world.folder / "agents" / name / "agent.seed")
            self._covers[name] = Cover(name, self._roster, signer, SeasonKey(), b"s" * 32, self._charter)

    def make(self, number: int) -> dict[str, Parcel]:
        """Everybody's message of a number: the same content for all."""
        if not self._covers:
            body = messages.encode(self._door.release(), season=1)
            return dict.fromkeys(self._boxes, Parcel(ParcelKind.RELEASE, 1, 0, number, body))
        label, made = Label(1, 0, number), {}
        sigma, count = self._door.certificate.sigma, self._door.certificate.coordinates
        for name, cover in self._covers.items():
            row = np.rint(self._draws.normal(0.0, sigma, count)).astype(np.int64)
            padded = cover.hide(label, row, self._boxes[name].cards)
            made[name] = Parcel(ParcelKind.ROW, 1, 0, number, padded.to_bytes())
        return made


class Side:
    """All agents of a federation, under one trust."""

    def __init__(self, world: World, terms: Terms) -> None:
        self._world, self._terms = world, terms
        self._roster = Roster.read(world.folder / "federation.json")
        self._boxes = {name: TimedMailbox(self._roster, terms) for name in world.names}
        self._engines = {name: NatsEngine(world.settings(name), terms) for name in world.names}
        self._tasks: list[asyncio.Task[None]] = []
        self.first: list[float] = []  # seconds until the first agent has the sum, by round
        self.last: list[float] = []  # and the last
        self.busy: list[float] = []  # of this process
        self.size = 0  # bytes of a message

    async def connect(self) -> None:
        """All agents, a few at a time."""
        begun: list[NatsEngine] = []
        for name, engine in self._engines.items():
            self._tasks.append(asyncio.create_task(engine.run(self._boxes[name])))
            begun.append(engine)
            while len(begun) % 20 == 0 and not all(one.status.connected for one in begun):
                await asyncio.sleep(0.01)
        while not all(one.status.connected for one in begun):
            await asyncio.sleep(0.01)
        keepers = self._roster.keepers.keys()
        while not all(box.cards.keys() == keepers for box in self._boxes.values()):
            await asyncio.sleep(0.05)
        self._rows = Rows(self._world, self._terms, self._boxes)

    async def round(self, number: int) -> None:
        """Everybody sends; until everybody has the sum."""
        made = self._rows.make(number)
        self.size = max(len(item.body) for item in made.values())
        began, worked = time.perf_counter(), time.process_time()
        for name, item in made.items():
            self._boxes[name].put(item)
        while not all(number in box.heard for box in self._boxes.values()):
            await asyncio.sleep(0.005)
        heard = [box.heard[number] - began for box in self._boxes.values()]
        self.first.append(min(heard))
        self.last.append(max(heard))
        self.busy.append(time.process_time() - worked)

    async def stop(self) -> None:
        """Hang up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert not any(one.status.refused for one in self._engines.values())

    def found(self) -> dict[str, float]:
        """Medians over rounds, the first left out."""
        times = {"first_agent": self.first, "last_agent": self.last, "agents_cpu": self.busy}
        told = {name: statistics.median(each[1:]) for name, each in times.items()}
        return told | {"message_bytes": self.size}


async def side_by_side(sides: dict[str, Side], rounds: int) -> None:
    """A round of one, a round of the other, and so on: whatever else the machine does, it does to both."""
    for side in sides.values():
        await side.connect()
    gc.collect()
    gc.freeze()  # as services do
    for number in range(1, rounds + 2):
        for side in sides.values():
            await side.round(number)
    for side in sides.values():
        await side.stop()


def time_answer(agents: int, keepers: int, folder: Path, rounds: int) -> float:
    """Seconds that a keeper takes for a list of all agents, from bytes to bytes on disk; the median."""
    names = [f"agent-{index}" for index in range(agents)]
    signers = {name: Signer.fresh() for name in names}
    own, controller = {name: Signer.fresh() for name in names[:keepers]}, Signer.fresh()
    roster = Roster(
        federation="bench",
        agents={name: one.nkey for name, one in signers.items()},
        controller=controller.nkey,
        sealing="00" * 32,
        keepers={name: one.nkey for name, one in own.items()},
    )
    terms = make_terms(agents, "keepers")
    charter, season_keys = Charter.of(roster, terms, 1), {name: SeasonKey() for name in names}
    took = []
    with KeeperBook(folder / "keeper.db", names[0], roster, terms, own[names[0]]) as book:
        for number in range(1, rounds + 2):
            label, entries = Label(1, 0, number), []
            for place, name in enumerate(names):
                row = PaddedRow(label, season_keys[name].public, bytes([number]) * 32, bytes(520))
                entries.append(row.sign(charter, name, signers[name]).entry(place))
            ask = Ask(label, tuple(entries)).to_bytes(charter, controller)
            began = time.perf_counter()
            book.answer(ask)
            took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def measure(agents: int, keepers: int, rounds: int) -> dict[str, Any]:
    """Both trusts, side by side."""
    found: dict[str, Any] = {"agents": agents, "keepers": keepers, "dim": DIM}
    names = [f"agent-{index}" for index in range(agents)]
    worlds: list[World] = []
    with tempfile.TemporaryDirectory() as scratch:
        found["keeper_answer"] = time_answer(agents, keepers, Path(scratch), rounds)
        try:
            for trust, kept in (("nobody", []), ("keepers", names[:keepers])):
                more = f'trust = "{trust}"\nagents_per_person = 1'
                worlds.append(World(Path(scratch) / trust, names, dim=DIM, keepers=kept, more=more))
                worlds[-1].start_controller()
            sides = {
                trust: Side(world, make_terms(agents, trust))
                for trust, world in zip(("nobody", "keepers"), worlds, strict=True)
            }
            run(asyncio.wait_for(side_by_side(sides, rounds), 900))
        finally:
            for world in worlds:
                world.close()
    for trust, side in sides.items():
        found |= {f"{trust}_{name}": value for name, value in side.found().items()}
    found["last_agent_over_nobody"] = statistics.median(
        kept / plain for kept, plain in zip(sides["keepers"].last[1:], sides["nobody"].last[1:], strict=True)
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--keepers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    found = measure(given.agents, given.keepers, given.rounds)
    found = {key: float(f"{value:.4g}") for key, value in found.items()}
    print(json.dumps(found, indent=1))
    if given.json:
        played = ["feducb.carriers.nats", "feducb.controller", "feducb.storage.keeper_book"]
        write_tables(given.json, {"secure sums": {"found": found}}, played)


if __name__ == "__main__":
    main()
