"""Playing the points of a figure: one by one, on threads (for a GPU), in processes, or on Ray; resumable."""

from __future__ import annotations

import importlib
import itertools
import json
import multiprocessing
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from feducb.simulation.backends.gpu_kernels import missing_gpu
from feducb.system import write_atomically
from feducb_lab.experiments.experiment import Outcome, Point
from feducb_lab.experiments.plain_files import read_object

__all__ = ["Keep", "Playing", "Progress", "play_apart", "play_here", "play_point", "sweep"]

Progress = Callable[[int, int], None]
"""(points done, points in all)"""

Keep = Callable[[str, dict[str, Any]], None]
"""(key of a point, its result)"""

_KEPT = "the result of a point, as it was written: delete the file, and the point is played again"

Playing = Callable[[Mapping[str, Point], Keep], None]
"""Plays points that wait, by key, and hands over each result as it comes."""


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


def play_here(
    waiting: Mapping[str, Point],
    keep: Keep,
    *,
    backend: str = "auto",
    at_once: int = 1,
    threads: int | None = None,
) -> None:
    """Play points in this process, ``at_once`` of them at a time, each on ``threads`` threads."""

    def work(key: str) -> None:
        keep(key, play_point(waiting[key], backend, threads))

    if at_once == 1:
        for key in waiting:
            work(key)
    else:
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(work, waiting))


def play_apart(
    waiting: Mapping[str, Point], keep: Keep, *, processes: int, backend: str = "auto", threads: int = 1
) -> None:
    """Play points in so many processes: on threads, what is not compiled would wait for one another."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        playing = {pool.submit(play_point, point, backend, threads): key for key, point in waiting.items()}
        for done in as_completed(playing):
            keep(playing[done], done.result())


def sweep(
    points: Sequence[Point],
    folder: Path,
    play: Playing = play_here,
    progress: Progress = lambda done, total: None,
) -> list[Outcome]:
    """All points, in order; those that were played before are read from the folder.

    Args:
        points: what to play.
        folder: one file per point, named by what it is made of and written as soon as it is done: a sweep
            that was stopped goes on from there.
        play: plays what is missing.
        progress: called after each point.
    """
    folder.mkdir(parents=True, exist_ok=True)
    keys = [point.key for point in points]
    by_key = dict(zip(keys, points, strict=True))
    results: dict[str, dict[str, Any]] = {}
    count, lock = itertools.count(1), threading.Lock()

    def take(key: str, result: dict[str, Any]) -> None:
        with lock:
            results[key] = result
            for _ in range(keys.count(key)):
                progress(next(count), len(points))

    def keep(key: str, result: dict[str, Any]) -> None:
        keep_point(folder, by_key[key], result)
        take(key, result)

    for key in by_key:
        path = folder / f"{key}.json"
        if path.exists():
            take(key, read_object(path, _KEPT))
    play({key: point for key, point in by_key.items() if key not in results}, keep)
    return [Outcome(point.label, point.setting, results[point.key]) for point in points]


def keep_point(folder: Path, point: Point, result: dict[str, Any]) -> None:
    """Keep it, whole or not at all."""
    write_atomically(folder / f"{point.key}.json", json.dumps(result, allow_nan=False))
