"""Playing the points of a figure: one after the other, on threads (for a GPU), or on Ray; resumable."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from feducb.simulation.backends.gpu_kernels import missing_gpu
from feducb.system import write_atomically
from feducb_lab.experiments.experiment import Outcome, Point

__all__ = ["Progress", "play_point", "read_point", "sweep"]

Progress = Callable[[int, int, Point], None]
"""(points done, points in all, the one just done)"""

_VOLATILE = ("seconds", "agent_steps_per_second")  # the only parts of a result that are not a function of it


def play_point(point: Point, backend: str, threads: int | None = None) -> dict[str, Any]:
    """Simulate a point; plain data."""
    module, _, name = point.player.partition(":")
    play = getattr(importlib.import_module(module), name)
    with _own_stream(backend):
        result = play(**point.setting, backend=backend, threads=threads)
    plain: dict[str, Any] = result if isinstance(result, dict) else result.as_dict()
    if not isinstance(result, dict):
        plain["finals"] = result.regret[:, -1].tolist()
    return plain


def _own_stream(backend: str) -> AbstractContextManager[Any]:
    """On a GPU a stream of its own, so that points played at the same time do not wait for each other."""
    if backend not in ("auto", "gpu") or missing_gpu() is not None:
        return nullcontext()
    cupy = importlib.import_module("cupy")
    stream: AbstractContextManager[Any] = cupy.cuda.Stream(non_blocking=True)
    return stream


def sweep(
    points: Sequence[Point],
    folder: Path,
    *,
    backend: str = "auto",
    at_once: int = 1,
    threads: int | None = None,
    progress: Progress = lambda done, total, point: None,
) -> list[Outcome]:
    """All points, in order; those that were played before are read from the folder.

    Args:
        points: what to play.
        folder: one file a point, named by what it is made of.
        backend: as in `feducb.simulate`.
        at_once: how many points are played at the same time, each on a thread of its own.
        threads: of one simulation.
        progress: is told of each point that is done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done, lock = 0, threading.Lock()

    def work(point: Point) -> Outcome:
        nonlocal done
        result = read_point(folder, point)
        if result is None:
            result = play_point(point, backend, threads)
            keep_point(folder, point, result)
        with lock:
            done += 1
            progress(done, len(points), point)
        return Outcome(point.label, point.setting, result)

    if at_once == 1:
        return [work(point) for point in points]
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(work, points))


def read_point(folder: Path, point: Point) -> dict[str, Any] | None:
    """What was kept of a point; None if it was not played yet."""
    path = folder / f"{point.key}.json"
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def keep_point(folder: Path, point: Point, result: dict[str, Any]) -> None:
    """Keep it, whole or not at all."""
    write_atomically(folder / f"{point.key}.json", json.dumps(result, allow_nan=False))
