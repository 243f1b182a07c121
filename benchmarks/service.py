"""Durable decisions over HTTP, beside an empty FastAPI endpoint on the same server, in one run.

    python benchmarks/service.py                  # throughput and latency, alternating, about two minutes
    python benchmarks/service.py --recipe         # a decision in words beside one with vectors, latency
    python benchmarks/service.py --minutes 10     # load with rewards and releases: nothing lost, memory flat
    python benchmarks/service.py … --json FILE    # what was measured, written too

K = 20 candidates, d = 10, 128 connections on loopback. The empty endpoint takes the same body, unread. With
`--recipe`: visitors of examples/shop (K = 6) in words, and the vectors that its recipe makes of them, 8
connections. Ratios are those of pairs, one after the other; beside other work on the same cores look at the
server's processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import uvloop
from load import Load, prepared, run_load

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.agent.view import look
from feducb.service.api_keys import add_key
from feducb.worlds.features import Recipe
from feducb.worlds.features.encoder import Encoder
from feducb_lab.experiments.measured import write_tables

EMPTY = """
import uvicorn
from fastapi import FastAPI
app = FastAPI()

@app.post("/empty")
async def empty() -> dict[str, str]:
    return {"status": "nothing"}

uvicorn.run(app, host="127.0.0.1", port=PORT, access_log=False, log_level="warning")
"""
CONFIG = """
version = 1
[agent]
store = "agent.db"
[problem]
{problem}
[privacy]
epsilon = 8.0
delta = 1e-6
[releases]
releases = 1024
season = "{season}"
[rewards]
window = "{window}"
[service]
port = {port}
keys = "agent.keys"
"""
CONNECTIONS = 128
SHOP = Path(__file__).parents[1] / "examples" / "shop"


@contextmanager
def agent_service(
    folder: Path, port: int, *, season: str = "3h", window: str = "10s", problem: str = "dim = 10"
) -> Iterator[tuple[str, int]]:
    """The service as a process; its key and process id."""
    (folder / "agent.toml").write_text(
        CONFIG.format(port=port, season=season, window=window, problem=problem)
    )
    file = read_agent_file(folder / "agent.toml")
    Agent.open(file.store, file.agent).close()
    key = add_key(folder / "agent.keys", "load", "operator")
    with serving(folder / "agent.toml", port) as process:
        yield key, process


@contextmanager
def serving(config: Path, port: int) -> Iterator[int]:
    """`feducb agent serve` as a process; its id."""
    with config.with_name("log").open("ab") as log:
        command = [sys.executable, "-m", "feducb", "agent", "serve", "--config", str(config)]
        process = subprocess.Popen(command, stderr=log)
    try:
        wait_for(port)
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextmanager
def empty_service(port: int) -> Iterator[int]:
    """An empty endpoint on the same server; its process id."""
    process = subprocess.Popen([sys.executable, "-c", EMPTY.replace("PORT", str(port))])
    try:
        wait_for(port)
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait_for(port: int) -> None:
    import socket

    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the service did not start")


def bodies() -> list[bytes]:
    drawn = np.random.default_rng(0).standard_normal((64, 20, 10))
    drawn *= 0.9 / np.linalg.norm(drawn, axis=-1, keepdims=True)
    return [json.dumps({"actions": one.round(6).tolist()}).encode() for one in drawn]


def cycle_for(requests: list[bytes], seconds: float) -> Callable[[], bytes | None]:
    turn, end = itertools.cycle(requests), time.perf_counter() + seconds
    return lambda: next(turn) if time.perf_counter() < end else None


class Target(NamedTuple):
    """What is asked: where, with what, and whose processor time it takes."""

    name: str
    port: int
    process: int
    requests: list[bytes]


def spread(values: Sequence[float]) -> list[float]:
    """Median, least and most, to four digits."""
    return [float(f"{one:.4g}") for one in (statistics.median(values), min(values), max(values))]


def compare(rounds: int, seconds: float) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as folder,
        empty_service(8761) as empty,
        agent_service(Path(folder), 8762) as (key, process),
    ):
        asked = [prepared("POST", "/empty", key, body) for body in bodies()]
        decided = [prepared("POST", "/v1/decisions", key, body) for body in bodies()]
        targets = [
            Target("durable decision", 8762, process, decided),
            Target("empty", 8761, empty, asked),
        ]
        return alternate(targets, rounds, seconds, CONNECTIONS)


def compare_recipe(rounds: int, seconds: float) -> dict[str, Any]:
    visitors = list(runpy.run_path(str(SHOP / "visitors.py"))["arrive"](64, 1e9))
    told = [json.dumps({"context": one}).encode() for one in visitors]
    encoder = Encoder(Recipe.read(SHOP / "recipe.json"))
    numbers = [json.dumps({"actions": encoder.vectors(one).round(6).tolist()}).encode() for one in visitors]
    problem = f"recipe = {json.dumps(str(SHOP / 'recipe.json'))}"
    with (
        tempfile.TemporaryDirectory() as folder,
        agent_service(Path(folder), 8762, problem=problem) as (key, process),
    ):
        requests = {
            name: [prepared("POST", "/v1/decisions", key, body) for body in some]
            for name, some in (("with a recipe", told), ("with vectors", numbers))
        }
        targets = [Target(name, 8762, process, some) for name, some in requests.items()]
        return alternate(targets, rounds, seconds, connections=8)


def alternate(targets: list[Target], rounds: int, seconds: float, connections: int) -> dict[str, Any]:
    """Ask the targets in turn, and print what each took and the ratios of the first to the second."""
    seen: dict[str, list[dict[str, float]]] = {one.name: [] for one in targets}
    for turn in range(rounds + 1):
        for one in targets:
            before = processor_seconds(one.process)
            following = cycle_for(one.requests, seconds if turn else 1.0)
            load = uvloop.run(run_load(one.port, following, connections=connections))
            assert load.failures == 0
            if turn:  # the first is for warming up
                took = processor_seconds(one.process) - before
                facts = {"rate": load.rate, "processor": 1e6 * took / len(load.seconds)}
                facts |= {f"p{at}": 1e3 * load.percentile(at / 100) for at in (50, 99)}
                seen[one.name].append(facts)
    units = {"rate": "a second", "processor": "µs of the server's processor", "p50": "ms", "p99": "ms"}
    for name, rows in seen.items():
        said = [f"{statistics.median(row[fact] for row in rows):.3g} {unit}" for fact, unit in units.items()]
        print(f"{name:18}", ", ".join(f"{fact} {one}" for fact, one in zip(units, said, strict=True)))
    table: dict[str, Any] = {
        name: {fact: spread([row[fact] for row in rows])[0] for fact in units} for name, rows in seen.items()
    }
    first, second = seen.values()
    ratios: dict[str, list[float]] = {}
    for fact in units:
        ratios[fact] = spread([one[fact] / other[fact] for one, other in zip(first, second, strict=True)])
        print("ratio of {:10} {:.2f} (from {:.2f} to {:.2f})".format(fact, *ratios[fact]))
    print(f"load of the machine, last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    return {"load": {**table, "ratio": ratios}}


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def endure(minutes: float) -> dict[str, Any]:
    """Decisions and rewards, with a release every ten seconds; then every event is accounted for."""
    with tempfile.TemporaryDirectory() as folder, agent_service(Path(folder), 8762, window="5s") as service:
        key, process = service
        decisions = [prepared("POST", "/v1/decisions", key, body) for body in bodies()]
        waiting: list[str] = []
        counts = {"decisions": 0, "recorded": 0, "other": 0}
        end, rng = time.perf_counter() + 60 * minutes, random.Random(0)

        def following() -> bytes | None:
            if time.perf_counter() > end:
                return None
            if len(waiting) >= 50:
                rewards = [{"id": one, "value": round(rng.random(), 3)} for one in waiting[:50]]
                del waiting[:50]
                return prepared("POST", "/v1/rewards", key, json.dumps({"rewards": rewards}).encode())
            return rng.choice(decisions)

        def answered(body: bytes) -> None:
            if body.startswith(b'{"outcomes"'):
                recorded = body.count(b'"recorded"')
                counts["recorded"] += recorded
                counts["other"] += 50 - recorded
                return
            counts["decisions"] += 1
            waiting.append(body[7 : body.index(b'"', 7)].decode())

        samples: list[tuple[float, float]] = []

        async def both() -> Load:
            async def watch() -> None:
                begun = time.perf_counter()
                while True:
                    samples.append((time.perf_counter() - begun, resident(process)))
                    await asyncio.sleep(5)

            task = asyncio.ensure_future(watch())
            load = await run_load(8762, following, connections=CONNECTIONS, answered=answered)
            task.cancel()
            return load

        load = uvloop.run(both())
        time.sleep(7)  # the last windows close
        told_by_agent = look(Path(folder) / "agent.db")
        size = sum(one.stat().st_size for one in Path(folder).glob("agent.db*")) / 2**20
    early = max([size for at, size in samples if 30 <= at <= 90] or [samples[0][1]])
    counted, latest = told_by_agent["counts"], max(size for _, size in samples)
    print(
        f"{minutes:g} minutes: {load.rate:.0f} answers per second, p99 {1e3 * load.percentile(0.99):.1f} ms"
    )
    print(f"decisions acknowledged {counts['decisions']}, counted by the agent {counted['decisions']}")
    print(
        f"rewards acknowledged {counts['recorded']}, counted {counted['rewards']}, others {counts['other']}"
    )
    print(f"settled {counted['settled']}, still open {told_by_agent['open_decisions']}")
    print(f"releases {told_by_agent['releases_made']}, failures {load.failures}, file {size:.0f} MiB")
    print(f"resident MiB: after a minute {early:.0f}, at the end {samples[-1][1]:.0f}, most {latest:.0f}")
    found = {
        "minutes": minutes,
        "decisions acknowledged": counts["decisions"],
        "decisions counted": counted["decisions"],
        "rewards acknowledged": counts["recorded"],
        "rewards counted": counted["rewards"],
        "releases": told_by_agent["releases_made"],
        "MiB after a minute": round(early, 1),
        "MiB at the end": round(samples[-1][1], 1),
    }
    return {"endured": {"found": found}}


def resident(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    memory = re.search(r"VmRSS:\s+(\d+)", status)
    assert memory
    return int(memory[1]) / 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--recipe", action="store_true")
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    if arguments.minutes:
        tables = endure(arguments.minutes)
    elif arguments.recipe:
        tables = compare_recipe(arguments.rounds, arguments.seconds)
    else:
        tables = compare(arguments.rounds, arguments.seconds)
    if arguments.json:
        write_tables(arguments.json, tables, ["feducb.agent", "feducb.service.app"])
