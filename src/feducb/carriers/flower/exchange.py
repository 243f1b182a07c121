"""One exchange between the ServerApp and a site, as plain values that a Flower record can hold.

The ServerApp asks; the site answers. Either side takes the other for untrusted: whatever does not have
exactly this shape is a ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["MOST_RELEASES", "RECORD", "VERSION", "Answer", "Ask", "Plain", "quoted"]

RECORD = "feducb"  # the record's name in a message
VERSION = 1
MOST_RELEASES = 1024  # in one answer
_MOST_PROBLEMS = 8
_MOST_LETTERS = 300

_Scalar = int | float | str | bytes | bool
# What a record of Flower holds.
Plain = dict[str, _Scalar | list[int] | list[float] | list[str] | list[bytes] | list[bool]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What the ServerApp sends to a site."""

    nonce: bytes  # random: so the message's id, by which a site answers, is one that no other site can guess
    total: bytes = b""  # the newest sum, or nothing
    sent: tuple[tuple[int, int], ...] = ()  # (season, number) of releases on the ServerApp's disk

    def to_plain(self) -> Plain:
        """What a Flower record holds of it."""
        return {
            "version": VERSION,
            "nonce": self.nonce,
            "total": self.total,
            "sent": [part for name in self.sent for part in name],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Ask:
        """Back from plain values."""
        _require_version(plain)
        sent = _list(plain, "sent", int)
        if len(sent) % 2 or len(sent) > 2 * MOST_RELEASES:
            expected = f"season and number of at most {MOST_RELEASES} releases"
            raise ValueError(f"sent has {len(sent)} parts, expected {expected}")
        pairs = tuple(zip(sent[::2], sent[1::2], strict=True))
        return cls(nonce=_bytes(plain, "nonce"), total=_bytes(plain, "total"), sent=pairs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a site answers."""

    releases: tuple[bytes, ...] = ()  # what its agent has not yet reported sent, oldest first
    absorbed: bool = False  # whether the sum that came with the question is on the agent's disk
    more: bool = False  # whether releases are left that did not fit
    problems: tuple[str, ...] = ()  # what went wrong, in words, for the ServerApp's log

    def to_plain(self) -> Plain:
        """What a Flower record holds of it."""
        return {
            "version": VERSION,
            "releases": list(self.releases),
            "absorbed": int(self.absorbed),
            "more": int(self.more),
            "problems": [quoted(problem) for problem in self.problems[:_MOST_PROBLEMS]],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Answer:
        """Back from plain values."""
        _require_version(plain)
        releases = _list(plain, "releases", bytes)
        if len(releases) > MOST_RELEASES:
            raise ValueError(f"answer has {len(releases)} releases, expected at most {MOST_RELEASES}")
        return cls(
            releases=tuple(releases),
            absorbed=plain.get("absorbed") == 1,
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


def _bytes(plain: Mapping[str, Any], name: str) -> bytes:
    value = plain.get(name)
    if not isinstance(value, bytes):
        raise ValueError(f"{name} is a {type(value).__name__}, expected bytes")
    return value


def _list(plain: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    value = plain.get(name)
    if not isinstance(value, list) or any(type(part) is not kind for part in value):
        raise ValueError(f"{name} is not a list of {kind.__name__}")
    return value
