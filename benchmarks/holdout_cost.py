"""What holding visitors out costs: durable agents with and without, on the same visitors.

    python benchmarks/holdout_cost.py [RUNS] [VISITS] [HOLDOUT]

Each run has one agent with a holdout and one without, the same visitors, and coins of their own. Printed: by
how much the mean of what was shown is lower with it, per visitor, over all runs; and what agents said that it
costs, at the ends of their intervals, averaged.
"""

from __future__ import annotations

import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from feducb.agent import Agent, AgentSettings
from feducb.config import Budget, Problem

THETA = np.array([0.3, -0.25, 0.15])
SETTINGS = AgentSettings(
    problem=Problem(dim=3, reward_bound=0.5, reward_centre=0.5, noise_scale=0.5),
    budget=Budget(epsilon=50.0, delta=1e-6),
    decisions=3000,
    season=3000.0,
    window=1.0,
)


def play(folder: Path, seed: int, visits: int, holdout: float) -> tuple[float, dict[str, Any]]:
    """One agent: the mean of the expected rewards of what it showed, and what it says of its lanes."""
    now, total = [1e9], 0.0
    draws, rewards = np.random.default_rng(seed), np.random.default_rng(10_000 + seed)
    settings = replace(SETTINGS, decisions=visits, season=visits + 10.0, holdout=holdout)  # it does not roll
    with Agent.open(folder / f"{seed}-{holdout}.db", settings, clock=lambda: now[0]) as agent:
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


def main(runs: int, visits: int, holdout: float) -> None:
    losses, low, high, between = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(runs):
            without, _ = play(Path(folder), seed, visits, 0.0)
            with_it, gain = play(Path(folder), seed, visits, holdout)
            losses.append(without - with_it)
            low.append(gain["costs"][0])
            high.append(gain["costs"][1])
            between.append(holdout * gain["difference"]["mean"])
    error = float(np.std(losses, ddof=1) / np.sqrt(runs))
    print(f"{runs} runs of {visits} visitors, {holdout:.0%} held out")
    print(f"lost per visitor      {np.mean(losses):+.5f} ± {error:.5f}")
    print(f"share × difference    {np.mean(between):+.5f}")
    print(f"said: from {np.mean(low):.5f} to {np.mean(high):.5f}")
    print(f"lost no more than said {bool(np.mean(losses) - 2 * error <= np.mean(high))}")


if __name__ == "__main__":
    usual = ["24", "1500", "0.05"]
    runs, visits, share = [*sys.argv[1:], *usual[len(sys.argv) - 1 :]]
    main(int(runs), int(visits), float(share))
