"""Where a simulation's noise comes from.

`SeededNoise` is for simulation only: whoever knows the seed can take the noise off again.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from feducb.types import Array

__all__ = ["NoiseSource", "SeededNoise"]


class NoiseSource(Protocol):
    """Something that draws independent unit Gaussians."""

    def draw(self, rows: int, count: int) -> Array:
        """(rows, ..., count) fresh draws, for every agent that the source serves."""
        ...


class SeededNoise:
    """Reproducible noise for simulation: one generator per agent, indexed [run][agent]."""

    def __init__(self, generators: list[list[np.random.Generator]]) -> None:
        self._generators = generators

    def draw(self, rows: int, count: int) -> Array:
        """(rows, runs, agents, count) draws."""
        drawn = [[one.standard_normal((rows, count)) for one in row] for row in self._generators]
        return np.moveaxis(np.array(drawn), 2, 0)
