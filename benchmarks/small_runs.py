"""Runs of seconds whose numbers stand in a sentence or a small table of a page.

    python benchmarks/small_runs.py --json docs/figures/small-runs.json

The tutorial's simulations, agents alone in more dimensions, a ring by the size of its cliques, and the shop
of examples/shop: what its visitors would buy, and what an agent sells them.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import shop_visitors

import feducb
from feducb_lab.experiments.measured import write_tables

Rows = dict[str, dict[str, Any]]

TUTORIAL: dict[str, dict[str, Any]] = {
    "at random": {"baseline": "uniform"},
    "the paper's constants": {"mode": "paper"},
    "private, ε = 1": {"epsilon": 1.0},
    "each alone": {"baseline": "alone"},
    "private, ε = 4": {"epsilon": 4.0},
    "private, ε = 1, controller trusted": {"epsilon": 1.0, "trust": "controller"},
    "no privacy": {"baseline": "no-privacy"},
}
SHOP_VISITORS = 12_000  # as docs/service.md has them


def tutorial() -> Rows:
    """docs/tutorials/simulate.md, 2."""
    setting: dict[str, Any] = {"agents": 100, "dim": 5, "arms": 20, "horizon": 1000, "runs": 2}
    return {name: {"regret": _regret(**setting, **asked)} for name, asked in TUTORIAL.items()}


def alone() -> Rows:
    """Agents alone in more than ten dimensions: docs/experiments.md, before the figures."""
    setting: dict[str, Any] = {"agents": 10, "arms": 100, "horizon": 20_000, "runs": 10, "baseline": "alone"}
    return {f"d = {dim}": {"regret": _regret(dim=dim, **setting)} for dim in (15, 20)}


def ring() -> Rows:
    """Secure sums in cliques of a ring: docs/decentralised.md."""
    asked: dict[str, Any] = {"topology": "ring:100", "ttl": 10, "estimators": "one", "trust": "keepers"}
    result = feducb.simulate(**asked, epsilon=1.0, delta=1e-6, runs=5)
    assert result.topology is not None
    assert result.clique_regret is not None
    sizes = np.array([len(clique) for clique in result.topology.cliques])
    rows: Rows = {"all": {"regret": {"mean": result.mean, "stderr": result.stderr}}}
    for size in (sizes.max(), sizes.min()):
        runs = result.clique_regret[sizes == size].mean(axis=0)
        rows[f"cliques of {size}"] = {"regret": _mean(runs.tolist())}
    return rows


def shop() -> Rows:
    """Sales a visitor: what could be had, what chance has, what an agent has in the last third of them."""
    chosen = shop_visitors.settings(8.0, 1, vectors=False, decisions=SHOP_VISITORS)
    visits = shop_visitors.Visits(20, vectors=False)
    with (
        tempfile.TemporaryDirectory() as folder,
        feducb.Agent.open(Path(folder) / "shop.db", chosen, clock=visits.clock) as agent,
    ):
        for _ in range(SHOP_VISITORS // shop_visitors.STEP):
            visits.step([agent])
            agent.tick()
    late = visits.shown[-SHOP_VISITORS // 3 :]
    found = {"best": visits.best, "at random": _at_random(), "last third": late}
    return {"sales a visitor": {name: statistics.fmean(chances) for name, chances in found.items()}}


def _at_random() -> list[float]:
    """How likely each visitor buys who is shown any of the offers."""
    example = shop_visitors.shop()
    come = example.arrive(SHOP_VISITORS, per_second=math.inf)
    return [statistics.fmean(example.chance(one, offer) for offer in example.OFFERS) for one in come]


def _regret(**setting: Any) -> dict[str, float | None]:
    result = feducb.simulate(**setting)
    return {"mean": result.mean, "stderr": result.stderr}


def _mean(values: list[float]) -> dict[str, float]:
    error = statistics.stdev(values) / len(values) ** 0.5
    return {"mean": statistics.fmean(values), "stderr": error}


def main() -> None:
    """Each in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    parts = {"simulate": tutorial, "alone": alone, "ring of 100": ring, "shop": shop}
    tables = {name: play() for name, play in parts.items()}
    for name, rows in tables.items():
        for row, found in rows.items():
            print(f"{name}, {row}: {found}")
    if asked.json:
        write_tables(asked.json, tables, ["feducb.simulation.runner", "feducb.agent"])


if __name__ == "__main__":
    main()
