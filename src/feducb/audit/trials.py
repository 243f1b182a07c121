"""Trials of the deployed path: records → privatizer → message bytes → integers, on all processors.

The privatizer is built once and put back to its fresh state before every trial, as a restarted agent would
be; nothing of the path is replaced.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from feducb.audit.canary import Batch, worlds
from feducb.audit.doors import Make
from feducb.errors import PrivacyError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages

__all__ = ["Draws", "Job", "Progress", "draw", "draw_all", "serve"]

Ints = NDArray[np.int64]
Progress = Callable[[int, int], None]

_INLINE = 400  # trials so few that starting a process takes longer
_MOST_WORKERS = 8
_SERVE = "from feducb.audit.trials import serve; serve()"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Trials of one world.

    Attributes:
        make: the privatizer; a module's own class or function, so that another process finds it by name.
        terms: what is claimed.
        placement: the canary's batch, from 0.
        world: 0 or 1.
        trials: how many.
    """

    make: Make
    terms: Terms
    placement: int
    world: int
    trials: int


@dataclass(frozen=True, slots=True)
class Draws:
    """What left in those trials.

    Attributes:
        values: (trials, n, q), grid integers.
        headers: all distinct (release number, header bytes) seen.
    """

    values: Ints
    headers: frozenset[tuple[int, bytes]]

    def __add__(self, other: Draws) -> Draws:
        return Draws(np.concatenate([self.values, other.values]), self.headers | other.headers)


def draw(job: Job) -> Draws:
    """Run the trials in this process."""
    door = job.make(job.terms)
    agents = [job.make(job.terms) for _ in range(2)] if job.terms.trust.raw else []
    fresh = door.dump()
    stream = worlds(job.terms, job.placement, job.world)
    values, headers = [], set()
    for _ in range(job.trials):
        door.load(fresh)
        seen = []
        for number, batch in enumerate(stream, start=1):
            _hand_in(door, agents, batch)
            data = messages.encode(door.release())
            grid = messages.decode(data).values
            headers.add((number, data[: -8 * len(grid)]))
            seen.append(grid)
        values.append(seen)
    return Draws(np.array(values, dtype=np.int64), frozenset(headers))


def _hand_in(door: DeployedPrivatizer, agents: Sequence[DeployedPrivatizer], batch: Batch) -> None:
    """Records go to the privatizer, or, if it may have raw sums, to two agents first, in turn."""
    if not agents:
        door.record(batch.actions, batch.rewards)
    for place, agent in enumerate(agents):
        agent.record(batch.actions[place::2], batch.rewards[place::2])
        door.receive(agent.upload(), len(batch.rewards[place::2]))


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
