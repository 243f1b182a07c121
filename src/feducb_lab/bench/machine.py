"""The machine: what it is, and how fast numpy multiplies matrices and draws normal numbers on it."""

from __future__ import annotations

import os
import platform
import timeit
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

__all__ = ["ceilings", "machine"]


def machine() -> dict[str, Any]:
    """Processor, cores that this process may use, and versions."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def ceilings(*, size: int = 1024, draws: int = 2**20, rounds: int = 5) -> dict[str, float]:
    """The most that numpy gets out of this machine, medians of ``rounds``.

    Billions of operations per second (a multiplication and an addition are two) for a product of n × n
    matrices on one thread and on all, and millions of normal numbers per second on one.
    """
    speeds: dict[str, float] = {}
    rng = np.random.default_rng(0)
    kinds: tuple[Any, ...] = (np.float32, np.float64)
    for kind in kinds:
        one = rng.standard_normal((size, size)).astype(kind)
        other, out = one.T.copy(), np.empty_like(one)
        for threads, label in ((1, "one thread"), (None, "all threads")):
            with threadpool_limits(threads):
                seconds = _median_seconds(lambda: np.matmul(one, other, out=out), rounds)  # noqa: B023
            speeds[f"{kind.__name__} product, {label}, GFLOP/s"] = 2e-9 * size**3 / seconds
        numbers = np.empty(draws, dtype=kind)
        seconds = _median_seconds(lambda: rng.standard_normal(out=numbers, dtype=kind), rounds)  # noqa: B023
        speeds[f"{kind.__name__} normal, one thread, millions/s"] = 1e-6 * draws / seconds
    return speeds


def _median_seconds(function: Callable[[], object], rounds: int) -> float:
    function()
    return median(timeit.repeat(function, number=1, repeat=rounds))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
