"""Decisions in the agent's file, from their making until they are in the statistics and forgotten.

    open ──(window closes)──▶ taken in ──(retention over)──▶ content gone ──(one window later)──▶ row gone
      └──(discarded)──▶ discarded: content gone at once

A row without content still says that its id was known, so that a late reward is told from an unknown one.
Times are whole milliseconds. All functions work within a transaction of the store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from feducb.storage.sqlite import add_up, named

__all__ = ["ALONE", "DISCARDED", "FEDERATED", "OPEN", "TAKEN", "UNIFORM", "Made", "Row"]

OPEN, TAKEN, DISCARDED = 0, 1, 2
FEDERATED, ALONE, UNIFORM = 0, 1, 2  # lanes (agent/gain.py)

_CONTENT = ("decided_at", "person", "action", "candidates", "features", "said", "chosen", "preferred", "lane")
_STRIP = "".join(f"{name} = NULL, " for name in (*_CONTENT, "propensity", "model", "reward")) + "refused = 0"


class Made(NamedTuple):
    """A decision as it is written."""

    number: int
    tag: bytes
    id: bytes | None
    closes_at: int
    group: int
    decided_at: int
    person: bytes | None
    action: bytes
    candidates: int
    features: bytes | None  # all candidates, as vectors
    said: str | None  # or as they were described, with the visitor, where a recipe makes the vectors
    chosen: int
    preferred: int
    propensity: float | None
    model: int
    lane: int | None = None


class Row(NamedTuple):
    """A decision as it is looked up."""

    number: int
    state: int
    closes_at: int
    group: int
    chosen: int | None
    preferred: int | None
    propensity: float | None
    model: int | None
    reward: float | None
    candidates: int | None
    lane: int | None = None


class Due(NamedTuple):
    """A decision whose window has closed."""

    number: int
    closes_at: int
    person: bytes | None
    action: bytes
    reward: float | None
    decided_at: int | None
    candidates: int | None
    chosen: int | None
    preferred: int | None
    propensity: float | None
    refused: int = 0
    lane: int | None = None


def _columns(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


_INSERT = (
    f"INSERT INTO decisions (state, {_columns(Made._fields)}) VALUES ({OPEN}{', ?' * len(Made._fields)})"
)
_LOOK = f"SELECT {_columns(Row._fields)} FROM decisions"
_RETAINED = (
    "number",
    "state",
    "group",
    "closes_at",
    "season",
    "batch",
    *_CONTENT,
    "propensity",
    "model",
    "reward",
)


def insert(db: sqlite3.Connection, made: Made) -> None:
    """Write an open decision."""
    db.execute(_INSERT, made)


def insert_discarded(db: sqlite3.Connection, *, number: int, tag: bytes, id: bytes, closes_at: int) -> None:
    """Write that an id is taken, by something that was shown without a decision."""
    db.execute(
        'INSERT INTO decisions (state, number, tag, id, closes_at, "group") VALUES (?, ?, ?, ?, ?, 0)',
        (DISCARDED, number, tag, id, closes_at),
    )


def find(db: sqlite3.Connection, name: bytes) -> Row | None:
    """The decision with this (hashed) id of the application's own, if it is still known."""
    row = db.execute(f"{_LOOK} WHERE id = ?", (name,)).fetchone()
    return None if row is None else Row(*row)


def find_numbered(db: sqlite3.Connection, number: int, tag: bytes) -> Row | None:
    """The decision with this number, if the tag is its own and it is still known."""
    row = db.execute(f"{_LOOK} WHERE number = ? AND tag = ?", (number, tag)).fetchone()
    return None if row is None else Row(*row)


def action_of(db: sqlite3.Connection, number: int) -> bytes | None:
    """The vector that a decision chose; None once its content is gone."""
    row = db.execute("SELECT action FROM decisions WHERE number = ?", (number,)).fetchone()
    return None if row is None else row[0]


def set_reward(db: sqlite3.Connection, number: int, value: float) -> None:
    """Keep the reward until the window closes."""
    db.execute("UPDATE decisions SET reward = ? WHERE number = ?", (value, number))


def mark_refused(db: sqlite3.Connection, number: int) -> None:
    """A reward out of range came for it, and was refused."""
    db.execute("UPDATE decisions SET refused = 1 WHERE number = ?", (number,))


