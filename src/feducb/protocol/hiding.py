"""An agent's side of the pads: a row under noise becomes what may leave.

One function pads, and it pads for every keeper of the roster: also for the agent's own keeper, if it is one.
With all other keepers colluding, that pad alone hides its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError, RefusedError
from feducb.protocol import pads
from feducb.protocol.pads import Charter, Label, SeasonKey
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import KeyCard, PaddedRow

__all__ = ["Cover", "Member"]


@dataclass(frozen=True, slots=True)
class Member:
    """An agent of a federation: who it is, who the others are, and what it signs with."""

    name: str
    roster: Roster
    signer: Signer
    clique: tuple[str, ...] = field(init=False)  # on a graph, in the roster's order; empty with a controller

    def __post_init__(self) -> None:
        if self.name not in self.roster.agents:
            raise ConfigurationError("agent", self.name, f"one of {', '.join(self.roster.agents)}")
        if self.signer.nkey != self.roster.agents[self.name]:
            raise ConfigurationError("seed", self.signer.nkey, f"that of {self.name}, as in the roster")
        clique: tuple[str, ...] = ()
        if self.roster.edges is not None:
            members = self.roster.topology().members(self.place)
            clique = tuple(self.roster.names[member] for member in members)
        elif not self.roster.keepers:  # rows would leave under no pads at all
            expected = "one with keepers: `feducb keys init … --keepers` makes it"
            raise ConfigurationError("roster", self.roster.federation, expected)
        object.__setattr__(self, "clique", clique)

    @property
    def place(self) -> int:
        """In the roster."""
        return self.roster.names.index(self.name)


@dataclass(frozen=True, slots=True)
class Cover:
    """What an agent hides its rows with in a season.

    Attributes:
        agent: its name.
        roster: who is in the federation.
        signer: in the agent's name.
        key: its X25519 key of this season.
        secret: 32 bytes of its own, for nonces; random, of this season, in no message.
        charter: of the season.
    """

    agent: str
    roster: Roster
    signer: Signer
    key: SeasonKey
    secret: bytes
    charter: Charter

    def hide(self, label: Label, row: NDArray[np.int64], cards: Mapping[str, KeyCard]) -> PaddedRow:
        """A row under pads, signed; to be on disk before it is sent, and the row itself forgotten.

        Each call makes another nonce, and so other pads: what was hidden once is sent again as it is.

        Args:
            label: which row.
            row: (q,), under this agent's share of noise.
            cards: every keeper's, as `KeyCard.read` found them good.
        """
        if not cards or set(cards) != set(self.roster.keepers):
            missing = ", ".join(sorted(set(self.roster.keepers) - set(cards))) or "nobody"
            raise RefusedError("key", f"a row is padded for all keepers and nobody else; no key of {missing}")
        nonce = pads.make_nonce(self.secret, label, row)
        words = pads.to_words(row)
        for keeper, card in cards.items():
            common = self.key.common(card.public, self.charter, agent=self.agent, keeper=keeper)
            words = words + pads.pad(common, label, nonce, len(row))
        padded = PaddedRow(label, self.key.public, nonce, pads.to_bytes(words))
        return padded.sign(self.charter, self.agent, self.signer)
