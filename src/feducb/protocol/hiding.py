"""How a row is hidden before it leaves an agent: under one pad per keeper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from feducb.errors import ConfigurationError, PrivacyError
from feducb.privacy.deployed import NoisyRow
from feducb.protocol import pads
from feducb.protocol.pads import Charter, Label, SeasonKey, make_nonce
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import PaddedRow

__all__ = ["Member", "pad_row"]


@dataclass(frozen=True, slots=True)
class Member:
    """An agent of a federation: who it is, who the others are, and what it signs with."""

    name: str
    roster: Roster
    signer: Signer

    def __post_init__(self) -> None:
        if self.name not in self.roster.agents:
            raise ConfigurationError("agent", self.name, f"one of {', '.join(self.roster.agents)}")
        if self.signer.nkey != self.roster.agents[self.name]:
            raise ConfigurationError("seed", self.signer.nkey, f"that of {self.name}, as in the roster")

    @property
    def place(self) -> int:
        """In the roster."""
        return self.roster.names.index(self.name)


def pad_row(
    row: NoisyRow,
    label: Label,
    member: Member,
    charter: Charter,
    *,
    key: SeasonKey,
    secret: bytes,
    keepers: Mapping[str, bytes],
) -> PaddedRow:
    """A row as it leaves: under a pad for each keeper, signed.

    Args:
        row: under this agent's share of noise; never kept.
        label: which.
        member: whose.
        charter: of the season.
        key: the agent's X25519 key of the season.
        secret: the agent's own of the season, for nonces.
        keepers: by name, their X25519 keys of the season: all of the roster's.
    """
    if keepers.keys() != member.roster.keepers.keys() or len(keepers) < 2:
        raise PrivacyError("a row leaves under a pad of every keeper, of whom there are two at least")
    nonce = make_nonce(secret, label, row.values)
    hidden = pads.to_words(row.values).copy()
    for keeper, public in keepers.items():
        common = key.common(public, charter, agent=member.name, keeper=keeper)
        hidden += pads.pad(common, label, nonce, len(hidden))
    return PaddedRow(label, key.public, nonce, pads.to_bytes(hidden)).sign(
        charter, member.name, member.signer
    )
