"""Secure sums over NATS beside plain ones: how long until every one of a thousand agents has the sum.

    python benchmarks/secure_sums.py [--agents 1000] [--keepers 3] [--rounds 3] [--json out.json]

The same agents, all in this process, with a controller (and keepers) in processes of their own, TLS and nkeys
on loopback, d = 10. Once under trust "nobody" and once under "keepers": from the moment everybody's message
is in its outbox until the last agent has read the sum and checked all signatures. `agents_cpu` is what that
takes of this process, all agents together. A keeper's answer is timed here as well, in a process that does
nothing else. Needs nats-server and the nats extra.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from over_nats import World, run

from feducb.agent.mailbox import Mailbox
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

    async def absorb(self, total: messages.GridSum, *, agents: int | None = None) -> bool:
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


async def connect(
    world: World, terms: Terms, boxes: dict[str, TimedMailbox]
) -> tuple[list[asyncio.Task[None]], list[NatsEngine]]:
    """All agents, a few at a time."""
    engines = {name: NatsEngine(world.settings(name), terms) for name in world.names}
    tasks = []
    for index, (name, engine) in enumerate(engines.items()):
        box: Mailbox = boxes[name]
        tasks.append(asyncio.create_task(engine.run(box)))
        while index % 20 == 19 and not all(
            one.status.connected for one in list(engines.values())[: index + 1]
        ):
            await asyncio.sleep(0.01)
    while not all(one.status.connected for one in engines.values()):
        await asyncio.sleep(0.01)
    return tasks, list(engines.values())


async def time_sums(world: World, terms: Terms, rounds: int) -> dict[str, Any]:
    """Seconds until the first and the last agent has the sum; median over rounds, the first left out."""
    roster = Roster.read(world.folder / "federation.json")
    boxes = {name: TimedMailbox(roster, terms) for name in world.names}
    tasks, engines = await connect(world, terms, boxes)
    if terms.trust.padded:
        while not all(box.cards.keys() == roster.keepers.keys() for box in boxes.values()):
            await asyncio.sleep(0.05)
    rows, first, last, busy, size = Rows(world, terms, boxes), [], [], [], 0
    for number in range(1, rounds + 2):
        made = rows.make(number)
        size = max(len(item.body) for item in made.values())
        began, worked = time.perf_counter(), time.process_time()
        for name, item in made.items():
            boxes[name].put(item)
        while not all(number in box.heard for box in boxes.values()):
            await asyncio.sleep(0.005)
        heard = [box.heard[number] - began for box in boxes.values()]
        first.append(min(heard))
        last.append(max(heard))
        busy.append(time.process_time() - worked)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not any(one.status.refused for one in engines)
    return {
        "first_agent": statistics.median(first[1:]),
        "last_agent": statistics.median(last[1:]),
        "agents_cpu": statistics.median(busy[1:]),
        "message_bytes": size,
    }


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
    """Both, one after the other."""
    found: dict[str, Any] = {"agents": agents, "keepers": keepers, "dim": DIM}
    names = [f"agent-{index}" for index in range(agents)]
    with tempfile.TemporaryDirectory() as scratch:
        found["keeper_answer"] = time_answer(agents, keepers, Path(scratch), rounds)
        for trust in ("nobody", "keepers"):
            more = f'trust = "{trust}"' + ("\nagents_per_person = 1" if trust == "keepers" else "")
            kept = names[:keepers] if trust == "keepers" else []
            world = World(Path(scratch) / trust, names, dim=DIM, keepers=kept, more=more)
            try:
                world.start_controller()
                work = time_sums(world, make_terms(agents, trust), rounds)
                told = run(asyncio.wait_for(work, 600))
                found |= {f"{trust}_{name}": value for name, value in told.items()}
            finally:
                world.close()
    found["last_agent_over_nobody"] = found["keepers_last_agent"] / found["nobody_last_agent"]
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
    text = json.dumps({key: float(f"{value:.4g}") for key, value in found.items()}, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
