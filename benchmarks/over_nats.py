"""How long a release takes over NATS, and how long a controller takes for a thousand agents.

    python benchmarks/over_nats.py [--rounds 200] [--agents 1000] [--json docs/figures/over-nats.json]

Round trip: four agents, d = 20, TLS and nkeys on loopback; from the moment a release is in the outbox until
the sum with it is in the inbox. Against it stands, from the same run, a bare NATS request and reply of the
same size (a second process answers), plus the two things that must be put on disk in between, the release and
the sum, with a commit each. The controller has one commit for both where it can: the second ratio is
against that. The third is against requests of all four together.
Needs nats-server and the nats extra.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from feducb.carriers import nats_keys as keys
from feducb.carriers import nats_subjects as subjects
from feducb.carriers.local import MemoryMailbox
from feducb.carriers.nats import EngineStatus, Link, NatsEngine
from feducb.config import Budget, Problem
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.storage import sqlite as file
from feducb_lab.experiments.measured import write_tables

T = TypeVar("T")
DIM = 20
TERMS = Terms(problem=Problem(dim=DIM), budget=Budget(epsilon=1.0, delta=1e-6), releases=1000)
TABLES = """
[{kind}]
state = "{kind}.db"
[terms]
dim = {dim}
epsilon = 1.0
delta = 1e-6
releases = 1000
{more}
[engine]
servers = ["{server}"]
federation = "bench"
roster = "federation.json"
seed = "{seed}"
ca = "ca.pem"
"""


class World:
    """A broker, and a controller and keepers in processes of their own.

    Args:
        folder: for everything.
        names: of the agents.
        dim: d.
        keepers: those of them that keep pads.
        more: further lines of the [terms] table.
    """

    def __init__(
        self, folder: Path, names: list[str], *, dim: int = DIM, keepers: Sequence[str] = (), more: str = ""
    ) -> None:
        self.folder, self.names, self.keepers = folder, names, keepers
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
        reached = keys.Server(port=self.port, max_payload=2**18)
        keys.init(folder, names, federation="bench", keepers=keepers, server=reached)
        self.server = f"tls://127.0.0.1:{self.port}"
        for part, kind in (
            ("controller", "controller"),
            *((f"keepers/{name}", "keeper") for name in keepers),
        ):
            known = {"dim": dim, "server": self.server, "more": more, "kind": kind, "seed": f"{kind}.seed"}
            agent = f'agent = "{Path(part).name}"\n' if kind == "keeper" else ""
            (folder / part / f"{kind}.toml").write_text(TABLES.format(**known) + agent)
        with (folder / "log").open("wb") as log:
            self.broker = subprocess.Popen(
                ["nats-server", "-c", "nats-server.conf"], cwd=folder / "server", stdout=log, stderr=log
            )
        time.sleep(1.0)
        self.started: list[subprocess.Popen[bytes]] = []

    def start_controller(self) -> None:
        """And keepers, as a user would."""
        for part in ("controller", *(f"keepers/{name}" for name in self.keepers)):
            kind = part.partition("/")[0].removesuffix("s")
            command = [sys.executable, "-m", "feducb", kind, "serve", "--config", f"{kind}.toml"]
            with (self.folder / f"{part.replace('/', '-')}.log").open("wb") as log:
                self.started.append(subprocess.Popen(command, cwd=self.folder / part, stderr=log))

    def settings(self, name: str | None) -> NatsSettings:
        """Of an agent, or of the controller."""
        seed = f"agents/{name}/agent.seed" if name else "controller/controller.seed"
        return NatsSettings(
            servers=(self.server,),
            federation="bench",
            roster=self.folder / "federation.json",
            seed=self.folder / seed,
            ca=self.folder / "ca.pem",
            agent=name,
            timeout=30.0,
            retry=0.2,
            refresh=1e6,
        )

    def close(self) -> None:
        """Everything."""
        for process in (*self.started, self.broker):
            process.terminate()
            process.wait(timeout=30)


def make_release(privatizer: DeployedPrivatizer) -> Parcel:
    made = privatizer.release()
    return Parcel(ParcelKind.RELEASE, 1, 0, made.number, messages.encode(made, season=1))


async def answer(folder: Path, port: int) -> None:
    """The other end of a bare request: says back what it hears."""
    world = World.__new__(World)
    world.folder, world.server = folder, f"tls://127.0.0.1:{port}"
    async with Link(world.settings(None), subjects.CONTROLLER, EngineStatus()).connected() as client:

        async def echo(message: Any) -> None:
            await message.respond(message.data)

        await client.subscribe(subjects.topic("bench", "release", "*"), cb=echo)
        await asyncio.Event().wait()


async def bare_request(world: World, rounds: int, names: list[str]) -> float:
    """p50 of requests and their replies, seconds: one of each agent, all at once, of a release's size."""
    command = [sys.executable, __file__, "--answer", str(world.folder), str(world.port)]
    with (world.folder / "echo.log").open("wb") as log:
        other = subprocess.Popen(command, stderr=log)
    data, took = bytes(messages.message_size(DIM) + 64), []
    async with AsyncExitStack() as stack:
        clients = {
            subjects.topic("bench", "release", name): await stack.enter_async_context(
                Link(world.settings(name), name, EngineStatus()).connected()
            )
            for name in names
        }

        async def one_each() -> None:
            await asyncio.gather(*(client.request(to, data, timeout=5) for to, client in clients.items()))

        while True:
            try:
                await one_each()
                break
            except Exception:
                await asyncio.sleep(0.1)
        for _ in range(rounds):
            began = time.perf_counter()
            await one_each()
            took.append(time.perf_counter() - began)
    other.kill()
    other.wait()
    return statistics.median(took)


