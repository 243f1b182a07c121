"""Rows of a clique on a graph, masked in pairs: nothing opens but the sum over all members, and nobody helps.

    κ    = HKDF-SHA256(X25519(season keys of two members); info = charter, both names, both public keys)
    mask = ChaCha20 stream under the key SHA-256(κ ‖ label ‖ nonce of the first ‖ nonce of the second)

Of two members the one that comes first in the roster adds their mask to its row and the other takes it away,
modulo 2^64. Each sends two messages a row, signed in its name for the charter, which they carry: whoever
passes them on sees that they are genuine without knowing the terms of other cliques.

    RowNonce   the season's X25519 key and a nonce          when the row is settled, data and noise
    MaskedRow  which nonces it is masked for, and the row   when the nonces of all members are here

A nonce is of one row: `make_nonce` makes it of the row itself. So a file put back from a backup has either
the row that its nonce is of, and masks the same numbers again, or another nonce, and other masks.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from feducb.errors import RefusedError
from feducb.formats import SECURE_ROWS
from feducb.protocol import pads
from feducb.protocol.hiding import Cover
from feducb.protocol.pads import KEY_SIZE, NONCE_SIZE, Charter, Label, Words, make_nonce, require_key
from feducb.protocol.roster import SIGNATURE_SIZE, Roster, Signer, verify
from feducb.protocol.secure_wire import DIGEST_SIZE, NUMBER, Reader, context_of

__all__ = ["MaskedRow", "RowNonce", "Word", "add_rows", "is_word", "mask_row", "read_word", "settle_row"]

_NONCE, _ROW = map(SECURE_ROWS.mark, ("NON", "MSK"))
_LEAF = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Word(ABC):
    """What a member says for a row, as it travels."""

    charter: str  # its digest, in hexadecimal
    agent: str  # who says it
    label: Label
    signature: bytes = b""

    def to_bytes(self, roster: Roster) -> bytes:
        """As it is stored and sent."""
        return self._body(roster) + self.signature

    def sign(self, roster: Roster, signer: Signer) -> Self:
        """With the member's signature, which is the same each time."""
        return replace(self, signature=signer.sign(self._body(roster), *self._signed_for(roster)))

    def _head(self, mark: bytes, roster: Roster) -> bytes:
        place = NUMBER.pack(roster.names.index(self.agent))
        return mark + bytes.fromhex(self.charter) + place + self.label.to_bytes()

    @abstractmethod
    def _body(self, roster: Roster) -> bytes:
        """All but the signature."""

    def _signed_for(self, roster: Roster) -> tuple[str, ...]:
        return context_of("clique", Charter(roster.federation, self.label.season, self.charter), self.agent)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowNonce(Word):
    """A member's nonce for a row, and its X25519 key of the season: 182 bytes."""

    public: bytes
    nonce: bytes

    @property
    def leaf(self) -> bytes:
        """16 bytes that only this nonce of this member has."""
        content = self.agent.encode() + b"\0" + self.label.to_bytes() + self.public + self.nonce
        return hashlib.sha256(content).digest()[:_LEAF]

    def _body(self, roster: Roster) -> bytes:
        return self._head(_NONCE, roster) + self.public + self.nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedRow(Word):
    """A member's row under its masks with all others, and which nonces they are of: 120 + 16c + 8q bytes."""

    leaves: tuple[bytes, ...]  # of the members' nonces, in the roster's order
    body: bytes = field(repr=False)  # 8q bytes

    def _body(self, roster: Roster) -> bytes:
        leaves = NUMBER.pack(len(self.leaves)) + b"".join(self.leaves)
        return self._head(_ROW, roster) + leaves + self.body


def is_word(data: bytes) -> bool:
    """Whether a message is a member's nonce or row."""
    return data.startswith((_NONCE, _ROW))


