"""What an agent's file does for secure sums: rows out under pads, rows that are over in."""

from __future__ import annotations

import sqlite3

from feducb.errors import ConfigurationError, PrivacyError, RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.hiding import Cover, Member
from feducb.protocol.keeping import quorum_of
from feducb.protocol.pads import Charter, Label
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.protocol.secure_rows import KeyCard, Opened, PaddedRow, is_card
from feducb.storage import agent_rows, row_counts
from feducb.storage.sqlite import utc_now
from feducb.storage.store import Store

__all__ = ["RowStore"]


class RowStore(Store):
    """Rows of an agent: built once each, spent when they are built, skipped on a certificate alone."""

    member: Member | None = None  # who it is among the others; needed where rows leave under pads
    covering: type[Cover] = Cover
    _charter: tuple[tuple[Member, Terms, int], Charter] | None = None

    def may_build(self, group: int = 0) -> bool:
        """Whether the next row can be built: the one before is over, and all keepers' keys are here."""
        if self.member is None or self.silent or self.terms.trust.padded is False:
            return False
        label = self.next_label(group)
        if label.row > self.terms.releases or self.halted or self._has_built(label):
            return False
        keepers = self.member.roster.keepers.keys()
        return bool(keepers) and keepers == agent_rows.cards(self.database).keys()

    def next_label(self, group: int = 0) -> Label:
        """The row that comes next: the one after the newest that is over."""
        return agent_rows.next_label(self.database, self.season, self._require_group(group))

    def place(self) -> bytes:
        """The newest row of the first group that is over, as 16 bytes; none if there is none."""
        newest = agent_rows.newest_opened(self.database, self.season, 0)
        return b"" if newest is None else newest[0].to_bytes()

    @property
    def halted(self) -> str:
        """Why no row is built any more in this season; empty if they are."""
        return agent_rows.secrets_of(self.database).halted if self.terms.trust.padded else ""

    @property
    def charter(self) -> Charter:
        """What all have agreed on for this season; made once, since it is of the whole roster."""
        agreed = (self._require_member(), self.terms, self.season)
        if self._charter is None or self._charter[0] != agreed:
            agreed[0].require_hidden(self.terms)
            self._charter = (agreed, Charter.of(agreed[0].roster, *agreed[1:]))
        return self._charter[1]

    def require_same_charter(self) -> None:
        """Raise if keepers have shown keys for another roster: a row would be spent that nobody can open.

        Before the first row of the season such keys are deleted instead, and keepers show others.
        """
        if self.member is None or not self.terms.trust.padded or self.member.clique:
            return
        try:
            for card in agent_rows.cards(self.database).values():
                card.require(self.charter, self.member.roster)
        except RefusedError:
            if any(row_counts.count_rows(self.database, self.season)):
                expected = f"that of season {self.season} in {self.path}; another one needs a new season"
                raise ConfigurationError("roster", self.member.roster.federation, expected) from None
            with self.writing() as db:
                db.execute("DELETE FROM cards")

    def build_row(self, group: int = 0) -> bytes:
        """Build the next row: data, a share of noise, pads.

        Guarantees:
            The padded bytes, the encoder's new state and the end of the batch are one transaction; the bare
            row and its noise are nowhere on disk. Once it is built a row is spent: made again, for a row that
            was closed empty, it has noise alone.
        """
        self._require_member()
        label = self.next_label(group)
        if not self.may_build(group):
            why = self.halted or "the row before is not over, or a keeper's key is not here yet"
            raise PrivacyError(f"{label} cannot be built: {why}")
        stream = self._privatizers[group]
        with self.writing() as db:
            with_data = stream.released < label.row
            row = stream.row(data=with_data)
            padded = self._cover(db).hide(label, row.values, agent_rows.cards(db))
            kind = ParcelKind.ROW if label.attempt == 1 else ParcelKind.MAKE_UP
            self._put_out(db, kind, label.row, padded.to_bytes(), group=group)
            if with_data:
                self._end_batch(db, group)
            self._keep_stream(db, group)
        return padded.to_bytes()

    def rows(self) -> list[Parcel]:
        """Rows not yet reported sent whose sums are open still."""
        return [*self._unsent(ParcelKind.ROW), *self._unsent(ParcelKind.MAKE_UP)]

    def mark_row_sent(self, item: Parcel) -> None:
        """The controller has a row on disk; it stays here until its sum is over."""
        self._sent(item.kind, item.season, item.number, group=item.group)

    def hear(self, db: sqlite3.Connection, data: bytes) -> tuple[bool, bytes | None]:
        """Take in, within `writing`, what is said about secure sums: a keeper's key, or a row that is over.

        Returns:
            Whether it is new; and what all rows so far tell, if they tell more by it.

        Raises:
            RefusedError: it does not prove itself, or is not the next row.
        """
        if is_card(data):
            return self.take_card(db, data), None
        opened = self.read_opened(data)
        if opened.label < self.next_label(opened.label.group):
            return False, None
        return True, self.take_opened(db, opened)

    def take_card(self, db: sqlite3.Connection, data: bytes) -> bool:
        """Take a keeper's key of the season in, within `writing`; the first stays, another one is refused."""
        card = KeyCard.read(data, self.charter, self._require_member().roster)
        known = agent_rows.cards(db).get(card.keeper)
        if known is not None and known.public != card.public:
            raise RefusedError("key", f"keeper {card.keeper} has another key of this season already")
        if known is None:
            agent_rows.put_card(db, card)
        return known is None

    def read_opened(self, data: bytes) -> Opened:
        """Read a row that is over, all signatures checked."""
        roster, terms = self._require_member().roster, self.terms
        count = terms.model.coordinates(terms.problem.dim)
        return Opened.read(data, self.charter, roster, coordinates=count, quorum=quorum_of(terms))

    def take_opened(self, db: sqlite3.Connection, opened: Opened) -> bytes | None:
        """Take in, within `writing`, that a row is over; what all rows so far tell, if this one tells more.

        Guarantees:
            A row is skipped only on its certificate. An agent that is listed under a row that it does not
            have halts for the season: its file is older than the federation.

        Raises:
            RefusedError: it is not the next row.
        """
        label = opened.label
        with self.part(db):
            if label != self.next_label(label.group):
                raise RefusedError("order", f"{label}, expected {self.next_label(label.group)}")
            if self._is_foreign(opened):
                agent_rows.halt(db, f"another copy of this agent is in {label}: this file is older than it")
            over = 'season = ? AND "group" = ? AND number <= ? AND sent_at IS NULL'
            db.execute(
                f"UPDATE outgoing SET sent_at = ? WHERE {over} AND kind IN ('row', 'make-up')",
                (utc_now(), label.season, label.group, label.row),
            )
            return self._end_row(db, opened)

    def _end_row(self, db: sqlite3.Connection, opened: Opened) -> bytes | None:
        """Note that a row is over, and read it with all before; what they tell, if this one tells more."""
        label, stream = opened.label, self._privatizers[self._require_group(opened.label.group)]
        listed, agents = opened.leaf_of(self._require_member().place) is not None, len(opened.listed)
        agent_rows.put_opened(db, label, agents=agents, refused=opened.refused, listed=listed)
        if label.following(empty=opened.empty).row == label.row:
            return None  # it is made up for
        self._moves += 1
        if stream.released < label.row:
            stream.skip()  # what waits enters a later row, and spaced records count from there
            db.execute("UPDATE people SET last = last + 1 WHERE last = ?", (label.row,))
        told = stream.read(None if opened.refused else opened.values, agents=agents)
        self._keep_stream(db, label.group)
        unused = opened.empty or bool(opened.refused)
        return None if unused else messages.encode(told, season=self.season, group=label.group)

    def _cover(self, db: sqlite3.Connection) -> Cover:
        """What this agent hides its rows with."""
        member, (key, secret, _) = self._require_member(), agent_rows.secrets_of(db)
        return self.covering(member.name, member.roster, member.signer, key, secret, self.charter)

    def _keep_stream(self, db: sqlite3.Connection, group: int) -> None:
        """What waits is kept by itself: it may outlast the row."""
        state = self._privatizers[group].dump(waiting=False)
        db.execute('UPDATE streams SET state = ? WHERE "group" = ?', (state, group))

    def _is_foreign(self, opened: Opened) -> bool:
        """Whether the list has a row of this agent that is not the one it built."""
        member = self._require_member()
        leaf = opened.leaf_of(member.place)
        if leaf is None:
            return False
        own, count = self._built(opened.label), self.terms.model.coordinates(self.terms.problem.dim)
        if own is None:
            return True
        entry = PaddedRow.read(own, coordinates=count).entry(member.place)
        return entry.listed(member.name).leaf != leaf

    def _has_built(self, label: Label) -> bool:
        return self._built(label) is not None

    def _built(self, label: Label, kind: ParcelKind | None = None) -> bytes | None:
        kind = kind or (ParcelKind.ROW if label.attempt == 1 else ParcelKind.MAKE_UP)
        name = 'kind = ? AND season = ? AND "group" = ? AND number = ?'
        query = f"SELECT payload FROM outgoing WHERE {name}"
        row = self.database.execute(query, (kind, label.season, label.group, label.row)).fetchone()
        return None if row is None else bytes(row[0])

    def _require_member(self) -> Member:
        if self.member is None:
            raise ConfigurationError("member", None, "the agent's roster and seed, under trust='keepers'")
        return self.member
