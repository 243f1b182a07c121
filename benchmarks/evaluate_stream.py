"""Does evaluating a log take memory that depends on its length? Peak resident memory and time at two lengths.

    python benchmarks/evaluate_stream.py                           1 M and 10 M rows (about 0.5 GB on disk)
    python benchmarks/evaluate_stream.py --rows 100000 1000000     a quick look

Each length is a process of its own, so that its peak is its own. Exits with 1 if the longest log needs more
than 1.1 times the memory of the shortest.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from feducb.evaluation import LogColumns, Study, compare_on_log, open_log, survey
from feducb.evaluation.survey import parse_context
from feducb_lab.experiments.measured import write_tables

LIMIT = 1.1
AT_ONCE = 100_000


def write(path: Path, rows: int) -> None:
    """100 shops, three offers drawn with uneven probabilities, one number and one category of context."""
    rng = np.random.default_rng(0)
    offers, chances = np.array(["book", "game", "film"]), np.array([0.5, 0.3, 0.2])
    with path.open("w") as file:
        file.write("shop,age,region,offer,bought,p\n")
        for start in range(0, rows, AT_ONCE):
            count = min(AT_ONCE, rows - start)
            shop, age = rng.integers(0, 100, count), rng.integers(18, 90, count)
            region, action = rng.choice(["north", "south"], count), rng.choice(3, size=count, p=chances)
            bought = rng.random(count) < np.choose(action, [age / 100, 1 - age / 100, np.full(count, 0.1)])
            for one in range(count):
                file.write(
                    f"shop {shop[one]},{age[one]},{region[one]},{offers[action[one]]},"
                    f"{int(bought[one])},{chances[action[one]]}\n"
                )


def evaluate(path: Path) -> None:
    """Evaluate one log; print seconds and peak memory as JSON."""
    started = time.perf_counter()
    log = open_log(path)
    columns = LogColumns(agent="shop", action="offer", reward="bought", propensity="p")
    surveyed = survey(log, columns, context=parse_context(["age:0:120", "region:north|south"]))
    compared = compare_on_log(log, surveyed, study=Study(repeats=1))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = compared.row("private federation, ε = 1, nobody trusted", "greedy")
    measured = {"rows": surveyed.rows, "seconds": time.perf_counter() - started, "peak_mib": peak}
    print(json.dumps(measured | {"value": row.value.value}))


def measure(rows: int, within: Path | None) -> dict[str, float]:
    """One length, in a process of its own."""
    with tempfile.TemporaryDirectory(dir=within) as folder:
        path = Path(folder) / "log.csv"
        write(path, rows)
        size = path.stat().st_size / 2**20
        command = [sys.executable, __file__, "--evaluate", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    print(
        f"{rows:>12,} rows ({size:,.0f} MiB of CSV): peak {found['peak_mib']:,.0f} MiB, "
        f"{found['seconds']:,.0f} s; at ε = 1, nobody trusted: {found['value']:.4f}",
        flush=True,
    )
    return {"CSV, MiB": size, "peak memory, MiB": found["peak_mib"], "time, s": found["seconds"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--folder", type=Path, default=None, help="for the logs, which are removed again")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--evaluate", type=Path, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.evaluate is not None:
        evaluate(arguments.evaluate)
        return
    table = {}
    for rows in arguments.rows:
        table[f"{rows:,}"] = measure(rows, arguments.folder)
    if arguments.json:
        write_tables(arguments.json, {"logs": table}, ["feducb.evaluation"])
    peaks = [one["peak memory, MiB"] for one in table.values()]
    ratio = peaks[-1] / peaks[0]
    print(f"memory at {arguments.rows[-1]:,} over {arguments.rows[0]:,} rows: {ratio:.2f}, allowed {LIMIT:g}")
    if ratio > LIMIT:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
