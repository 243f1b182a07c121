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
from feducb.audit.circle import Circle
from feducb.audit.doors import Make
from feducb.errors import PrivacyError
from feducb.privacy.deployed import GridRelease
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.pads import Label
from feducb.trust import Keepers

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
    path = _SecureSum(job.make, job.terms) if job.terms.trust.padded else _Door(job.make, job.terms)
    stream = worlds(job.terms, job.placement, job.world)
    values, headers = [], set()
    for _ in range(job.trials):
        path.restart()
        seen = []
        for number, batch in enumerate(stream, start=1):
            data = messages.encode(path.publish(batch))
            grid = messages.decode(data).values
            headers.add((number, data[: -8 * len(grid)]))
            seen.append(grid)
        values.append(seen)
    return Draws(np.array(values, dtype=np.int64), frozenset(headers))


class _Door:
    """A privatizer: an agent's, or that of a controller which has raw sums of two agents, in turn."""

    def __init__(self, make: Make, terms: Terms) -> None:
        self._door = make(terms)
        self._agents = [make(terms) for _ in range(2)] if terms.trust.raw else []
        self._fresh = self._door.dump()

    def restart(self) -> None:
        self._door.load(self._fresh)

    def publish(self, batch: Batch) -> GridRelease:
        """Take a batch in; what everybody then sees."""
        if not self._agents:
            self._door.record(batch.actions, batch.rewards)
        for place, agent in enumerate(self._agents):
            agent.record(batch.actions[place::2], batch.rewards[place::2])
            self._door.receive(agent.upload(), len(batch.rewards[place::2]))
        return self._door.release()


class _SecureSum:
    """Agents whose rows open as a sum, as one sees it who colludes with C of them while D others are away.

    H = M − D − C agents are honest, and have the records in turn. Those who collude tell what they sent.
    """

    def __init__(self, make: Make, terms: Terms) -> None:
        assert isinstance(terms.trust, Keepers)
        self._honest, self._listed = terms.trust.shares(terms.agents), terms.trust.quorum(terms.agents)
        self._doors = [make(terms) for _ in range(self._listed)]
        self._fresh, self._circle = self._doors[0].dump(), Circle(terms)

    def restart(self) -> None:
        for door in self._doors:
            door.load(self._fresh)

    def publish(self, batch: Batch) -> GridRelease:
        """Take a batch in; what the sum of the honest rows tells, with those before it."""
        for place, door in enumerate(self._doors[: self._honest]):
            door.record(batch.actions[place :: self._honest], batch.rewards[place :: self._honest])
        rows = [door.row() for door in self._doors]
        label = Label(1, 0, rows[0].number)
        padded = {place: self._circle.pad(row, label, place) for place, row in enumerate(rows)}
        opened = self._circle.opened(label, padded).values
        assert opened is not None
        known = sum(row.values for row in rows[self._honest :])
        return self._doors[0].read(opened - known, agents=self._listed)


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
