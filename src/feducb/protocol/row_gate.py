"""What a controller takes in where rows are padded: checked by what can be seen without anybody's secrets."""

from __future__ import annotations

from dataclasses import dataclass

from feducb.errors import ConfigurationError, RefusedError
from feducb.privacy.rows import largest_sum
from feducb.privacy.terms import Terms
from feducb.protocol.admission import Receipt, refusal
from feducb.protocol.pads import Charter, require_key
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import Answer, KeyCard, PaddedRow, is_card, require_signed

__all__ = ["RowGate"]


@dataclass(frozen=True, slots=True)
class RowGate:
    """Reads agents' rows and keepers' words of one season.

    Attributes:
        roster: with keepers.
        terms: of everybody.
        season: the open one.
        charter: of the season.
    """

    roster: Roster
    terms: Terms
    season: int
    charter: Charter

    @classmethod
    def of(cls, roster: Roster, terms: Terms, signer: Signer, *, season: int) -> RowGate:
        """The gate of a season; raises `ConfigurationError` unless all of it goes together."""
        if not roster.keepers:
            expected = "one with keepers: `feducb keys init … --keepers` makes it"
            raise ConfigurationError("roster", roster.federation, expected)
        if not terms.trust.padded:
            raise ConfigurationError("trust", terms.trust.name, "keepers, for a roster's keepers to be used")
        if terms.agents != len(roster.agents):
            expected = f"{len(roster.agents)}, as many as the roster has"
            raise ConfigurationError("agents", terms.agents, expected)
        if signer.nkey != roster.controller:
            raise ConfigurationError("seed", signer.nkey, "that of the controller, as in the roster")
        largest_sum(terms)  # or rows could wrap where they are added up
        return cls(roster, terms, season, Charter.of(roster, terms, season))

    @property
    def coordinates(self) -> int:
        """q."""
        return self.terms.model.coordinates(self.terms.problem.dim)

    def row(self, agent: str, payload: bytes) -> PaddedRow | Receipt:
        """A row of an agent, as the link authenticated it; or what it is told instead."""
        try:
            return self._row(agent, payload)
        except RefusedError as error:
            return refusal(error)

    def _row(self, agent: str, payload: bytes) -> PaddedRow | Receipt:
        if agent not in self.roster.agents:
            raise RefusedError("sender", f"{agent[:64]!r} is not of this federation")
        row = PaddedRow.read(payload, coordinates=self.coordinates)
        if row.label.season < self.season:
            return Receipt("past")
        if row.label.season > self.season:
            raise RefusedError("season", f"season {row.label.season}, expected {self.season}")
        if row.label.group != 0:
            raise RefusedError("group", f"group {row.label.group}, expected 0 with a controller")
        if row.label.row > self.terms.releases:
            raise RefusedError("number", f"row {row.label.row}, expected 1 to {self.terms.releases}")
        place = self.roster.names.index(agent)
        require_signed(row.entry(place), row.label, self.charter, self.roster)
        require_key(row.public)  # or keepers refuse every list with this row in it, and the list is final
        return row

    def word(self, keeper: str, payload: bytes) -> KeyCard | Answer | Receipt:
        """A keeper's card or answer; or what it is told instead."""
        try:
            word = self._word(payload)
            if word.keeper != keeper:
                raise RefusedError("sender", f"a word of keeper {word.keeper}, sent by {keeper[:64]!r}")
            return word
        except RefusedError as error:
            return refusal(error)

    def _word(self, payload: bytes) -> KeyCard | Answer:
        if is_card(payload):
            return KeyCard.read(payload, self.charter, self.roster)
        return Answer.read(payload, self.charter, self.roster, coordinates=self.coordinates)
