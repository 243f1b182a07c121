"""What a comparison reads: a few facts first, then blocks of rows with their vectors, as often as needed.

A log with columns is one source, after its `Survey`; what agents export is another
(`feducb.evaluation.exports`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from feducb.config import Problem
from feducb.types import Array, Indices
from feducb.worlds.features import Category, Recipe
from feducb.worlds.features.coded import require_column
from feducb.worlds.logs import Chunk, Log, LogColumns

__all__ = ["Facts", "Progress", "Rows", "Source", "Survey", "numbers_of", "silent"]

Progress = Callable[[str, int], None]
"""Hears a stage, and how many more rows (online: agent-steps) of it are done."""

_BLOCK = 2**22  # numbers in the vectors of a block of rows


def silent(stage: str, more: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A block of rows, ready to learn from or to judge by; all have the same number of candidates."""

    agents: Indices
    actions: Indices
    rewards: Array  # as logged
    scaled: Array  # (reward − shift) / scale, as the facts say
    propensities: Array
    keys: NDArray[np.uint64]  # rows of one key stay in one fold
    candidates: Array  # (n, K, d)


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What a comparison must know before it learns."""

    name: str
    rows: int
    agents: tuple[str, ...]  # by name, in the order of their first rows
    actions: tuple[str, ...] | None  # None where candidates are compared by vectors, and none comes twice
    problem: Problem  # the public bounds of vectors and scaled rewards
    reward_range: tuple[float, float]  # the public one, of rewards as logged
    shift: float  # what is taken off a reward before anything is learnt from it
    scale: float  # what it is divided by then
    least_propensity: float
    notes: tuple[str, ...]  # what was done to the data, or read off them that ought to be public
    settings: Mapping[str, Any]  # more of what it was made with, for the result
    recipe: Recipe | None = None  # how vectors are made, if they are made here


class Source(Protocol):
    """Something that can be compared on."""

    @property
    def facts(self) -> Facts:
        """What is known of it."""

    def blocks(self) -> Iterator[Rows]:
        """Its rows, from the first to the last; the same ones every time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey(Facts):
    """A log with columns and what its first reading said: rewards are centred and get range 1."""

    actions: tuple[str, ...]
    recipe: Recipe
    log: Log
    columns: LogColumns

    @property
    def facts(self) -> Facts:
        """Itself: what the survey found."""
        return self

    def blocks(self) -> Iterator[Rows]:
        """The log once more, with its vectors."""
        columns = self.columns
        at_once = max(1, _BLOCK // (len(self.actions) * self.recipe.dim))
        agents, actions = Category(columns.agent, self.agents), Category(columns.action, self.actions)
        for chunk in self.log.chunks(columns):
            rewards, propensities = numbers_of(chunk, columns, self.reward_range)
            agent = agents.index(chunk.columns[columns.agent], chunk.first_row)
            action = actions.index(chunk.columns[columns.action], chunk.first_row)
            keys = np.arange(chunk.first_row, chunk.first_row + chunk.rows, dtype=np.uint64)
            if columns.person is not None:
                keys = np.asarray(chunk.columns[columns.person], dtype=np.uint64)
            for start in range(0, chunk.rows, at_once):
                some = slice(start, start + at_once)
                context = {name: chunk.columns[name][some] for name in columns.context}
                vectors = self.recipe.candidates(
                    context, self.actions, first_row=chunk.first_row + start, rows=len(agent[some])
                )
                yield Rows(
                    agents=agent[some],
                    actions=action[some],
                    rewards=rewards[some],
                    scaled=(rewards[some] - self.shift) / self.scale,
                    propensities=propensities[some],
                    keys=keys[some],
                    candidates=vectors,
                )


def numbers_of(chunk: Chunk, columns: LogColumns, reward_range: tuple[float, float]) -> tuple[Array, Array]:
    """Rewards and propensities, checked."""
    first, given, (low, high) = chunk.first_row, chunk.columns, reward_range
    reward = require_column(columns.reward, given[columns.reward], first_row=first, low=low, high=high)
    chances = given[columns.propensity]
    propensity = require_column(columns.propensity, chances, first_row=first, low=0.0, high=1.0, above=True)
    return reward, propensity
