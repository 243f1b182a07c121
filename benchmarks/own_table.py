"""Own play beside each agent alone, cell by cell: what docs/what-to-expect.md and docs/theory.md say of it.

    python benchmarks/own_table.py [--json docs/figures/own-table.json] [--runs 100] [--processes N]
        [--minutes 30] [--only sizes largest differ lies gap worlds long]

T = 10⁴, d = 10, K = 100, δ = 1e-6, the paper's world unless a cell says otherwise; a run is
`feducb.simulate(…, runs=1, seed=S)` with S = 0, 1, 2, …, so that each can be looked at by itself. Cells take
turns, so that a run that is out of time has something of each; what is in the JSON file is not played again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from liars import LIES, lied_to

import feducb
from feducb.models.play import JointPlay

USUAL: dict[str, Any] = {"dim": 10, "arms": 100, "horizon": 10_000, "delta": 1e-6}
TRUSTS = ("nobody", "keepers")
WORLDS = {"isotropic": 50, "correlated": 50, "one-hot": 10}  # with so many arms
FEWER = {"largest": 0.4, "differ": 0.4, "lies": 0.2, "gap": 0.3, "worlds": 0.12, "long": 0.1}  # of the runs


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of a table: how it is played, and what the others say."""

    group: str
    name: str
    setting: dict[str, Any] = field(hash=False)
    lie: str | None = None

    def play(self, seed: int) -> tuple[float, list[int]]:
        """The regret of one run, and when all released."""
        setting = USUAL | self.setting | {"runs": 1, "seed": seed, "threads": 1}
        if self.lie is None:
            result = feducb.simulate(**setting)
        else:
            with mock.patch.object(JointPlay, "absorb", lied_to(LIES[self.lie])):
                result = feducb.simulate(**setting)
        return float(result.mean), list(result.release_rounds[0])


def cells() -> Iterator[Cell]:
    """All of them."""
    own: dict[str, Any] = {"play": "own", "epsilon": 1.0}
    alone: dict[str, Any] = {"baseline": "alone", "agents": 10}
    yield Cell("sizes", "alone", alone)
    for agents in (10, 30, 100, 300):
        for epsilon in (1.0, 4.0):
            for trust in TRUSTS:
                setting = {**own, "agents": agents, "epsilon": epsilon, "trust": trust}
                yield Cell(
                    "sizes" if agents < 300 else "largest", f"M = {agents}, ε = {epsilon:g}, {trust}", setting
                )
    for trust in TRUSTS:
        large = {**own, "agents": 100, "trust": trust}
        for apart in (0.0, 0.05, 0.1, 0.2, 0.4):
            yield Cell("differ", f"h = {apart:g}, {trust}", {**large, "heterogeneity": apart})
        for lie in LIES:
            if lie != "the truth":
                yield Cell("lies", f"others say {lie}, {trust}", large, lie)
    yield Cell("gap", "gap 0.02, alone", {**alone, "gap": 0.02})
    yield Cell("long", "T = 1e5, alone", {**alone, "horizon": 100_000})
    for trust in TRUSTS:
        for agents in (10, 30, 100):
            small = {**own, "agents": agents, "trust": trust, "gap": 0.02}
            yield Cell("gap", f"gap 0.02, M = {agents}, {trust}", small)
        yield Cell("long", f"T = 1e5, {trust}", {**own, "agents": 30, "trust": trust, "horizon": 100_000})
    for world, arms in WORLDS.items():
        where = {"environment": world, "arms": arms}
        yield Cell("worlds", f"{world}, alone", {**alone, **where})
        for trust in TRUSTS:
            yield Cell("worlds", f"{world}, {trust}", {**own, **where, "agents": 30, "trust": trust})


def play(number: int, seed: int) -> tuple[str, int, float, list[int]]:
    """A run of a cell, by its number: what a process is asked for."""
    cell = list(cells())[number]
    regret, rounds = cell.play(seed)
    return cell.name, seed, regret, rounds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    groups = list(dict.fromkeys(cell.group for cell in cells()))
    parser.add_argument("--only", nargs="+", default=groups, choices=groups)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    if asked.json and asked.json.exists():
        found = json.loads(asked.json.read_text(encoding="utf-8"))["cells"]
    wanted = [
        (number, seed)
        for seed in range(asked.runs)
        for number, cell in enumerate(cells())
        if cell.group in asked.only
        and seed < max(2, round(FEWER.get(cell.group, 1.0) * asked.runs))
        and str(seed) not in found.get(cell.name, {}).get("regrets", {})
    ]
    end, left, pending = time.monotonic() + 60.0 * asked.minutes, iter(wanted), set[Future[Any]]()
    with ProcessPoolExecutor(asked.processes) as pool:
        pending |= {pool.submit(play, *job) for job in islice(left, asked.processes + 2)}
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                name, seed, regret, rounds = future.result()
                cell = found.setdefault(name, {"regrets": {}, "rounds": rounds})
                cell["regrets"][str(seed)] = round(regret, 4)
                if time.monotonic() < end and (job := next(left, None)) is not None:
                    pending.add(pool.submit(play, *job))
    for cell in cells():
        if cell.name in found:
            values = np.array(list(found[cell.name]["regrets"].values()))
            error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
            found[cell.name] |= {
                "mean": round(values.mean(), 3),
                "stderr": round(error, 3),
                "runs": len(values),
            }
            rounds = found[cell.name]["rounds"]
            print(
                f"{cell.name}: {values.mean():.2f} ± {error:.2f} ({len(values)} runs; released at {rounds})"
            )
    if asked.json:
        versions = {"feducb": feducb.__version__, "numpy": np.__version__, "python": sys.version.split()[0]}
        text = json.dumps({"versions": versions, "cells": found}, indent=1, ensure_ascii=False)
        asked.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
