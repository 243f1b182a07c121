"""Actions that are zero outside one block of their entries: one-hots, or a copy of the features per action.

Between blocks the Gram is zero, and everybody knows it: those entries are not sent and carry no noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from feducb.config import Problem, require_integer
from feducb.errors import ConfigurationError
from feducb.interfaces import Model
from feducb.models.confidence import PaperBound
from feducb.models.linear import Linear
from feducb.models.mixture import MixtureBound
from feducb.types import Array, Statistics, add

__all__ = ["Blocks"]

_LINEAR = Linear()


@dataclass(frozen=True, slots=True)
class Blocks(Model):
    """The linear model over blocks: its flat vector without what stands between blocks in x xᵀ.

    An action that is not zero outside one block is none of this model's: it is refused, or all but its
    longest block is taken off (`nearest`) before it enters. So privacy does not rest on anybody's word, but
    what is learnt does: then ⟨x, θ*⟩ is not what such a record paid.

    Attributes:
        parts: how many equal blocks there are; or their lengths, in order.
    """

    released_set: ClassVar[type[MixtureBound]] = MixtureBound
    printed: ClassVar[type[PaperBound]] = PaperBound
    parts: int | tuple[int, ...]

    def __post_init__(self) -> None:
        for part in self.parts if isinstance(self.parts, tuple) else (self.parts,):
            require_integer("blocks", part, at_least=1)
        if isinstance(self.parts, tuple) and len(self.parts) < 2:
            raise ConfigurationError("blocks", self.parts, "two lengths or more")

    @classmethod
    def parse(cls, text: str) -> Blocks:
        """From what stands after ``blocks:``, such as ``10``, or ``3+4+3``."""
        try:
            parts = tuple(int(part) for part in text.split("+"))
        except ValueError:
            expected = "a number of equal blocks, or their lengths, such as 3+4+3"
            raise ConfigurationError("blocks", text, expected) from None
        return cls(parts if len(parts) > 1 else parts[0])

    @property
    def name(self) -> str:
        """``blocks:10``, or ``blocks:3+4+3``."""
        parts = self.parts if isinstance(self.parts, tuple) else (self.parts,)
        return f"blocks:{'+'.join(map(str, parts))}"

    def sizes(self, dim: int) -> tuple[int, ...]:
        """How long each block is; raises a `ConfigurationError` if they do not fit d."""
        sizes = self.parts if isinstance(self.parts, tuple) else (dim // self.parts,) * self.parts
        if sum(sizes) != dim or 0 in sizes:
            raise ConfigurationError("model", self.name, f"blocks that add up to dim = {dim}")
        return sizes

    def coordinates(self, dim: int) -> int:
        """q: the entries on and above the diagonal within blocks, and a moment of length d."""
        return sum(size * (size + 1) // 2 for size in self.sizes(dim)) + dim

    def weight(self, problem: Problem) -> float:
        """s, which spends μ best on an average entry of h − Hθ*: of variance w (1/s² + aS²).

        With m the longest block a = (m + 1)/d: θ* has its S² in all blocks together, so that Hθ* has less
        noise the more there are. Of one-hots the radius is less, too: docs/theory.md, 1.
        """
        longest, length, reward = max(self.sizes(problem.dim)), problem.action_bound, problem.reward_bound
        share = min(1.0, (longest + 1) / problem.dim)
        bound = max(1e-6, math.sqrt(share) * problem.parameter_bound)
        if not self._one_hot(problem.dim):
            return _LINEAR.weight(replace(problem, parameter_bound=bound))
        return math.sqrt(min(length / (math.sqrt(2.0) * reward * bound), length**2 / (2.0 * reward**2)))

    def radius(self, problem: Problem, weight: float = 1.0) -> float:
        """R² of the linear model; of one-hots L·max(√(L² + 2s²B²), 2sB): docs/theory.md, 1."""
        length, reward = problem.action_bound, weight * problem.reward_bound
        if not self._one_hot(problem.dim):
            return _LINEAR.radius(problem, weight)
        return length * max(math.sqrt(length**2 + 2.0 * reward**2), 2.0 * reward)

    def flatten(self, actions: Array, rewards: Array, weight: float) -> Array:
        """(n, q): x xᵀ within blocks, then y x."""
        kept = _kept(self.sizes(actions.shape[1]))
        return _LINEAR.flatten(self.nearest(actions), rewards, weight)[:, kept]

    def read(self, flat: Array, *, dim: int, weight: float, unit: float = 1.0) -> tuple[Array, Array]:
        """Gram, zero between blocks, and moment (`Model.read`)."""
        whole = np.zeros((*flat.shape[:-1], _LINEAR.coordinates(dim)))
        whole[..., _kept(self.sizes(dim))] = flat
        return _LINEAR.read(whole, dim=dim, weight=weight, unit=unit)

    def add(self, statistics: Statistics, actions: Array, rewards: Array) -> Statistics:
        """The same sums in floats."""
        return add(statistics, self.nearest(actions), rewards)

    def nearest(self, actions: Array) -> Array:
        """(..., n, d): of each action its longest block, zeros elsewhere; the first of several as long."""
        block = _block_of(self.sizes(actions.shape[-1]))
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is the bounds' affair
            lengths = np.stack(
                [(actions[..., block == one] ** 2).sum(axis=-1) for one in range(block[-1] + 1)], axis=-1
            )
        return np.where(block == lengths.argmax(axis=-1)[..., None], actions, 0.0)

    def gram_radius(self, dim: int, releases: int, alpha: float) -> float:
        """λ of the longest block, with a union over blocks and releases."""
        sizes = self.sizes(dim)
        return _LINEAR.gram_radius(max(sizes), releases * len(sizes), alpha)

    def residual_scales(self, problem: Problem, weight: float) -> Array:
        """(d,): the j-th is 1/s² + 2S²/j for one-hots, else at most 1/s² + S² min(1, m/j) after the first.

        Block b has 1/s² + 2c_b² once and 1/s² + c_b² otherwise, with Σ c_b² ≤ S²: docs/theory.md, 6.
        """
        longest, places = max(self.sizes(problem.dim)), np.arange(1, problem.dim + 1)
        shares = np.minimum(1.0, max(longest, 2) / places)
        shares[0] = 2.0
        return np.asarray(1.0 / weight**2 + problem.parameter_bound**2 * shares)

    def _one_hot(self, dim: int) -> bool:
        return max(self.sizes(dim)) == 1 < dim


@lru_cache(maxsize=8)
def _block_of(sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """(d,): the block that each entry is in."""
    return np.repeat(np.arange(len(sizes)), sizes)


@lru_cache(maxsize=8)
def _kept(sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """(q,): where coordinates within blocks, and the moment's, stand in the linear model's flat vector."""
    block = _block_of(sizes)
    rows, columns = np.triu_indices(len(block))
    within = np.flatnonzero(block[rows] == block[columns])
    return np.concatenate([within, len(rows) + np.arange(len(block))])
