"""What the files of a controller that nobody trusts and of a peer share: a lock, a schema, transactions."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Self

from feducb.errors import StoreError
from feducb.storage import sqlite as file

__all__ = ["Book"]

_STORE = "CREATE TABLE store (id INTEGER PRIMARY KEY CHECK (id = 1), kind TEXT NOT NULL, open_at TEXT);"


class Book:
    """A SQLite file with one opener at a time; a call that returned is on disk.

    Attributes:
        path: of the file; ``<path>.lock`` beside it is locked while it is open.
    """

    kind: ClassVar[str]
    migrations: ClassVar[tuple[str, ...]]  # append; never change one that was published

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        self._pid = os.getpid()
        file.require_whole(self.path)
        self._lock: int | None = file.take_lock(self.path)
        self._db: sqlite3.Connection | None = None
        self._writing = False
        try:
            self._db = file.connect(self.path)
            self._db.execute("PRAGMA secure_delete = OFF")  # releases have left: nothing here is private
            self._migrate(self._db)
            file.mark_open(self._db, self.path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the file back; a second time does nothing."""
        if self._lock is None or os.getpid() != self._pid:
            return
        if self._db is not None:
            with suppress(sqlite3.Error):
                file.mark_open(self._db, None)
            self._db.close()
            self._db = None
        os.close(self._lock)
        self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def database(self) -> sqlite3.Connection:
        """The open connection."""
        if self._db is None:
            raise StoreError(f"{self.path} is closed")
        return self._db

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; on disk when it ends. One within another is part of it."""
        db = self.database
        if self._writing:
            yield db
            return
        db.execute("BEGIN IMMEDIATE")  # fails if an earlier one is still open
        self._writing = True
        try:
            yield db
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            self._rolled_back()
            raise
        finally:
            self._writing = False

    def _rolled_back(self) -> None:
        """Forget what is in memory and not in the file; for those that keep anything there."""

    def _migrate(self, db: sqlite3.Connection) -> None:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version:
            row = _kind_of(db)
            if row != self.kind:
                raise StoreError(f"{self.path} is a store of kind {row}, expected {self.kind}")
        if version > len(self.migrations):
            raise StoreError(
                f"{self.path} has schema {version}, this feducb knows up to {len(self.migrations)}: update it"
            )
        for number, script in enumerate(self.migrations[version:], start=version + 1):
            first = f"{_STORE} INSERT INTO store (id, kind) VALUES (1, '{self.kind}');" if number == 1 else ""
            db.executescript(f"BEGIN IMMEDIATE; {first} {script}; PRAGMA user_version = {number}; COMMIT")


def _kind_of(db: sqlite3.Connection) -> str | None:
    try:
        row = db.execute("SELECT kind FROM store").fetchone()
    except sqlite3.OperationalError:
        return None
    return None if row is None else str(row[0])
