"""Our own simulations, to be timed: add a name and a function to `BACKENDS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from feducb.simulation.runner import simulate

__all__ = ["BACKENDS", "Backend"]

Backend = Callable[[int, int, int], float]
"""(d, K, agent-steps at least) → agent-steps a second, drawing visitors and rewards included."""

_AGENTS, _SHORTEST = 100, 16


def _reference(**variant: Any) -> Backend:
    def run(dim: int, arms: int, steps: int) -> float:
        horizon = max(_SHORTEST, -(-steps // _AGENTS))
        return simulate(
            agents=_AGENTS, dim=dim, arms=arms, horizon=horizon, runs=1, threads=1, **variant
        ).agent_steps_per_second

    return run


BACKENDS: list[tuple[str, Backend]] = [
    ("feducb reference, calibrated", _reference()),
    ("feducb reference, each agent alone", _reference(baseline="alone")),
]
"""The first is the one that the others are compared with."""
