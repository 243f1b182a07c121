"""What a comparison reads: a few facts first, then blocks of rows with their vectors, as often as needed.

A log with columns is one source (`feducb.evaluation.crossfit`), what agents export another
(`feducb.evaluation.exports`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from feducb.config import Problem

__all__ = ["Facts", "Rows", "Source"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """A block of rows, ready to learn from or to judge by; all have the same number of candidates."""

    agents: Indices
    actions: Indices
    rewards: Array  # as logged
    scaled: Array  # (reward − shift) / scale, as the facts say
    propensities: Array
    keys: NDArray[np.uint64]
    candidates: Array

    @property
    def logged(self) -> Array:
        """(n, d), the vectors of what was done."""
        return np.asarray(self.candidates[np.arange(len(self.actions)), self.actions])


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What a comparison must know before it learns.

    Attributes:
        name: of the source.
        rows: how many.
        agents: by name.
        actions: by name; None where candidates are vectors without names, and no action comes twice.
        problem: the public bounds of vectors and scaled rewards.
        reward_range: the public range of rewards, as logged.
        shift: what is taken off a reward before anything is learnt from it.
        scale: what it is divided by then.
        least_propensity: the smallest.
        notes: what was done to the data, or read off them.
        settings: more of what it was made with, for the result.
    """

    name: str
    rows: int
    agents: tuple[str, ...]
    actions: tuple[str, ...] | None
    problem: Problem
    reward_range: tuple[float, float]
    shift: float
    scale: float
    least_propensity: float
    notes: tuple[str, ...]
    settings: Mapping[str, Any]


class Source(Protocol):
    """Something that can be compared on."""

    @property
    def facts(self) -> Facts:
        """What is known of it."""
        ...

    def blocks(self) -> Iterator[Rows]:
        """Its rows, from the first to the last; the same ones every time."""
        ...
