"""Ids that an agent makes up: nobody can guess another's, and none shows how many decisions there were.

An id is ``number XOR F(tag)``, a dash, and the tag, in hexadecimal; F is blake2b under the file's key, and
the tag is random. So the number of a decision, which finds its row, can be read by the agent alone: to others
the first half is as random as the second, unless a tag of 64 bits comes twice.

An earlier version showed the number and the tag as its file keeps it. Such ids are still understood, but only
where that version made the decision: of a tag that is shown now, the file keeps another keyed hash, so that
nobody can try numbers with it.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from os import urandom

__all__ = ["is_made_up", "kept_tag", "key_of", "make_id", "new_tag", "numbers_of"]

_BYTES = 8
_MADE_UP = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})")
_BEFORE = re.compile(r"([1-9]\d{0,17})-([0-9a-f]{16})")  # number and tag: decisions of an earlier version
_LARGEST = 2**63 - 1  # number of a row


def new_tag() -> bytes:
    """The random half of a new id."""
    return urandom(_BYTES)


def kept_tag(key: bytes, tag: bytes) -> bytes:
    """What the file keeps of a tag."""
    return _hash(key, tag, b"kept tag")


def make_id(key: bytes, number: int, tag: bytes) -> str:
    """The id of decision ``number``, with its tag."""
    return f"{number ^ _mask(key, tag):016x}-{tag.hex()}"


def numbers_of(key: bytes, name: str) -> list[tuple[int, bytes]]:
    """Number and kept tag that an id may stand for: none if it was not made up, two where both forms fit."""
    fitting = []
    if form := _MADE_UP.fullmatch(name):
        tag = bytes.fromhex(form[2])
        fitting.append((int(form[1], 16) ^ _mask(key, tag), kept_tag(key, tag)))
    if form := _BEFORE.fullmatch(name):
        fitting.append((int(form[1]), bytes.fromhex(form[2])))
    return [(number, tag) for number, tag in fitting if number <= _LARGEST]


def is_made_up(name: str) -> bool:
    """Whether it looks like one, of this version or of the one before."""
    return _MADE_UP.fullmatch(name) is not None or _BEFORE.fullmatch(name) is not None


def key_of(key: bytes, name: str) -> bytes:
    """How an application's own id is kept: a keyed hash, since it may name people."""
    return blake2b(name.encode(), key=key, digest_size=16).digest()


def _mask(key: bytes, tag: bytes) -> int:
    return int.from_bytes(_hash(key, tag, b"made-up id"))


def _hash(key: bytes, tag: bytes, purpose: bytes) -> bytes:
    # The same key also hashes the application's own ids, which are told apart by `person`.
    return blake2b(tag, key=key, digest_size=_BYTES, person=purpose).digest()
