"""Random streams for simulation, one for each (run, agent, purpose).

Every stream is its own generator, so what one agent draws depends neither on how many rounds are drawn
at once, nor on the other agents, nor on which thread works on it. Never used for deployed noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from feducb.config import require_integer

__all__ = ["Purpose", "Streams"]

_SHARED = 2**32 - 1  # the "agent" of what all agents share; a real agent's number is smaller
_POOLED = 2**31  # plus its number: the "agent" of what a team does as one


class Purpose(IntEnum):
    """What a stream is for. The numbers are part of a seed's meaning: never renumber."""

    PARAMETER = 0  # the unknown θ*
    DIRECTION = 1  # where actions point
    RADIUS = 2  # how long their part orthogonal to θ* is
    BAND = 3  # their mean reward within its band
    REWARD = 4
    PLAY = 5  # an agent's own coin, for actions drawn uniformly
    NOISE = 6  # for privacy, simulated
    ABSENCE = 7  # whether an agent is there for a row
    DEVIATION = 8  # which way an agent's θ* lies off the common one
    DRIFT = 9  # which way θ* turns


@dataclass(frozen=True, slots=True)
class Streams:
    """All streams of one seed."""

    seed: int

    def __post_init__(self) -> None:
        require_integer("seed", self.seed, at_least=0)

    def agent(self, run: int, agent: int, purpose: Purpose) -> np.random.Generator:
        """The stream of one agent in one run."""
        key = np.random.SeedSequence(self.seed, spawn_key=(run, agent, int(purpose)))
        return np.random.Generator(np.random.PCG64(key))

    def shared(self, run: int, purpose: Purpose) -> np.random.Generator:
        """The stream that all agents of one run have in common."""
        return self.agent(run, _SHARED, purpose)

    def pooled(self, run: int, team: int, purpose: Purpose) -> np.random.Generator:
        """The stream of what a team does as one in one run."""
        return self.agent(run, _POOLED + team, purpose)

    def noise(self, runs: range, agents: Sequence[int], *, pooled: bool) -> list[list[np.random.Generator]]:
        """The streams of privacy noise: one per agent, or ``pooled`` a single one for their total."""
        if pooled:
            return [[self.shared(run, Purpose.NOISE)] for run in runs]
        return self.grid(runs, agents, Purpose.NOISE)

    def grid(self, runs: range, agents: Sequence[int], purpose: Purpose) -> list[list[np.random.Generator]]:
        """The streams of these agents in these runs, in their order."""
        return [[self.agent(run, agent, purpose) for agent in agents] for run in runs]
