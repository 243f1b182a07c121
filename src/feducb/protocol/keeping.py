"""A keeper's rules, without sockets and disks: which list it may answer, and what the answer is.

    honest keeper: one list a row, of rows that their agents signed, quorum or more of them, rows in order

All that a keeper protects follows from its answering one list for a row: whoever holds the sum of its pads
for one list learns the sum of those rows, and nothing else of any of them (docs/cryptography.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feducb.errors import RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol import pads
from feducb.protocol.pads import Charter, Label, SeasonKey
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import Answer, Ask, KeyCard, list_digest, require_list, require_signed
from feducb.trust import Keepers

__all__ = ["Duty", "quorum_of"]


def quorum_of(terms: Terms) -> int:
    """M − D, how many agents a row needs."""
    assert isinstance(terms.trust, Keepers)
    return terms.trust.quorum(terms.agents)


@dataclass(frozen=True, slots=True)
class Duty:
    """What a keeper holds to in a season; it has no state, its book has.

    Attributes:
        keeper: its name.
        roster: who is in the federation.
        terms: what is promised.
        season: which.
        signer: in the keeper's name, with the key that it has as a keeper.
        key: its X25519 key of this season.
        charter: of the season.
    """

    keeper: str
    roster: Roster
    terms: Terms
    season: int
    signer: Signer
    key: SeasonKey
    charter: Charter

    def card(self) -> bytes:
        """The public part of the key, signed."""
        return KeyCard.make(self.charter, self.keeper, self.key.public, self.signer).to_bytes(self.roster)

    def read(self, data: bytes) -> Ask:
        """Read what claims to be the controller's list, or raise `RefusedError`; rows are not looked at."""
        ask = Ask.read(data, self.charter, self.roster)
        if ask.label.group >= self.terms.groups or ask.label.row > self.terms.releases:
            raise RefusedError("number", f"{ask.label}, which is beyond what was agreed")
        return ask

    def require_next(self, label: Label, last: tuple[Label, bool] | None) -> None:
        """Raise `RefusedError` unless this is the next row to answer.

        Args:
            label: the one asked for.
            last: the newest that was answered in its group, and whether its list was empty.
        """
        first = Label(self.season, label.group, 1)
        expected = first if last is None else last[0].following(empty=last[1])
        if label != expected:
            raise RefusedError("order", f"{label}, expected {expected}")

    def answer(self, ask: Ask) -> Answer:
        """The sum of pads for a list that is checked here, row by row; to be on disk before it is sent."""
        require_list([entry.place for entry in ask.entries], self.roster, quorum_of(self.terms))
        count = self.terms.model.coordinates(self.terms.problem.dim)
        agents = [require_signed(entry, ask.label, self.charter, self.roster) for entry in ask.entries]
        total = np.zeros(count, dtype=np.uint64)
        for agent, entry in zip(agents, ask.entries, strict=True):
            common = self.key.common(entry.public, self.charter, agent=agent, keeper=self.keeper)
            total += pads.pad(common, ask.label, entry.nonce, count)
        digest = list_digest(ask.label, ask.listed(self.roster))
        return Answer(self.keeper, ask.label, digest, pads.to_bytes(total)).sign(self.charter, self.signer)
