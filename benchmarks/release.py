"""One deployed release against what it cannot do without: its OpenDP draw, and one durable commit.

    python benchmarks/release.py [--dim 10 --count 200 --folder .] [--json docs/figures/release.json]

Prints the ratio for each number of releases, measured in this run on this disk: what encoding, decoding, the
mechanism's state and the ledger add to drawing d(d+3)/2 numbers and committing the same bytes to a bare
SQLite file. The three are timed in turn, so that a slow minute of the disk hits all of them.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from feducb.config import Budget, Problem
from feducb.privacy.grid import GridNoise
from feducb.privacy.terms import Terms
from feducb.storage import AgentStore
from feducb_lab.experiments.measured import write_tables

LIMIT = 5.0


def bare(path: Path) -> sqlite3.Connection:
    """A table of bytes with the same promise: on disk when the commit returns."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE bytes (payload BLOB)")
    for _ in range(1200):  # until the log has its full size: growing it would cost the disk more
        connection.execute("INSERT INTO bytes VALUES (?)", (bytes(552),))
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def measure(dim: int, releases: int, count: int, folder: Path) -> dict[str, float]:
    """Medians in milliseconds, and the ratio."""
    terms = Terms(problem=Problem(dim=dim), budget=Budget(epsilon=1.0, delta=1e-6), releases=releases)
    noise, size = GridNoise(terms.certificate()), terms.certificate().coordinates
    actions, rewards = np.full((32, dim), 0.9 / np.sqrt(dim)), np.full(32, 0.5)
    times: dict[str, list[float]] = {"draw": [], "commit": [], "release": []}
    other = bare(folder / f"bare-{releases}.db")
    with AgentStore.open(folder / f"agent-{releases}.db", terms) as store:
        terms.factors.error(1)  # computed once a process and cached
        for _ in range(min(count, releases)):
            store.record(actions, rewards)
            started = time.perf_counter()
            payload = store.release()
            released = time.perf_counter()
            noise.draw(size)
            drawn = time.perf_counter()
            other.execute("INSERT INTO bytes VALUES (?)", (payload,))
            committed = time.perf_counter()
            times["release"].append(released - started)
            times["draw"].append(drawn - released)
            times["commit"].append(committed - drawn)
    other.close()
    cost = {name: 1e3 * median(values) for name, values in times.items()}
    ratio = cost["release"] / (cost["draw"] + cost["commit"])
    print(
        f"  n = {releases:>7,} ({terms.factors.name}): release {cost['release']:.2f} ms, draw "
        f"{cost['draw']:.2f} ms, commit {cost['commit']:.2f} ms: {ratio:.2f} × (draw + commit)"
    )
    found = {f"{name}, ms": value for name, value in cost.items()} | {"ratio": ratio}
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=Path("."), help="on the disk to be measured")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print(f"d = {arguments.dim}; medians of up to {arguments.count}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        rows = {
            f"{releases:,} releases": measure(arguments.dim, releases, arguments.count, Path(folder))
            for releases in (16, 64, 256, 1_000_000)
        }
    ratios = [row["ratio"] for row in rows.values()]
    worst = max(ratios)
    print(f"worst: {worst:.2f}, allowed {LIMIT:g}")
    if arguments.json:
        tables = {"release": rows, "ratio": {"all": {"least": min(ratios), "most": worst}}}
        write_tables(arguments.json, tables, ["feducb.storage"])
    if worst > LIMIT:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
