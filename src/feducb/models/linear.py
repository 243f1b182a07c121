"""The linear model: rewards are ⟨x, θ*⟩ plus noise, and Σ x xᵀ and Σ y x say all about θ*."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from feducb.config import Problem
from feducb.interfaces import Model
from feducb.models.confidence import PaperBound
from feducb.models.mixture import MixtureBound
from feducb.types import Array

__all__ = ["Linear"]

_ROOT = math.sqrt(2.0)


@dataclass(frozen=True, slots=True)
class Linear(Model):
    """A record gives x xᵀ and y x, seen as a symmetric (d+1)×(d+1) matrix without its corner.

    The flat vector is the diagonal and √2 × the off-diagonal entries of x xᵀ, row by row, then √2 s y x: its
    Euclidean length is the matrix's Frobenius length.
    """

    name: ClassVar[str] = "linear"
    part_of_linear: ClassVar[bool] = True
    released_set: ClassVar[type[MixtureBound]] = MixtureBound
    printed: ClassVar[type[PaperBound]] = PaperBound

    def coordinates(self, dim: int) -> int:
        """q = d(d+3)/2: the free entries of a symmetric d×d Gram and a moment of length d."""
        return dim * (dim + 3) // 2

    def weight(self, problem: Problem) -> float:
        """s, which spends μ best.

        With s·B in B's place R² = L² + s²B² (s·B ≤ L), and one entry of h − Hθ* has the variance
        (R²/μ)² (1/s² + S²), least where 2B²S²s⁴ + B²s² = L². For L = B = S = 1: s² = ½, and 0.92 times the
        noise.
        """
        length, reward, bound = problem.action_bound**2, problem.reward_bound**2, problem.parameter_bound**2
        root = math.sqrt(reward**2 + 8.0 * reward * bound * length)
        return math.sqrt(2.0 * length / (reward + root))  # the positive root, free of cancellation

    def radius(self, problem: Problem, weight: float = 1.0) -> float:
        """R² = L² + B² if B ≤ L, and 2LB if B ≥ L, with rewards scaled by s: with s·B in B's place.

        For ‖x‖, ‖x'‖ ≤ L, |y|, |y'| ≤ B the largest move is between (x, B) and (x', −B) at the angle with
        cos = min(1, B²/L²). Proof: docs/theory.md.
        """
        length, reward = problem.action_bound, weight * problem.reward_bound
        return length**2 + reward**2 if reward <= length else 2.0 * length * reward

    def flatten(self, actions: Array, rewards: Array, weight: float) -> Array:
        """(n, q): x xᵀ, then y x."""
        rows, columns = np.triu_indices(actions.shape[1])
        scale = np.where(rows == columns, 1.0, _ROOT)
        gram = actions[:, rows] * actions[:, columns] * scale
        return np.hstack([gram, _ROOT * (weight * rewards)[:, None] * actions])

    def read(self, flat: Array, *, dim: int, weight: float, unit: float = 1.0) -> tuple[Array, Array]:
        """Gram and moment (`Model.read`).

        With independent unit Gaussians in ``flat`` and the unit √2 they have the law of (N̂ + N̂ᵀ)/√2 without
        its corner (Alg. 2, l. 6): variance 2 on the Gram's diagonal, 1 off it, 1/s² in the moment.
        """
        place, every = _places(dim), np.arange(dim)
        gram = flat[..., place] * (unit / _ROOT)
        gram[..., every, every] = flat[..., place.diagonal()] * unit
        return gram, flat[..., dim * (dim + 1) // 2 :] / (_ROOT / unit * weight)


@lru_cache(maxsize=1)
def _places(dim: int) -> NDArray[np.int32]:
    """(d, d): where an entry of the Gram stands among the coordinates."""
    rows, columns = np.triu_indices(dim)
    place = np.empty((dim, dim), dtype=np.int32)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    place.setflags(write=False)
    return place
