"""The protocol an environment follows, and an adapter for one that is written for a single agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from feducb.config import Problem, require_integer
from feducb.errors import ConfigurationError
from feducb.types import Array, Indices
from feducb.worlds.streams import Purpose, Streams

__all__ = ["Chosen", "Contexts", "Environment", "OwnEnvironment", "Visits", "require_theta"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What agents chose from R successive visitors.

    Attributes:
        index: (runs, agents, R).
        actions: (runs, agents, R, d).
        means: (runs, agents, R), ⟨x, θ*⟩.
    """

    index: Indices
    actions: Array
    means: Array


@dataclass(frozen=True, slots=True)
class Contexts:
    """What R successive visitors offer to each agent of each run.

    Attributes:
        actions: (runs, agents, R, K, d).
        means: (runs, agents, R, K), ⟨x, θ*⟩; for regret only, no agent sees it.
        best: (runs, agents, R), the largest of the means; worked out if not given.
    """

    actions: Array
    means: Array
    best: Array | None = None

    def __post_init__(self) -> None:
        if self.best is None:
            object.__setattr__(self, "best", self.means.max(axis=-1))

    def part(self, first: int, last: int, step: int = 1) -> Contexts:
        """Visitors ``first`` up to ``last``, the last left out; with ``step``, only every so many."""
        assert self.best is not None
        some = slice(first, last, step)
        return Contexts(self.actions[:, :, some], self.means[:, :, some], self.best[:, :, some])

    def chosen(self, index: Indices) -> Chosen:
        """The candidates at ``index``, (runs, agents, R)."""
        run, agent, visitor = _places(index.shape)
        place = (run, agent, visitor, index)
        return Chosen(index, self.actions[place], self.means[place])


@lru_cache(maxsize=16)
def _places(shape: tuple[int, ...]) -> tuple[Indices, ...]:
    """Open index grids of all places of an array: made once a shape, since that is slow."""
    return np.ix_(*(np.arange(size) for size in shape))


class Visits(Protocol):
    """The visitors of some runs, in order."""

    @property
    def theta(self) -> Array:
        """(runs, d), the parameter, or (runs, agents, d) where agents differ; for regret and coverage."""

    def arrive(self, rounds: int) -> Contexts:
        """The next ``rounds`` visitors of every agent."""

    def reward(self, chosen: Chosen) -> Array:
        """(runs, agents, R): the rewards of what was chosen. Called once per visitor, in order."""


class Environment(Protocol):
    """A world that agents act in."""

    @property
    def problem(self) -> Problem:
        """The public bounds, which every action and reward must keep."""

    @property
    def arms(self) -> int:
        """K, candidates per visitor."""

    def open(self, streams: Streams, runs: range, agents: Sequence[int]) -> Visits:
        """Start these runs for these agents, by number.

        The same (run, agent) must meet the same visitors, whatever runs and agents are beside it.
        """


def require_theta(theta: ArrayLike, problem: Problem) -> Array:
    """(d,) numbers, of length at most S."""
    given = np.asarray(theta, dtype=np.float64)
    if given.shape != (problem.dim,):
        raise ConfigurationError("theta", f"of shape {given.shape}", f"({problem.dim},)")
    length = float(np.linalg.norm(given))
    if not length <= problem.parameter_bound * (1.0 + 1e-12):
        raise ConfigurationError("theta", f"{length:g} long", f"at most S = {problem.parameter_bound:g}")
    return given


Draw = Callable[[np.random.Generator, int, int], Array]
Pay = Callable[[np.random.Generator, Array, Array], Array]


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnEnvironment:
    """Your own environment, from two functions of one agent's visitors.

    Attributes:
        problem: the public bounds.
        arms: K.
        theta: (d,), the true parameter, so that regret can be computed.
        draw: (generator, agent, rounds) → actions (rounds, K, d). It must use the generator one visitor after
            another, or results depend on how many rounds are drawn at once.
        pay: (generator, actions (R, d), means (R,)) → rewards (R,), within the problem's bound.
    """

    problem: Problem
    arms: int
    theta: Array
    draw: Draw
    pay: Pay

    def __post_init__(self) -> None:
        require_integer("arms", self.arms, at_least=1)
        object.__setattr__(self, "theta", require_theta(self.theta, self.problem))

    def open(self, streams: Streams, runs: range, agents: Sequence[int]) -> Visits:
        """Start these runs; each (run, agent) has generators of its own."""
        return _OwnVisits(self, streams, runs, agents)


class _OwnVisits:
    def __init__(self, world: OwnEnvironment, streams: Streams, runs: range, agents: Sequence[int]) -> None:
        self._world = world
        self._agents = tuple(agents)
        self._visitors = streams.grid(runs, agents, Purpose.DIRECTION)
        self._rewards = streams.grid(runs, agents, Purpose.REWARD)
        self.theta = np.tile(world.theta, (len(runs), 1))

    def arrive(self, rounds: int) -> Contexts:
        draw = self._world.draw
        pairs = [zip(row, self._agents, strict=True) for row in self._visitors]
        drawn = [[draw(generator, agent, rounds) for generator, agent in row] for row in pairs]
        actions = np.array(drawn, dtype=np.float64)
        expected = (rounds, self._world.arms, self._world.problem.dim)
        if actions.shape[2:] != expected:
            raise ConfigurationError("actions drawn", f"of shape {actions.shape[2:]}", f"{expected}")
        return Contexts(actions, actions @ self._world.theta)

    def reward(self, chosen: Chosen) -> Array:
        pay, actions, means = self._world.pay, chosen.actions, chosen.means
        return np.array(
            [
                [pay(generator, actions[r, a], means[r, a]) for a, generator in enumerate(row)]
                for r, row in enumerate(self._rewards)
            ]
        )
