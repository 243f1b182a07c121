"""How long agents wait for a sum while another one floods the controller at full speed.

    python benchmarks/flood.py [--rounds 60] [--seconds 20] [--json docs/figures/flood.json]

Three agents release in rounds, d = 20, TLS and nkeys on loopback, the controller in a process of its own; a
fourth sends its one signed release again and again, as fast as the broker takes it, over eight connections
from another process. Waits are from the moment that releases are in the outboxes until the sum of the three
is in all inboxes. Rounds without and with the flood are of the same run; ratios say what the flood costs the
others. The flood is over after so many seconds, whatever happens. Needs nats-server and the nats extra.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop
from over_nats import TERMS, World, make_release

from feducb.carriers import nats_subjects as subjects
from feducb.carriers.local import MemoryMailbox
from feducb.carriers.nats import EngineStatus, Link, NatsEngine
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.protocol import frames, messages
from feducb.protocol.roster import Signer
from feducb_lab.experiments.measured import write_tables

NAMES, FLOODER = ["a", "b", "c"], "f"
_TOGETHER = 64  # messages in one write
_CONNECTIONS = 8  # of the one who floods, all with its one key
_PATIENCE = 30.0  # seconds for one round; then it counts as that long


def settings_of(folder: Path, port: int, name: str) -> Any:
    """As an agent's own process has them."""
    world = World.__new__(World)
    world.folder, world.server = folder, f"tls://127.0.0.1:{port}"
    return world.settings(name)


async def flood(folder: Path, port: int, seconds: float) -> None:
    """Send one release over and over; says how many there were."""
    settings = settings_of(folder, port, FLOODER)
    payload = make_release(DeployedPrivatizer(TERMS)).body
    data = frames.frame(Signer(settings.seed), payload, "release", "bench", FLOODER)
    subject = subjects.topic("bench", "release", FLOODER)
    line = f"PUB {subject} _INBOX.{FLOODER}.x {len(data)}\r\n".encode()
    end, sent = time.monotonic() + seconds, 0

    async def one() -> None:
        nonlocal sent
        async with Link(settings, FLOODER, EngineStatus()).connected() as client:
            assert client._transport is not None
            while time.monotonic() < end:
                client._transport.write((line + data + b"\r\n") * _TOGETHER)
                await client._transport.drain()  # type: ignore[no-untyped-call]  # as fast as the broker reads
                await asyncio.sleep(0)
                sent += _TOGETHER

    await asyncio.gather(*(one() for _ in range(_CONNECTIONS)), return_exceptions=True)
    print(sent)


async def waits(boxes: dict[str, MemoryMailbox], rounds: int, first: int, made: Any) -> list[float]:
    """Seconds that each round took."""
    took = []
    for number in range(first, first + rounds):
        for name, box in boxes.items():
            box.put(make_release(made[name]))
        began = time.perf_counter()
        while time.perf_counter() - began < _PATIENCE:
            if all(box.newest and messages.decode(box.newest[0]).number >= number for box in boxes.values()):
                break
            await asyncio.sleep(0.0005)
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.05)
    return took


async def measure(world: World, rounds: int, seconds: float) -> dict[str, float]:
    """Rounds without, with and after the flood."""
    boxes = {name: MemoryMailbox() for name in NAMES}
    made = {name: DeployedPrivatizer(TERMS) for name in NAMES}
    engines = [NatsEngine(world.settings(name), TERMS) for name in NAMES]
    tasks = [asyncio.ensure_future(one.run(box)) for one, box in zip(engines, boxes.values(), strict=True)]
    await waits(boxes, 5, 1, made)
    quiet = await waits(boxes, rounds, 6, made)
    command = [sys.executable, __file__, "--flood", str(world.folder), str(world.port), str(seconds)]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    await asyncio.sleep(2.0)  # it is connected, and has used up what it may send at once
    flooded: list[float] = []
    number = 6 + rounds
    while other.poll() is None and len(flooded) < rounds:
        flooded += await waits(boxes, 1, number, made)
        number += 1
    said, _ = await asyncio.to_thread(other.communicate)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "flood_messages": int(said),
        "flood_per_second": int(said) / seconds,
        "rounds": len(flooded),
        "quiet_ms_p50": 1e3 * statistics.median(quiet),
        "flooded_ms_p50": 1e3 * statistics.median(flooded),
        "quiet_ms_p95": 1e3 * statistics.quantiles(quiet, n=20)[-1],
        "flooded_ms_p95": 1e3 * statistics.quantiles(flooded, n=20)[-1],
        "ratio_p50": statistics.median(flooded) / statistics.median(quiet),
        "ratio_p95": statistics.quantiles(flooded, n=20)[-1] / statistics.quantiles(quiet, n=20)[-1],
    }


def main() -> None:
    """Run it and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--flood", nargs=3)
    args = parser.parse_args()
    if args.flood:
        folder, port, seconds = args.flood
        uvloop.run(flood(Path(folder), int(port), float(seconds)))
        return
    with tempfile.TemporaryDirectory() as where:
        world = World(Path(where) / "keys", [*NAMES, FLOODER])
        path = world.folder / "controller" / "controller.toml"
        path.write_text(path.read_text().replace("[terms]", "quorum = 3\ndeadline = 0.0\n[terms]"))
        world.start_controller()
        try:
            found = uvloop.run(measure(world, args.rounds, args.seconds))
        finally:
            world.close()
    print("\n".join(f"{name:18} {value:12.2f}" for name, value in found.items()))
    if args.json:
        found = {name: float(f"{value:.3g}") for name, value in found.items()}
        write_tables(
            args.json, {"waits": {"three agents": found}}, ["feducb.carriers.nats", "feducb.controller"]
        )


if __name__ == "__main__":
    main()
