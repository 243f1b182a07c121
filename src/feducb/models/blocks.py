"""Actions that are zero outside one block of entries: one-hots, or a copy of the features per action."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.models.known_zeros import KnownZeros
from feducb.types import Indices

__all__ = ["Blocks"]


@dataclass(frozen=True, slots=True)
class Blocks(KnownZeros):
    """The linear model over blocks: its flat vector without what stands between blocks in x xᵀ.

    Attributes:
        parts: how many equal blocks there are; or their lengths, in order.
    """

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

    def labels(self, dim: int) -> Indices:
        """(1, d): the block that each entry is in."""
        sizes = self.sizes(dim)
        return np.repeat(np.arange(len(sizes)), sizes)[None]
