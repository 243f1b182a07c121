"""A world of the shape that a recipe describes, before there are any data: what `privacy plan` plays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from feducb.config import Problem, require_integer
from feducb.errors import ConfigurationError
from feducb.types import Array
from feducb.worlds.features import Category, Coded, Column, Flag, Hashed, Number, Recipe, Tags, problem_for
from feducb.worlds.features.coded import Values
from feducb.worlds.streams import Purpose, Streams
from feducb.worlds.world import Chosen, Contexts, Visits

__all__ = ["RecipeWorld"]

_LEVELS_A_BUCKET = 8
_SLACK = 1.0 - 1e-9  # rounding must not leave a mean beyond B


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeWorld:
    """Visitors drawn evenly from a recipe's public ranges and levels; every reward is −B or B.

    θ* points uniformly, anew in each run, and is as long as the bounds admit: ‖θ*‖ ≤ S, and no mean reward
    beyond B for any visitor and action. Effects in real data are weaker as a rule, and columns not spread
    evenly: this is a world of the right shape, not of the right numbers.

    Attributes:
        recipe: how vectors are made.
        drawn: how many candidates are drawn for each visitor; None where the recipe lists the actions, as one
            column of levels: then all of them are everybody's candidates.
        arms: K, that many.
        problem: the public bounds (`problem_for`).
    """

    recipe: Recipe
    drawn: int | None = None
    arms: int = field(init=False)
    problem: Problem = field(init=False)

    def __post_init__(self) -> None:
        if self.recipe.personal:
            expected = "none: a plan is for what leaves agents, the recipe's `shared` part"
            raise ConfigurationError(
                "personal", ["*".join(term) or "1" for term in self.recipe.personal], expected
            )
        listed = len(self.actions)
        if listed and self.drawn not in (None, listed):
            raise ConfigurationError("arms", self.drawn, f"{listed} or nothing: the recipe lists its actions")
        if not listed and self.drawn is None:
            expected = "how many candidates a visitor has, since the recipe does not list its actions"
            raise ConfigurationError("arms", None, expected)
        object.__setattr__(self, "arms", listed or require_integer("arms", self.drawn, at_least=1))
        object.__setattr__(self, "problem", problem_for(self.recipe))

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions, where the recipe lists them; else none."""
        return self.recipe.offered

    def open(self, streams: Streams, runs: range, agents: Sequence[int]) -> Visits:
        """Start these runs, each with a θ* of its own."""
        return _RecipeVisits(self, streams, runs, agents)

    def parameter(self, streams: Streams, run: int) -> Array:
        """(d,), θ* of a run."""
        problem = self.problem
        drawn = streams.shared(run, Purpose.PARAMETER).standard_normal(problem.dim)
        longest = problem.parameter_bound / float(np.linalg.norm(drawn))
        within = problem.reward_bound / self._reach(drawn)
        return np.asarray(drawn * (min(longest, within) * _SLACK))

    def _reach(self, theta: Array) -> float:
        """No |⟨x, θ⟩| is larger: per term the largest entry that a one-hot may pick; tags share a length."""
        recipe, first, reach = self.recipe, 0, 0.0
        columns = {column.name: column for column in (*recipe.context, *recipe.action)}
        for term in recipe.terms:
            own = [columns[name] for name in term]
            last = first + math.prod(column.width for column in own)
            entries = np.abs(theta[first:last]).reshape([column.width for column in own])
            for column in reversed(own):
                tags = isinstance(column, Tags)
                entries = np.linalg.norm(entries, axis=-1) if tags else entries.max(axis=-1)
            first, reach = last, reach + float(entries)
        return reach * recipe.action_bound / math.sqrt(len(recipe.terms))

    @property
    def coins(self) -> int:
        """How many uniform numbers make one visitor: one a column, those of each drawn candidate included."""
        own = 0 if self.actions else self.arms * len(self.recipe.action)
        return len(self.recipe.context) + own

    def context(self, uniform: Array) -> dict[str, Values]:
        """The context's columns of n visitors, from (n, coins) numbers uniform in [0, 1)."""
        return {one.name: _values(one, uniform[:, place]) for place, one in enumerate(self.recipe.context)}

    def candidates(self, uniform: Array) -> Array:
        """(n, K, d), what the same visitors can be offered."""
        context, visitors = self.context(uniform), len(uniform)
        if self.actions:
            return self.recipe.candidates(context, self.actions, rows=visitors)
        offered = uniform[:, len(self.recipe.context) :].reshape(visitors * self.arms, -1)
        columns = {name: _repeated(values, self.arms) for name, values in context.items()}
        columns |= {one.name: _values(one, offered[:, place]) for place, one in enumerate(self.recipe.action)}
        return self.recipe.rows(columns).reshape(visitors, self.arms, -1)


def _values(column: Column, uniform: Array) -> Values:
    """Values of a column, evenly over its public range or levels."""
    if isinstance(column, Number):
        return np.asarray(column.low + uniform * (column.high - column.low))
    if isinstance(column, Category):
        return Coded((uniform * len(column.levels)).astype(np.int64), column.levels)
    if isinstance(column, Flag):
        return Coded((uniform * 2).astype(np.int64), ("false", "true"))
    many = column.buckets * _LEVELS_A_BUCKET if isinstance(column, Hashed) else len(column.levels) ** 2
    drawn, codes = np.unique((uniform * many).astype(np.int64), return_inverse=True)
    if isinstance(column, Hashed):
        return Coded(codes, tuple(map(str, drawn.tolist())))
    pairs = (divmod(one, len(column.levels)) for one in drawn.tolist())  # two tags, at times the same one
    texts = (column.separator.join((column.levels[one], column.levels[other])) for one, other in pairs)
    return Coded(codes, tuple(texts))


def _repeated(values: Values, times: int) -> Values:
    if isinstance(values, Coded):
        return Coded(values.codes.repeat(times), values.texts)
    return np.repeat(np.asarray(values), times)


class _RecipeVisits:
    def __init__(self, world: RecipeWorld, streams: Streams, runs: range, agents: Sequence[int]) -> None:
        self._world = world
        self._visitors = streams.grid(runs, agents, Purpose.DIRECTION)
        self._rewards = streams.grid(runs, agents, Purpose.REWARD)
        self.theta = np.array([world.parameter(streams, run) for run in runs])

    def arrive(self, rounds: int) -> Contexts:
        world = self._world
        drawn = [[own.random((rounds, world.coins)) for own in row] for row in self._visitors]
        uniform = np.array(drawn)  # (runs, agents, R, coins)
        made = world.candidates(uniform.reshape(-1, world.coins))
        actions = made.reshape(*uniform.shape[:3], world.arms, -1)
        flat = actions.reshape(len(self.theta), -1, world.problem.dim)
        means = (flat @ self.theta[:, :, None]).reshape(actions.shape[:-1])
        return Contexts(actions, means)

    def reward(self, chosen: Chosen) -> Array:
        bound, rounds = self._world.problem.reward_bound, chosen.means.shape[-1]
        coins = np.array([[own.random(rounds) for own in row] for row in self._rewards])
        return np.where(coins < 0.5 + chosen.means / (2.0 * bound), bound, -bound)
