"""The paper's environment (section 4.4), and fixed arm sets; rewards are Beta(p, 1 − p) with p = ⟨x, θ*⟩."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from feducb.config import Problem, require_finite, require_integer
from feducb.errors import ConfigurationError
from feducb.types import Array
from feducb.worlds.streams import Purpose, Streams
from feducb.worlds.world import Chosen, Contexts, Visits, require_theta

__all__ = [
    "BetaRewards",
    "FixedArms",
    "PaperEnvironment",
    "bands_for_gap",
    "deviations",
    "differing",
    "paper_world",
    "require_beta_rewards",
]

Band = tuple[float, float]

_BEST_BAND: Band = (0.7, 0.8)


def bands_for_gap(gap: float) -> tuple[Band, Band]:
    """The best arm's band and the others', with ``gap`` between their edges (the paper's is 0.1)."""
    if not (math.isfinite(gap) and 0.0 <= gap <= 0.6):
        raise ConfigurationError("gap", gap, "a number from 0 to 0.6, so that mean rewards stay in [0, 1]")
    return _BEST_BAND, (max(0.6 - gap, 0.0), 0.7 - gap)


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperEnvironment:
    """Fresh candidates every round: one with mean reward in ``best``, the others in ``others``.

    Each candidate is drawn directly: its component along θ* gives the mean, the rest is uniform in what the
    ball of radius L leaves for it. (Drawing points and rejecting them, as the text suggests, dies with d.)

    Attributes:
        problem: the public bounds.
        arms: K.
        best: the best arm's band; it has index 0, which tells a linear policy nothing.
        others: the other arms' band.
        parameter_norm: ‖θ*‖; θ* points uniformly. Differs from the paper: not uniform in the ball, since
            the bands need ‖θ*‖ ≥ 0.8/L.
        heterogeneity: h, how far each agent's θ* is from the common one, over ‖θ*‖, each in a direction of
            its own and as long; 0 to 2.
    """

    problem: Problem
    arms: int
    best: Band = _BEST_BAND
    others: Band = (0.5, 0.6)
    parameter_norm: float = 1.0
    heterogeneity: float = 0.0

    def __post_init__(self) -> None:
        require_integer("arms", self.arms, at_least=1)
        require_finite("parameter_norm", self.parameter_norm, above=0)
        for name, band in (("best", self.best), ("others", self.others)):
            if not 0.0 <= band[0] <= band[1] <= 1.0:
                raise ConfigurationError(f"band {name}", band, "two rising numbers in [0, 1]")
        if not 0.0 <= require_finite("heterogeneity", self.heterogeneity) <= 2.0:
            raise ConfigurationError("heterogeneity", self.heterogeneity, "a number from 0 to 2")
        if self.heterogeneity and self.problem.dim == 1:
            raise ConfigurationError(
                "heterogeneity", self.heterogeneity, "0 at d = 1: there is no way to turn"
            )
        needed = max(self.best[1], self.others[1])
        if self.parameter_norm * self.problem.action_bound < needed:
            least = f"at least {needed / self.problem.action_bound:g}, so that ⟨x, θ*⟩ can reach {needed:g}"
            raise ConfigurationError("parameter_norm", self.parameter_norm, least)
        if self.parameter_norm > self.problem.parameter_bound:
            most = f"at most S = {self.problem.parameter_bound:g}"
            raise ConfigurationError("parameter_norm", self.parameter_norm, most)
        require_beta_rewards(self.problem)

    def open(self, streams: Streams, runs: range, agents: Sequence[int]) -> Visits:
        """Start these runs, each with a θ* of its own."""
        return _FreshArms(self, streams, runs, agents)


def paper_world(problem: Problem, arms: int | None = None, gap: float = 0.1) -> PaperEnvironment:
    """The paper's world, with d² candidates per visitor if nothing else is said."""
    best, others = bands_for_gap(gap)
    return PaperEnvironment(
        problem=problem, arms=problem.dim**2 if arms is None else arms, best=best, others=others
    )


def differing(world: object, heterogeneity: float) -> PaperEnvironment:
    """The same world with agents that differ; the paper's alone can."""
    if not isinstance(world, PaperEnvironment):
        raise ConfigurationError("heterogeneity", heterogeneity, "0: only in the paper's world agents differ")
    return replace(world, heterogeneity=heterogeneity)


def deviations(
    streams: Streams, runs: range, agents: Sequence[int], units: Array, heterogeneity: float
) -> Array:
    """(runs, agents, d), unit vectors at a chord of h from ``units`` (runs, d), all ways alike."""
    along = 1.0 - 0.5 * heterogeneity**2  # of the common one
    drawn = [
        [streams.agent(run, agent, Purpose.DEVIATION).standard_normal(units.shape[-1]) for agent in agents]
        for run in runs
    ]
    off = np.array(drawn)
    off -= (off @ units[..., None]) * units[:, None]
    off /= np.linalg.norm(off, axis=-1, keepdims=True)
    return np.asarray(along * units[:, None] + math.sqrt(1.0 - along**2) * off)


class BetaRewards:
    """Beta(p, 1 − p) rewards, each agent's from its own stream."""

    def __init__(self, streams: Streams, runs: range, agents: Sequence[int]) -> None:
        self._shape = (len(runs), len(agents))
        self._rewards = streams.grid(runs, agents, Purpose.REWARD)

    def reward(self, chosen: Chosen) -> Array:
        """Those of what was chosen, (runs, agents, R)."""
        # One number at a time: numpy's checks of short arrays are slower than their draws.
        rewards = [
            [generator.beta(p, 1.0 - p) for p in visitors]
            for row in zip(self._rewards, chosen.means.tolist(), strict=True)
            for generator, visitors in zip(*row, strict=True)
        ]
        return np.array(rewards).reshape(chosen.means.shape)


class _FreshArms(BetaRewards):
    def __init__(self, world: PaperEnvironment, streams: Streams, runs: range, agents: Sequence[int]) -> None:
        super().__init__(streams, runs, agents)
        self._world = world
        self._directions = streams.grid(runs, agents, Purpose.DIRECTION)
        self._radii = streams.grid(runs, agents, Purpose.RADIUS)
        self._bands = streams.grid(runs, agents, Purpose.BAND)
        dim = world.problem.dim
        draws = [streams.shared(run, Purpose.PARAMETER).standard_normal(dim) for run in runs]
        units = np.array([draw / np.linalg.norm(draw) for draw in draws])
        self._unit, self.theta = np.repeat(units[:, None], len(agents), axis=1), world.parameter_norm * units
        if world.heterogeneity:
            self._unit = deviations(streams, runs, agents, units, world.heterogeneity)
            self.theta = world.parameter_norm * self._unit

    def arrive(self, rounds: int) -> Contexts:
        """x = (p/‖θ*‖) û + √(L² − (p/‖θ*‖)²) · r, with r uniform in the unit ball orthogonal to û.

        For g ~ N(0, I) in d − 1 dimensions and E ~ Exp(1), r = g/√(‖g‖² + 2E) is uniform in the ball.
        """
        world, dim = self._world, self._world.problem.dim
        shape = (*self._shape, rounds, world.arms)
        actions, means, exponential = np.empty((*shape, dim)), np.empty(shape), np.empty(shape)
        for run, agent in np.ndindex(self._shape):
            self._directions[run][agent].standard_normal(out=actions[run, agent])
            self._radii[run][agent].standard_exponential(out=exponential[run, agent])
            self._bands[run][agent].random(out=means[run, agent])
        low, high = (
            np.array([best, *[other] * (world.arms - 1)])
            for best, other in zip(world.best, world.others, strict=True)
        )
        means *= high - low
        means += low

        flat = actions.reshape(*self._shape, rounds * world.arms, dim)
        along = (flat @ self._unit[..., None]).reshape(shape)
        component = means / world.parameter_norm
        squared = np.einsum("...d,...d->...", actions, actions)  # of g with its part along û
        squared -= along**2
        squared += 2.0 * exponential
        left_over = np.maximum(world.problem.action_bound**2 - component**2, 0.0)
        scale = np.sqrt(left_over / squared)
        actions *= scale[..., None]
        along *= scale
        component -= along
        for run, agent in np.ndindex(self._shape):  # one by one: small enough to stay in cache
            actions[run, agent] += component[run, agent, ..., None] * self._unit[run, agent]
        return Contexts(actions, means)


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedArms:
    """The same candidates every round, for all agents; Beta rewards.

    Attributes:
        problem: the public bounds.
        actions: (K, d).
        theta: (d,), with ⟨x, θ⟩ in (0, 1) for every action.
    """

    problem: Problem
    actions: Array
    theta: Array
    arms: int = field(init=False)

    def __post_init__(self) -> None:
        actions = np.asarray(self.actions, dtype=np.float64)
        if actions.ndim != 2 or actions.shape[1] != self.problem.dim or not len(actions):
            expected = f"(K, {self.problem.dim}) with K ≥ 1"
            raise ConfigurationError("actions", f"of shape {actions.shape}", expected)
        longest = float(np.linalg.norm(actions, axis=1).max())
        if not longest <= self.problem.action_bound * (1.0 + 1e-12):
            most = f"at most L = {self.problem.action_bound:g}"
            raise ConfigurationError("actions", f"up to {longest:g} long", most)
        theta = require_theta(self.theta, self.problem)
        means = actions @ theta
        if not np.all((means > 0.0) & (means < 1.0)):
            raise ConfigurationError("mean rewards", means.tolist(), "numbers strictly between 0 and 1")
        require_beta_rewards(self.problem)
        for name, value in (("actions", actions), ("theta", theta), ("arms", len(actions))):
            object.__setattr__(self, name, value)

    def open(self, streams: Streams, runs: range, agents: Sequence[int]) -> Visits:
        """Start these runs, all with the same arms and θ*."""
        return _SameArms(self, streams, runs, agents)


class _SameArms(BetaRewards):
    def __init__(self, world: FixedArms, streams: Streams, runs: range, agents: Sequence[int]) -> None:
        super().__init__(streams, runs, agents)
        self._world = world
        self.theta = np.tile(world.theta, (len(runs), 1))

    def arrive(self, rounds: int) -> Contexts:
        shape = (*self._shape, rounds)
        actions = np.broadcast_to(self._world.actions, (*shape, *self._world.actions.shape))
        means = self._world.actions @ self._world.theta
        return Contexts(actions, np.broadcast_to(means, (*shape, len(means))))


def require_beta_rewards(problem: Problem) -> None:
    """Bounds that hold for rewards in [0, 1]."""
    if problem.reward_bound < 1.0:
        raise ConfigurationError("reward_bound", problem.reward_bound, "at least 1: Beta rewards reach 1")
    if problem.noise_scale < 0.5:
        least = "at least 0.5: rewards in [0, 1] are ½-sub-Gaussian"
        raise ConfigurationError("noise_scale", problem.noise_scale, least)
