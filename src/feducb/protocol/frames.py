"""What agents and controllers say to each other through a broker: a body, and who signed it for what.

    body ‖ signature (64 bytes, Ed25519 over "feducb", what it is, the federation, who, and the body)

Receipts repeat the hash of what they are for, so that one cannot stand for another.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping

from feducb.errors import RefusedError
from feducb.protocol.admission import REASONS, Receipt
from feducb.protocol.roster import SIGNATURE_SIZE, Roster, Signer, verify

__all__ = ["OriginSeal", "Seal", "frame", "join", "read_receipt", "split", "unframe", "write_receipt"]

_DIGEST = 32
_LENGTH = 4
_LONGEST_RECEIPT = 4096


def frame(signer: Signer, body: bytes, *context: str) -> bytes:
    """A body, signed for a context: what it is, the federation, who says it."""
    return body + signer.sign(body, *context)


def unframe(nkey: str, data: bytes, *context: str) -> bytes:
    """The body; raises `RefusedError` unless the key's owner signed it for this context."""
    if len(data) < SIGNATURE_SIZE:
        raise RefusedError("size", f"{len(data)} bytes, expected at least {SIGNATURE_SIZE}")
    body = data[:-SIGNATURE_SIZE]
    verify(nkey, data[-SIGNATURE_SIZE:], body, *context)
    return body


def join(parts: Iterable[bytes]) -> bytes:
    """Several messages in one: each after its length."""
    return b"".join(len(part).to_bytes(_LENGTH, "little") + part for part in parts)


def split(data: bytes) -> list[bytes]:
    """Back from `join`, at least one; raises `RefusedError` on anything else."""
    parts: list[bytes] = []
    while data:
        size = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
        if len(data) < size:
            break
        parts.append(data[_LENGTH:size])
        data = data[size:]
    if data or not parts:
        raise RefusedError("malformed", "not several messages in one")
    return parts


def write_receipt(request: bytes, receipt: Receipt) -> bytes:
    """A receipt for a request."""
    plain = receipt._replace(text=receipt.text[:1000])._asdict()
    return hashlib.sha256(request).digest() + json.dumps(plain).encode()


def read_receipt(request: bytes, body: bytes) -> Receipt:
    """Read what `write_receipt` wrote for this request; raises ``ValueError`` on anything else."""
    if len(body) > _LONGEST_RECEIPT or body[:_DIGEST] != hashlib.sha256(request).digest():
        raise ValueError("a receipt for something else")
    plain = json.loads(body[_DIGEST:])
    if not isinstance(plain, Mapping) or plain.get("status") not in ("stored", "known", "past", "refused"):
        raise ValueError("a receipt without a status")
    reason = plain.get("reason")
    at = plain.get("at")  # an older controller does not say
    return Receipt(
        plain["status"],
        reason if reason in REASONS else "",
        str(plain.get("text", "")),
        float(at) if isinstance(at, int | float) and math.isfinite(at) else None,
    )


class Seal:
    """Tells a release of its origin from one that a forwarding agent made up.

    This one signs nothing: it is for one process, where nobody is in between.
    """

    def sign(self, payload: bytes) -> bytes:
        """The own release, and after it what tells others whose it is."""
        return payload

    def open(self, origin: str, signed: bytes) -> bytes:
        """A release, or `RefusedError` if it is not the origin's."""
        return signed


class OriginSeal(Seal):
    """Signs own releases for a graph with an nkey, and tells others' by the roster."""

    def __init__(self, roster: Roster, agent: str, signer: Signer) -> None:
        self._roster, self._agent, self._signer = roster, agent, signer

    def sign(self, payload: bytes) -> bytes:
        """The own release, signed for this federation."""
        return frame(self._signer, payload, "release", self._roster.federation, self._agent)

    def open(self, origin: str, signed: bytes) -> bytes:
        """The release, which its origin signed for this federation."""
        return unframe(self._roster.agents[origin], signed, "release", self._roster.federation, origin)
