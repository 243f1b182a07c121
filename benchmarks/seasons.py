"""What it is worth to remember earlier seasons: one deployed agent, on a clock of its own.

    python benchmarks/seasons.py --runs 20 [--json docs/figures/seasons.json]

Worlds in which θ* moves are simulated: `feducb figure expect`.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from feducb.agent import Agent, AgentSettings
from feducb.config import Budget, Problem
from feducb_lab.experiments.measured import write_tables

DIM, ARMS, VISITORS, SEASONS = 5, 10, 2000, 3
WINDOWS = {"first 100 visitors": (0, 100), "next 400": (100, 500), "last 500": (VISITORS - 500, VISITORS)}
WAYS = {"remembers": "all", "begins anew": "none"}


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
        agent._state.coins = random.Random(seed)
        agent.store.database.execute("PRAGMA synchronous = OFF")  # what survives a crash is not measured here
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


def measured(values: np.ndarray) -> dict[str, float]:
    """Mean over runs, and its standard error."""
    return {"mean": float(values.mean()), "stderr": float(values.std(ddof=1) / len(values) ** 0.5)}


def shown(worth: np.ndarray) -> list[dict[str, Any]]:
    """Of (runs, seasons, visitors): mean rewards in the windows of each season."""
    return [
        {window: measured(worth[:, season, slice(*ends)].mean(axis=1)) for window, ends in WINDOWS.items()}
        for season in range(SEASONS)
    ]


def drops(worth: np.ndarray) -> dict[str, Any]:
    """By how much the mean reward falls at each boundary."""
    before, after = worth[:, :-1, -500:].mean(axis=2), worth[:, 1:, :100].mean(axis=2)
    return {str(at): measured((before - after)[:, at - 1]) for at in range(1, SEASONS)}


def print_seasons(name: str, worth: np.ndarray) -> None:
    """Around the seasons' boundaries, with errors over runs."""
    print(name)
    for season, cells in enumerate(shown(worth), 1):
        said = (f"{window}: {one['mean']:.3f} ± {one['stderr']:.3f}" for window, one in cells.items())
        print(f"  season {season}   " + "   ".join(said))
    for boundary, drop in drops(worth).items():
        print(f"  drop at boundary {boundary}: {drop['mean']:.3f} ± {drop['stderr']:.3f}")


def tables(title: str, ways: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """To be written: mean rewards by season and way, and by how much they fall. The first season is alike."""
    rows: dict[str, Any] = {}
    for way, worth in ways.items():
        for season, cells in enumerate(shown(worth), 1):
            rows.setdefault(f"season {season}, {way}" if season > 1 else "season 1", cells)
    return {title: rows, "drop at the boundary": {way: drops(worth) for way, worth in ways.items()}}


def main() -> None:
    """One agent, with memory and without: printed, and written if asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    ways: dict[str, np.ndarray] = {}
    for way, remember in WAYS.items():
        ways[way] = np.array([three_seasons(remember, seed) for seed in range(asked.runs)])
        print_seasons(f"{way}, {asked.runs} runs", ways[way])
    if asked.json:
        write_tables(asked.json, tables("deployed", ways), ["feducb.agent"])


if __name__ == "__main__":
    main()
