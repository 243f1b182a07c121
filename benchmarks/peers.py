"""Decisions and learning steps beside other libraries: µs and ratios, all measured in this run.

    python benchmarks/peers.py [--dims 10 50 --arms 100 --json peers.json --plot peers.png]

The libraries want an environment of their own:

    python -m venv peers && peers/bin/pip install -c constraints.txt -r benchmarks/requirements-peers.txt .
    peers/bin/python benchmarks/peers.py

One that is not installed is reported so. Every one that is must first show that it learns. Ends with status 1
if one does not, or if at d = 10, K = 100 a decision is not 2.5 times as fast as the fastest plain numpy and
15 times as fast as the fastest library that reads fresh features.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from feducb.bench import draw_report, run_bench
from feducb.bench.measure import Row

AGAINST_NUMPY, AGAINST_LIBRARIES = 2.5, 15.0


def verdicts(rows: list[Row]) -> list[tuple[str, bool]]:
    """Our decision against the fastest of plain numpy and against the fastest library."""
    rivals = [row for row in rows[1:] if row.sees_candidates and row.reads_features]
    plain = [row for row in rivals if row.package == "numpy"]
    libraries = [row for row in rivals if row.package != "numpy"]
    found = []
    for group, wanted in ((plain, AGAINST_NUMPY), (libraries, AGAINST_LIBRARIES)):
        if group:
            nearest = min(group, key=lambda row: row.decide_ratio)
            text = f"{nearest.decide_ratio:.1f} × as fast as {nearest.name}, wanted {wanted:g}"
            found.append((text, nearest.decide_ratio >= wanted))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dims", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--arms", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    report = run_bench(
        dims=arguments.dims,
        arms=arguments.arms,
        rounds=arguments.rounds,
        tell=lambda doing: print(f"… {doing}", file=sys.stderr, flush=True),
    )
    print(report.to_text())
    if arguments.json:
        report.to_json(arguments.json)
    if arguments.plot:
        draw_report(report, arguments.plot)
    failed = [f"{check.name} does not learn" for check in report.checks if not check.learns]
    for table in report.tables:
        if (table.dim, table.arms) == (10, 100):
            print("\nOne decision, d = 10, K = 100")
            for text, holds in verdicts(table.rows):
                print(f"  {text}: {'holds' if holds else 'MISSED'}")
                failed += [] if holds else [text]
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
