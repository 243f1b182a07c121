"""What a data set is: where it comes from, what was made of it, and how policies are compared on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from feducb.config import require_integer
from feducb.types import Array, Indices
from feducb.worlds.data.fetched import Fetched
from feducb.worlds.features import Recipe
from feducb.worlds.logs import LogColumns
from feducb.worlds.replay import KnownRewards

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DataSet", "Known", "Loaded", "Spread", "Trial", "deal"]

Spread = Literal["records", "agents"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """Decisions with propensities, known or estimated: only the reward of what was done is known.

    The frame has one row per decision, with its ``reward``, its ``propensity`` and the recipe's columns.
    """

    frame: pd.DataFrame
    agent: str  # the column with who decided
    recipe: Recipe
    notes: tuple[str, ...]  # what the loader did
    reward_range: tuple[float, float] = (0.0, 1.0)
    spread: Spread = "records"  # what intervals come from
    person: str | None = None  # the column with whose record it is, where people have several

    @property
    def columns(self) -> LogColumns:
        """Which column is what; the recipe says what was known."""
        (action,) = self.recipe.action
        return LogColumns(
            agent=self.agent,
            action=action.name,
            reward="reward",
            propensity="propensity",
            person=self.person,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """Records in which the reward of every candidate is known."""

    world: KnownRewards
    fixed: tuple[str, Array]  # a policy that learns nothing: its name, and its reward on each record (N,)
    recipe: Recipe
    notes: tuple[str, ...] = ()  # what the loader did


Loaded = Trial | Known


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSet:
    """One data set, before it is loaded."""

    name: str  # as in ``feducb evaluate NAME``
    title: str
    kind: Literal["trial", "observed", "labels", "rated"]
    package: str  # the package that carries it
    source: str  # where the data were first published
    question: str  # what is decided, for whom, and what counts as reward
    licence: str  # of the records, and of the package that carries them
    natural: str  # who its agents are
    unclaimed: str  # what cannot be claimed from it
    load: Callable[[int | None], Loaded]  # takes the number of agents; None: as usual, or as the data say
    file: Fetched | None = None  # what the [data] extra does not bring


def deal(keys: Indices, agents: int) -> Indices:
    """Deal records to agents by a fixed hash of their keys: the same everywhere, alike in law."""
    require_integer("agents", agents, at_least=1)
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed ^ (mixed >> np.uint64(32))) % np.uint64(agents)).astype(np.int64)


def records_of(owner: Indices, agents: int) -> tuple[Indices, ...]:
    """The numbers of each agent's records, from (n,), the agent of each record."""
    return tuple(np.nonzero(owner == one)[0] for one in range(agents))
