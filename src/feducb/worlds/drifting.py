"""A world that changes: θ* turns slowly, or jumps once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feducb.config import Problem, require_finite, require_integer
from feducb.errors import ConfigurationError
from feducb.types import Array
from feducb.worlds.streams import Purpose, Streams
from feducb.worlds.world import Chosen, Contexts, Environment, Visits

__all__ = ["Drifting", "parse_drift"]

_PER = 1000.0  # rounds, of a rate


@dataclass(frozen=True, kw_only=True, slots=True)
class Drifting:
    """Another world, turned: candidates and θ* by the same angle, so that each has the mean it had.

    Vectors stay as long as they were, so the public bounds hold. What was learnt of θ* is off by the angle.

    Attributes:
        world: the one that is turned, in which all agents have one θ*.
        rate: by how many degrees in 1,000 rounds, in a plane that θ* lies in.
        jump: after how many rounds it turns by 90 degrees at once; None: it does not.
    """

    world: Environment
    rate: float = 0.0
    jump: int | None = None

    def __post_init__(self) -> None:
        require_finite("rate", self.rate, at_least=0)
        if self.jump is not None:
            require_integer("jump", self.jump, at_least=1)
        if self.problem.dim < 2:
            raise ConfigurationError("drift", "at d = 1", "d of at least 2: there is no way to turn")

    @property
    def problem(self) -> Problem:
        """The public bounds."""
        return self.world.problem

    @property
    def arms(self) -> int:
        """K."""
        return self.world.arms

    def open(self, streams: Streams, runs: range, agents: Sequence[int]) -> Visits:
        """Start these runs; each turns in a plane of its own."""
        return _Turning(self, streams, runs, agents)


class _Turning:
    def __init__(self, world: Drifting, streams: Streams, runs: range, agents: Sequence[int]) -> None:
        self._world, self._visits = world, world.world.open(streams, runs, agents)
        start = self._visits.theta
        if start.ndim != 2:
            raise ConfigurationError("drift", "of agents that differ", "a world in which all have one θ*")
        draws = np.array([streams.shared(run, Purpose.DRIFT).standard_normal(start.shape[1]) for run in runs])
        lengths = np.linalg.norm(start, axis=1, keepdims=True)
        self._along = start / lengths
        off = draws - np.sum(draws * self._along, axis=1, keepdims=True) * self._along
        self._off, self._lengths = off / np.linalg.norm(off, axis=1, keepdims=True), lengths
        self._round = 0

    @property
    def theta(self) -> Array:
        """(runs, d), as it was when the last visitor came."""
        (angle,) = self._angles(max(self._round, 1), 1)
        return np.asarray(self._lengths * (math.cos(angle) * self._along + math.sin(angle) * self._off))

    def arrive(self, rounds: int) -> Contexts:
        contexts = self._visits.arrive(rounds)
        angles = self._angles(self._round + 1, rounds)
        self._round += rounds
        return Contexts(self._turn(contexts.actions, angles), contexts.means, contexts.best)

    def reward(self, chosen: Chosen) -> Array:
        return self._visits.reward(chosen)

    def _angles(self, first: int, rounds: int) -> Array:
        at = np.arange(first, first + rounds)
        jumped = 0.0 if self._world.jump is None else 0.5 * np.pi * (at > self._world.jump)
        return np.asarray(np.deg2rad(self._world.rate) * at / _PER + jumped)

    def _turn(self, actions: Array, angles: Array) -> Array:
        """Actions (runs, agents, R, K, d), each visitor's by its angle (R,)."""
        along, off = (np.einsum("...arkd,...d->...ark", actions, one) for one in (self._along, self._off))
        cos, sin = (one(angles)[None, None, :, None] for one in (np.cos, np.sin))
        more_along, more_off = (cos - 1.0) * along - sin * off, sin * along + (cos - 1.0) * off
        turned = more_along[..., None] * self._along[:, None, None, None]
        turned += more_off[..., None] * self._off[:, None, None, None]
        turned += actions
        return np.asarray(turned)


def parse_drift(text: str, world: Environment) -> Drifting:
    """A world that drifts, from ``turn:DEGREES`` (in 1,000 rounds) or ``jump:ROUND``."""
    kind, _, value = text.partition(":")
    try:
        if kind == "turn":
            return Drifting(world=world, rate=float(value))
        if kind == "jump":
            return Drifting(world=world, jump=int(value))
    except ValueError:
        pass
    raise ConfigurationError("drift", text, "turn:DEGREES (in 1,000 rounds) or jump:ROUND")
