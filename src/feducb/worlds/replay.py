"""A world made of data in which the reward of every candidate is known: labelled records, or rated items.

Policies are played on it truly online, as in any simulation; nothing has to be estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from feducb.config import Problem
from feducb.errors import ConfigurationError
from feducb.types import Array, Indices
from feducb.worlds.streams import Purpose, Streams
from feducb.worlds.world import Chosen, Contexts, Visits

__all__ = ["KnownRewards"]


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownRewards:
    """Each agent's own records, in an order of their own in each run, each of them once.

    There is no true parameter: regret is against the best candidate of each record. Linear bounds need not
    hold on it.
    """

    problem: Problem  # the public bounds
    vectors: Callable[[Indices], Array]  # record numbers (n,) → candidates (n, K, d)
    rewards: Array  # (N, K), of every candidate of every record
    records: tuple[Indices, ...]  # the numbers of each agent's records
    offset: float = 0.0  # taken off rewards before agents learn from them, so that they lie around 0

    def __post_init__(self) -> None:
        if self.rewards.ndim != 2 or not np.isfinite(self.rewards).all():
            raise ConfigurationError("rewards", f"of shape {self.rewards.shape}", "(N, K), all finite")
        size = float(np.abs(self.rewards - self.offset - self.problem.reward_centre).max(initial=0.0))
        if size > self.problem.reward_bound * (1 + 1e-9):
            most = f"at most B = {self.problem.reward_bound:g}"
            raise ConfigurationError("rewards", f"up to {size:g}", most)
        if not self.records or self.horizon < 1:
            raise ConfigurationError("records", [len(own) for own in self.records], "at least one per agent")

    @property
    def arms(self) -> int:
        """K, whose rewards are all known for every record."""
        return int(self.rewards.shape[1])

    @property
    def horizon(self) -> int:
        """The most rounds that every agent has a record for."""
        return min(len(own) for own in self.records)

    def order(self, streams: Streams, run: int, agent: int) -> Indices:
        """Which record comes in which round."""
        return streams.agent(run, agent, Purpose.DIRECTION).permutation(self.records[agent])

    def mean(self, rewards: Array, streams: Streams, run: int, horizon: int) -> float:
        """The mean of (N,) rewards, one per record, over the records that a run of that length meets."""
        agents = range(len(self.records))
        return float(np.mean([rewards[self.order(streams, run, one)[:horizon]] for one in agents]))

    def open(self, streams: Streams, runs: range, agents: Sequence[int]) -> Visits:
        """Start these runs, each with the records in an order of its own."""
        if max(agents) >= len(self.records):
            expected = f"at most {len(self.records)}, as in the data"
            raise ConfigurationError("agents", max(agents) + 1, expected)
        return _KnownVisits(self, streams, runs, agents)


class _KnownVisits:
    def __init__(self, world: KnownRewards, streams: Streams, runs: range, agents: Sequence[int]) -> None:
        self._world = world
        self._orders = [[world.order(streams, run, agent) for agent in agents] for run in runs]
        self._next = 0
        self.theta = np.zeros((len(runs), world.problem.dim))  # there is none

    def arrive(self, rounds: int) -> Contexts:
        some = slice(self._next, self._next + rounds)
        if some.stop > self._world.horizon:
            raise ConfigurationError("horizon", some.stop, f"at most {self._world.horizon}, as in the data")
        self._next = some.stop
        numbers = np.array([[order[some] for order in row] for row in self._orders])
        actions = self._world.vectors(numbers.ravel())
        return Contexts(actions.reshape(*numbers.shape, *actions.shape[1:]), self._world.rewards[numbers])

    def reward(self, chosen: Chosen) -> Array:
        return chosen.means - self._world.offset
