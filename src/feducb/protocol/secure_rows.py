"""What travels for secure sums: padded rows, lists of them, keepers' answers, sums that opened.

    KeyCard   keeper → everybody   its X25519 key of the season
    PaddedRow agent → controller   a row under noise and pads
    Ask       controller → keepers the list of rows to be added up; final
    Answer    keeper → controller  the sum of its pads for that list
    Opened    controller → all     the certificate (list, all keepers' signatures) and the sum of the rows

Everything is signed for its charter (`pads.Charter`), and has one way to be written. All whole numbers are
little-endian. Agents are named by their place in the roster.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from operator import ge
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feducb.errors import RefusedError
from feducb.formats import SECURE_ROWS
from feducb.protocol import pads
from feducb.protocol.pads import KEY_SIZE, NONCE_SIZE, Charter, Label
from feducb.protocol.roster import SIGNATURE_SIZE, Roster, Signer
from feducb.protocol.secure_wire import (
    CONTROLLER,
    DIGEST_SIZE,
    LABEL_SIZE,
    MARK_SIZE,
    NUMBER,
    Reader,
    context_of,
    require_season,
    require_signature,
)
from feducb.protocol.two_lists import SignedList

__all__ = [
    "Answer",
    "Ask",
    "Entry",
    "KeyCard",
    "Listed",
    "Opened",
    "PaddedRow",
    "Proof",
    "ask_size",
    "for_agents",
    "is_card",
    "list_digest",
    "open_sum",
    "require_list",
    "require_signed",
    "row_size",
    "who_is_in",
]

_LEAF = 16
_CARD, _ROW, _ASK, _ANSWER, _OPENED = map(SECURE_ROWS.mark, ("CRD", "ROW", "ASK", "ANS", "OPN"))
_ENTRY = struct.Struct(f"<H{KEY_SIZE}s{NONCE_SIZE}s{DIGEST_SIZE}s{SIGNATURE_SIZE}s")
_LISTED = struct.Struct(f"<H{_LEAF}s")
_PROOF = struct.Struct(f"<H{DIGEST_SIZE}s{SIGNATURE_SIZE}s")
_REFUSALS = ("", "definite", "range")  # why a sum is not used, by number


def is_card(data: bytes) -> bool:
    """Whether a message is a keeper's card; what agents hear else is a row that is over."""
    return data.startswith(_CARD)


def ask_size(agents: int) -> int:
    """Bytes of a list of so many agents."""
    return MARK_SIZE + LABEL_SIZE + NUMBER.size + agents * _ENTRY.size + SIGNATURE_SIZE


def row_size(coordinates: int) -> int:
    """Bytes of a padded row of q numbers."""
    return MARK_SIZE + LABEL_SIZE + KEY_SIZE + NONCE_SIZE + 8 * coordinates + SIGNATURE_SIZE


class Entry(NamedTuple):
    """One row of a list, as an `Ask` carries it: everything that its agent signed."""

    place: int  # of the agent in the roster
    public: bytes  # its X25519 key of the season
    nonce: bytes
    digest: bytes  # SHA-256 of the padded row
    signature: bytes

    def signed(self, label: Label) -> bytes:
        """What the agent signed."""
        return label.to_bytes() + self.public + self.nonce + self.digest

    def listed(self, agent: str) -> Listed:
        """The same, in short."""
        content = agent.encode() + b"\0" + self.public + self.nonce + self.digest
        return Listed(self.place, hashlib.sha256(content).digest()[:_LEAF])


class Listed(NamedTuple):
    """One row of a list, in short: who, and 16 bytes that only this row has."""

    place: int
    leaf: bytes


def list_digest(label: Label, listed: Sequence[tuple[int, bytes]]) -> bytes:
    """SHA-256 of a list; keepers sign it."""
    return hashlib.sha256(label.to_bytes() + b"".join(starmap(_LISTED.pack, listed))).digest()


