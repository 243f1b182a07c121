"""Where noise comes from, and how a vector of draws becomes a symmetric matrix.

`SeededNoise` is for simulation only: whoever knows the seed can take the noise off again.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["NoiseSource", "SeededNoise", "coordinate_count", "to_matrices"]

Array = NDArray[np.float64]


class NoiseSource(Protocol):
    """Something that draws independent unit Gaussians."""

    def draw(self, rows: int, count: int) -> Array:
        """(rows, ..., count) fresh draws, for every agent that the source serves."""
        ...


class SeededNoise:
    """Reproducible noise for simulation: one generator an agent, indexed [run][agent]."""

    def __init__(self, generators: list[list[np.random.Generator]]) -> None:
        self._generators = generators

    def draw(self, rows: int, count: int) -> Array:
        """(rows, runs, agents, count) draws."""
        drawn = [[one.standard_normal((rows, count)) for one in row] for row in self._generators]
        return np.moveaxis(np.array(drawn), 2, 0)


def coordinate_count(dim: int) -> int:
    """q = d(d+3)/2: the free entries of a symmetric d×d Gram and a moment of length d."""
    return dim * (dim + 3) // 2


def to_matrices(coordinates: Array, dim: int) -> tuple[Array, Array]:
    """Turn q unit Gaussians into the noise of a Gram and of a moment.

    It has the law of (N̂ + N̂ᵀ)/√2 without its corner (Alg. 2, l. 6): variance 2 on the Gram's diagonal,
    1 off it and in the moment.

    Args:
        coordinates: (..., q).
        dim: d.

    Returns:
        gram: (..., d, d), symmetric; moment: (..., d).
    """
    entries = dim * (dim + 1) // 2
    rows, columns = np.triu_indices(dim)
    scale = np.where(rows == columns, math.sqrt(2.0), 1.0)
    gram = np.zeros((*coordinates.shape[:-1], dim, dim))
    gram[..., rows, columns] = coordinates[..., :entries] * scale
    gram[..., columns, rows] = gram[..., rows, columns]
    return gram, coordinates[..., entries:]
