"""What it is worth to remember earlier seasons: a deployed agent, and worlds that change in simulation.

python benchmarks/seasons.py deployed --runs 20
python benchmarks/seasons.py drift --runs 12
"""

from __future__ import annotations

import argparse
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import feducb
from feducb.agent import Agent, AgentSettings
from feducb.config import Budget, Problem

DIM, ARMS, VISITORS, SEASONS = 5, 10, 2000, 3
WINDOWS = (("first 100", 0, 100), ("next 400", 100, 500), ("last 500", VISITORS - 500, VISITORS))
DRIFTING: dict[str, Any] = {
    "agents": 10, "dim": 5, "arms": 10, "epsilon": 4.0, "horizon": 9000, "seasons": 6, "backend": "reference"
}  # fmt: skip
READINGS: dict[str, dict[str, Any]] = {
    "all": {},
    "half-life 1,500": {"half_life": 1500.0},
    "half-life 500": {"half_life": 500.0},
    "half-life 150": {"half_life": 150.0},
    "begins anew": {"remember": "none"},
}


def three_seasons(remember: str, seed: int) -> np.ndarray:
    """(seasons, visitors), mean rewards of what was shown: one agent, deployed, on a clock of its own."""
    draws, now = np.random.default_rng(seed), 1_800_000_000.0
    theta = draws.standard_normal(DIM)
    theta *= 0.45 / np.linalg.norm(theta)
    settings = AgentSettings(
        problem=Problem(dim=DIM, reward_bound=0.5, reward_centre=0.0, parameter_bound=0.5),
        budget=Budget(epsilon=4.0, delta=1e-6),
        decisions=VISITORS,
        season=float(VISITORS),
        window=0.5,
        start=now,
        remember=remember,  # type: ignore[arg-type]
    )
    worth = np.empty((SEASONS, VISITORS))
    with (
        tempfile.TemporaryDirectory() as folder,
        Agent.open(Path(folder) / "a.db", settings, clock=lambda: now) as agent,
    ):
        agent._coins = random.Random(seed)
        for season in range(SEASONS):
            for visitor in range(VISITORS):
                now += 1.0
                candidates = draws.standard_normal((ARMS, DIM))
                candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
                means = 0.5 + candidates @ theta
                made = agent.decide(candidates)
                agent.reward(made.id, float(draws.random() < means[made.index]) - 0.5)
                worth[season, visitor] = means[made.index]
                if visitor % 20 == 19:
                    agent.tick()
            agent.tick()
            if season < SEASONS - 1:
                now += 1.0
                agent.new_season(replace(settings, start=now), drop_open=True)
    return worth


def deployed(runs: int) -> None:
    """Mean rewards around the seasons' boundaries, with errors over runs."""
    for remember in ("all", "none"):
        worth = np.array([three_seasons(remember, seed) for seed in range(runs)])
        print(f"remember = {remember}, {runs} runs")
        for season in range(SEASONS):
            cells = []
            for name, first, last in WINDOWS:
                means = worth[:, season, first:last].mean(axis=1)
                cells.append(f"{name}: {means.mean():.3f} ± {means.std(ddof=1) / np.sqrt(runs):.3f}")
            print(f"  season {season + 1}   " + "   ".join(cells))
        for season in range(1, SEASONS):
            before, after = worth[:, season - 1, -500:].mean(axis=1), worth[:, season, :100].mean(axis=1)
            drop = before - after
            print(f"  drop at boundary {season}: {drop.mean():.3f} ± {drop.std(ddof=1) / np.sqrt(runs):.3f}")


def drift(runs: int) -> None:
    """Regret of the average agent in worlds that stand still, turn slowly, or jump once."""
    for world in (None, "turn:10", "jump:4500"):
        for name, reading in READINGS.items():
            result = feducb.simulate(**DRIFTING, **reading, drift=world, runs=runs, threads=1)
            errors = result.regret[:, -1].std(ddof=1) / np.sqrt(runs)
            print(f"{world or 'stands still':14} {name:16} {result.mean:8.1f} ± {errors:.1f}", flush=True)


def main() -> None:
    """By name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("deployed", "drift"))
    parser.add_argument("--runs", type=int, default=12)
    asked = parser.parse_args()
    {"deployed": deployed, "drift": drift}[asked.what](asked.runs)


if __name__ == "__main__":
    main()