@dataclass(frozen=True, slots=True)
class KeyCard:
    """A keeper's X25519 key of a season."""

    keeper: str
    public: bytes
    signature: bytes

    @classmethod
    def make(cls, charter: Charter, keeper: str, public: bytes, signer: Signer) -> KeyCard:
        """Sign it."""
        return cls(keeper, public, signer.sign(public, *context_of("card", charter, keeper)))

    def to_bytes(self, roster: Roster) -> bytes:
        """102 bytes."""
        return _CARD + NUMBER.pack(_keeper_number(roster, self.keeper)) + self.public + self.signature

    @classmethod
    def read(cls, data: bytes, charter: Charter, roster: Roster) -> KeyCard:
        """Read a card and check its signature, or raise `RefusedError`."""
        parts = Reader(data, _CARD)
        keeper = _keeper_named(roster, parts.number())
        card = cls(keeper, parts.take(KEY_SIZE), parts.take(SIGNATURE_SIZE))
        parts.end()
        card.require(charter, roster)
        pads.require_key(card.public)
        return card

    def require(self, charter: Charter, roster: Roster) -> None:
        """Raise `RefusedError` unless a keeper of this roster signed it for this charter."""
        if self.keeper not in roster.keepers:
            raise RefusedError("sender", f"there is no keeper {self.keeper}")
        nkey = roster.keepers[self.keeper]
        require_signature(nkey, self.signature, self.public, "card", charter, self.keeper)


def for_agents(data: bytes) -> bool:
    """Whether a message says that it is one that agents hear: a `KeyCard`, or an `Opened`."""
    return data[:MARK_SIZE] in (_CARD, _OPENED)


@dataclass(frozen=True, slots=True)
class PaddedRow:
    """What leaves an agent. Its body alone tells nothing: docs/cryptography.md."""

    label: Label
    public: bytes
    nonce: bytes
    body: bytes  # 8q bytes
    signature: bytes = b""

    @property
    def digest(self) -> bytes:
        """SHA-256 of the body."""
        return hashlib.sha256(self.body).digest()

    def entry(self, place: int) -> Entry:
        """As a list has it."""
        return Entry(place, self.public, self.nonce, self.digest, self.signature)

    def sign(self, charter: Charter, agent: str, signer: Signer) -> PaddedRow:
        """With the agent's signature, which is the same each time."""
        body = self.entry(0).signed(self.label)
        return replace(self, signature=signer.sign(body, *context_of("row", charter, agent)))

    def to_bytes(self) -> bytes:
        """148 + 8q bytes."""
        return _ROW + self.label.to_bytes() + self.public + self.nonce + self.body + self.signature

    @classmethod
    def read(cls, data: bytes, *, coordinates: int) -> PaddedRow:
        """Read a row; neither its signature (`require_signed`) nor its key (`require_key`) is checked."""
        if len(data) != row_size(coordinates):
            size = f"{len(data)} bytes, expected {row_size(coordinates)}"
            raise RefusedError("size", f"a row of {size}: other bounds or another dimension")
        parts = Reader(data, _ROW)
        label, public, nonce = parts.label(), parts.take(KEY_SIZE), parts.take(NONCE_SIZE)
        return cls(label, public, nonce, parts.take(8 * coordinates), parts.take(SIGNATURE_SIZE))


def require_signed(entry: Entry, label: Label, charter: Charter, roster: Roster) -> str:
    """Whose row it is, by its signature for this charter and label; or `RefusedError`."""
    require_season(label, charter)
    agent = _agent_named(roster, entry.place)
    require_signature(roster.agents[agent], entry.signature, entry.signed(label), "row", charter, agent)
    return agent


