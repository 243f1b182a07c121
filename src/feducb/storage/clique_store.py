"""What an agent's file does for secure sums on a graph: rows are masked for the clique, and open with it.

    settled   the row is built and its nonce made       what waits enters it, and its nonce may leave
    masked    the nonces of all members are here        the row may leave
    over      the rows of all members are here          their sum is read, and the next row may be settled

A member is never more than one message ahead of another. So whatever a member says proves what this agent has
sent before; where its file does not have that, another copy of it was at work, and it halts for the season.
"""

from __future__ import annotations

import sqlite3

import numpy as np
from numpy.typing import NDArray

from feducb.errors import PrivacyError, RefusedError
from feducb.privacy.rows import require_in_range
from feducb.protocol import messages
from feducb.protocol.admission import require_definite
from feducb.protocol.masks import MaskedRow, RowNonce, add_rows, mask_row, read_word, settle_row
from feducb.protocol.pads import Label
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.protocol.secure_rows import Listed, Opened
from feducb.storage import agent_rows
from feducb.storage.row_store import RowStore

__all__ = ["CliqueStore"]


class CliqueStore(RowStore):
    """Rows of an agent on a graph; with a controller, those of a `RowStore`.

    Guarantees:
        A row is settled once, with its nonce: data, noise, nonce and the end of the batch are one
        transaction, and the row waits under a pad until it is masked. It is masked once, for the first nonce
        that came of each member. A row is over when every member's is here, masked for the same nonces.
    """

    @property
    def clique(self) -> tuple[str, ...]:
        """The members, in the roster's order; empty with a controller."""
        return () if self.member is None else self.member.clique

    def may_build(self, group: int = 0) -> bool:
        """As `RowStore.may_build`; in a clique no keys are needed."""
        if not self.clique:
            return super().may_build(group)
        label = self.next_label(group)
        left = self.terms.trust.padded and label.row <= self.terms.releases and not self.silent
        return left and not self.halted and self._built(label, ParcelKind.NONCE) is None

    def build_row(self, group: int = 0) -> bytes:
        """As `RowStore.build_row`; in a clique settle the next row, and return its nonce."""
        if not self.clique:
            return super().build_row(group)
        label, stream = self.next_label(group), self._privatizers[group]
        if not self.may_build(group):
            why = self.halted or "the row before is not over, or it is settled already"
            raise PrivacyError(f"{label} cannot be built: {why}")
        with self.writing() as db:
            nonce, hidden = settle_row(self._cover(db), label, stream.row().values)
            payload = nonce.to_bytes(self._require_member().roster)
            self._put_out(db, ParcelKind.NONCE, label.row, payload, group=group)
            db.execute("INSERT INTO settled VALUES (?, ?)", (group, hidden))
            self._end_batch(db, group)
            self._keep_stream(db, group)
            self._mask(db, label)
        return payload

    def rows(self) -> list[Parcel]:
        """As `RowStore.rows`; in a clique, sent or not, all that a member may lack still, in its order.

        That this agent has everybody's row does not say that they have this one's; nonces for the next do.
        """
        if not self.clique:
            return super().rows()
        words: list[Parcel] = []
        for group in range(self.terms.groups):
            label = self.next_label(group)
            if label.row == 1:  # the last row of the season before: a member may be in that one still
                words += self._last_words(group)
            words += self._words(self.season, group, label.row - 1)
        return words

    def _last_words(self, group: int) -> list[Parcel]:
        last = "SELECT season, max(number) FROM outgoing WHERE season < ? AND \"group\" = ? AND kind = 'row'"
        query = f"{last} GROUP BY season ORDER BY season DESC LIMIT 1"
        row = self.database.execute(query, (self.season, group)).fetchone()
        return [] if row is None else self._words(row[0], group, row[1])

    def _words(self, season: int, group: int, least: int) -> list[Parcel]:
        """What was said about rows of this number and later ones."""
        rows = self.database.execute(
            'SELECT kind, number, payload FROM outgoing WHERE season = ? AND "group" = ? AND number >= ?'
            " AND kind IN ('nonce', 'row') ORDER BY number, kind",
            (season, group, least),
        )
        return [Parcel(ParcelKind(kind), season, group, number, bytes(body)) for kind, number, body in rows]

    def hear(self, db: sqlite3.Connection, data: bytes) -> tuple[bool, bytes | None]:
        """As `RowStore.hear`; in a clique take in what a member says.

        Raises:
            RefusedError: it is no word of a member, or one for another row than the next. If it is ``order``
                or ``season`` it came too early, and is to be told again.
        """
        if not self.clique:
            return super().hear(db, data)
        with self.part(db):
            word = self._read_word(data)
            if word.label.season < self.season:
                return False, None
            expected = self.next_label(word.label.group)
            foreign = self._foreign(word, data)
            if foreign:
                agent_rows.halt(db, foreign)
            if foreign or self.halted or word.label < expected or word.agent == self._require_member().name:
                return False, None
            if word.label != expected:
                raise RefusedError("order", f"{word.label}, expected {expected}")
            if not self._is_new(db, word, data):
                return False, None
            kind = ParcelKind.NONCE if isinstance(word, RowNonce) else ParcelKind.ROW
            db.execute("INSERT INTO said VALUES (?, ?, ?, ?)", (word.label.group, kind, word.agent, data))
            self._mask(db, word.label)
            return True, self._open(db, word.label)

    def _read_word(self, data: bytes) -> RowNonce | MaskedRow:
        """What a member of the clique signed for this charter, about a row that there is."""
        word = self._decoded(data)
        label, season = word.label, self.season
        if word.agent not in self.clique:
            raise RefusedError("sender", f"{word.agent}, which is not of this clique")
        if label.season > season:
            raise RefusedError("season", f"{label}, expected season {season}")
        if label.season < season:
            return word  # it is over
        if word.charter != self.charter.digest:
            raise RefusedError("terms", "of a member with other terms or another roster")
        if label.group >= self.terms.groups or label.row > self.terms.releases:
            raise RefusedError("number", f"{label}, which is beyond what was agreed")
        return word

    def _foreign(self, word: RowNonce | MaskedRow, data: bytes) -> str:
        """Why another copy of this agent must have been at work, if a word proves it; else empty."""
        label, is_nonce = word.label, isinstance(word, RowNonce)
        copy = "another copy of this agent has sent"
        if word.agent == self._require_member().name:
            own = self._built(label, ParcelKind.NONCE if is_nonce else ParcelKind.ROW)
            return "" if own == data else f"{copy} something else for {label}"
        before = label if not is_nonce else Label(label.season, label.group, label.row - 1)
        kind = ParcelKind.ROW if is_nonce else ParcelKind.NONCE
        own = self._built(before, kind)
        if own is None:
            return f"{copy} {kind} {before.row}, which is not in this file" if before.row else ""
        if isinstance(word, MaskedRow) and len(word.leaves) == len(self.clique):
            leaf = word.leaves[self.clique.index(self._require_member().name)]
            nonce = self._decoded(own)
            if not isinstance(nonce, RowNonce) or leaf != nonce.leaf:
                return f"{copy} another nonce for {label}"
        return ""

    def _is_new(self, db: sqlite3.Connection, word: RowNonce | MaskedRow, data: bytes) -> bool:
        """Whether a word for the next row is; raises `RefusedError` if it contradicts what is known."""
        kind = ParcelKind.NONCE if isinstance(word, RowNonce) else ParcelKind.ROW
        known = self._said(db, kind, word.label.group).get(word.agent)
        if known is not None and known != data:
            raise RefusedError("replay", f"{kind} of {word.label} is known with other content")
        if known is None and isinstance(word, MaskedRow):
            nonces = self._nonces(db, word.label)
            if nonces is None:
                raise RefusedError("order", f"{word.label}, before all nonces for it")
            if word.leaves != tuple(nonce.leaf for nonce in nonces.values()):
                raise RefusedError("list", f"{word.label}, masked for other nonces than are known here")
        return known is None

    def _mask(self, db: sqlite3.Connection, label: Label) -> None:
        """Mask the row that is settled, if all nonces are here."""
        nonces = self._nonces(db, label)
        if nonces is None or self._built(label) is not None:
            return
        (hidden,) = db.execute('SELECT hidden FROM settled WHERE "group" = ?', (label.group,)).fetchone()
        masked = mask_row(self._cover(db), bytes(hidden), nonces)
        payload = masked.to_bytes(self._require_member().roster)
        self._put_out(db, ParcelKind.ROW, label.row, payload, group=label.group)
        db.execute('DELETE FROM settled WHERE "group" = ?', (label.group,))

    def _open(self, db: sqlite3.Connection, label: Label) -> bytes | None:
        """Read the sum if all rows are here: the row is over then."""
        own = self._built(label)
        said = self._said(db, ParcelKind.ROW, label.group)
        if own is None or len(said) < len(self.clique) - 1:
            return None
        rows = [self._decoded(one) for one in (own, *said.values())]
        values = add_rows(row for row in rows if isinstance(row, MaskedRow))
        roster = self._require_member().roster
        listed = tuple(Listed(roster.names.index(name), b"") for name in self.clique)
        opened = Opened(label, listed, (), values, self._why_unused(label.group, values))
        db.execute('DELETE FROM said WHERE "group" = ?', (label.group,))
        return self._end_row(db, opened)

    def _why_unused(self, group: int, values: NDArray[np.int64]) -> str:
        """Why a sum is not used, by what all members see; empty if it is. Single rows nobody sees."""
        stream = self._privatizers[group]
        before = stream.dump()
        self._moves += 1
        try:
            require_in_range(values, self.terms)
            told = stream.read(values, agents=len(self.clique))
            require_definite(messages.decode(messages.encode(told, season=self.season, group=group)))
        except RefusedError as error:
            return error.reason
        finally:
            stream.load(before)
        return ""

    def _nonces(self, db: sqlite3.Connection, label: Label) -> dict[str, RowNonce] | None:
        """By member, in the roster's order; None unless all are here, the own one too."""
        own = self._built(label, ParcelKind.NONCE)
        said = self._said(db, ParcelKind.NONCE, label.group)
        if own is None or len(said) < len(self.clique) - 1:
            return None
        said[self._require_member().name] = own
        words = {name: self._decoded(said[name]) for name in self.clique}
        return {name: word for name, word in words.items() if isinstance(word, RowNonce)}

    def _said(self, db: sqlite3.Connection, kind: ParcelKind, group: int) -> dict[str, bytes]:
        """By member, what the others said for the next row."""
        query = 'SELECT agent, message FROM said WHERE "group" = ? AND kind = ?'
        return {agent: bytes(message) for agent, message in db.execute(query, (group, kind))}

    def _decoded(self, data: bytes) -> RowNonce | MaskedRow:
        count = self.terms.model.coordinates(self.terms.problem.dim)
        return read_word(data, self._require_member().roster, coordinates=count)
