"""What each improvement of noise, reading and play is worth, at the same privacy and coverage.

    python benchmarks/bounds.py [--agents 100 --horizon 10000 --epsilon 1 --delta 1e-6 --runs 2] [--json FILE]

Each row adds one improvement to the row above it; d = 10, K = 100, α = 0.1.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import feducb
from feducb.protocol.federation import Tuning
from feducb_lab.experiments.measured import write_tables

PLAIN: dict[str, Any] = {
    "simulated": False,
    "weighted": False,
    "patience": 0.0,
    "quiet": False,
    "by_use": False,
}
OFTEN: dict[str, Any] = {"releases": 64, "policy": "optimistic"}
STEPS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("the mixture set, square-root Toeplitz, 64 releases", OFTEN | {"mechanism": "toeplitz"}, {}),
    ("+ dense factorisation", OFTEN, {}),
    ("+ simulated threshold", OFTEN, {"simulated": True}),
    ("+ best split of noise", OFTEN, {"weighted": True}),
    ("+ patience", OFTEN, {"patience": Tuning().patience}),
    ("+ quiet start", OFTEN, {"quiet": True}),
    ("+ noise by use", OFTEN, {"by_use": True}),
    ("+ few releases, planned", {"policy": "optimistic"}, {}),
    ("+ tempered", {"policy": "tempered"}, {}),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--horizon", type=int, default=10_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--trust", default="nobody")
    parser.add_argument("--json", type=Path)
    setting = vars(parser.parse_args())
    file, rows = setting.pop("json"), {}
    print(", ".join(f"{name} {value}" for name, value in setting.items()))
    tuning = dict(PLAIN)
    for label, play, change in STEPS:
        tuning |= change
        result = feducb.simulate(**setting, **play, tuning=Tuning(**tuning))
        cell = {"mean": result.mean, "stderr": result.stderr}
        rows[label] = {"regret of the average agent": cell}
        error = "" if result.stderr is None else f" ± {result.stderr:.1f}"
        print(f"  {label:<52} {result.mean:8.1f}{error}", flush=True)
    if file:
        write_tables(file, {"each step": rows}, ["feducb.simulation.runner"])


if __name__ == "__main__":
    main()
