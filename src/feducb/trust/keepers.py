"""Secure sums: nobody is trusted, and noise is added once, shared out among all agents.

Every agent adds a share of the noise and hides its row under one-time pads that it has in common with a few
agents, the keepers. Each keeper tells the sum of its pads for one list of agents a row, so that only the sum
of all rows opens (`protocol.pads`, docs/cryptography.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.interfaces import Feature, TrustWords
from feducb.system import counted
from feducb.trust.one_noise import OneNoise
from feducb.types import Array

__all__ = ["Keepers"]

_FEWEST_SHARES = 2


@dataclass(frozen=True, slots=True)
class Keepers(OneNoise):
    """Padded rows leave an agent; what opens is their sum, under at least H honest shares of one noise.

    Guarantees:
        H = M − D − C shares are in every opened row that the adversary cannot take out again, and one noise
        is divided between them. It covers all records of a person, so their moves add up, as where the
        controller is trusted: with p_i records at agent i she costs μ · Σ p_i.

    Attributes:
        away: D, how many agents may miss a row; a tenth of all, rounded up, if left out.
        colluding: C ≥ 1, how many agents may tell the controller what they sent; a fifth if left out.
    """

    away: int | None = None
    colluding: int | None = None

    pooled: ClassVar[bool] = False
    raw: ClassVar[bool] = False
    whose: ClassVar[str] = "the noise of a sum"
    padded: ClassVar[bool] = True
    words: ClassVar[TrustWords] = TrustWords(
        adversary=(
            "Anyone but the agent itself: the controller, together with as many agents as are stated to "
            "collude, the owners of keepers among them, as long as one keeper does not. They read everything "
            "that leaves every agent, choose later visitors by it, and make agents, keepers or controller "
            "restart at any moment. Computationally bounded: X25519, HKDF, ChaCha20, Ed25519 and SHA-256 are "
            "taken to be sound."
        ),
        trusted=(
            "Nobody by itself. One keeper, whichever, must be honest and must not have been put back from a "
            "backup: a row then opens once, as the sum over enough agents."
        ),
        reads="every opened sum and what colluding agents know,",
        where="at all agents together",
        elsewhere="covered by the noise",
    )
    refusals: ClassVar[Mapping[Feature, str]] = {
        "paper mode": "nobody in paper mode: there every agent privatises",
        "budgets": "none: a sum has one noise, of which every agent adds the same share",
    }

    def __post_init__(self) -> None:
        if self.away is not None:
            require_integer("away", self.away, at_least=0)
        if self.colluding is not None:
            expected = "at least 1: every member can take its own noise out of a sum"
            if require_integer("colluding", self.colluding, at_least=0) == 0:
                raise ConfigurationError("colluding", 0, expected)

    @property
    def name(self) -> str:
        """``keepers``, or with both numbers ``keepers:D:C``."""
        if self.away is None and self.colluding is None:
            return "keepers"
        return f"keepers:{'' if self.away is None else self.away}:" + (
            "" if self.colluding is None else str(self.colluding)
        )

    @classmethod
    def parse(cls, text: str) -> Keepers:
        """From what stands after ``keepers:`` in its name."""
        parts = text.split(":")
        if len(parts) != 2 or not all(part == "" or part.isdecimal() for part in parts):
            expected = "keepers, or keepers:AWAY:COLLUDING with two whole numbers"
            raise ConfigurationError("trust", f"keepers:{text}", expected)
        away, colluding = (int(part) if part else None for part in parts)
        return cls(away, colluding)

    def among(self, agents: int) -> Keepers:
        """With both numbers, for so many agents; raises unless H ≥ 2 honest shares are left."""
        colluding = max(1, agents // 5) if self.colluding is None else self.colluding
        room = agents - colluding - _FEWEST_SHARES
        away = max(0, min(-(-agents // 10), room)) if self.away is None else self.away
        if away > room:
            left = max(0, agents - away - colluding)
            expected = (
                f"at least {_FEWEST_SHARES} honest shares of noise a row: of {counted(agents, 'agent')} "
                f"{away} may be away and {colluding} may collude, which leaves {left}"
            )
            raise ConfigurationError("trust", "keepers", expected)
        return Keepers(away, colluding)

    def on_graph(self) -> Keepers:
        """Members of a clique mask their rows in pairs, so that none may be away."""
        if self.away:
            expected = "0 on a graph: a clique moves only when the rows of all its members are there"
            raise ConfigurationError("away", self.away, expected)
        return Keepers(0, self.colluding)

    def shares(self, agents: int) -> int:
        """H = M − D − C."""
        resolved = self.among(agents)
        assert resolved.away is not None
        assert resolved.colluding is not None
        return agents - resolved.away - resolved.colluding

    def quorum(self, agents: int) -> int:
        """M − D, how many agents a row needs to open."""
        away = self.among(agents).away
        assert away is not None
        return agents - away

    def scales(self, own: Array) -> Array:
        """Each agent adds a share: that of one noise, at the least of the budgets, divided among H."""
        return np.full(len(own), own.max() / np.sqrt(self.shares(len(own))))
