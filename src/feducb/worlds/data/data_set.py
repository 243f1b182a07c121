"""What a data set is: where it comes from, what was made of it, and how policies are compared on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from feducb.config import require_integer
from feducb.errors import ConfigurationError
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
        frame: one row per decision.
        columns: which column is what.
        recipe: how vectors are made.
        reward_range: the public range of rewards.
        notes: what the loader did.
        spread: what intervals come from.
    """

    frame: pd.DataFrame
    columns: LogColumns
    recipe: Recipe
    reward_range: tuple[float, float]
    notes: tuple[str, ...]
    spread: Spread = "records"


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
    fixed: tuple[str, NDArray[np.float64]]
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


def deal(keys: NDArray[np.int64], agents: int) -> NDArray[np.int64]:
    """Deal records to agents by a fixed hash of their keys: the same everywhere, alike in law."""
    require_integer("agents", agents, at_least=1)
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed ^ (mixed >> np.uint64(32))) % np.uint64(agents)).astype(np.int64)


def refuse_split(name: str, agents: int | None, why: str) -> None:
    """Complain if a number of agents was asked for where the data have their own."""
    if agents is not None:
        raise ConfigurationError("agents", agents, f"nothing for {name}: {why}")
