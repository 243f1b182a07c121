"""Trials on all processors: each worker is a process that reads jobs and writes results."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import numpy as np

from feducb.audit.trials import Draws, Job, draw
from feducb.errors import PrivacyError

__all__ = ["Progress", "draw_all"]

Progress = Callable[[int, int], None]

_INLINE = 400  # trials so few that starting a process takes longer
_MOST_WORKERS = 8


def draw_all(jobs: Sequence[Job], *, progress: Progress | None = None) -> list[Draws]:
    """Run all jobs, in order of the list, on as many processes as there are processors."""
    total, lock, done = sum(job.trials for job in jobs), threading.Lock(), 0

    def tell(trials: int) -> None:
        nonlocal done
        with lock:
            done += trials
            if progress is not None:
                progress(done, total)

    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(processors, _MOST_WORKERS, len(jobs))
    if count < 2 or total <= _INLINE:
        results = []
        for job in jobs:
            results.append(draw(job))
            tell(job.trials)
        return results
    workers = [_Worker() for _ in range(count)]
    idle = list(workers)

    def work(job: Job) -> Draws:
        with lock:
            worker = idle.pop()
        try:
            result = worker.draw(job)
        finally:
            with lock:
                idle.append(worker)
        tell(job.trials)
        return result

    try:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(work, jobs))
    finally:
        for worker in workers:
            worker.close()


class _Worker:
    """A process that runs jobs. Not `multiprocessing`: that would run the caller's script a second time."""

    def __init__(self) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "feducb.audit.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},
        )

    def draw(self, job: Job) -> Draws:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
        self._process.stdin.flush()
        size = self._process.stdout.read(8)
        if len(size) < 8:
            raise PrivacyError(f"the audit's worker ended with code {self._process.wait()}, expected results")
        with np.load(io.BytesIO(self._process.stdout.read(int.from_bytes(size, "little")))) as kept:
            numbers, texts = kept["numbers"].tolist(), kept["headers"].tolist()
            headers = frozenset(zip(numbers, (bytes.fromhex(text) for text in texts), strict=True))
            return Draws(kept["values"], headers)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
