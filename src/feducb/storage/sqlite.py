"""The SQLite file itself: its schema, its lock, and how it is opened."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from pathlib import Path

from feducb.errors import (
    StoreError,
    StoreInUseError,
)

__all__ = [
    "BACKUP",
    "connect",
    "is_locked",
    "mark_open",
    "migrate",
    "read_only",
    "require_whole",
    "take_lock",
]

# Migration k takes a file from user_version k − 1 to k. Append; never change one that was published.
_MIGRATIONS = (
    """
    CREATE TABLE store (
        id INTEGER PRIMARY KEY CHECK (id = 1), kind TEXT NOT NULL, open_at TEXT);
    CREATE TABLE seasons (
        season INTEGER PRIMARY KEY, opened_at TEXT NOT NULL, terms TEXT NOT NULL,
        excluded INTEGER NOT NULL DEFAULT 0, dropped INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE stream (
        id INTEGER PRIMARY KEY CHECK (id = 1), season INTEGER NOT NULL REFERENCES seasons,
        person_key BLOB NOT NULL, state BLOB NOT NULL);
    CREATE TABLE pending (id INTEGER PRIMARY KEY, actions BLOB NOT NULL, rewards BLOB NOT NULL);
    CREATE TABLE people (hash BLOB PRIMARY KEY, records INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE outgoing (
        kind TEXT NOT NULL, season INTEGER NOT NULL REFERENCES seasons, number INTEGER NOT NULL,
        made_at TEXT NOT NULL, size INTEGER NOT NULL, sha256 TEXT NOT NULL, payload BLOB, sent_at TEXT,
        PRIMARY KEY (kind, season, number));
    CREATE INDEX unsent ON outgoing (kind, season, number) WHERE sent_at IS NULL;
    CREATE TABLE received (
        season INTEGER NOT NULL REFERENCES seasons, agent TEXT NOT NULL, number INTEGER NOT NULL,
        received_at TEXT NOT NULL, sha256 TEXT NOT NULL, payload BLOB,
        PRIMARY KEY (season, agent, number));
    CREATE TRIGGER a_release_stays BEFORE DELETE ON outgoing
        BEGIN SELECT RAISE(ABORT, 'what may have left is never deleted'); END;
    CREATE TRIGGER its_name_is_final BEFORE UPDATE OF kind, season, number, made_at, size, sha256 ON outgoing
        BEGIN SELECT RAISE(ABORT, 'what may have left is never changed'); END;
    CREATE TRIGGER its_content_is_final BEFORE UPDATE OF payload ON outgoing
        WHEN NEW.payload IS NOT OLD.payload AND NOT (OLD.kind = 'upload' AND NEW.payload IS NULL)
        BEGIN SELECT RAISE(ABORT, 'what may have left is never changed'); END;
    """,
    # Groups: a state each, and what waits or left says its own. What was there before is of group 0.
    """
    CREATE TABLE open_season (
        id INTEGER PRIMARY KEY CHECK (id = 1), season INTEGER NOT NULL REFERENCES seasons,
        person_key BLOB NOT NULL);
    CREATE TABLE streams ("group" INTEGER PRIMARY KEY, state BLOB NOT NULL);
    INSERT INTO open_season SELECT id, season, person_key FROM stream;
    INSERT INTO streams SELECT 0, state FROM stream;
    DROP TABLE stream;
    ALTER TABLE pending ADD COLUMN "group" INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE outgoing RENAME TO outgoing_1;
    CREATE TABLE outgoing (
        kind TEXT NOT NULL, season INTEGER NOT NULL REFERENCES seasons, "group" INTEGER NOT NULL,
        number INTEGER NOT NULL, made_at TEXT NOT NULL, size INTEGER NOT NULL, sha256 TEXT NOT NULL,
        payload BLOB, sent_at TEXT, PRIMARY KEY (kind, season, "group", number));
    INSERT INTO outgoing
        SELECT kind, season, 0, number, made_at, size, sha256, payload, sent_at FROM outgoing_1;
    DROP TABLE outgoing_1;
    CREATE INDEX unsent ON outgoing (kind, season, number, "group") WHERE sent_at IS NULL;
    CREATE TRIGGER a_release_stays BEFORE DELETE ON outgoing
        BEGIN SELECT RAISE(ABORT, 'what may have left is never deleted'); END;
    CREATE TRIGGER its_name_is_final
        BEFORE UPDATE OF kind, season, "group", number, made_at, size, sha256 ON outgoing
        BEGIN SELECT RAISE(ABORT, 'what may have left is never changed'); END;
    CREATE TRIGGER its_content_is_final BEFORE UPDATE OF payload ON outgoing
        WHEN NEW.payload IS NOT OLD.payload AND NOT (OLD.kind = 'upload' AND NEW.payload IS NULL)
        BEGIN SELECT RAISE(ABORT, 'what may have left is never changed'); END;
    """,
    # A deployed agent: its settings, decisions until they are in the statistics, sums it acts on, counters.
    # A batch may now also wait as sums, without the records it came from.
    """
    ALTER TABLE seasons ADD COLUMN continued_elsewhere INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE batches ("group" INTEGER PRIMARY KEY, sums BLOB NOT NULL);
    CREATE TABLE settings (
        id INTEGER PRIMARY KEY CHECK (id = 1), season INTEGER NOT NULL REFERENCES seasons, body TEXT NOT NULL,
        started_at REAL NOT NULL, id_key BLOB NOT NULL);
    CREATE TABLE decisions (
        number INTEGER PRIMARY KEY, tag BLOB NOT NULL, id BLOB, state INTEGER NOT NULL,
        closes_at INTEGER NOT NULL, "group" INTEGER NOT NULL, decided_at INTEGER, person BLOB, action BLOB,
        candidates INTEGER, features BLOB, chosen INTEGER, preferred INTEGER, propensity REAL, model INTEGER,
        reward REAL, batch INTEGER);
    CREATE INDEX by_closing ON decisions (state, closes_at);
    CREATE UNIQUE INDEX by_id ON decisions (id) WHERE id IS NOT NULL;
    CREATE TABLE inbox (
        "group" INTEGER PRIMARY KEY, season INTEGER NOT NULL, number INTEGER NOT NULL,
        received_at TEXT NOT NULL, payload BLOB NOT NULL);
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE activity (
        hour INTEGER PRIMARY KEY, decisions INTEGER NOT NULL DEFAULT 0, rewards INTEGER NOT NULL DEFAULT 0,
        reward_sum REAL NOT NULL DEFAULT 0);
    CREATE TABLE loaded (sha256 TEXT PRIMARY KEY, loaded_at TEXT NOT NULL, records INTEGER NOT NULL);
    """,
    # What decisions were worth over time, as sums a step of so many seconds (agent/curve.py).
    """
    CREATE TABLE curve (
        width INTEGER NOT NULL, start INTEGER NOT NULL, decisions INTEGER NOT NULL, rewards INTEGER NOT NULL,
        settled INTEGER NOT NULL, value REAL NOT NULL, value_square REAL NOT NULL,
        uniform_chance REAL NOT NULL, weight REAL NOT NULL, weighted REAL NOT NULL,
        weight_square REAL NOT NULL, weighted_square REAL NOT NULL, weighted_square_square REAL NOT NULL,
        PRIMARY KEY (width, start)) WITHOUT ROWID;
    """,
    # Rewards that were refused for being out of range, as a noisy tally a batch (privacy/tally.py); what an
    # agent warns of (agent/warning.py).
    """
    ALTER TABLE decisions ADD COLUMN refused INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE tallies (
        "group" INTEGER NOT NULL, number INTEGER NOT NULL, exact INTEGER, noisy INTEGER,
        PRIMARY KEY ("group", number)) WITHOUT ROWID;
    CREATE TABLE warnings (kind TEXT PRIMARY KEY, since TEXT NOT NULL) WITHOUT ROWID;
    """,
)
_KINDS = ("agent", "controller")
_BUSY_SECONDS = 5.0
_TRIES, _TRY_SECONDS = 10, 0.02  # of a lock
BACKUP = "a backup"  # in place of the path under which a file was left open


def take_lock(path: Path) -> int:
    """Lock ``<path>.lock``; the system gives it back when the process ends, however it ends."""
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if left == 0:
                os.close(lock)
                raise StoreInUseError(f"the store {path} is open elsewhere; one opener at a time") from error
            time.sleep(_TRY_SECONDS)  # somebody may only be looking: `is_locked`
    return lock


def is_locked(path: Path) -> bool:
    """Whether a process has the store open; asked without keeping anybody out for longer than that."""
    try:
        lock = os.open(f"{path.resolve()}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def require_whole(path: Path) -> None:
    """Refuse a file that was moved or linked away from its log: what is in there would be drawn again.

    While a store is open, and after a crash, the newest releases are in ``<path>-wal`` alone. The file itself
    says under which path it was left open.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    if path.stat().st_nlink > 1:
        raise StoreError(
            f"{path} has {path.stat().st_nlink} names, expected one: its log goes with one of them"
        )
    with path.open("rb") as opened:
        if opened.read(16) != b"SQLite format 3\0":
            raise StoreError(f"{path} is not a store")
    bare = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)  # the file without its log
    try:
        row = bare.execute("SELECT open_at FROM store").fetchone()
    except sqlite3.DatabaseError:
        row = None  # no table yet: it was never used
    finally:
        bare.close()
    if row and row[0] == BACKUP:
        raise StoreError(
            f"{path} is a backup: a season that went on elsewhere; restore() makes a store of it"
        )
    if row and row[0] not in (None, str(path)) and not Path(f"{path}-wal").exists():
        raise StoreError(
            f"{path} was left open as {row[0]} and came here without its log {row[0]}-wal: releases may be "
            "missing in it, so it is not opened"
        )


def mark_open(connection: sqlite3.Connection, path: Path | None) -> None:
    """Write into the file itself under which path it is open; None when it is closed."""
    connection.execute("UPDATE store SET open_at = ?", (None if path is None else str(path),))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def connect(path: Path) -> sqlite3.Connection:
    """Open the file so that a commit is on disk when it returns."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite would let others read
    # The store itself sees to it that one thread at a time uses it.
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(f"{path} is on a disk with journal mode {mode}, expected wal: use a local disk")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
        # After a failed fsync the log may be in the page cache but not on disk: written anew, it is.
        if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise StoreInUseError(f"{path} is being read by another program, expected none")
    except BaseException:
        connection.close()
        raise
    return connection


def read_only(path: Path) -> sqlite3.Connection:
    """Look into a file that another process may have open; keep reads short, writers wait for none."""
    if not path.is_file():
        raise StoreError(f"{path} does not exist, expected an agent's file")
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        connection.close()
        raise StoreError(f"{path} cannot be read: {error}") from None
    if version != len(_MIGRATIONS):
        connection.close()
        raise StoreError(
            f"{path} has schema {version}, expected {len(_MIGRATIONS)}: "
            + ("update feducb" if version > len(_MIGRATIONS) else "start the agent once, which updates it")
        )
    return connection


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date; refuse a file from a newer version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(_MIGRATIONS):
        raise StoreError(
            f"{path} has schema {version}, this feducb knows up to {len(_MIGRATIONS)}: update it"
        )
    if version:  # other kinds of file have schemas of their own
        row = connection.execute("SELECT kind FROM store").fetchone()
        if row is not None and row[0] not in _KINDS:
            raise StoreError(f"{path} is a store of kind {row[0]}, expected {' or '.join(_KINDS)}")
    for number, script in enumerate(_MIGRATIONS[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT")
