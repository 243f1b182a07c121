"""What a data set is: where it comes from, what was made of it, and how policies are compared on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from feducb.config import require_integer
from feducb.types import Array, Indices
from feducb.worlds.features import Recipe
from feducb.worlds.logs import LogColumns
from feducb.worlds.replay import KnownRewards

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DataSet", "Known", "Loaded", "Spread", "Trial", "deal"]

Kind = Literal["trial", "labels", "rated"]
Spread = Literal["records", "agents"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """Randomised decisions with known propensities: only the reward of what was done is known.

    Attributes:
        frame: one row per decision, with its ``reward`` and ``propensity`` and the recipe's columns.
        agent: the column with who decided.
        recipe: how vectors are made.
        notes: what the loader did.
        reward_range: the public range of rewards.
        spread: what intervals come from.
    """

    frame: pd.DataFrame
    agent: str
    recipe: Recipe
    notes: tuple[str, ...]
    reward_range: tuple[float, float] = (0.0, 1.0)
    spread: Spread = "records"

    @property
    def columns(self) -> LogColumns:
        """Which column is what."""
        (action,), context = self.recipe.action, tuple(column.name for column in self.recipe.context)
        return LogColumns(
            agent=self.agent, action=action.name, reward="reward", propensity="propensity", context=context
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """Records in which the reward of every candidate is known.

    Attributes:
        world: the records, to be played on.
        recipe: how vectors are made.
        fixed: a policy that learns nothing: its name, and its reward on each record.
        notes: what the loader did.
    """

    world: KnownRewards
    recipe: Recipe
    fixed: tuple[str, Array]
    notes: tuple[str, ...]


Loaded = Trial | Known


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSet:
    """One data set, before it is loaded.

    Attributes:
        name: as in ``feducb evaluate NAME``.
        title: one line.
        kind: ``trial``, ``labels`` or ``rated``.
        package: the package that carries it.
        source: where the data were first published.
        agents: how many agents it is split into if nothing else is asked for; None: the data say.
        question: what is decided, for whom, and what counts as reward.
        load: reads it; takes the number of agents, or None.
    """

    name: str
    title: str
    kind: Kind
    package: str
    source: str
    agents: int | None
    question: str
    load: Callable[[int | None], Loaded]


def deal(keys: Indices, agents: int) -> Indices:
    """Deal records to agents by a fixed hash of their keys: the same everywhere, alike in law."""
    require_integer("agents", agents, at_least=1)
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed ^ (mixed >> np.uint64(32))) % np.uint64(agents)).astype(np.int64)


def records_of(owner: Indices, agents: int) -> tuple[Indices, ...]:
    """The numbers of each agent's records, from (n,), the agent of each record."""
    return tuple(np.nonzero(owner == one)[0] for one in range(agents))