@dataclass(frozen=True, slots=True)
class Ask:
    """The list of a row, signed by the controller; it is final. An empty one closes the row."""

    label: Label
    entries: tuple[Entry, ...]  # by place, rising
    signature: bytes = field(default=b"", compare=False)  # once it was read

    def listed(self, roster: Roster) -> tuple[Listed, ...]:
        """The list in short."""
        return tuple(entry.listed(_agent_named(roster, entry.place)) for entry in self.entries)

    def _content(self) -> bytes:
        return NUMBER.pack(len(self.entries)) + b"".join(_ENTRY.pack(*entry) for entry in self.entries)

    @property
    def signed(self) -> SignedList:
        """What the controller signed."""
        return SignedList(hashlib.sha256(self._content()).digest(), self.signature)

    def to_bytes(self, charter: Charter, signer: Signer) -> bytes:
        """Signed."""
        signature = signer.sign(self.signed.content(self.label), *context_of("ask", charter, CONTROLLER))
        return _ASK + self.label.to_bytes() + self._content() + signature

    @classmethod
    def read(cls, data: bytes, charter: Charter, roster: Roster) -> Ask:
        """Read a list and check the controller's signature, or raise `RefusedError`; its rows are not."""
        parts = Reader(data, _ASK)
        label = require_season(parts.label(), charter)
        entries = tuple(map(Entry._make, parts.several(_ENTRY)))
        ask = cls(label, entries, parts.take(SIGNATURE_SIZE))
        parts.end()
        ask.signed.require(label, charter, roster)
        return ask


@dataclass(frozen=True, slots=True)
class Answer:
    """A keeper's sum of pads for one list; its one answer for this row."""

    keeper: str
    label: Label
    listed: bytes  # digest of the list
    body: bytes  # 8q bytes
    signature: bytes = b""

    @property
    def proof(self) -> Proof:
        """What others need of it, to know that the keeper signed for this list."""
        return Proof(self.keeper, hashlib.sha256(self.body).digest(), self.signature)

    def sign(self, charter: Charter, signer: Signer) -> Answer:
        """With the keeper's signature."""
        body = self.proof.signed(self.label, self.listed)
        return replace(self, signature=signer.sign(body, *context_of("answer", charter, self.keeper)))

    def to_bytes(self, roster: Roster) -> bytes:
        """118 + 8q bytes."""
        number = NUMBER.pack(_keeper_number(roster, self.keeper))
        return _ANSWER + number + self.label.to_bytes() + self.listed + self.body + self.signature

    @classmethod
    def read(cls, data: bytes, charter: Charter, roster: Roster, *, coordinates: int) -> Answer:
        """Read an answer and check its signature, or raise `RefusedError`."""
        parts = Reader(data, _ANSWER)
        keeper = _keeper_named(roster, parts.number())
        label = require_season(parts.label(), charter)
        listed, body = parts.take(DIGEST_SIZE), parts.take(8 * coordinates)
        answer = cls(keeper, label, listed, body, parts.take(SIGNATURE_SIZE))
        parts.end()
        answer.proof.require(label, listed, charter, roster)
        return answer


class Proof(NamedTuple):
    """That a keeper has answered for a list."""

    keeper: str
    digest: bytes  # SHA-256 of the sum of its pads
    signature: bytes

    def signed(self, label: Label, listed: bytes) -> bytes:
        """What the keeper signed."""
        return label.to_bytes() + listed + self.digest

    def require(self, label: Label, listed: bytes, charter: Charter, roster: Roster) -> None:
        """Raise `RefusedError` unless the keeper signed for this list."""
        signed = self.signed(label, listed)
        require_signature(roster.keepers[self.keeper], self.signature, signed, "answer", charter, self.keeper)


