"""The reference simulation against drawing its random numbers alone, and its memory against the horizon.

    python benchmarks/reference.py [--dim 10 --arms 100] [--json docs/figures/reference.json]

Prints the ratio of times, measured in this run, for each way of playing: what all arithmetic, bookkeeping and
Python overhead add to numpy's own generators. Then the peak memory of short and long simulations, each in a
process of its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import feducb
from feducb.worlds.streams import Purpose, Streams
from feducb_lab.experiments.measured import write_tables

VARIANTS: dict[str, dict[str, Any]] = {
    "calibrated": {},
    "no privacy": {"baseline": "no-privacy"},
    "alone": {"baseline": "alone"},
    "uniform": {"baseline": "uniform"},
    "paper": {"mode": "paper"},
}


def draw_alone(agents: int, dim: int, arms: int, rounds: int, at_once: int) -> float:
    """Seconds that the same generators need for the same numbers, in calls of the same size."""
    streams = Streams(0)
    grids = [streams.grid(range(1), range(agents), purpose)[0] for purpose in Purpose]
    normal, uniform = np.empty((at_once, arms, dim)), np.empty((at_once, arms))
    started = time.perf_counter()
    for _ in range(rounds // at_once):
        for agent in range(agents):
            grids[Purpose.DIRECTION][agent].standard_normal(out=normal)
            grids[Purpose.RADIUS][agent].standard_exponential(out=uniform)
            grids[Purpose.BAND][agent].random(out=uniform)
            for _ in range(at_once):
                grids[Purpose.REWARD][agent].beta(0.55, 0.45)
    return time.perf_counter() - started


def ratios(dim: int, arms: int, *, agents: int, runs: int, rounds: int) -> dict[str, float]:
    """Times over drawing alone, by way of playing."""
    at_once = max(1, 2**21 // (8 * agents * runs * arms * dim))
    rounds -= rounds % at_once
    print(f"\nd = {dim}, K = {arms}, {agents} agents, {runs} runs, T = {rounds}, one thread; median of 5")
    measured: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(5):
        drawing = draw_alone(agents * runs, dim, arms, rounds, at_once)
        for name, variant in VARIANTS.items():
            result = feducb.simulate(
                agents=agents, dim=dim, arms=arms, horizon=rounds, runs=runs, threads=1, **variant
            )
            measured[name].append(result.seconds / drawing)
    print(f"  drawing alone: {1e6 * drawing / (agents * runs * rounds):.1f} µs per agent-step")
    for name, values in measured.items():
        print(f"  {name:>12}: {median(values):.2f} × drawing  (from {min(values):.2f} to {max(values):.2f})")
    return {name: round(median(values), 3) for name, values in measured.items()}


def peak_of(horizon: int) -> int:
    """Peak resident memory in MiB of one simulation in a process of its own."""
    command = [sys.executable, __file__, "--peak", str(horizon)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--arms", type=int, default=100)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        feducb.simulate(agents=4, dim=10, arms=100, horizon=arguments.peak, runs=1, threads=1)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        return
    with threadpool_limits(1):
        times = {
            "10 agents": ratios(arguments.dim, arguments.arms, agents=10, runs=3, rounds=1500),
            "100 agents": ratios(arguments.dim, arguments.arms, agents=100, runs=1, rounds=500),
        }
    print("\npeak memory, d = 10, K = 100, 4 agents:")
    peaks = {}
    for horizon in (1_000, 10_000, 100_000):
        peaks[f"T = {horizon:,}"] = peak_of(horizon)
        print(f"  T = {horizon:>7,}: {peaks[f'T = {horizon:,}']} MiB")
    if arguments.json:
        tables: dict[str, dict[str, Any]] = {
            "times drawing alone": times,
            "peak memory, MiB": {"4 agents": peaks},
        }
        write_tables(arguments.json, tables, ["feducb.simulation.runner"])


if __name__ == "__main__":
    main()
