"""Binary trees: the paper's, and the same tree read with causal optimal estimation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from feducb.privacy.mechanisms.mechanism import Mechanism, Memory
from feducb.types import Array

__all__ = ["BinaryTree", "OptimalTree"]


class _Tree(Mechanism):
    """Nodes of height h span 2^h batches; batch k completes those up to the lowest set bit of k."""

    __slots__ = ()

    @property
    def touched(self) -> int:
        """How many nodes a record can enter: the squared column norm of E before scaling."""
        return self.releases.bit_length()

    def encoder(self) -> Array:
        """E, rows = nodes in order of completion, lowest first, scaled so that no column is longer than 1."""
        rows = []
        for end in range(1, self.releases + 1):
            tallest = (end & -end).bit_length()
            for height in range(tallest - self.rows(end), tallest):
                row = np.zeros(self.releases)
                row[end - (1 << height) : end] = 1.0
                rows.append(row)
        return np.array(rows) / math.sqrt(self.touched)

    def worst_error(self) -> float:
        """The release with the most set bits: 2^j − 1, or n itself."""
        return max(self.error((1 << (self.touched - 1)) - 1 or 1), self.error(self.releases))


@dataclass(frozen=True, slots=True)
class BinaryTree(_Tree):
    """The paper's mechanism (Alg. 2), as a lazy binary counter.

    Release k completes exactly one node of the tree that any release reads, the one that ends at batch k
    and spans as many batches as the lowest set bit of k; its noise is drawn then. Release k sums one node for
    each set bit of k, so it carries popcount(k) noises, and only bit_length(n) arrays are kept.

    Differs from the paper: a record touches bit_length(n) nodes, not m = 1 + ⌈log₂ n⌉, since the nodes
    that no release reads are never published.
    """

    name: ClassVar[str] = "tree"

    def error(self, release: int) -> float:
        """Release k adds up popcount(k) nodes, each with noise √bit_length(n)."""
        return math.sqrt(release.bit_count() * self.touched)

    def correlate(self, memory: Memory, release: int, fresh: Array) -> tuple[Memory, Array]:
        """Carry: the completed node replaces all shorter ones."""
        level = (release & -release).bit_length() - 1
        nodes: list[Array | None] = list(memory) or [None] * self.touched
        nodes[: level + 1] = [*([None] * level), fresh[0]]
        held = np.sum([node for node in nodes if node is not None], axis=0)
        return tuple(nodes), held * math.sqrt(self.touched)


@dataclass(frozen=True, slots=True)
class OptimalTree(_Tree):
    """The same tree, all completed nodes published and read as well as can be (Honaker 2015, from below).

    A node of height h is estimated by itself (variance 1) and by the sum of its children's estimates
    (variance 2κ_{h−1}): κ_h = 1/(1 + 1/(2κ_{h−1})), κ_0 = 1. Release k sums one estimate for each set bit of
    k.
    """

    name: ClassVar[str] = "optimal-tree"

    def rows(self, release: int) -> int:
        """Every node that batch k completes: one for each height up to the lowest set bit of k."""
        return (release & -release).bit_length()

    def _variances(self) -> list[float]:
        variances = [1.0]
        for _ in range(1, self.touched):
            variances.append(1.0 / (1.0 + 1.0 / (2.0 * variances[-1])))
        return variances

    def error(self, release: int) -> float:
        """√(Σ of κ_h over the set bits of k, times bit_length(n))."""
        held = sum(variance for height, variance in enumerate(self._variances()) if release >> height & 1)
        return math.sqrt(held * self.touched)

    def correlate(self, memory: Memory, release: int, fresh: Array) -> tuple[Memory, Array]:
        """Carry, each parent averaged from its own draw and its children's estimates."""
        variances = self._variances()
        nodes: list[Array | None] = list(memory) or [None] * self.touched
        estimate = fresh[0]
        for height in range(1, self.rows(release)):
            left = nodes[height - 1]
            assert left is not None
            own = variances[height]  # precision of the own draw (1) over the total (1/κ_h)
            estimate = own * fresh[height] + (1.0 - own) * (left + estimate)
            nodes[height - 1] = None
        nodes[self.rows(release) - 1] = estimate
        held = np.sum([node for node in nodes if node is not None], axis=0)
        return tuple(nodes), held * math.sqrt(self.touched)