def discard(db: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Take decisions out before their window closes."""
    db.executemany(
        f"UPDATE decisions SET state = {DISCARDED}, {_STRIP} WHERE number = ?", [(one,) for one in numbers]
    )


def due(db: sqlite3.Connection, group: int, *, now: int, limit: int) -> list[Due]:
    """Open decisions of a group whose window has closed, oldest first."""
    rows = db.execute(
        f"SELECT {_columns(Due._fields)} FROM decisions"
        f' WHERE state = {OPEN} AND closes_at <= ? AND "group" = ? ORDER BY closes_at, number LIMIT ?',
        (now, group, limit),
    )
    return [Due(*row) for row in rows]


def mark_taken(
    db: sqlite3.Connection,
    group: int,
    rows: Sequence[Due],
    *,
    season: int,
    batch: int | None,
    keep: bool,
) -> None:
    """What `due` gave is in a batch, or never leaves (None): its content goes, unless it is retained.

    Who was held out is in no batch.
    """
    gone = "" if keep else f", {_STRIP}"
    changed = db.execute(
        f"UPDATE decisions SET state = {TAKEN}, season = ?, batch = iif(lane IS {ALONE}, NULL, ?){gone}"
        f' WHERE state = {OPEN} AND "group" = ? AND closes_at <= ? AND (closes_at, number) <= (?, ?)',
        (season, batch, group, rows[-1].closes_at, rows[-1].closes_at, rows[-1].number),
    )
    if changed.rowcount != len(rows):
        raise sqlite3.IntegrityError(f"{changed.rowcount} decisions were due, expected {len(rows)}")


def any_content(db: sqlite3.Connection, *, before: int) -> bool:
    """Whether `strip` has anything to do."""
    query = f"SELECT 1 FROM decisions WHERE state = {TAKEN} AND closes_at <= ? AND action IS NOT NULL LIMIT 1"
    return db.execute(query, (before,)).fetchone() is not None


def strip(db: sqlite3.Connection, *, before: int, limit: int) -> None:
    """Take the content of retained decisions away whose window closed before."""
    rows = db.execute(
        f"SELECT number FROM decisions WHERE state = {TAKEN} AND closes_at <= ?"
        " AND action IS NOT NULL LIMIT ?",
        (before, limit),
    ).fetchall()
    take_content(db, [number for (number,) in rows])


def any_old(db: sqlite3.Connection, *, before: int) -> bool:
    """Whether `forget` has anything to do."""
    query = "SELECT 1 FROM decisions WHERE state = ? AND closes_at <= ? LIMIT 1"
    return any(db.execute(query, (state, before)).fetchone() is not None for state in (TAKEN, DISCARDED))


def forget(db: sqlite3.Connection, *, before: int, limit: int) -> None:
    """Delete rows, content and all, whose window closed before."""
    for state in (TAKEN, DISCARDED):
        db.execute(
            "DELETE FROM decisions WHERE number IN"
            " (SELECT number FROM decisions WHERE state = ? AND closes_at <= ? LIMIT ?)",
            (state, before, limit),
        )


def drop_open(db: sqlite3.Connection) -> int:
    """Take all open decisions out: their season is over; how many."""
    rows = db.execute(f"SELECT number FROM decisions WHERE state = {OPEN}").fetchall()
    discard(db, [number for (number,) in rows])
    return len(rows)


def add_counts(db: sqlite3.Connection, counts: Iterable[tuple[str, int]]) -> None:
    """Add to totals by name (`agent_tables.read_counts`)."""
    db.executemany(add_up("counters", ["name"], ["value"]), counts)


def last_number(db: sqlite3.Connection) -> int:
    """Of the newest decision that is still known; 0 if none is."""
    (last,) = db.execute("SELECT coalesce(max(number), 0) FROM decisions").fetchone()
    return int(last)


def any_open(db: sqlite3.Connection) -> bool:
    """Whether a window is still open."""
    return db.execute(f"SELECT 1 FROM decisions WHERE state = {OPEN} LIMIT 1").fetchone() is not None


def of_person(db: sqlite3.Connection, hashes: Sequence[bytes]) -> list[tuple[int, int]]:
    """Number and state of the decisions whose content still names this person, under any of her hashes."""
    query = f"SELECT number, state FROM decisions WHERE person IN ({', '.join('?' * len(hashes))})"
    return db.execute(query, hashes).fetchall()


def take_content(db: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Take the content of decisions away, whatever their state."""
    db.executemany(f"UPDATE decisions SET {_STRIP} WHERE number = ?", [(one,) for one in numbers])


def retained(db: sqlite3.Connection, *, chunk: int = 500) -> Iterator[dict[str, Any]]:
    """Everything that still has its content, in order, in short reads."""
    last, which = 0, "number > ? AND action IS NOT NULL ORDER BY number LIMIT ?"
    query = f"SELECT {_columns(_RETAINED)} FROM decisions WHERE {which}"
    while rows := named(db.execute(query, (last, chunk))):
        yield from rows
        last = rows[-1]["number"]
