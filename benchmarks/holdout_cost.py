"""What holding visitors out costs: durable agents with and without, on the same visitors.

    python benchmarks/holdout_cost.py [--runs 24] [--visits 1500] [--holdout 0.05] [--json FILE]

Each run has one agent with a holdout and one without, the same visitors, and coins of their own. Printed: by
how much the mean of what was shown is lower with it, per visitor, over all runs; and what agents said that it
costs, at the ends of their intervals, averaged. Then what agents with more visitors say of their lanes, one
of them uniform.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from feducb.agent import Agent, AgentSettings
from feducb.config import Budget, Problem
from feducb_lab.experiments.measured import write_tables

THETA = np.array([0.3, -0.25, 0.15])
SETTINGS = AgentSettings(
    problem=Problem(dim=3, reward_bound=0.5, reward_centre=0.5, noise_scale=0.5),
    budget=Budget(epsilon=50.0, delta=1e-6),
    decisions=3000,
    season=3000.0,
    window=1.0,
)
UNIFORM = 0.04  # of visitors, in the third lane


def play(
    folder: Path, seed: int, visits: int, holdout: float, uniform: float = 0.0
) -> tuple[float, dict[str, Any]]:
    """One agent: the mean of the expected rewards of what it showed, and what it says of its lanes."""
    now, total = [1e9], 0.0
    draws, rewards = np.random.default_rng(seed), np.random.default_rng(10_000 + seed)
    settings = replace(SETTINGS, decisions=visits, season=visits + 10.0)  # it does not roll
    settings = replace(settings, holdout=holdout, uniform_share=uniform)
    with Agent.open(folder / f"{seed}-{visits}-{holdout}.db", settings, clock=lambda: now[0]) as agent:
        agent.store.database.execute("PRAGMA synchronous = OFF")
        agent._state.coins = random.Random(seed)
        for _ in range(visits):
            candidates = draws.standard_normal((6, 3))
            candidates[:, 2] = 0.5
            candidates /= np.maximum(1.0, np.linalg.norm(candidates, axis=1, keepdims=True))
            decision = agent.decide(candidates)
            mean = float(np.clip(0.5 + candidates[decision.index] @ THETA, 0.0, 1.0))
            agent.reward(decision.id, float(rewards.random() < mean))
            total += mean
            now[0] += 1.0
            agent.tick()
        return total / visits, agent.snapshot()["gain"]


def cost(folder: Path, runs: int, visits: int, holdout: float) -> dict[str, Any]:
    """What agents lose by it, and what they say that they do."""
    losses, low, high, between = [], [], [], []
    for seed in range(runs):
        without, _ = play(folder, seed, visits, 0.0)
        with_it, gain = play(folder, seed, visits, holdout)
        losses.append(without - with_it)
        low.append(gain["costs"][0])
        high.append(gain["costs"][1])
        between.append(holdout * gain["difference"]["mean"])
    mean, error = float(np.mean(losses)), float(np.std(losses, ddof=1) / np.sqrt(runs))
    print(f"{runs} runs of {visits} visitors, {holdout:.0%} held out")
    print(f"lost per visitor      {mean:+.5f} ± {error:.5f}")
    print(f"share × difference    {np.mean(between):+.5f}")
    print(f"said: from {np.mean(low):.5f} to {np.mean(high):.5f}")
    print(f"lost no more than said {bool(mean - 2 * error <= np.mean(high))}")
    return {
        "runs": runs,
        "visitors": visits,
        "lost per visitor": {"mean": mean, "stderr": error},
        "share × difference": float(np.mean(between)),
        "said, at most": float(np.mean(high)),
    }


def lanes(folder: Path, visits: int, holdout: float) -> dict[str, Any]:
    """What an agent says of its lanes, with the larger side of each interval."""
    _, gain = play(folder, 0, visits, holdout, uniform=UNIFORM)
    print(f"{visits} visitors: {gain['says']}")
    said = {**gain["lanes"], "difference": gain["difference"]}
    return {
        name: {"value": one["mean"], "margin": max(one["high"] - one["mean"], one["mean"] - one["low"])}
        for name, one in said.items()
    }


def main() -> None:
    """Printed, and written if asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--visits", type=int, default=1500)
    parser.add_argument("--holdout", type=float, default=0.05)
    parser.add_argument("--lanes", type=int, nargs="*", default=(6000, 100_000), help="visitors of agents")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lost = cost(Path(folder), asked.runs, asked.visits, asked.holdout)
        said = {f"{visits:,} visitors": lanes(Path(folder), visits, asked.holdout) for visits in asked.lanes}
    if asked.json:
        share = f"{asked.holdout:.0%} held out".replace("%", " %")
        write_tables(asked.json, {"cost": {share: lost}, "lanes": said}, ["feducb.agent"])


if __name__ == "__main__":
    main()
