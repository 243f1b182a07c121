"""Who changed what in an agent's file, and with which key: a log that is only added to.

Each entry has the hash of the one before it and of itself, and the file keeps the newest hash apart: whoever
takes a line out, changes one or cuts the end off is noticed by `broken_at`. Somebody who can write to the
file could make the whole chain anew: against that, note the newest hash elsewhere now and then, and ask later
whether the chain still holds it. Entries name keys and users, never a visitor. Seasons, backups and
restoration keep them.
"""

from __future__ import annotations

import json
import sqlite3
from hashlib import sha256
from typing import Any, NamedTuple

from feducb.storage.sqlite import utc_now

__all__ = ["Entry", "add", "broken_at", "entries", "keys_noted"]


class Entry(NamedTuple):
    """One line."""

    number: int  # from 1
    at: str  # UTC, ISO 8601
    who: str  # a user of the machine, a key by name and fingerprint, or the clock
    what: str
    details: dict[str, Any]
    hash: str  # SHA-256 over the hash before it and all of this, in hexadecimal

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict()


def add(db: sqlite3.Connection, who: str, what: str, **details: object) -> None:
    """One more line, within a transaction of the store: with what it tells of, or not at all."""
    last = db.execute("SELECT number, hash FROM operator_log_end").fetchone() or (0, "")
    plain = (last[0] + 1, utc_now(), who, what, json.dumps(details, sort_keys=True))
    entry = (*plain, _hash(last[1], plain))
    db.execute("INSERT INTO operator_log VALUES (?, ?, ?, ?, ?, ?)", entry)
    db.execute("REPLACE INTO operator_log_end VALUES (1, ?, ?)", (entry[0], entry[-1]))


def entries(db: sqlite3.Connection) -> list[Entry]:
    """All lines, oldest first."""
    rows = db.execute("SELECT number, at, who, what, details, hash FROM operator_log ORDER BY number")
    return [
        Entry(number, at, who, what, json.loads(details), kept)
        for number, at, who, what, details, kept in rows
    ]


def broken_at(db: sqlite3.Connection) -> str | None:
    """Where the chain is broken, in words; None if it is whole."""
    before, count = "", 0
    rows = db.execute("SELECT number, at, who, what, details, hash FROM operator_log ORDER BY number")
    for count, (*plain, kept) in enumerate(rows, start=1):
        if plain[0] != count:
            return f"entry {count} is missing"
        if _hash(before, tuple(plain)) != kept:
            return f"entry {count} is not what was written, or the one before it is not"
        before = kept
    end = db.execute("SELECT number, hash FROM operator_log_end").fetchone() or (0, "")
    if end != (count, before):
        return f"it ends with entry {count}, and {end[0]} were written"
    return None


def _hash(before: str, plain: tuple[Any, ...]) -> str:
    return sha256(json.dumps([before, *plain]).encode()).hexdigest()


def keys_noted(db: sqlite3.Connection) -> dict[str, str]:
    """By fingerprint, the names of API keys that were made, and not revoked, as far as the log knows."""
    known: dict[str, str] = {}
    for one in entries(db):
        if one.what == "key added":
            known[one.details["fingerprint"]] = one.details["key"]
        if one.what == "key revoked":
            known.pop(one.details["fingerprint"], None)
    return known
