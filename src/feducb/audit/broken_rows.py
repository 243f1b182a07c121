"""DELIBERATELY BROKEN, as `broken` is: mistakes in rows that leave under pads. The audit must catch each."""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable, Mapping
from sqlite3 import Connection

import numpy as np
from numpy.typing import NDArray

from feducb.audit.checks import SECURE, Code
from feducb.errors import PrivacyError
from feducb.privacy.deployed import DeployedPrivatizer, NoisyRow
from feducb.privacy.encoders import Wide
from feducb.privacy.grid import GridNoise, certify, total
from feducb.privacy.terms import Terms
from feducb.protocol import pads
from feducb.protocol.hiding import Cover
from feducb.protocol.pads import Label
from feducb.protocol.secure_rows import KeyCard, Opened, PaddedRow
from feducb.storage import AgentStore

__all__ = ["ROW_FAULTS"]

Ints = NDArray[np.int64]


class BrokenShare(DeployedPrivatizer):
    """Noise divided between all agents: none is left over for those who are away and those who collude."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.certificate = certify(
            terms.budget,
            sensitivity=math.sqrt(2.0) * terms.radius,
            coordinates=self.certificate.coordinates,
            releases=terms.releases,
            reach=terms.reach,
            shares=terms.agents,
        )
        self._noise = GridNoise(self.certificate)


class _LooseCover(Cover):
    """Pads with any nonce, and for any keepers."""

    def pad(self, label: Label, row: Ints, nonce: bytes, cards: Mapping[str, KeyCard]) -> PaddedRow:
        words = pads.to_words(row)
        for keeper, card in cards.items():
            common = self.key.common(card.public, self.charter, agent=self.agent, keeper=keeper)
            words = words + pads.pad(common, label, nonce, len(row))
        padded = PaddedRow(label, self.key.public, nonce, pads.to_bytes(words))
        return padded.sign(self.charter, self.agent, self.signer)


class _FixedNonce(_LooseCover):
    def hide(self, label: Label, row: Ints, cards: Mapping[str, KeyCard]) -> PaddedRow:
        return self.pad(label, row, hmac.digest(self.secret, label.to_bytes(), "sha256"), cards)


class BrokenNonce(AgentStore):
    """The label alone makes the nonce: a file put back from a backup pads another row with the same pad."""

    covering = _FixedNonce


class _NoSelfPad(_LooseCover):
    def hide(self, label: Label, row: Ints, cards: Mapping[str, KeyCard]) -> PaddedRow:
        others = {keeper: card for keeper, card in cards.items() if keeper != self.agent}
        return self.pad(label, row, pads.make_nonce(self.secret, label, row), others)


class BrokenSelfPad(AgentStore):
    """A keeper has no pad for its own rows: all other keepers together see them."""

    covering = _NoSelfPad


class BrokenMove(AgentStore):
    """A batch whose row was built and not listed goes into the next one too; the list may be a lie."""

    def take_opened(self, db: Connection, opened: Opened) -> bytes | None:
        told, group = super().take_opened(db, opened), opened.label.group
        own = opened.leaf_of(self._require_member().place) is not None
        if opened.label.attempt == 1 and self._has_built(opened.label) and not own:
            stream = self._privatizers[group]
            stream._batch = stream._batch + stream._encoder._batches[opened.label.row - 1]  # type: ignore[attr-defined]
            db.execute("REPLACE INTO batches VALUES (?, ?)", (group, stream.dump_batch()))
        return told


class BrokenMakeUp(AgentStore):
    """What makes up for a row that was closed empty has its data again, of agents that had built it too."""

    def _load(self) -> None:
        super()._load()
        for door in self._privatizers:
            self._repeat(door)

    @staticmethod
    def _repeat(door: DeployedPrivatizer) -> None:
        encode, build, spent = door._encoder.encode, door.row, list[Ints]()

        def note(batch: Ints | Wide) -> Ints:
            spent.append(encode(batch))
            return spent[-1]

        def build_again(*, data: bool = True) -> NoisyRow:
            row = build(data=data)
            if not data:
                row.values = total((row.values, spent[-1]))
            return row

        vars(door._encoder).update(encode=note)
        vars(door).update(row=build_again)


class BrokenBatch(AgentStore):
    """A batch stays in the file after its row was built: opened anew, it enters the next row too."""

    def _end_batch(self, db: Connection, group: int) -> None:
        """Nothing is deleted."""


class BrokenDue(AgentStore):
    """Spaced records count from the row that they were due for, although it was missed."""

    def take_opened(self, db: Connection, opened: Opened) -> bytes | None:
        people = db.execute("SELECT last, hash FROM people").fetchall()
        told = super().take_opened(db, opened)
        db.executemany("UPDATE people SET last = ? WHERE hash = ?", people)
        return told


class BrokenHalt(AgentStore):
    """Goes on when another row of its own was listed: a file put back from a backup spends rows again."""

    def _is_foreign(self, opened: Opened) -> bool:
        return False


class ForgetfulRows(AgentStore):
    """Keeps a row in memory until it is sent: after a crash before that it is built again."""

    _before = b""

    def build_row(self, group: int = 0) -> bytes:
        self._before = self.database.serialize()
        return super().build_row(group)

    def close(self) -> None:
        lost = self._before and not self.closed and self.rows()
        super().close()
        if lost:
            self.path.write_bytes(self._before)


class BrokenDisk(AgentStore):
    """Keeps its last row as it was before it was padded, in case that a keeper gets another key."""

    def _load(self) -> None:
        super()._load()
        for door in self._privatizers:
            build = door.row

            def keep(*, data: bool = True, build: Callable[..., NoisyRow] = build) -> NoisyRow:
                row = build(data=data)
                self.database.execute("CREATE TABLE IF NOT EXISTS bare (row BLOB)")
                self.database.execute("INSERT INTO bare VALUES (?)", (row.values.tobytes(),))
                return row

            vars(door).update(row=keep)


class _Plausible(Cover):
    def hide(self, label: Label, row: Ints, cards: Mapping[str, KeyCard]) -> PaddedRow:
        if np.abs(row).max() > 2**40:
            raise PrivacyError("an implausible row is not sent")
        return Cover.hide(self, label, row, cards)


class BrokenRefusal(AgentStore):
    """Does not send a row whose numbers look too large: that it is not there tells about its data."""

    covering = _Plausible


ROW_FAULTS = {
    "noise shared with those away": Code(privatizer=BrokenShare, changes=SECURE),
    "two rows under one pad": Code(rows=BrokenNonce),
    "a keeper's own row without its pad": Code(rows=BrokenSelfPad),
    "a batch moved to another column": Code(rows=BrokenMove),
    "data again in a row made up for": Code(rows=BrokenMakeUp),
    "a record in two columns": Code(rows=BrokenBatch),
    "spaced by rows that were missed": Code(rows=BrokenDue),
    "a restored agent that goes on": Code(rows=BrokenHalt),
    "a row built again after a crash": Code(rows=ForgetfulRows),
    "bare rows on disk": Code(rows=BrokenDisk),
    "rows refused by value": Code(rows=BrokenRefusal),
}
