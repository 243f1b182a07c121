"""A real nats-server with TLS and nkeys, and federations on it, for the tests in this folder."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from feducb.agent.mailbox import Mailbox
from feducb.carriers import nats_keys as keys
from feducb.carriers.nats import NatsEngine
from feducb.config import Budget, Problem
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.graphs import Topology
from feducb.protocol.parcels import Parcel, ParcelKind

# A connection that ends within its TLS handshake (the server is killed, or whoever connects is stopped)
# leaves asyncio a writer without a transport (CPython's `loop.start_tls` returns None then), which complains
# when it is collected.
cut_in_a_handshake = pytest.mark.filterwarnings(
    r"ignore:.*StreamWriter\.__del__:pytest.PytestUnraisableExceptionWarning"
)

PATIENCE = 120.0  # seconds for anything to happen; reached only where something is broken


def require_server() -> None:
    """Skip where nats-server is missing; with CI=true that is a failure."""
    if shutil.which("nats-server") is not None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail("nats-server is not installed, and CI=true: apt-get install nats-server")
    pytest.skip("nats-server is not installed, so nothing was sent over NATS")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@dataclass
class Broker:
    """A nats-server of one federation, on loopback."""

    folder: Path
    agents: Sequence[str]
    topology: Topology | None = None
    max_payload: int = 2**16
    keepers: Sequence[str] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        require_server()
        self.roster = keys.init(
            self.folder,
            self.agents,
            federation="tests",
            topology=self.topology,
            keepers=self.keepers,
            server=keys.Server(port=self.port, max_payload=self.max_payload),
        )

    @property
    def url(self) -> str:
        return f"tls://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["nats-server", "-c", "nats-server.conf"],
                cwd=self.folder / "server",
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
                if link.recv(4) == b"INFO":
                    return
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            time.sleep(0.02)
        raise TimeoutError("nats-server did not start")

    def reload(self) -> None:
        """Have the running server read its configuration; returns once it has."""
        assert self.process is not None
        log = self.folder / "server.log"
        before = log.read_text().count("Reloaded server configuration")
        self.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + PATIENCE
        while log.read_text().count("Reloaded server configuration") == before:
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = None

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=PATIENCE)

    def settings(self, agent: str, *, seed_of: str | None = None) -> NatsSettings:
        folder = self.folder / "agents" / (seed_of or agent)
        return NatsSettings(
            servers=(self.url,),
            federation="tests",
            roster=self.folder / "federation.json",
            seed=folder / "agent.seed",
            ca=self.folder / "ca.pem",
            agent=agent,
            state=self.folder / f"{agent}.peers.db",
            timeout=2.0,
            retry=0.05,
            refresh=1.0,
        )

    def controller_settings(self) -> NatsSettings:
        return NatsSettings(
            servers=(self.url,),
            federation="tests",
            roster=self.folder / "federation.json",
            seed=self.folder / "controller" / "controller.seed",
            sealing=self.folder / "controller" / "controller.x25519",
            ca=self.folder / "ca.pem",
            timeout=2.0,
            retry=0.05,
        )

    def keeper_settings(self, name: str) -> NatsSettings:
        return replace(self.settings(name), seed=self.folder / "keepers" / name / "keeper.seed")

    def admin_settings(self) -> NatsSettings:
        return NatsSettings(
            servers=(self.url,),
            federation="tests",
            roster=self.folder / "federation.json",
            seed=self.folder / "admin" / "admin.seed",
            ca=self.folder / "ca.pem",
            timeout=2.0,
        )


def make_terms(*, dim: int = 3, releases: int = 200, trust: str = "nobody", groups: int = 1) -> Terms:
    return Terms(
        problem=Problem(dim=dim),
        budget=Budget(epsilon=1.0, delta=1e-6),
        releases=releases,
        trust=trust,  # type: ignore[arg-type]
        groups=groups,
    )


def record_streams(
    names: Iterable[str], terms: Terms, count: int, *, season: int = 1, seed: int = 7
) -> dict[str, list[Parcel]]:
    """Releases of all agents, made once: noise has no seed, so whoever is to be compared gets these bytes."""
    draws = np.random.default_rng(seed)
    streams: dict[str, list[Parcel]] = {}
    for name in names:
        stream: list[Parcel] = []
        privatizers = [DeployedPrivatizer(terms) for _ in range(terms.groups)]
        for number in range(1, count + 1):
            for group, privatizer in enumerate(privatizers):
                actions = draws.uniform(-0.5, 0.5, (3, terms.problem.dim))
                privatizer.record(actions, draws.uniform(0, 1, 3))
                payload = messages.encode(privatizer.release(), season=season, group=group)
                stream.append(Parcel(ParcelKind.RELEASE, season, group, number, payload))
        streams[name] = stream
    return streams


@asynccontextmanager
async def running(*works: Awaitable[None], may_end: bool = False) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run engines for as long as the block lasts; none of them may end by itself, unless told so."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield tasks
        assert may_end or not any(task.done() for task in tasks), [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(true: Callable[[], bool], *, seconds: float = PATIENCE) -> None:
    """Wait for something that must come true."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            for task in asyncio.all_tasks():
                task.print_stack()  # for whoever looks into why
            raise AssertionError("it did not come true")
        await asyncio.sleep(0.01)


def run_agents(
    broker: Broker, mailboxes: dict[str, Mailbox], terms: Terms
) -> tuple[dict[str, NatsEngine], list[Awaitable[None]]]:
    engines = {name: NatsEngine(broker.settings(name), terms) for name in mailboxes}
    return engines, [engines[name].run(mailbox) for name, mailbox in mailboxes.items()]
