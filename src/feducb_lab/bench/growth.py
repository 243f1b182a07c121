"""How time and memory grow, what a second thread brings, and how soon the first step is done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from feducb.simulation.backends.cpu import CpuBackend
from feducb.simulation.runner import simulate

__all__ = ["growth", "memory", "starts", "thread_gain"]

_BASE: dict[str, Any] = {"agents": 40, "dim": 10, "arms": 100, "horizon": 2_000, "runs": 1}
_SIZES: dict[str, tuple[int, ...]] = {
    "horizon": (2_000, 4_000, 8_000, 16_000),
    "agents": (20, 40, 80, 160, 320),
    "dim": (8, 16, 32, 64),
    "arms": (128, 256, 512, 1024),
}
_PEAK = """
import json, sys
import feducb
feducb.simulate(**json.loads(sys.argv[1]))
status = open("/proc/self/status").read()  # not ru_maxrss: that remembers the process it was started from
print(int(status.partition("VmHWM:")[2].split()[0]) / 1024)
"""
_START = """
import time
started = time.perf_counter()
import feducb
feducb.simulate(agents=2, dim=10, arms=100, horizon=20, runs=1, backend="cpu", baseline="no-privacy")
print(time.perf_counter() - started)
feducb.simulate(agents=2, dim=10, arms=100, horizon=20, runs=1, backend="cpu", baseline="alone")
print(time.perf_counter() - started)
"""


def _seconds(threads: int = 1, **changes: Any) -> float:
    """All arms drawn in every round but the first few: the same work in each."""
    setting = _BASE | changes
    schedule = f"periodic:{setting['horizon'] // 8}"
    return simulate(
        **setting, baseline="no-privacy", schedule=schedule, threads=threads, backend=CpuBackend(defer=False)
    ).seconds


def growth(rounds: int = 5) -> dict[str, dict[str, Any]]:
    """Seconds against T, M, d and K, medians, and the exponent of a power law fitted to them."""
    _seconds()
    measured = {}
    for name, sizes in _SIZES.items():
        times: list[list[float]] = [[] for _ in sizes]
        for _ in range(rounds):  # in turn, so that a busy minute hits all alike
            for size, own in zip(sizes, times, strict=True):
                own.append(_seconds(**{name: size}))
        seconds = [median(own) for own in times]
        slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        measured[name] = {"sizes": list(sizes), "seconds": seconds, "exponent": float(slope)}
    return measured


def thread_gain(rounds: int = 7) -> float:
    """How much faster two threads are than one, median."""
    setting = {"agents": 64, "horizon": 8_000}
    _seconds(**setting)
    return median(_seconds(1, **setting) / _seconds(2, **setting) for _ in range(rounds))


def memory(horizons: Sequence[int] = (10_000, 1_000_000)) -> dict[str, float]:
    """Peak MiB of a process that simulates so many rounds."""
    return {f"T = {horizon:,}": float(_run(_PEAK, _BASE | {"horizon": horizon})) for horizon in horizons}


def starts(rounds: int = 3) -> dict[str, float]:
    """Seconds from the start of Python's imports to the end of the first steps: compiled, then from disk."""
    with tempfile.TemporaryDirectory() as folder:
        first = _run(_START, {}, NUMBA_CACHE_DIR=folder).split()
        later = [_run(_START, {}, NUMBA_CACHE_DIR=folder).split() for _ in range(rounds)]
    return {
        "nothing compiled yet": float(first[0]),
        "nothing compiled yet, both kernels": float(first[1]),
        "later processes": median(float(one[0]) for one in later),
        "later processes, both kernels": median(float(one[1]) for one in later),
    }


def _run(script: str, setting: dict[str, Any], **environment: str) -> str:
    command = [sys.executable, "-c", script, json.dumps(setting)]
    changed = os.environ | environment
    return subprocess.run(command, env=changed, capture_output=True, text=True, check=True).stdout
