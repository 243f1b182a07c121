"""The base of stores and books: a SQLite file with one opener, its guards and its transactions."""

from __future__ import annotations

import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Self

from feducb.errors import RecordOutOfBoundsError, StoreError
from feducb.storage import sqlite

__all__ = ["SqliteFile"]


class SqliteFile(ABC):
    """A SQLite file with one opener at a time, used by one thread at a time; a call that returned is on disk.

    Attributes:
        path: of the file; ``<path>.lock`` beside it is locked while it is open.
    """

    kind: ClassVar[str]
    migrations: ClassVar[tuple[str, ...]]  # append; never change one that was published
    secret: ClassVar[bool] = True  # whether what is deleted is overwritten too

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        self._owner = (os.getpid(), threading.get_ident())
        sqlite.require_whole(self.path)
        self._lock: int | None = sqlite.take_lock(self.path)
        self._connection: sqlite3.Connection | None = None
        self._moves = 0  # changes of what is in memory since it was opened
        self._spoilt = False  # whether a call of this transaction failed half-way
        try:
            self._connection = sqlite.connect(self.path, secret=self.secret)
            self._migrate(self._connection)
            self._set_up()
            sqlite.mark_open(self._connection, self.path)
        except BaseException:
            self.close()
            raise

    def _migrate(self, db: sqlite3.Connection) -> None:
        sqlite.migrate(db, self.path, self.migrations, self.kind)

    def _set_up(self) -> None:
        """What a new file needs besides tables, and an old one in memory."""
        self._load()

    @abstractmethod
    def _load(self) -> None:
        """Bring what is in memory to what the file says."""

    def close(self) -> None:
        """Give the file back; a second time does nothing."""
        if self._lock is None or os.getpid() != self._owner[0]:
            return  # after a fork the file and its lock are the parent's
        if self._connection is not None:
            with suppress(sqlite3.Error):  # left marked as open, it is only more careful next time
                sqlite.mark_open(self._connection, None)
            self._connection.close()
        os.close(self._lock)
        self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the file was given back."""
        return self._lock is None

    def take_over(self) -> None:
        """Use the file from this thread from now on; the one before must have stopped using it."""
        if os.getpid() != self._owner[0]:
            raise StoreError(f"the store {self.path} was opened by another process; use it there")
        self._owner = (self._owner[0], threading.get_ident())

    @property
    def database(self) -> sqlite3.Connection:
        """The open connection, to look. Whoever writes uses a transaction."""
        return self._require_usable()

    def _require_usable(self) -> sqlite3.Connection:
        if self._lock is None or self._connection is None:
            raise StoreError(f"the store {self.path} is closed")
        if self._owner != (os.getpid(), threading.get_ident()):
            raise StoreError(f"the store {self.path} was opened by another process or thread; use it there")
        return self._connection

    def cut_log(self) -> None:
        """Write the log back into the file and cut it off: with it goes what was overwritten since."""
        self.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, in the file and in memory; on disk when it ends. One within another fails both."""
        db, moves = self.database, self._moves
        try:
            db.execute("BEGIN IMMEDIATE")
            yield db
            if self._spoilt:
                raise StoreError("a call of this commit failed half-way, so nothing of the commit happened")
            db.execute("COMMIT")
        except RecordOutOfBoundsError:
            if self._moves == moves and not self._spoilt:  # memory is as it was: no need to load it anew
                db.execute("ROLLBACK")
            else:
                self._recover()
            raise
        except BaseException:
            self._recover()
            raise

    @contextmanager
    def part(self, db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        """A call within a transaction, whose error may be caught there.

        If it was refused before it changed anything, the others of the transaction go on; if it failed
        half-way, none of them happens: whoever ends the transaction hears so.
        """
        if self._spoilt or db is not self._connection or not db.in_transaction:
            raise StoreError("the commit that this belongs to has failed")
        before = (db.total_changes, self._moves)
        try:
            yield db
        except BaseException:
            # On a full disk SQLite itself may have rolled everything back: what followed would stand alone.
            whole = db is self._connection and db.in_transaction
            self._spoilt |= not whole or (db.total_changes, self._moves) != before
            raise

    def _recover(self) -> None:
        """Undo in the file what a failed transaction did, and forget it in memory."""
        self._spoilt = False
        with suppress(sqlite3.Error):
            self.database.execute("ROLLBACK")
        self._load()
