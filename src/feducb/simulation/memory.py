"""What a simulation needs in memory, so that one that cannot fit is refused before it starts.

Estimates stay a little below what was measured (`tests/simulation/test_memory.py`): what is refused does not
fit, what fits is not refused.
"""

from __future__ import annotations

import os
from pathlib import Path

from feducb.errors import ConfigurationError
from feducb.models.play import AlonePlay, JointPlay, OwnDataPlay
from feducb.simulation.backends.teams import runs_at_once
from feducb.simulation.plan import Plan
from feducb.simulation.reference import checkpoints

__all__ = ["free_device_memory", "free_memory", "plan_bytes", "play_bytes", "require_memory"]

_PLANNED = 70  # bytes per agent of a plan: its number and its budget
_CALIBRATED = 300  # more while noise is calibrated for each agent
_STREAMS = 7000  # bytes per agent and run of the reference: its random streams and arrays of its own
_COINS = 2000  # of an agent that may be away
_BELIEF = 1200  # bytes of an agent alone beside its matrices
_JOINT = 16  # matrices of an agent that reads its own sums beside the others', while it does
_FLOAT = 8


def plan_bytes(agents: int, *, private: bool) -> int:
    """What a plan itself takes, before anybody plays."""
    return (_PLANNED + _CALIBRATED * private) * agents


def play_bytes(plan: Plan, backend: str, threads: int) -> tuple[int, int]:
    """Bytes in main memory and on the device that playing a plan takes, beyond the plan."""
    dim, arms, points = plan.problem.dim, plan.environment.arms, len(checkpoints(plan.horizon, plan.history))
    largest = max(len(team.agents) for team in plan.teams)
    rule = plan.teams[0].estimators[0].rule
    own = isinstance(rule, OwnDataPlay)
    together = min(plan.runs, runs_at_once(largest, dim)) * largest
    if isinstance(rule, AlonePlay) and backend != "reference":  # a belief for each, made here
        return together * (4 * _FLOAT * dim**2 + _BELIEF), 0
    joint = _FLOAT * _JOINT * dim**2 * isinstance(rule, JointPlay)
    if joint and backend != "reference":
        return together * joint, 0
    kept = 0  # columns of each agent, where rows are built by those who are there
    if plan.absence:
        together = largest
        kept = largest * (_COINS + _FLOAT * len(plan.estimators[0].release_rounds) * dim * (dim + 1))
    if backend == "gpu":
        entries = (dim + 1) * (dim + 2) // 2
        return kept, 2 * _FLOAT * together * entries if own else 0
    if backend == "cpu" and own:
        return _FLOAT * (together * (4 * dim**2 + 4 * dim + 6) + largest * 2 * (dim**2 + points)), 0
    if backend == "cpu":
        return kept + _FLOAT * together * (dim**2 + dim + points + 6), 0
    side_by_side = min(plan.runs, threads)
    drawn = _FLOAT * (2 * arms * (dim + 1) + 2 * dim**2)
    return side_by_side * (kept + largest * (_STREAMS + drawn + joint)), 0


def require_memory(agents: int, needed: int, free: int | None, *, of: str = "memory") -> None:
    """Refuse what does not fit; where nobody knows how much is free, everything is tried.

    Raises:
        ConfigurationError: it does not fit.
    """
    if free is not None and needed > free:
        expected = (
            f"fewer: they need at least {_size(needed)} of {of} where {_size(free)} are free "
            "(fewer dimensions, arms or runs need less, too)"
        )
        raise ConfigurationError("agents", agents, expected)


def free_memory() -> int | None:
    """Bytes that this process can still have: of the machine, or of its container if that has less."""
    known = [free for free in (_of_machine(), _of_container()) if free is not None]
    return min(known, default=None)


def free_device_memory() -> int | None:
    """Bytes that are free on the GPU, if there is one that can be asked."""
    try:
        import cupy  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return int(cupy.cuda.runtime.memGetInfo()[0])
    except Exception:  # whatever a driver raises: then nobody knows
        return None


def _of_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass  # no such system
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _of_container() -> int | None:
    folder = Path("/sys/fs/cgroup")
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            return max(0, int((folder / most).read_text()) - int((folder / used).read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return None


def _size(count: int) -> str:
    for name, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {name}"
    return f"{count:,} bytes"