@dataclass(frozen=True, slots=True)
class Opened:
    """A row that is over: who is in it, that all keepers say so, and the sum; none if it was closed empty."""

    label: Label
    listed: tuple[tuple[int, bytes], ...]  # each a `Listed`; plain, since there may be many
    proofs: tuple[Proof, ...]  # one of each keeper, in the roster's order
    values: NDArray[np.int64] | None  # (q,), the sum of the rows; None if the list is empty
    refused: str = ""  # why the sum is not used: ``definite`` or ``range``; it is spent all the same

    @property
    def empty(self) -> bool:
        """Whether nobody is in it."""
        return not self.listed

    def leaf_of(self, place: int) -> bytes | None:
        """Which row of an agent is in it; None if none is."""
        return dict(self.listed).get(place)

    def names(self, roster: Roster) -> tuple[str, ...]:
        """Who is in it."""
        return tuple(_agent_named(roster, place) for place, _ in self.listed)

    def to_bytes(self, charter: Charter, roster: Roster, signer: Signer) -> bytes:
        """Signed by the controller, which says what the sum is; the rest proves itself."""
        proofs = ((_keeper_number(roster, one.keeper), one.digest, one.signature) for one in self.proofs)
        sum_bytes = b"" if self.values is None else pads.to_bytes(pads.to_words(self.values))
        body = (
            _OPENED
            + self.label.to_bytes()
            + NUMBER.pack(len(self.listed))
            + b"".join(_LISTED.pack(*one) for one in self.listed)
            + b"".join(_PROOF.pack(*one) for one in proofs)
            + NUMBER.pack(_REFUSALS.index(self.refused))
            + sum_bytes
        )
        return body + signer.sign(body, *context_of("opened", charter, CONTROLLER))

    @classmethod
    def read(cls, data: bytes, charter: Charter, roster: Roster, *, coordinates: int, quorum: int) -> Opened:
        """Read a row that is over and check all signatures, or raise `RefusedError`.

        Guarantees:
            Every keeper has signed for exactly this list, which is empty or of ``quorum`` agents at least.
        """
        parts = Reader(data, _OPENED)
        label = require_season(parts.label(), charter)
        listed = tuple(parts.several(_LISTED))
        raw = [parts.unpack(_PROOF) for _ in roster.keepers]
        refused = parts.number()
        values = pads.from_bytes(parts.take(8 * coordinates)).view(np.int64) if listed else None
        signature = parts.take(SIGNATURE_SIZE)
        parts.end()
        require_signature(roster.controller, signature, data[:-SIGNATURE_SIZE], "opened", charter, CONTROLLER)
        if refused >= len(_REFUSALS) or (refused and not listed):
            raise RefusedError("malformed", "a refusal that nobody knows, or of no sum")
        if [one[0] for one in raw] != list(range(len(roster.keepers))):
            raise RefusedError("malformed", "not one proof of each keeper, in order")
        require_list([place for place, _ in listed], roster, quorum)
        proofs = tuple(Proof(_keeper_named(roster, one[0]), one[1], one[2]) for one in raw)
        digest = list_digest(label, listed)
        for proof in proofs:
            proof.require(label, digest, charter, roster)
        return cls(label, listed, proofs, values, _REFUSALS[refused])


def who_is_in(data: bytes, roster: Roster) -> tuple[Label, tuple[str, ...]]:
    """Of an `Opened` that was found good: which row, and who is in it."""
    parts = Reader(data, _OPENED)
    label = parts.label()
    places = [place for place, _ in parts.several(_LISTED)]
    return label, tuple(map(roster.names.__getitem__, places))


def require_list(places: Sequence[int], roster: Roster, quorum: int) -> None:
    """Raise `RefusedError` unless a list is empty, or of enough agents, each once and in order."""
    if max(places, default=0) >= len(roster.agents):
        raise RefusedError("sender", "a list with somebody who is not of this federation")
    if any(map(ge, places, places[1:])):
        raise RefusedError("list", "a list with an agent twice, or out of order")
    if places and len(places) < quorum:
        raise RefusedError("quorum", f"a list of {len(places)} agents, expected {quorum} at least, or none")


def open_sum(bodies: Sequence[bytes], answers: Sequence[Answer]) -> NDArray[np.int64]:
    """(q,), the sum of rows: padded ones, less all keepers' pads, modulo 2^64."""
    parts = [np.stack([pads.from_bytes(one) for one in some]) for some in (bodies, [a.body for a in answers])]
    total, hidden = (np.asarray(part.sum(axis=0, dtype=np.uint64)) for part in parts)
    return np.asarray(total - hidden).view(np.int64)


def _keeper_number(roster: Roster, keeper: str) -> int:
    return list(roster.keepers).index(keeper)


def _keeper_named(roster: Roster, number: int) -> str:
    if number >= len(roster.keepers):
        raise RefusedError("sender", f"there is no keeper {number}")
    return list(roster.keepers)[number]


def _agent_named(roster: Roster, place: int) -> str:
    if place >= len(roster.agents):
        raise RefusedError("sender", f"there is no agent {place} in the roster")
    return roster.names[place]
