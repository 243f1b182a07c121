"""How messages of secure sums are written, read and signed; what they say is in `secure_rows`."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from feducb.errors import RefusedError
from feducb.formats import SECURE_ROWS
from feducb.protocol.pads import Charter, Label
from feducb.protocol.roster import verify

__all__ = [
    "CONTROLLER",
    "DIGEST_SIZE",
    "LABEL_SIZE",
    "MARK_SIZE",
    "NUMBER",
    "Reader",
    "context_of",
    "require_season",
    "require_signature",
]

CONTROLLER = "+controller"  # no agent's name begins like this
MARK_SIZE, LABEL_SIZE, DIGEST_SIZE = 4, 16, 32
NUMBER = struct.Struct("<H")


class Reader:
    """Takes a message apart; whatever does not fit is a `RefusedError`."""

    def __init__(self, data: bytes, mark: bytes) -> None:
        self._data, self._at = data, 0
        if (given := self.take(MARK_SIZE)) != mark:
            raise RefusedError("malformed", f"a message with {SECURE_ROWS.unlike(given, mark)}")

    def take(self, size: int) -> bytes:
        """So many bytes more."""
        part = self._data[self._at : self._at + size]
        if len(part) != size:
            raise RefusedError("size", f"a message of {len(self._data)} bytes, which ends too early")
        self._at += size
        return part

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """What has this form."""
        return form.unpack(self.take(form.size))

    def several(self, form: struct.Struct) -> Iterator[tuple[Any, ...]]:
        """As many of this form as the number before them says."""
        return form.iter_unpack(self.take(self.number() * form.size))

    def number(self) -> int:
        """Of two bytes."""
        return int(NUMBER.unpack(self.take(NUMBER.size))[0])

    def label(self) -> Label:
        """Of 16 bytes."""
        return Label.from_bytes(self.take(LABEL_SIZE))

    def end(self) -> None:
        """Nothing may follow."""
        if self._at != len(self._data):
            raise RefusedError("size", f"a message of {len(self._data)} bytes, expected {self._at}")


def require_season(label: Label, charter: Charter) -> Label:
    """The label, if it is of the charter's season; the signature would not fit either, but this says why."""
    if label.season != charter.season:
        raise RefusedError("season", f"{label}, expected season {charter.season}")
    return label


def context_of(kind: str, charter: Charter, who: str) -> tuple[str, ...]:
    """What everything here is signed for; no other messages of a federation begin like this."""
    return "secure sums", kind, charter.federation, charter.digest, who


def require_signature(
    nkey: str | None, signature: bytes, body: bytes, kind: str, charter: Charter, who: str
) -> None:
    """Raise `RefusedError` unless the key's owner signed this as a message of this kind, in this name."""
    assert nkey is not None  # a roster with keepers has a controller
    try:
        verify(nkey, signature, body, *context_of(kind, charter, who))
    except RefusedError as error:
        whose = f"{kind}: not signed by {who.lstrip('+')} for this season, roster and terms"
        raise RefusedError(error.reason, whose) from None
