"""Gram entries that everybody knows to be zero, because no action has both of two entries: a public pattern.

One-hots exclude each other: of the levels of a column an action has one, and whatever is multiplied with
another level is zero. So x xᵀ is zero there, in every record; those entries are not sent and carry no noise.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.sparse.csgraph import connected_components

from feducb.config import Problem
from feducb.interfaces import Model
from feducb.models.confidence import PaperBound
from feducb.models.linear import Linear
from feducb.models.mixture import MixtureBound
from feducb.types import Array, Indices, Statistics, add

__all__ = ["ANY", "KnownZeros", "Pattern"]

ANY = -1  # an entry that goes with every level of a column
_LINEAR = Linear()
_ROOT = math.sqrt(2.0)


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """What follows from which entries exclude each other, all of it public.

    Attributes:
        rows: (q − d,), of the entries on and above the diagonal that are not known to be zero, row by row.
        columns: (q − d,).
        degree: m, how many entries of one row are not known to be zero, at most.
        components: how many groups of entries there are that have nothing to do with each other.
        largest: how many entries the largest of them has.
        complete: whether all entries of a group go with each other: blocks.
    """

    rows: Indices
    columns: Indices
    degree: int
    components: int
    largest: int
    complete: bool

    @classmethod
    def of(cls, labels: Indices) -> Pattern:
        """From (c, d): for each of c columns the level that an entry belongs to, or `ANY`."""
        dim = labels.shape[1]
        together = np.ones((dim, dim), dtype=np.bool_)
        for own in labels:
            together &= (own[:, None] == own) | (own[:, None] == ANY) | (own == ANY)
        rows, columns = np.nonzero(np.triu(together))
        components, group = connected_components(together, directed=False)
        sizes = np.bincount(group)
        return cls(
            rows,
            columns,
            degree=int(together.sum(axis=1).max()),
            components=int(components),
            largest=int(sizes.max()),
            complete=2 * len(rows) - dim == int((sizes**2).sum()),
        )


class KnownZeros(Model):
    """The linear model without the entries of x xᵀ that are known to be zero.

    An action that has two levels of a column is none of this model's: it is refused, or all but the longest
    level is taken off (`nearest`) before it enters. So privacy does not rest on anybody's word, but what is
    learnt does: then ⟨x, θ*⟩ is not what such a record paid.

    Guarantees:
        A flat vector is the linear model's less some coordinates, of an action no longer than the one handed
        in: none is longer, and no two are further apart. Which coordinates are left out is public, and the
        same for all records (docs/theory.md, 1, "Blocks" and "Known zeros").
    """

    __slots__ = ()
    part_of_linear: ClassVar[bool] = True
    released_set: ClassVar[type[MixtureBound]] = MixtureBound
    printed: ClassVar[type[PaperBound]] = PaperBound

    @abstractmethod
    def labels(self, dim: int) -> Indices:
        """(c, d), for each of c columns the level that an entry belongs to, or `ANY`.

        Raises a `ConfigurationError` if the model does not fit d.
        """

    def pattern(self, dim: int) -> Pattern:
        """What follows from it."""
        return _pattern(self, dim)

    def coordinates(self, dim: int) -> int:
        """q: the entries on and above the diagonal that are not known zeros, and a moment of length d."""
        return len(self.pattern(dim).rows) + dim

    def weight(self, problem: Problem) -> float:
        """s, the linear model's: then nothing that the confidence set pays for is more than of a full Gram.

        One-hots have a radius of their own, and the s that spends μ best on an average entry of h − Hθ*, of
        variance w (1/s² + aS²) at most: docs/theory.md, 1.
        """
        if not self.one_hot(problem.dim):
            return _LINEAR.weight(problem)
        length, reward = problem.action_bound, problem.reward_bound
        bound = max(1e-6, math.sqrt(self._share(problem.dim)) * problem.parameter_bound)
        return math.sqrt(min(length / (_ROOT * reward * bound), length**2 / (2.0 * reward**2)))

    def radius(self, problem: Problem, weight: float = 1.0) -> float:
        """R² of the linear model; of one-hots L·max(√(L² + 2s²B²), 2sB): docs/theory.md, 1."""
        length, reward = problem.action_bound, weight * problem.reward_bound
        if not self.one_hot(problem.dim):
            return _LINEAR.radius(problem, weight)
        return length * max(math.sqrt(length**2 + 2.0 * reward**2), 2.0 * reward)

    def flatten(self, actions: Array, rewards: Array, weight: float) -> Array:
        """(n, q): x xᵀ where it is not known to be zero, then y x."""
        actions, pattern = self.nearest(actions), self.pattern(actions.shape[1])
        scale = np.where(pattern.rows == pattern.columns, 1.0, _ROOT)
        gram = actions[:, pattern.rows] * actions[:, pattern.columns] * scale
        return np.hstack([gram, _ROOT * (weight * rewards)[:, None] * actions])

    def read(self, flat: Array, *, dim: int, weight: float, unit: float = 1.0) -> tuple[Array, Array]:
        """Gram, zero where it is known to be, and moment (`Model.read`)."""
        pattern = self.pattern(dim)
        rows, columns, kept = pattern.rows, pattern.columns, len(pattern.rows)
        entries = flat[..., :kept] * np.where(rows == columns, unit, unit / _ROOT)
        gram = np.zeros((*flat.shape[:-1], dim, dim))
        gram[..., rows, columns] = gram[..., columns, rows] = entries
        return gram, flat[..., kept:] / (_ROOT / unit * weight)

    def add(self, statistics: Statistics, actions: Array, rewards: Array) -> Statistics:
        """The same sums in floats."""
        return add(statistics, self.nearest(actions), rewards)

    def nearest(self, actions: Array) -> Array:
        """(..., n, d): of each column the longest level, zeros in the others; the first of several as long.

        Columns come one after another, so that what one has taken off does not count for the next.
        """
        for own in self.labels(actions.shape[-1]):
            levels = own == np.arange(own.max() + 1)[:, None]
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is the bounds' affair
                lengths = np.stack([(actions[..., level] ** 2).sum(axis=-1) for level in levels], axis=-1)
            longest = lengths.argmax(axis=-1)[..., None]
            actions = np.where((own == longest) | (own == ANY), actions, 0.0)
        return actions

    def gram_radius(self, dim: int, releases: int, alpha: float) -> float:
        """λ of the largest group of entries, with a union over groups and releases.

        Within a group that of a full Gram: leaving out independent noise makes E λ_max no larger (Jensen).
        """
        pattern = self.pattern(dim)
        return _LINEAR.gram_radius(pattern.largest, releases * pattern.components, alpha)

    def residual_scales(self, problem: Problem, weight: float) -> Array:
        """(d,): 1/s² + 2S², then 1/s² + S² min(1, (m + 1)/j) at the j-th place, or m/j where all is blocks.

        Beyond 1/s² the eigenvalues are no more than those of a full Gram, and add up to (m + 1)S² at most:
        docs/theory.md, 6.
        """
        pattern, places = self.pattern(problem.dim), np.arange(1, problem.dim + 1)
        most = max(pattern.degree, 2) if pattern.complete else pattern.degree + 1
        shares = np.minimum(1.0, most / places)
        shares[0] = 2.0
        return np.asarray(1.0 / weight**2 + problem.parameter_bound**2 * shares)

    def entry_scale(self, problem: Problem, weight: float) -> float:
        """1/s² + aS², at most: the fewer entries have noise, the less of it is in Hθ*."""
        return 1.0 / weight**2 + self._share(problem.dim) * problem.parameter_bound**2

    def _share(self, dim: int) -> float:
        """a = (m + 1)/d, with m entries in a row."""
        return min(1.0, (self.pattern(dim).degree + 1) / dim)

    def one_hot(self, dim: int) -> bool:
        """Whether an action has a single entry, of two or more."""
        return self.pattern(dim).degree == 1 < dim


@lru_cache(maxsize=16)
def _pattern(model: KnownZeros, dim: int) -> Pattern:
    return Pattern.of(model.labels(dim))
