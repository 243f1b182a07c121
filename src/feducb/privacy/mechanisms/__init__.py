"""Mechanisms for continual sums: one interface (`mechanism.Mechanism`), one conformance suite.

| name | state | worst error at n = 64 |
|---|---|---|
| ``tree`` | bit_length(n) arrays | 6.48 |
| ``optimal-tree`` | bit_length(n) arrays | 5.15 |
| ``toeplitz`` | n arrays | 2.39 |
| ``dense`` (n ≤ 256) | n arrays | 2.11 |
| ``blt`` | 3 to 7 arrays | 2.21 |
"""

from __future__ import annotations

from feducb.errors import ConfigurationError
from feducb.privacy.mechanisms.buffered import BufferedToeplitz
from feducb.privacy.mechanisms.matrix import DENSE_LIMIT, Dense, SquareRootToeplitz
from feducb.privacy.mechanisms.mechanism import Mechanism, Memory
from feducb.privacy.mechanisms.reach import person_reach
from feducb.privacy.mechanisms.tree import BinaryTree, OptimalTree

__all__ = [
    "DENSE_LIMIT",
    "MECHANISMS",
    "BinaryTree",
    "BufferedToeplitz",
    "Dense",
    "Mechanism",
    "Memory",
    "OptimalTree",
    "SquareRootToeplitz",
    "choose_mechanism",
    "person_reach",
]

MECHANISMS: dict[str, type[Mechanism]] = {
    "tree": BinaryTree,
    "optimal-tree": OptimalTree,
    "toeplitz": SquareRootToeplitz,
    "dense": Dense,
    "blt": BufferedToeplitz,
}


def choose_mechanism(name: str, releases: int) -> Mechanism:
    """The mechanism called ``name``; ``auto`` takes the one with the least worst error for n."""
    if name == "auto":
        name = "dense" if releases <= DENSE_LIMIT else "blt"
    if name not in MECHANISMS:
        raise ConfigurationError("mechanism", name, f"one of auto, {', '.join(sorted(MECHANISMS))}")
    return MECHANISMS[name](releases)
