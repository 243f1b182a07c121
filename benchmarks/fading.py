"""The noise of sums whose records fade, beside the least that any factorisation of them could have.

python benchmarks/fading.py --json docs/figures/fading.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from feducb.models.remembering import Fading
from feducb.privacy.mechanisms import Dense
from feducb.privacy.mechanisms.matrix import least_worst_error
from feducb_lab.experiments.measured import write_tables


def main() -> None:
    """A line for each schedule and half-life: the last release, the worst, and the least worst there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    table: dict[str, dict[str, dict[str, object]]] = {}
    schedules = (
        ("64 releases, level", np.arange(1.0, 65.0), 64.0, Dense(64)),
        ("12 releases in ratio 1.4, by use", 1.4 ** np.arange(12.0), 1.4**12, Dense(12, 0, 1.4)),
    )
    for name, times, season, mechanism in schedules:
        for part in (None, 1.0, 4.0, 16.0):
            rows, workload = mechanism.decoder(), np.tri(len(times))
            if part is not None:
                half_life = season / part
                rows = Fading(tuple(times.tolist()), half_life, rows).rows()
                workload = np.tril(0.5 ** ((times[:, None] - times) / half_life))
            errors = np.linalg.norm(rows, axis=1)
            h = "no fading" if part is None else f"half-life T/{part:g}"
            least = least_worst_error(workload)
            column = "∞" if part is None else "T" if part == 1.0 else f"T/{part:g}"
            found = {"mean": errors[-1], "also": [errors.max(), least]}
            table.setdefault(name, {})[column] = found
            print(f"{name:34} {h:16} last {errors[-1]:.2f}  worst {errors.max():.2f}  least {least:.2f}")
    if asked.json:
        played = ["feducb.models.remembering", "feducb.privacy.mechanisms"]
        write_tables(asked.json, {"fading": table}, played)


if __name__ == "__main__":
    main()
