"""What an agent's own records come to under own play: exact, in its file, for nobody else.

Four parts: ``shared``, what entered the stream of releases, and so the sum of all agents at the close;
``kept``, all other own records of the season; ``before``, those of earlier seasons that are in nobody's sum:
all where nothing left (``trust = "self"``), else those that were kept; ``read``, all of them together when
they were last read, which is there from the close on. So the phase, and what is decided in it, follow from
the file.
Apart from them, under released play: ``held_out``, records of visitors who were decided alone, and
``held_out_read``, those when they were last read.

Nothing else in the file tells what these numbers must be, unlike a stream's state, which is after the last
release: each row has a hash of itself, and what is not as it was written is never read.

Each part has the squares of rewards beside its sums. Earlier versions did not keep them: they are not known
of a part that has a record of such a version in it.

Functions that write work within a transaction of the store.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

import numpy as np

from feducb.errors import StoreError
from feducb.privacy.encoders import Wide

__all__ = [
    "OwnSums",
    "Part",
    "add",
    "carry",
    "closed_at",
    "count",
    "everything",
    "forget",
    "mark_held_out_read",
    "mark_read",
    "read",
    "require_undamaged",
]

Part = Literal["shared", "kept", "before", "read", "held_out", "held_out_read"]
_SUMMED: tuple[Part, ...] = ("shared", "kept", "before")


class OwnSums(NamedTuple):
    """Sums of records: how many, and (q,) whole numbers, `FINE_BITS` finer than the grid. Raw."""

    records: int
    values: Wide
    squares: int | None = None  # of weighted rewards, as whole numbers of the same; None: not known


def _together(parts: Sequence[OwnSums]) -> OwnSums:
    """The records of all, of which there are some."""
    squares = [one.squares for one in parts]
    known = [one for one in squares if one is not None]
    return OwnSums(
        sum(one.records for one in parts),
        np.sum([one.values for one in parts], axis=0),
        sum(known) if len(known) == len(squares) else None,
    )


def add(db: sqlite3.Connection, part: Part, more: OwnSums) -> None:
    """Add records to a part."""
    if more.records:
        before = read(db, part)
        _write(db, part, more if before is None else _together([before, more]), None)


def read(db: sqlite3.Connection, part: Part) -> OwnSums | None:
    """A part; None if it has nothing yet. Raises `StoreError` if it is not what was written."""
    query = "SELECT records, sums, since, squares, sha256 FROM own WHERE part = ?"
    row = db.execute(query, (part,)).fetchone()
    if row is None:
        return None
    records, sums, since, squares, digest = row
    if digest != _digest(part, records, sums, since, squares):
        raise _damaged(db, f"the {part} part of its own records is not what was written")
    known = None if squares is None else int(squares)
    return OwnSums(records, np.array(json.loads(sums), dtype=object), known)


def require_undamaged(db: sqlite3.Connection) -> None:
    """Raise `StoreError` unless all parts are as they were written, and none is gone that was read."""
    seen, there = read(db, "read"), everything(db)
    if seen is not None and seen.records > (0 if there is None else there.records):
        raise _damaged(db, f"it read {seen.records} own records, and has fewer")


def everything(db: sqlite3.Connection, of: tuple[Part, ...] = _SUMMED) -> OwnSums | None:
    """All own records, or some parts of them; None if there are none."""
    parts = [one for part in of if (one := read(db, part)) is not None]
    return _together(parts) if parts else None


def count(db: sqlite3.Connection) -> int:
    """How many own records there are."""
    named = ", ".join("?" * len(_SUMMED))
    query = f"SELECT coalesce(sum(records), 0) FROM own WHERE part IN ({named})"
    return int(db.execute(query, _SUMMED).fetchone()[0])


def carry(db: sqlite3.Connection, *, shared: bool, finer: int | None) -> None:
    """A season ends, or its terms change: records that are in nobody's sum are from before, and unread.

    Args:
        db: the file.
        shared: whether the season shared; then what it shared is in its sums, which are remembered.
        finer: by how many bits the new season's grid is finer, or coarser if negative: sums are rounded then,
            by half of a step that is `FINE_BITS` finer than the grid. None: they cannot be taken over.
    """
    parts: tuple[Part, ...] = ("kept", "before") if shared else _SUMMED
    sums = None if finer is None else everything(db, parts)
    forget(db)
    if sums is not None and finer is not None:
        moved = np.array([_on_grid(one, finer) for one in sums.values], dtype=object)
        squares = None if sums.squares is None else _on_grid(sums.squares, finer)
        _write(db, "before", OwnSums(sums.records, moved, squares), None)


def _on_grid(value: int, finer: int) -> int:
    """On a grid that is so many bits finer."""
    return int(value) << finer if finer >= 0 else (int(value) + (1 << -finer >> 1)) >> -finer


def forget(db: sqlite3.Connection, part: Part | None = None) -> None:
    """Delete a part, or all of them."""
    db.execute("DELETE FROM own WHERE ?1 IS NULL OR part = ?1", (part,))


def mark_held_out_read(db: sqlite3.Connection) -> None:
    """What was held out is read from now on."""
    if (sums := read(db, "held_out")) is not None:
        _write(db, "held_out_read", sums, None)


def mark_read(db: sqlite3.Connection, sums: OwnSums, now: int) -> None:
    """These are read from now on; the first time is the close, in milliseconds since 1970."""
    since = closed_at(db)
    _write(db, "read", sums, now if since is None else since)


def closed_at(db: sqlite3.Connection) -> int | None:
    """When the own phase began, in milliseconds since 1970; None if it has not."""
    row = db.execute("SELECT since FROM own WHERE part = 'read'").fetchone()
    return None if row is None else int(row[0])


def _write(db: sqlite3.Connection, part: Part, sums: OwnSums, since: int | None) -> None:
    squares = None if sums.squares is None else str(int(sums.squares))
    row = (part, sums.records, json.dumps([int(value) for value in sums.values]), since, squares)
    named = "part, records, sums, since, squares, sha256"
    db.execute(f"REPLACE INTO own ({named}) VALUES (?, ?, ?, ?, ?, ?)", (*row, _digest(*row)))


def _digest(*row: object) -> bytes:
    """Of a row, the squares last; without them as earlier versions made it, which kept none."""
    return sha256(repr(row if row[-1] is not None else row[:-1]).encode()).digest()


def _damaged(db: sqlite3.Connection, what: str) -> StoreError:
    (_, _, path) = db.execute("PRAGMA database_list").fetchone()
    return StoreError(f"{path} is damaged: {what}; a backup goes on with a new season")
