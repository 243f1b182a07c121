"""Worlds beside the paper's, and all of them by name; rewards are Beta(p, 1 − p) with p = ⟨x, θ*⟩.

In the paper's world θ* lies along the longest axis of the Gram matrix, which flatters estimates that shrink.
Here it does not: what is chosen on one world should be looked at on all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from feducb.config import Problem, require_integer
from feducb.errors import ConfigurationError
from feducb.types import Array
from feducb.worlds.streams import Purpose, Streams
from feducb.worlds.synthetic import BetaRewards, paper_world, require_beta_rewards
from feducb.worlds.world import Contexts, Environment, Visits

__all__ = ["WORLDS", "CorrelatedArms", "IsotropicArms", "OneHotArms", "named_world"]

_INTERCEPT = math.sqrt(0.5)  # of x/L and of Lθ*: alone, a mean reward of ½


@dataclass(frozen=True, kw_only=True, slots=True)
class IsotropicArms:
    """Fresh candidates every round: x = L (1, z)/√2 with z uniform in the unit ball of d − 1 dimensions.

    θ* = (1/√2, 0.45 u)/L with u uniform on the sphere, so that mean rewards lie within ½ ± 0.32.

    Attributes:
        problem: the public bounds; d ≥ 2.
        arms: K.
    """

    reach: ClassVar[float] = 0.45  # how long Lθ* is beside its intercept
    problem: Problem
    arms: int

    def __post_init__(self) -> None:
        _check(self.problem, self.arms, math.hypot(_INTERCEPT, self.reach))

    def open(self, streams: Streams, runs: range, agents: Sequence[int]) -> Visits:
        """Start these runs, each with a θ* of its own."""
        return _Isotropic(self, streams, runs, agents)


@dataclass(frozen=True, kw_only=True, slots=True)
class CorrelatedArms:
    """Fresh candidates every round: x = L (1, z)/√2, z Gaussian, drawn back into the unit ball where outside.

    The j-th largest eigenvalue of z's covariance is proportional to 1/j, and they sum to 1; its axes are
    turned at random. θ* = (1/√2, 0.6 u)/L with u uniform on the sphere, whatever the axes are: mean rewards
    lie within ½ ± 0.43.

    Attributes:
        problem: the public bounds; d ≥ 2.
        arms: K.
    """

    reach: ClassVar[float] = 0.6
    problem: Problem
    arms: int

    def __post_init__(self) -> None:
        _check(self.problem, self.arms, math.hypot(_INTERCEPT, self.reach))

    def open(self, streams: Streams, runs: range, agents: Sequence[int]) -> Visits:
        """Start these runs, each with a θ* and axes of its own."""
        return _Correlated(self, streams, runs, agents)


@dataclass(frozen=True, kw_only=True, slots=True)
class OneHotArms:
    """The same d candidates for every visitor: L times the unit vectors, so that no arm tells of another.

    One of them, drawn, is best; the others' mean rewards are uniform between 0.2 and 0.8 times its own. θ* is
    as long as S and L let it be (min(S, 1/L)), so that they are near 0.5 and 0.1 to 0.4 at d = 10.

    Attributes:
        problem: the public bounds; d ≥ 2.
        arms: K = d.
    """

    problem: Problem
    arms: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", self.problem.dim)
        _check(self.problem, self.arms, 0.0)

    def open(self, streams: Streams, runs: range, agents: Sequence[int]) -> Visits:
        """Start these runs, each with a θ* of its own."""
        return _OneHot(self, streams, runs, agents)


WORLDS = ("paper", "isotropic", "one-hot", "correlated")
"""Names of the worlds that `feducb.simulate(environment=…)` knows."""


def named_world(
    name: str, problem: Problem, arms: int | None = None, gap: float | None = None
) -> Environment:
    """A world by its name.

    Args:
        name: one of `WORLDS`.
        problem: the public bounds.
        arms: K; d² if not given, in the one-hot world always d.
        gap: between the bands of the paper's world (0.1); the others have none.
    """
    if name not in WORLDS:
        raise ConfigurationError("world", name, f"one of {', '.join(WORLDS)}")
    if name == "paper":
        return paper_world(problem, arms, 0.1 if gap is None else gap)
    if gap is not None:
        raise ConfigurationError("gap", gap, f"nothing: the world {name} has no bands")
    if name == "one-hot":
        if arms not in (None, problem.dim):
            raise ConfigurationError("arms", arms, f"d = {problem.dim} in the world one-hot")
        return OneHotArms(problem=problem)
    kind = IsotropicArms if name == "isotropic" else CorrelatedArms
    return kind(problem=problem, arms=problem.dim**2 if arms is None else arms)


def _check(problem: Problem, arms: int, needed: float) -> None:
    """Arms and bounds are such that a parameter of length ``needed``/L fits."""
    require_integer("dim", problem.dim, at_least=2)
    require_integer("arms", arms, at_least=1)
    if problem.parameter_bound * problem.action_bound < needed:
        least = f"at least {needed / problem.action_bound:.4g}, so that θ* fits"
        raise ConfigurationError("parameter_bound", problem.parameter_bound, least)
    require_beta_rewards(problem)


class _WithIntercept(BetaRewards, ABC):
    """x = L (1, z)/√2 and θ* = (1/√2, reach · u)/L; z comes from `_features`."""

    def __init__(
        self, world: IsotropicArms | CorrelatedArms, streams: Streams, runs: range, agents: Sequence[int]
    ) -> None:
        super().__init__(streams, runs, agents)
        self._world = world
        self._directions = streams.grid(runs, agents, Purpose.DIRECTION)
        self._parameters = [streams.shared(run, Purpose.PARAMETER) for run in runs]
        rest = np.array([draw.standard_normal(world.problem.dim - 1) for draw in self._parameters])
        rest *= world.reach / np.linalg.norm(rest, axis=1, keepdims=True)
        self.theta = np.insert(rest, 0, _INTERCEPT, axis=1) / world.problem.action_bound

    def arrive(self, rounds: int) -> Contexts:
        """Draws Gaussians, which `_features` turns into z."""
        world, dim = self._world, self._world.problem.dim
        shape = (*self._shape, rounds, world.arms)
        actions = np.empty((*shape, dim))
        for run, agent in np.ndindex(self._shape):
            drawn = self._directions[run][agent].standard_normal((rounds, world.arms, dim - 1))
            actions[run, agent, ..., 1:] = self._features(run, agent, drawn)
        actions[..., 0] = 1.0
        actions *= _INTERCEPT * world.problem.action_bound
        flat = actions.reshape(*self._shape, rounds * world.arms, dim)
        return Contexts(actions, (flat @ self.theta[:, None, :, None]).reshape(shape))

    @abstractmethod
    def _features(self, run: int, agent: int, drawn: Array) -> Array:
        """z, (rounds, K, d − 1), of length at most 1, from independent standard Gaussians of that shape."""


class _Isotropic(_WithIntercept):
    def __init__(self, world: IsotropicArms, streams: Streams, runs: range, agents: Sequence[int]) -> None:
        super().__init__(world, streams, runs, agents)
        self._radii = streams.grid(runs, agents, Purpose.RADIUS)

    def _features(self, run: int, agent: int, drawn: Array) -> Array:
        """For g ~ N(0, I) and E ~ Exp(1), g/√(‖g‖² + 2E) is uniform in the ball."""
        squared = np.einsum("...d,...d->...", drawn, drawn)
        squared += 2.0 * self._radii[run][agent].standard_exponential(squared.shape)
        return np.asarray(drawn / np.sqrt(squared)[..., None])


class _Correlated(_WithIntercept):
    def __init__(self, world: CorrelatedArms, streams: Streams, runs: range, agents: Sequence[int]) -> None:
        super().__init__(world, streams, runs, agents)
        size = world.problem.dim - 1
        spectrum = 1.0 / np.arange(1, size + 1)
        spectrum /= spectrum.sum()
        turned = [np.linalg.qr(draw.standard_normal((size, size)))[0] for draw in self._parameters]
        self._roots = [np.sqrt(spectrum)[:, None] * axes for axes in turned]

    def _features(self, run: int, agent: int, drawn: Array) -> Array:
        turned = drawn @ self._roots[run]
        length = np.sqrt(np.einsum("...d,...d->...", turned, turned))
        return np.asarray(turned / np.maximum(length, 1.0)[..., None])


class _OneHot(BetaRewards):
    def __init__(self, world: OneHotArms, streams: Streams, runs: range, agents: Sequence[int]) -> None:
        super().__init__(streams, runs, agents)
        self._world = world
        bound, dim = world.problem.action_bound, world.problem.dim
        length = min(world.problem.parameter_bound, 1.0 / bound)
        self.theta = np.empty((len(runs), dim))
        for place, run in enumerate(runs):
            generator = streams.shared(run, Purpose.PARAMETER)
            means = generator.uniform(0.2, 0.8, dim)
            means[generator.integers(dim)] = 1.0
            self.theta[place] = means * (length / np.linalg.norm(means))

    def arrive(self, rounds: int) -> Contexts:
        bound, dim = self._world.problem.action_bound, self._world.problem.dim
        shape = (*self._shape, rounds, dim)
        means = np.broadcast_to(bound * self.theta[:, None, None, :], shape)
        return Contexts(np.broadcast_to(bound * np.eye(dim), (*shape, dim)), means)
