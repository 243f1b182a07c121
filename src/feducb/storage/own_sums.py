"""What an agent's own records come to under own play: exact, in its file, for nobody else.

Three parts: ``shared``, what entered the stream of releases, and so the sum of all agents at the close;
``kept``, all other own records; ``read``, both together when they were last read, which is there from the
close on. So the phase, and what is decided in it, follow from the file.

Functions that write work within a transaction of the store.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Literal, NamedTuple

import numpy as np

from feducb.privacy.encoders import Wide

__all__ = ["OwnSums", "Part", "add", "closed_at", "count", "everything", "mark_read", "read"]

Part = Literal["shared", "kept", "read"]


class OwnSums(NamedTuple):
    """Sums of records: how many, and (q,) whole numbers, `FINE_BITS` finer than the grid. Raw."""

    records: int
    values: Wide


def add(db: sqlite3.Connection, part: Part, more: OwnSums) -> None:
    """Add records to a part."""
    if more.records:
        before = read(db, part) or OwnSums(0, np.zeros_like(more.values))
        row = (part, before.records + more.records, _text(before.values + more.values))
        db.execute("REPLACE INTO own VALUES (?, ?, ?, NULL)", row)


def read(db: sqlite3.Connection, part: Part) -> OwnSums | None:
    """A part; None if it has nothing yet."""
    row = db.execute("SELECT records, sums FROM own WHERE part = ?", (part,)).fetchone()
    return None if row is None else OwnSums(row[0], np.array(json.loads(row[1]), dtype=object))


def everything(db: sqlite3.Connection) -> OwnSums | None:
    """All own records of the season; None if there are none."""
    shared, kept = read(db, "shared"), read(db, "kept")
    if shared is None or kept is None:
        return shared or kept
    return OwnSums(shared.records + kept.records, shared.values + kept.values)


def count(db: sqlite3.Connection) -> int:
    """How many own records the season has."""
    query = "SELECT coalesce(sum(records), 0) FROM own WHERE part IN ('shared', 'kept')"
    return int(db.execute(query).fetchone()[0])


def mark_read(db: sqlite3.Connection, sums: OwnSums, now: int) -> None:
    """These are read from now on; the first time is the close, in milliseconds since 1970."""
    db.execute(
        "INSERT INTO own VALUES ('read', ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET records = excluded.records, sums = excluded.sums",
        (sums.records, _text(sums.values), now),
    )


def closed_at(db: sqlite3.Connection) -> int | None:
    """When the own phase began, in milliseconds since 1970; None if it has not."""
    row = db.execute("SELECT since FROM own WHERE part = 'read'").fetchone()
    return None if row is None else int(row[0])


def _text(values: Wide) -> str:
    return json.dumps([int(value) for value in values])
