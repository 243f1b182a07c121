"""Trials of the deployed path: records → privatizer → message bytes → integers, again and again.

The privatizer is built once and put back to its fresh state before every trial, as a restarted agent would
be; nothing of the path is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.audit.canary import Batch, worlds
from feducb.audit.doors import Make
from feducb.privacy.deployed import DeployedPrivatizer, Terms
from feducb.protocol import messages

__all__ = ["Draws", "Job", "draw"]

Ints = NDArray[np.int64]


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
