"""Own play: what a decision takes after the close beside one before it, in one run, in process and over HTTP.

    python benchmarks/own_play.py [--rounds 5] [--seconds 5] [--agents 20] [--json docs/figures/own-play.json]

K = 20 candidates, d = 10. The two agents differ in when their last release was due: one shares, and acts on
its first sum; the other has closed, and reads its own records anew as they settle. In process a decision is
timed alone (choosing) and with all that makes it durable, 50 in a commit; then all these records settle. Over
HTTP they settle meanwhile. Not for longer than ten minutes: the first agent would close too.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from load import Load, prepared, run_load

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.service.api_keys import add_key
from feducb_lab.experiments.measured import write_tables
from service import CONNECTIONS, bodies, cycle_for, resident, serving, spread

CONFIG = """
version = 2
[agent]
store = "agent.db"
[problem]
dim = 10
[privacy]
epsilon = 8.0
delta = 1e-6
[federation]
decisions = 100_000
[releases]
season = "3h"
start = {start}
releases = 2
first_release = 60
last_release = {last}
[rewards]
window = "2s"
[decisions]
play = "own"
[service]
port = {port}
keys = "agent.keys"
"""
PHASES = {"shared": (900, 8763), "own": (120, 8764)}  # seconds to the last release; port
RECORDS, AT_ONCE, BEGAN = (
    2000,
    50,
    600.0,
)  # records before that; decisions in a commit; seconds since the start


def candidates(count: int) -> np.ndarray:
    drawn = np.random.default_rng(0).standard_normal((count, 20, 10))
    return np.asarray(0.9 * drawn / np.linalg.norm(drawn, axis=-1, keepdims=True))


def prepare(folder: Path, phase: str) -> Path:
    """An agent's file in that phase: it has had its visitors within the first minute."""
    folder.mkdir()
    last, port = PHASES[phase]
    start = time.time() - BEGAN
    config = folder / "agent.toml"
    written = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start))
    config.write_text(CONFIG.format(start=written, last=last, port=port))
    file, now = read_agent_file(config), [start + 1.0]
    with Agent.open(file.store, file.agent, clock=lambda: now[0]) as agent:
        draws = random.Random(0)
        for turn in range(RECORDS // AT_ONCE):
            with agent.writing():
                for one in candidates(AT_ONCE):
                    decision = agent.decide(one)
                    agent.reward(decision.id, draws.uniform(0.0, 1.0) * float(one[decision.index][0]))
            now[0] = start + 1.0 + turn
        for later in (70.0, BEGAN):
            now[0] = start + later
            agent.tick()
        assert agent.closed == (phase == "own")
        assert agent._state.chooser.deciders
    return config


def in_process(configs: dict[str, Path], rounds: int) -> dict[str, Any]:
    """Microseconds of a decision, by what is timed; phases take turns."""
    drawn = list(candidates(256))
    chosen: dict[str, list[float]] = {phase: [] for phase in configs}
    durable: dict[str, list[float]] = {phase: [] for phase in configs}
    settled: dict[str, list[float]] = {phase: [] for phase in configs}
    with ExitStack() as stack:
        agents = {}
        for phase, config in configs.items():
            file = read_agent_file(config)
            agents[phase] = stack.enter_context(Agent.open(file.store, file.agent))
        for turn in range(4 * rounds + 1):
            for phase, agent in agents.items():
                begun = time.perf_counter()
                for one in drawn:
                    agent._state.chooser.choose(0, one, agent._state.coins)
                middle = time.perf_counter()
                for place in range(0, len(drawn), AT_ONCE):
                    with agent.writing():
                        for one in drawn[place : place + AT_ONCE]:
                            agent.decide(one)
                end = time.perf_counter()
                if turn:
                    chosen[phase].append((middle - begun) / len(drawn))
                    durable[phase].append((end - middle) / len(drawn))
        time.sleep(2.5)  # all windows close
        for phase, agent in agents.items():
            before, begun = agent.snapshot()["counts"]["settled"], time.perf_counter()
            agent.tick(alone=False)
            records = agent.snapshot()["counts"]["settled"] - before
            settled[phase].append((time.perf_counter() - begun) / records)
    timed = {"choosing": chosen, "durable decision": durable, "settling a record": settled}
    return {
        name: told(name, {phase: [1e6 * one for one in times] for phase, times in seen.items()}, "µs")
        for name, seen in timed.items()
    }


def over_http(configs: dict[str, Path], rounds: int, seconds: float) -> dict[str, Any]:
    """Throughput and latency; phases take turns."""
    with ExitStack() as stack:
        requests = {}
        for phase, config in configs.items():
            key = add_key(config.with_suffix(".keys"), "load", "operator")
            port = PHASES[phase][1]
            process = stack.enter_context(serving(config, port))
            requests[phase] = (
                port,
                process,
                [prepared("POST", "/v1/decisions", key, one) for one in bodies()],
            )
        seen: dict[str, list[Load]] = {phase: [] for phase in requests}
        for turn in range(rounds + 1):
            for phase, (port, _, ready) in requests.items():
                following = cycle_for(ready, seconds if turn else 1.0)
                load = uvloop.run(run_load(port, following, connections=CONNECTIONS))
                assert load.failures == 0
                if turn:
                    seen[phase].append(load)
        name = "over HTTP, time of a decision"
        found = told(name, {phase: [1e6 / one.rate for one in loads] for phase, loads in seen.items()}, "µs")
        for phase, loads in seen.items():
            p50, p99 = (1e3 * statistics.median(one.percentile(at) for one in loads) for at in (0.5, 0.99))
            size = resident(requests[phase][1])
            print(f"  {phase:8} p50 {p50:6.2f} ms, p99 {p99:6.2f} ms, resident {size:.0f} MiB")
    return {name: found}


def memory(configs: dict[str, Path], agents: int) -> dict[str, float]:
    """Resident memory of an agent beside others in one process, after ten decisions each.

    Each phase in a process of its own: what one has given back the next would take, and seem to need less.
    """
    found = {}
    for phase, config in configs.items():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found[phase] = pool.submit(memory_of, config, agents).result()
        print(f"memory, {phase:8} {found[phase]:8.0f} KiB an agent, beside {agents} others")
    return found


def memory_of(config: Path, agents: int) -> float:
    """KiB, in this process."""
    file, opened, drawn = read_agent_file(config), [], candidates(10)
    body, before = file.store.read_bytes(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(agents + 1):
            if number == 1:  # the first brings what all share
                gc.collect()
                before = resident(os.getpid())
            path = Path(folder) / f"{number}.db"
            path.write_bytes(body)
            agent = Agent.open(path, file.agent)
            for one in drawn:
                agent.decide(one)
            opened.append(agent)
        found = round(1024 * (resident(os.getpid()) - before) / agents, 1)
        for agent in opened:
            agent.close()
    return found


def told(name: str, seen: dict[str, list[float]], unit: str) -> dict[str, Any]:
    """Print medians and the ratio; what is written of it."""
    middle = {phase: spread(values)[0] for phase, values in seen.items()}
    ratio = spread([own / shared for own, shared in zip(seen["own"], seen["shared"], strict=True)])
    print(
        f"{name:30} shared {middle['shared']:8.1f} {unit}, own {middle['own']:8.1f} {unit}; ratio "
        "{:.2f} (from {:.2f} to {:.2f})".format(*ratio)
    )
    least_and_most = dict(zip(("ratio", "least", "most"), ratio, strict=True))
    return {**middle, **least_and_most, "pairs": len(seen["own"])}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        configs = {phase: prepare(Path(folder) / phase, phase) for phase in PHASES}
        kept = {"KiB": memory(configs, arguments.agents)}
        times = in_process(configs, arguments.rounds)
        times |= over_http(configs, arguments.rounds, arguments.seconds)
    if arguments.json:
        tables = {"µs": times, "memory of an agent": kept}
        write_tables(arguments.json, tables, ["feducb.agent", "feducb.service.app"])
