"""Our own simulations, to be timed: add a name and a function to `BACKENDS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from feducb.simulation.backends.cpu import CpuBackend
from feducb.simulation.runner import simulate

__all__ = ["BACKENDS", "Backend", "long_run"]

Backend = Callable[[int, int, int], float]
"""(d, K, agent-steps at least) → agent-steps per second, drawing visitors and rewards included."""

_AGENTS, _SHORTEST = 100, 16
_LONG: dict[str, Any] = {"agents": 100, "dim": 10, "arms": 100, "runs": 1, "epsilon": 1.0, "delta": 1e-6}


def _ours(backend: Any, *, times: int = 1, **variant: Any) -> Backend:
    """A simulation on one thread; ``times`` as many steps where they are fast."""

    def run(dim: int, arms: int, steps: int) -> float:
        horizon = max(_SHORTEST, -(-steps * times // _AGENTS))
        every = f"periodic:{max(1, horizon // 8)}"  # few releases: it is steps that are timed
        size: dict[str, Any] = {"agents": _AGENTS, "dim": dim, "arms": arms, "horizon": horizon, "runs": 1}
        result = simulate(**size, schedule=every, threads=1, backend=backend, **variant)
        return result.agent_steps_per_second

    return run


BACKENDS: list[tuple[str, Backend]] = [
    ("feducb reference", _ours("reference", baseline="no-privacy")),
    ("feducb reference, each agent alone", _ours("reference", baseline="alone")),
    ("feducb cpu, all arms drawn", _ours(CpuBackend(defer=False), times=8, baseline="no-privacy")),
    ("feducb cpu, arms deferred", _ours(CpuBackend(), times=64, baseline="no-privacy")),
    ("feducb cpu, each agent alone", _ours(CpuBackend(), times=8, baseline="alone")),
]
"""The first is the one that the others are compared with."""


def long_run(horizon: int = 200_000, reference_horizon: int = 500) -> dict[str, float]:
    """M = 100, d = 10, K = 100, (1, 1e-6): the cpu backend to the end, early phase included, on one thread.

    The reference draws all arms in every round, so that a step takes as long early as late: it is timed on
    the first rounds of the same.
    """
    simulate(**_LONG, horizon=100, threads=1, backend="cpu")  # compiled, or read from disk
    slow = simulate(**_LONG, horizon=reference_horizon, threads=1, backend="reference")
    fast = simulate(**_LONG, horizon=horizon, threads=1, backend="cpu")
    return {
        "horizon": horizon,
        "reference, µs a step": 1e6 / slow.agent_steps_per_second,
        "cpu, µs a step": 1e6 / fast.agent_steps_per_second,
        "ratio": fast.agent_steps_per_second / slow.agent_steps_per_second,
    }
