"""A log of decisions that were taken at random, and the question: would shops have done better together?

Writes a log with known tastes (or reads yours: same columns), asks it, and says yes or no with the reason.
Needs the extra ``data``.

    python examples/own_logged_data.py
    python examples/own_logged_data.py --log shops.csv
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np

import feducb
from feducb.evaluation import Study

CHANCES = {"book": 0.5, "game": 0.3, "film": 0.2}  # how the logged policy drew its offers


def write_log(path: Path, rows: int, seed: int = 1) -> None:
    """The old take books, the young games; 150 shops."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        log = csv.writer(file)
        log.writerow(["shop", "age", "offer", "bought", "p"])
        for _ in range(rows):
            age = int(rng.integers(18, 90))
            offer = str(rng.choice(list(CHANCES), p=list(CHANCES.values())))
            taste = {"book": age / 90, "game": 1 - age / 90, "film": 0.4}[offer]
            bought = int(rng.random() < 0.5 * taste)
            log.writerow([f"shop {rng.integers(150)}", age, offer, bought, CHANCES[offer]])


def main(log: Path | None, rows: int, repeats: int) -> None:
    """Ask the log."""
    with tempfile.TemporaryDirectory() as folder:
        if log is None:
            log = Path(folder) / "shops.csv"
            write_log(log, rows)
        # Ranges and names are public knowledge, not read off the log: that is what a deployed agent must do.
        comparison = feducb.evaluate(
            log,
            study=Study(epsilons=(1.0, 8.0), repeats=repeats),
            agent_column="shop",
            action="offer",
            reward="bought",
            propensity="p",
            context="age:0:120",
            actions=list(CHANCES),
            terms="offer,offer*age",
        )
    print(comparison.verdict())


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--log", type=Path)
    arguments.add_argument("--rows", type=int, default=6000)
    arguments.add_argument("--repeats", type=int, default=5)
    main(**vars(arguments.parse_args()))
