"""Proof that a controller signed two lists for one row, for everybody in the federation to check."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from feducb.errors import RefusedError
from feducb.formats import SECURE_ROWS
from feducb.protocol.pads import Charter, Label
from feducb.protocol.roster import SIGNATURE_SIZE, Roster
from feducb.protocol.secure_wire import CONTROLLER, DIGEST_SIZE, Reader, require_season, require_signature

__all__ = ["SignedList", "TwoLists"]

_TWO = SECURE_ROWS.mark("TWO")
_SIGNED = struct.Struct(f"{DIGEST_SIZE}s{SIGNATURE_SIZE}s")


class SignedList(NamedTuple):
    """That the controller signed a list, in short."""

    digest: bytes  # SHA-256 of the entries and their number
    signature: bytes

    def content(self, label: Label) -> bytes:
        """What the controller signed."""
        return label.to_bytes() + self.digest

    def to_bytes(self) -> bytes:
        """96 bytes."""
        return _SIGNED.pack(*self)

    @classmethod
    def from_bytes(cls, data: bytes) -> SignedList:
        """Back from `to_bytes`; the signature is not checked."""
        return cls(*_SIGNED.unpack(data))

    def require(self, label: Label, charter: Charter, roster: Roster) -> None:
        """Raise `RefusedError` unless the controller signed it for this row."""
        require_signature(roster.controller, self.signature, self.content(label), "ask", charter, CONTROLLER)


@dataclass(frozen=True, slots=True)
class TwoLists:
    """Proof that the controller signed two lists for a row; an honest one that has its file never does."""

    label: Label
    lists: tuple[SignedList, SignedList]  # by digest, rising

    @classmethod
    def of(cls, label: Label, one: SignedList, other: SignedList) -> TwoLists:
        """From both, in either order."""
        return cls(label, (min(one, other), max(one, other)))

    def to_bytes(self) -> bytes:
        """212 bytes; whoever knows the roster and the terms can check them."""
        return _TWO + self.label.to_bytes() + b"".join(one.to_bytes() for one in self.lists)

    @classmethod
    def read(cls, data: bytes, charter: Charter, roster: Roster) -> TwoLists:
        """Read a proof and check it, or raise `RefusedError`."""
        parts = Reader(data, _TWO)
        label = require_season(parts.label(), charter)
        one, other = (SignedList.from_bytes(parts.take(_SIGNED.size)) for _ in range(2))
        parts.end()
        if one.digest >= other.digest:
            raise RefusedError("malformed", "not two lists, or out of order")
        for signed in (one, other):
            signed.require(label, charter, roster)
        return cls(label, (one, other))
