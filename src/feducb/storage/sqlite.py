"""A SQLite file: its lock, how it is opened, and how its schema is brought up to date."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from feducb.errors import StoreError, StoreInUseError

__all__ = [
    "BACKUP",
    "STORE_TABLE",
    "connect",
    "is_locked",
    "kind_of",
    "mark_open",
    "migrate",
    "read_only",
    "require_whole",
    "take_lock",
    "utc_now",
]

_BUSY_SECONDS = 5.0
_TRIES, _TRY_SECONDS = 10, 0.02  # of a lock
STORE_TABLE = "CREATE TABLE store (id INTEGER PRIMARY KEY CHECK (id = 1), kind TEXT NOT NULL, open_at TEXT);"
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


def connect(path: Path, *, secret: bool = True) -> sqlite3.Connection:
    """Open the file so that a commit is on disk when it returns.

    Args:
        path: of the file.
        secret: overwrite what is deleted.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite would let others read
    # The store itself sees to it that one thread at a time uses it.
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(f"{path} is on a disk with journal mode {mode}, expected wal: use a local disk")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA secure_delete = {'ON' if secret else 'OFF'}")
        # After a failed fsync the log may be in the page cache but not on disk: written anew, it is.
        if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise StoreInUseError(f"{path} is being read by another program, expected none")
    except BaseException:
        connection.close()
        raise
    return connection


def read_only(path: Path, *, version: int) -> sqlite3.Connection:
    """Look into a file that another process may have open; keep reads short, writers wait for none.

    Args:
        path: of the file.
        version: of the schema that the caller can read.
    """
    if not path.is_file():
        raise StoreError(f"{path} does not exist, expected an agent's file")
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
    try:
        (kept,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        connection.close()
        raise StoreError(f"{path} cannot be read: {error}") from None
    if kept != version:
        connection.close()
        raise StoreError(
            f"{path} has schema {kept}, expected {version}: "
            + ("update feducb" if kept > version else "start the agent once, which updates it")
        )
    return connection


def migrate(db: sqlite3.Connection, path: Path, migrations: Sequence[str], kind: str) -> None:
    """Bring the schema up to date; refuse a file of another kind or from a newer version.

    Args:
        db: the open file.
        path: of it.
        migrations: number k takes a file from user_version k - 1 to k.
        kind: of the file.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    kept = kind_of(db, path) if version else None
    if kept not in (None, kind):
        raise StoreError(f"{path} is a store of kind {kept}, expected {kind}")
    if version > len(migrations):
        raise StoreError(f"{path} has schema {version}, this feducb knows up to {len(migrations)}: update it")
    for number, script in enumerate(migrations[version:], start=version + 1):
        db.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT")
    if kept is None:
        db.execute("INSERT INTO store (id, kind) VALUES (1, ?)", (kind,))


def kind_of(db: sqlite3.Connection, path: Path) -> str | None:
    """None where it was made, and never used."""
    try:
        row = db.execute("SELECT kind FROM store").fetchone()
    except sqlite3.OperationalError:
        raise StoreError(f"{path} is not a store") from None
    return None if row is None else str(row[0])


def utc_now() -> str:
    """As times are written into files."""
    return datetime.now(UTC).isoformat()
