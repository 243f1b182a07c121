"""What goes from one season to the next: records that entered no release of the season that is over.

A record enters the first release that is due after its window has closed, of whichever season that is: so
what was decided too late for a season's last release waits for the first one of the next. Which release it
enters follows from its own time and public ones, and it enters no other: each record costs one season
(docs/theory.md, 2). Two kinds wait: decisions whose windows are open, as they are, and those whose windows
have closed, as a batch of sums.

The people of a carried batch count in the new season as in the old: whoever may have a record in it is
counted with at least as many as she has there. Their hashes stay under the old key, until they come again
(`rekey`): a person is seen under her new hash and never under both.

Functions work within a transaction of the store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.storage import events

__all__ = ["Batch", "fits", "keys", "rekey", "take", "unpack"]


class Batch(NamedTuple):
    """What waited when a season was over."""

    sums: dict[int, bytes]  # by group
    tallies: dict[int, int]  # by group: rewards out of range, where they are counted
    people: list[tuple[bytes, int]]  # hash, and how many records she has in it at most
    person_key: bytes
    season: int
    made: tuple[int, ...]  # by group, how many batches of the season have left


def fits(old: Terms, new: Terms) -> bool:
    """Whether records taken in under the old terms are what the new ones add up, under the same promise.

    Guarantees:
        Whoever was promised a budget, a trust and a spacing when her record was made is not released under
        others.
    """
    alike = (
        *("problem", "model", "weight", "groups", "records_per_person"),
        *("spacing", "budget", "trust", "agents_per_person"),
    )
    same = all(getattr(old, name) == getattr(new, name) for name in alike)
    return same and old.certificate().exponent == new.certificate().exponent


def take(db: sqlite3.Connection, streams: Sequence[DeployedPrivatizer], made: Sequence[int]) -> Batch:
    """What waits now.

    Args:
        db: the agent's file.
        streams: one per group.
        made: by group, how many batches have left.
    """
    terms = streams[0].terms
    waiting = {group: stream for group, stream in enumerate(streams) if stream.pending}
    sums = {group: stream.dump_batch() for group, stream in waiting.items()}
    tallies = {}
    for group, count in enumerate(made):
        query = 'SELECT exact FROM tallies WHERE ("group", number) = (?, ?) AND exact IS NOT NULL'
        if (row := db.execute(query, (group, count + 1)).fetchone()) is not None:
            tallies[group] = row[0]
    people = []
    if waiting:
        oldest = 1 + min(made[group] for group in waiting)
        once = terms.records_per_person == 1 or terms.spacing > 0
        query = "SELECT hash, records FROM people WHERE last >= ?"
        people = [(bytes(hash_), 1 if once else records) for hash_, records in db.execute(query, (oldest,))]
    key, season = db.execute("SELECT person_key, season FROM open_season").fetchone()
    return Batch(sums, tallies, people, bytes(key), season, tuple(made))


def unpack(db: sqlite3.Connection, batch: Batch, *, keep_keys: int) -> None:
    """Put it into the season that has just been opened.

    Args:
        db: the agent's file.
        batch: of the season before.
        keep_keys: of so many earlier seasons, so that people can still be found.
    """
    db.executemany("INSERT INTO batches VALUES (?, ?)", list(batch.sums.items()))
    db.executemany("INSERT INTO tallies VALUES (?, 1, ?, NULL)", list(batch.tallies.items()))
    db.executemany("INSERT INTO people VALUES (?, ?, 1)", batch.people)
    db.execute("INSERT INTO person_keys VALUES (?, ?)", (batch.season, batch.person_key))
    named = f"SELECT EXISTS (SELECT 1 FROM decisions WHERE state = {events.OPEN} AND person IS NOT NULL)"
    if not batch.people and not db.execute(named).fetchone()[0]:  # no hash needs an earlier key to be found
        newest = "SELECT season FROM person_keys ORDER BY season DESC LIMIT ?"
        db.execute(f"DELETE FROM person_keys WHERE season NOT IN ({newest})", (max(1, keep_keys),))
    (now,) = db.execute("SELECT season FROM open_season").fetchone()
    db.executemany(
        'UPDATE decisions SET season = ?, batch = 1 WHERE season = ? AND "group" = ? AND batch = ?',
        [(now, batch.season, group, count + 1) for group, count in enumerate(batch.made)],
    )
    db.execute(f"UPDATE decisions SET model = 0 WHERE state = {events.OPEN}")  # what earlier seasons told


def keys(db: sqlite3.Connection) -> tuple[bytes, ...]:
    """Those of earlier seasons under which people may still be found, the newest first."""
    return tuple(bytes(key) for (key,) in db.execute("SELECT key FROM person_keys ORDER BY season DESC"))


def rekey(db: sqlite3.Connection, before: Iterable[bytes], now: bytes) -> None:
    """She is here again: what is known under her earlier hashes goes under the one of this season."""
    for hash_ in before:
        row = db.execute("SELECT records, last FROM people WHERE hash = ?", (hash_,)).fetchone()
        if row is not None:
            db.execute("DELETE FROM people WHERE hash = ?", (hash_,))
            db.execute(
                "INSERT INTO people VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE"
                " SET records = records + ?2, last = max(last, ?3)",
                (now, *row),
            )
        db.execute(
            f"UPDATE decisions SET person = ? WHERE state = {events.OPEN} AND person = ?", (now, hash_)
        )
