"""Continual sums: factorisations P = F·E of the n×n prefix-sum matrix P, both lower triangular.

An agent that inserts batches b_1 … b_n publishes E·b + z with fresh Gaussian z; anyone decodes with F and
reads the prefix sums plus correlated noise F·z. Publishing prefix sums + F·z is the same thing, and is what
`Mechanism.correlate` serves: one fresh draw a release in, the noise of that release out.

Guarantees (matrix mechanism, Denisov et al. 2022; adaptivity: their Theorem 2.1):
    If every column of E is at most 1 long and (EᵀE)_ij ≥ 0, one record that enters one batch moves E·b
    by at most its own size, whatever the earlier releases made the later batches be; so noise √v makes the
    whole stream (R²/√v)-GDP, and release k carries variance v·‖row_k(F)‖².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from feducb.config import require_integer
from feducb.errors import ConfigurationError

__all__ = [
    "MECHANISMS",
    "BinaryTree",
    "Mechanism",
    "Memory",
    "SquareRootToeplitz",
    "choose_mechanism",
]

Array = NDArray[np.float64]
Memory = Sequence[Array | None]
"""What a mechanism keeps of its fresh draws between releases."""


class Mechanism(Protocol):
    """A factorisation for a fixed number of releases."""

    @property
    def name(self) -> str:
        """What it is called in settings and statements."""
        ...

    @property
    def releases(self) -> int:
        """n."""
        ...

    def encoder(self) -> Array:
        """E, (n, n)."""
        ...

    def decoder(self) -> Array:
        """F, (n, n)."""
        ...

    def error(self, release: int) -> float:
        """‖row_k(F)‖: the noise of release k (counted from 1), in units of the fresh noise."""
        ...

    def correlate(self, memory: Memory, release: int, fresh: Array) -> tuple[Memory, Array]:
        """Take release k's fresh draw; return what to remember and row k of F·z.

        Args:
            memory: what the last call returned; empty before release 1.
            release: k, counted from 1.
            fresh: (..., q), unit Gaussian.
        """
        ...


@dataclass(frozen=True, slots=True)
class BinaryTree:
    """The paper's mechanism (Alg. 2), as a lazy binary counter.

    Release k completes exactly one node of the tree that any release reads, the one that ends at batch k
    and spans as many batches as the lowest set bit of k; its noise is drawn then. Release k sums one node for
    each set bit of k, so it carries popcount(k) noises, and only bit_length(n) arrays are kept.

    Differs from the paper: a record touches bit_length(n) nodes, not m = 1 + ⌈log₂ n⌉, since the nodes
    that no release reads are never published.
    """

    name: ClassVar[str] = "tree"
    releases: int

    def __post_init__(self) -> None:
        require_integer("releases", self.releases, at_least=1)

    @property
    def touched(self) -> int:
        """How many nodes a record can enter: the squared column norm of E before scaling."""
        return self.releases.bit_length()

    def encoder(self) -> Array:
        """E, rows = nodes in order of completion, scaled so that no column is longer than 1."""
        matrix = np.zeros((self.releases, self.releases))
        for end in range(1, self.releases + 1):
            matrix[end - 1, end - (end & -end) : end] = 1.0
        return matrix / math.sqrt(self.touched)

    def decoder(self) -> Array:
        """F, row k = the nodes that release k sums."""
        matrix = np.zeros((self.releases, self.releases))
        for release in range(1, self.releases + 1):
            end = release
            while end:
                matrix[release - 1, end - 1] = 1.0
                end &= end - 1
        return matrix * math.sqrt(self.touched)

    def error(self, release: int) -> float:
        """√(popcount(k) · bit_length(n))."""
        return math.sqrt(release.bit_count() * self.touched)

    def correlate(self, memory: Memory, release: int, fresh: Array) -> tuple[Memory, Array]:
        """Carry: the completed node replaces all shorter ones."""
        level = (release & -release).bit_length() - 1
        nodes: list[Array | None] = list(memory) or [None] * self.touched
        nodes[: level + 1] = [*([None] * level), fresh]
        held = np.sum([node for node in nodes if node is not None], axis=0)
        return tuple(nodes), held * math.sqrt(self.touched)


@dataclass(frozen=True, slots=True)
class SquareRootToeplitz:
    """E = F = √P, Toeplitz with coefficients C(2j, j)/4^j (Fichtenberger, Henzinger & Upadhyay 2023).

    Its worst error is within a few percent of optimal for small n. It keeps all n draws.
    """

    name: ClassVar[str] = "toeplitz"
    releases: int

    def __post_init__(self) -> None:
        require_integer("releases", self.releases, at_least=1)

    def coefficients(self) -> Array:
        """1, 1/2, 3/8, …: the power series of (1 − z)^(−1/2)."""
        steps = np.arange(1, self.releases, dtype=np.float64)
        return np.concatenate([[1.0], np.cumprod((2.0 * steps - 1.0) / (2.0 * steps))])

    def _column_norm(self) -> float:
        return float(np.linalg.norm(self.coefficients()))

    def _square_root(self) -> Array:
        lags = np.subtract.outer(np.arange(self.releases), np.arange(self.releases))
        return np.where(lags >= 0, self.coefficients()[np.maximum(lags, 0)], 0.0)

    def encoder(self) -> Array:
        """√P, scaled so that its first (longest) column has length 1."""
        return self._square_root() / self._column_norm()

    def decoder(self) -> Array:
        """√P, scaled back."""
        return self._square_root() * self._column_norm()

    def error(self, release: int) -> float:
        """‖first k coefficients‖ · ‖all n coefficients‖."""
        return float(np.linalg.norm(self.coefficients()[:release])) * self._column_norm()

    def correlate(self, memory: Memory, release: int, fresh: Array) -> tuple[Memory, Array]:
        """Convolve all draws so far with the coefficients."""
        draws = (*memory, fresh)
        weights = self.coefficients()[release - 1 :: -1] * self._column_norm()
        return draws, np.tensordot(weights, np.stack([d for d in draws if d is not None]), axes=1)


MECHANISMS: dict[str, type[BinaryTree] | type[SquareRootToeplitz]] = {
    "toeplitz": SquareRootToeplitz,
    "tree": BinaryTree,
}

_TOEPLITZ_LIMIT = 1024  # beyond it n draws of state (and n² work) weigh more than the tree's extra noise


def choose_mechanism(name: str, releases: int) -> Mechanism:
    """The mechanism called ``name``; ``auto`` takes the one with the least noise that is cheap to keep."""
    if name == "auto":
        name = "toeplitz" if releases <= _TOEPLITZ_LIMIT else "tree"
    if name not in MECHANISMS:
        raise ConfigurationError("mechanism", name, f"one of auto, {', '.join(sorted(MECHANISMS))}")
    return MECHANISMS[name](releases)