def read_word(data: bytes, roster: Roster, *, coordinates: int) -> RowNonce | MaskedRow:
    """Read what a member says and check its signature, or raise `RefusedError`.

    Whether the charter is the reader's own, and the member of its clique, is left to the caller.
    """
    mark = _ROW if data.startswith(_ROW) else _NONCE
    parts = Reader(data, mark)
    charter, place, label = parts.take(DIGEST_SIZE).hex(), parts.number(), parts.label()
    if place >= len(roster.agents):
        raise RefusedError("sender", f"there is no agent {place} in the roster")
    if label.attempt != 1:
        raise RefusedError("malformed", f"no clique makes up for a row: {label}")
    head: dict[str, Any] = {"charter": charter, "agent": roster.names[place], "label": label}
    word: RowNonce | MaskedRow
    if mark == _NONCE:
        public, nonce = parts.take(KEY_SIZE), parts.take(NONCE_SIZE)
        word = RowNonce(**head, public=public, nonce=nonce, signature=parts.take(SIGNATURE_SIZE))
    else:
        leaves = tuple(parts.take(_LEAF) for _ in range(parts.number()))
        body = parts.take(8 * coordinates)
        word = MaskedRow(**head, leaves=leaves, body=body, signature=parts.take(SIGNATURE_SIZE))
    parts.end()
    signed_for = word._signed_for(roster)
    verify(roster.agents[word.agent], word.signature, data[:-SIGNATURE_SIZE], *signed_for)
    if isinstance(word, RowNonce):
        require_key(word.public)
    return word


def settle_row(cover: Cover, label: Label, row: NDArray[np.int64]) -> tuple[RowNonce, bytes]:
    """The nonce of a row, and the row as it waits on disk for the others' nonces; both in one transaction.

    Args:
        cover: what this member hides its rows with.
        label: which row.
        row: (q,), under this member's share of noise.
    """
    nonce = make_nonce(cover.secret, label, row)
    word = RowNonce(
        charter=cover.charter.digest, agent=cover.agent, label=label, public=cover.key.public, nonce=nonce
    )
    hidden = pads.to_words(row) + _own_pad(cover, word, len(row))
    return word.sign(cover.roster, cover.signer), pads.to_bytes(hidden)


def mask_row(cover: Cover, hidden: bytes, nonces: Mapping[str, RowNonce]) -> MaskedRow:
    """A row as it leaves; to be on disk before it is sent, and what waited deleted.

    Args:
        cover: what this member hides its rows with.
        hidden: the row, as `settle_row` made it.
        nonces: of all members by name, in the roster's order: this one's own is the one that `settle_row`
            made with ``hidden``, and the others' are never exchanged for others once one was used.
    """
    own, names = nonces[cover.agent], list(nonces)
    words = pads.from_bytes(hidden)
    words = words - _own_pad(cover, own, len(words))
    for name, other in nonces.items():
        if name == cover.agent:
            continue
        comes_first = names.index(cover.agent) < names.index(name)
        first, second = (own, other) if comes_first else (other, own)
        common = cover.key.common(other.public, cover.charter, agent=first.agent, keeper=second.agent)
        mask = pads.pad(common, own.label, first.nonce + second.nonce, len(words))
        words = words + mask if comes_first else words - mask
    masked = MaskedRow(
        charter=cover.charter.digest,
        agent=cover.agent,
        label=own.label,
        leaves=tuple(one.leaf for one in nonces.values()),
        body=pads.to_bytes(words),
    )
    return masked.sign(cover.roster, cover.signer)


def add_rows(rows: Iterable[MaskedRow]) -> NDArray[np.int64]:
    """(q,), the sum of the rows of all members: their masks cancel, modulo 2^64."""
    total = np.stack([pads.from_bytes(row.body) for row in rows]).sum(axis=0, dtype=np.uint64)
    return np.asarray(total).view(np.int64)


def _own_pad(cover: Cover, nonce: RowNonce, count: int) -> Words:
    """Hides a row that waits, in what is left of the file once the season's key is deleted."""
    common = cover.key.common(cover.key.public, cover.charter, agent=cover.agent, keeper=cover.agent)
    return pads.pad(common, nonce.label, nonce.nonce, count)