def commits(folder: Path, rounds: int, *, pause: float) -> float:
    """p50 of two bare commits of a release's size, in a file opened as the controller's is; seconds.

    Some disks sync several times faster right after a sync than after a rest, so both are measured: without a
    pause, and with one before each, as in the run, where messages travel in between.
    """
    took, data = [], bytes(messages.message_size(DIM))
    database = file.connect(folder / f"commits-{pause}.db")
    database.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, payload BLOB)")
    for _ in range(rounds):
        both = 0.0
        for _ in range(2):
            time.sleep(pause)
            began = time.perf_counter()
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO bare (payload) VALUES (?)", (data,))
            database.execute("COMMIT")
            both += time.perf_counter() - began
        took.append(both)
    database.close()
    return statistics.median(took)


class TimedMailbox(MemoryMailbox):
    """Knows when each sum came in; sets the event at every news."""

    def __init__(self, news: asyncio.Event) -> None:
        super().__init__()
        self.news = news
        self.heard: dict[int, float] = {}
        self.sent: dict[int, float] = {}

    async def mark_sent(self, item: Parcel) -> None:
        """Note when."""
        self.sent[item.number] = time.perf_counter()
        await super().mark_sent(item)
        self.news.set()

    async def absorb(self, total: messages.GridSum, *, agents: int | None = None, sealed: int = 0) -> bool:
        """Note when."""
        self.heard[total.number] = time.perf_counter()
        new = await super().absorb(total, agents=agents)
        self.news.set()
        return new


async def _start(
    world: World, news: asyncio.Event
) -> tuple[dict[str, TimedMailbox], list[asyncio.Task[None]]]:
    boxes = {name: TimedMailbox(news) for name in world.names}
    engines = {name: NatsEngine(world.settings(name), TERMS) for name in world.names}
    tasks = []
    for index, (name, engine) in enumerate(engines.items()):
        tasks.append(asyncio.create_task(engine.run(boxes[name])))
        if index % 20 == 19:
            while not all(one.status.connected for one in list(engines.values())[: index + 1]):
                await asyncio.sleep(0.01)
    while not all(one.status.connected for one in engines.values()):
        await asyncio.sleep(0.01)
    return boxes, tasks


async def round_trips(world: World, rounds: int) -> dict[str, float]:
    """p50 from outbox to receipt and from outbox to the sum, over all agents and rounds."""
    news = asyncio.Event()
    boxes, tasks = await _start(world, news)
    makers = {name: DeployedPrivatizer(TERMS) for name in world.names}
    receipts, whole = [], []
    for number in range(1, rounds + 1):
        items = {name: make_release(maker) for name, maker in makers.items()}
        began = time.perf_counter()
        for name, item in items.items():
            boxes[name].put(item)
        while not all(number in box.heard and number in box.sent for box in boxes.values()):
            await news.wait()
            news.clear()
        if number > 5:  # warm
            whole += [box.heard[number] - began for box in boxes.values()]
            receipts += [box.sent[number] - began for box in boxes.values()]
    await _stop(tasks)
    return {"to the receipt": statistics.median(receipts), "to the sum": statistics.median(whole)}


async def _stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def many(world: World) -> dict[str, float]:
    """All at once: until the first and until the last agent has the sum."""
    began = time.perf_counter()
    boxes, tasks = await _start(world, asyncio.Event())
    connecting = time.perf_counter() - began
    items = {name: make_release(DeployedPrivatizer(TERMS)) for name in world.names}
    began = time.perf_counter()
    for name, item in items.items():
        boxes[name].put(item)
    while not all(1 in box.heard for box in boxes.values()):
        await asyncio.sleep(0.005)
    heard = [box.heard[1] - began for box in boxes.values()]
    await _stop(tasks)
    return {"connecting": connecting, "first agent": min(heard), "last agent": max(heard)}


def run(work: Coroutine[Any, Any, T]) -> T:
    """On the loop that agents and the controller are served on."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--answer", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer:
        run(answer(Path(given.answer[0]), int(given.answer[1])))
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory() as scratch:
        world = World(Path(scratch) / "four", ["a", "b", "c", "d"])
        try:
            seconds = {
                "a request": run(bare_request(world, given.rounds, world.names[:1])),
                "four requests": run(bare_request(world, given.rounds, world.names)),
                "two commits": commits(Path(scratch), given.rounds, pause=0.003),
                "two commits at once": commits(Path(scratch), given.rounds, pause=0.0),
            }
            world.start_controller()
            seconds |= run(asyncio.wait_for(round_trips(world, given.rounds), 300))
            both = seconds["two commits"]
            bare = {
                "a request and two commits": seconds["a request"] + both,
                "a request and one commit": seconds["a request"] + both / 2,
                "four requests and two commits": seconds["four requests"] + both,
            }
        finally:
            world.close()
        world = World(Path(scratch) / "many", [f"agent-{index}" for index in range(given.agents)])
        try:
            world.start_controller()
            together = {"agents": given.agents, **run(asyncio.wait_for(many(world), 300))}
        finally:
            world.close()
    found = {
        "p50, ms": {name: 1e3 * value for name, value in seconds.items()},
        "to the sum, over": {name: seconds["to the sum"] / value for name, value in bare.items()},
        "many at once, s": together,
    }
    rows = {name: {key: float(f"{one:.4g}") for key, one in row.items()} for name, row in found.items()}
    print(json.dumps(rows, indent=1))
    if given.json:
        write_tables(given.json, {"over NATS": rows}, ["feducb.carriers.nats", "feducb.controller"])


if __name__ == "__main__":
    main()
