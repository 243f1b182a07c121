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
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages

__all__ = ["SHIPPED", "Draws", "Job", "draw", "privatizer_class"]

Ints = NDArray[np.int64]

SHIPPED = "shipped"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Trials of one world.

    Attributes:
        subject: ``shipped``, or the name of a deliberately broken privatizer.
        terms: what is claimed, as text (`Terms.to_json`).
        placement: the canary's batch, from 0.
        world: 0 or 1.
        trials: how many.
    """

    subject: str
    terms: str
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


def privatizer_class(subject: str) -> type[DeployedPrivatizer]:
    """The shipped class, or a broken one by name."""
    if subject == SHIPPED:
        return DeployedPrivatizer
    from feducb.audit.broken import PRIVATIZERS

    return PRIVATIZERS[subject]


def draw(job: Job) -> Draws:
    """Run the trials in this process."""
    terms = Terms.from_json(job.terms)
    make = privatizer_class(job.subject)
    door = make(terms)
    agents = [make(terms), make(terms)] if terms.trust.raw else []
    fresh = door.dump()
    stream = worlds(terms, job.placement, job.world)
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
        return
    for place, agent in enumerate(agents):
        agent.record(batch.actions[place::2], batch.rewards[place::2])
        door.receive(agent.upload(), len(batch.rewards[place::2]))
