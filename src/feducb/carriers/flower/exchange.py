"""One exchange between the ServerApp and a site, as plain values that a Flower record can hold.

The ServerApp asks; the site answers. Either side takes the other for untrusted: whatever does not have
exactly this shape is a ``ValueError``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from feducb.formats import FLOWER
from feducb.protocol.pads import Label

__all__ = ["MOST_MESSAGES", "RECORD", "VERSION", "Answer", "Ask", "Plain", "digest_of", "quoted"]

RECORD = "feducb"  # the record's name in a message
VERSION = FLOWER.number
MOST_MESSAGES = 1024  # of a kind, in one question or answer
_PLACE = (0, 16)  # bytes
_MOST_PROBLEMS = 8
_MOST_LETTERS = 300

_Scalar = int | float | str | bytes | bool
# What a record of Flower holds.
Plain = dict[str, _Scalar | list[int] | list[float] | list[str] | list[bytes] | list[bool]]


def digest_of(payload: bytes) -> bytes:
    """SHA-256, by which the ServerApp names what it has on disk."""
    return hashlib.sha256(payload).digest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What the ServerApp sends to a site."""

    nonce: bytes  # random: so the message's id, by which a site answers, is one that no other site can guess
    news: tuple[bytes, ...] = ()  # for the agent, in order: the newest sum; or keepers' cards and opened rows
    rows: bytes = b""  # for the keeper beside it: the list of a row, or nothing
    sent: tuple[bytes, ...] = ()  # digests of what is on the ServerApp's disk

    def to_plain(self) -> Plain:
        """What a Flower record holds of it."""
        return {
            "version": VERSION,
            "nonce": self.nonce,
            "news": list(self.news),
            "rows": self.rows,
            "sent": list(self.sent),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Ask:
        """Back from plain values."""
        _require_version(plain)
        return cls(
            nonce=_value(plain, "nonce", bytes),
            news=_messages(plain, "news"),
            rows=_value(plain, "rows", bytes),
            sent=_messages(plain, "sent"),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a site answers."""

    parcels: tuple[bytes, ...] = ()  # releases or padded rows that its agent has not yet reported sent
    words: tuple[bytes, ...] = ()  # of its keeper: its card, and what it answers to a list
    agent: str = ""  # as the agent calls itself: rows and words prove it or are refused
    place: bytes = b""  # the newest row that is over, at the agent; 16 bytes or none
    heard: int = 0  # how many of the news, from the first on, are on the agent's disk
    more: bool = False  # whether parcels are left that did not fit
    problems: tuple[str, ...] = ()  # what went wrong, in words, for the ServerApp's log

    def to_plain(self) -> Plain:
        """What a Flower record holds of it."""
        return {
            "version": VERSION,
            "parcels": list(self.parcels),
            "words": list(self.words),
            "agent": self.agent,
            "place": self.place,
            "heard": self.heard,
            "more": int(self.more),
            "problems": [quoted(problem) for problem in self.problems[:_MOST_PROBLEMS]],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Answer:
        """Back from plain values."""
        _require_version(plain)
        place = _value(plain, "place", bytes)
        if len(place) not in _PLACE:
            raise ValueError(f"place has {len(place)} bytes, expected 16 or none")
        if place:
            Label.from_bytes(place)  # a `RefusedError` is a ValueError
        return cls(
            parcels=_messages(plain, "parcels"),
            words=_messages(plain, "words"),
            agent=quoted(_value(plain, "agent", str)),
            place=place,
            heard=_value(plain, "heard", int),
            more=plain.get("more") == 1,
            problems=tuple(quoted(text) for text in _list(plain, "problems", str)[:_MOST_PROBLEMS]),
        )


def quoted(text: str) -> str:
    """Somebody else's words, on one line and short: safe to put in a log."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[: _MOST_LETTERS + 1])
    return shown if len(shown) <= _MOST_LETTERS else shown[:_MOST_LETTERS] + "…"


def _require_version(plain: Mapping[str, Any]) -> None:
    if plain.get("version") != VERSION:
        has = f"message has version {quoted(repr(plain.get('version')))}, expected {VERSION}"
        raise ValueError(f"{has}: use the same feducb at the SuperLink and at every site")


def _value(plain: Mapping[str, Any], name: str, kind: type) -> Any:
    value = plain.get(name)
    if type(value) is not kind:
        raise ValueError(f"{name} is a {type(value).__name__}, expected {kind.__name__}")
    return value


def _messages(plain: Mapping[str, Any], name: str) -> tuple[bytes, ...]:
    value = _list(plain, name, bytes)
    if len(value) > MOST_MESSAGES:
        raise ValueError(f"{name} has {len(value)} messages, expected at most {MOST_MESSAGES}")
    return tuple(value)


def _list(plain: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    value = plain.get(name)
    if not isinstance(value, list) or any(type(part) is not kind for part in value):
        raise ValueError(f"{name} is not a list of {kind.__name__}")
    return value
