"""One honest agent whose others all tell of one and the same false θ, as if they had seen it.

    python benchmarks/one_story.py [--runs 6] [--processes 2] [--json docs/figures/one-story.json]

The others' moment is what their Gram would come to under that θ, without noise: nothing in it contradicts
itself. It is turned away from θ* by an angle, in a direction drawn for each run; `feducb figure own` plays
others whose lies are less careful. M = 100 agents, keepers, ε = 1, d = 10, K = 100, T = 10⁴ in the paper's
world. Regret of the honest agent under own play, as it is by default and with ``distance`` 0.5.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import feducb
from feducb.models.joint import Others
from feducb.models.play import JointPlay, Knowledge, ReleasedPlay
from feducb.types import Array, ReleasedSum
from feducb_lab.experiments.measured import write_tables

DIM = 10
WORLD: dict[str, Any] = {"dim": DIM, "arms": 100, "agents": 100, "runs": 1, "threads": 1}
OWN: dict[str, Any] = {"play": "own", "trust": "keepers", "epsilon": 1.0, "delta": 1e-6, "horizon": 10_000}
ANGLES = (0, 10, 20, 30, 40, 50, 60, 90, 120, 180)
DISTANCES = {"as it is by default": None, "distance 0.5": 0.5}


def theta_of(seed: int) -> Array:
    """θ* of a seed's world, as 100 agents find it without privacy."""
    sums = [np.zeros((DIM, DIM)), np.zeros(DIM)]
    absorb = ReleasedPlay.absorb

    def note(self: ReleasedPlay, knowledge: Knowledge, total: ReleasedSum) -> Knowledge:
        sums[:] = [total.gram.reshape(-1, DIM, DIM)[0], total.moment.reshape(-1, DIM)[0]]
        return absorb(self, knowledge, total)

    with mock.patch.object(ReleasedPlay, "absorb", note):
        feducb.simulate(**WORLD, horizon=300, baseline="no-privacy", seed=seed)
    return np.asarray(np.linalg.solve(*sums), dtype=np.float64)


def told(false: Array) -> Callable[[JointPlay, Knowledge, ReleasedSum], Knowledge]:
    """`JointPlay.absorb`, of sums in which all others tell of this θ."""
    absorb = JointPlay.absorb

    def hear(self: JointPlay, knowledge: Knowledge, total: ReleasedSum) -> Knowledge:
        if total.number < self.last:
            return absorb(self, knowledge, replace(total, moment=total.gram @ false))
        assert knowledge.sums is not None
        gram = total.gram[..., None, :, :] - knowledge.sums.gram
        return self._read(replace(knowledge, others=Others.of(gram, gram @ false)))

    return hear


def lost(angle: int, distance: float | None, seed: int) -> float:
    """Regret of a run."""
    theta, turn = theta_of(seed), np.radians(angle)
    length = float(np.linalg.norm(theta))
    aside = np.random.default_rng(seed).standard_normal(DIM)
    aside -= (aside @ theta) / length**2 * theta
    false = np.cos(turn) * theta + np.sin(turn) * length * aside / np.linalg.norm(aside)
    with mock.patch.object(JointPlay, "absorb", told(false)):
        return float(feducb.simulate(**WORLD, **OWN, distance=distance, seed=seed).mean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(asked.processes) as pool:
        for name, distance in DISTANCES.items():
            for angle in ANGLES:
                found = np.array(list(pool.map(partial(lost, angle, distance), range(asked.runs))))
                error = float(found.std(ddof=1) / len(found) ** 0.5)
                rows.setdefault(name, {})[f"{angle}°"] = {"mean": float(found.mean()), "stderr": error}
                print(f"{name:22} {angle:4}°  {found.mean():6.1f} ± {error:.1f}", flush=True)
    if asked.json:
        write_tables(asked.json, {"regret": rows}, ["feducb.simulation.runner"])


if __name__ == "__main__":
    main()
