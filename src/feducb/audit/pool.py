"""Trials on all processors: each worker is a process that reads jobs and writes results."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from queue import SimpleQueue

from feducb.audit.trials import Draws, Job, draw
from feducb.errors import PrivacyError

__all__ = ["Progress", "draw_all", "serve"]

Progress = Callable[[int, int], None]

_INLINE = 400  # trials so few that starting a process takes longer
_MOST_WORKERS = 8
_SERVE = "from feducb.audit.pool import serve; serve()"


def draw_all(jobs: Sequence[Job], *, progress: Progress | None = None) -> list[Draws]:
    """Run all jobs, in order of the list, on as many processes as there are processors."""
    total, done, lock = sum(job.trials for job in jobs), 0, threading.Lock()
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(processors, _MOST_WORKERS, len(jobs)) if total > _INLINE else 1
    idle: SimpleQueue[Callable[[Job], Draws]] = SimpleQueue()

    def work(job: Job) -> Draws:
        nonlocal done
        run = idle.get()
        try:
            result = run(job)
        finally:
            idle.put(run)
        with lock:
            done += job.trials
            if progress is not None:
                progress(done, total)
        return result

    with ExitStack() as opened:
        for _ in range(count):
            idle.put(opened.enter_context(_worker()) if count > 1 else draw)
        return list(opened.enter_context(ThreadPoolExecutor(count)).map(work, jobs))


@contextmanager
def _worker() -> Iterator[Callable[[Job], Draws]]:
    """A process that runs jobs. Not `multiprocessing`: that would run the caller's script a second time."""
    paths = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(
        [sys.executable, "-c", _SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},
    ) as process:
        jobs, results = process.stdin, process.stdout
        assert jobs is not None
        assert results is not None

        def draw_there(job: Job) -> Draws:
            try:
                pickle.dump(job, jobs)
                jobs.flush()
                result: Draws = pickle.load(results)
            except (EOFError, OSError, pickle.UnpicklingError):
                with suppress(OSError):
                    jobs.close()  # one that still runs ends too
                code = process.wait()
                raise PrivacyError(f"the audit's worker ended with code {code}, expected results") from None
            return result

        yield draw_there


def serve() -> None:
    """The other side: jobs from standard input, results to standard output, until there are no more."""
    with suppress(EOFError):
        while True:
            pickle.dump(draw(pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
            sys.stdout.buffer.flush()
