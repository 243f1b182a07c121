"""SQLite files: one opener at a time, whole on disk, brought up to date; the base of stores and books."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

from feducb.errors import RecordOutOfBoundsError, StoreError, StoreInUseError

__all__ = [
    "BACKUP",
    "STORE_TABLE",
    "SqliteFile",
    "connect",
    "is_locked",
    "kind_at",
    "kind_of",
    "migrate",
    "read_only",
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
        names = path.stat().st_nlink
        raise StoreError(f"{path} has {names} names, expected one: its log goes with one of them")
    with path.open("rb") as opened:
        if opened.read(16) != b"SQLite format 3\0":
            raise StoreError(f"{path} is not a store")
    bare = _bare(path)
    try:
        row = bare.execute("SELECT open_at FROM store").fetchone()
    except sqlite3.DatabaseError:
        row = None  # no table yet: it was never used
    finally:
        bare.close()
    if row and row[0] == BACKUP:
        why = "a season that went on elsewhere; restore() makes a store of it"
        raise StoreError(f"{path} is a backup: {why}")
    if row and row[0] not in (None, str(path)) and not Path(f"{path}-wal").exists():
        moved = f"{path} was left open as {row[0]} and came here without its log {row[0]}-wal"
        raise StoreError(f"{moved}: releases may be missing in it, so it is not opened")


def _bare(path: Path) -> sqlite3.Connection:
    """The file without its log, and without making one: `require_whole` asks whether it is there."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)


def kind_at(path: Path) -> str | None:
    """Of which kind a file is, which another process may have open; None where it does not say."""
    with closing(_bare(path)) as bare, suppress(sqlite3.DatabaseError, StoreError):
        return kind_of(bare, path)
    return None


def mark_open(connection: sqlite3.Connection, path: Path | None) -> None:
    """Write into the file itself under which path it is open; None when it is closed."""
    connection.execute("UPDATE store SET open_at = ?", (None if path is None else str(path),))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def connect(path: Path, *, secret: bool = True) -> sqlite3.Connection:
    """Open the file so that a commit is on disk when it returns; ``secret`` overwrites what is deleted."""
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
    """Look into a file that another process may have open; keep reads short, writers wait for none."""
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
        remedy = "update feducb" if kept > version else "start the agent once, which updates it"
        raise StoreError(f"{path} has schema {kept}, expected {version}: {remedy}")
    return connection


def migrate(db: sqlite3.Connection, path: Path, migrations: Sequence[str], kind: str) -> None:
    """Bring the schema up to date; refuse a file of another kind or from a newer version.

    Migration k takes a file from user_version k - 1 to k.
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


def _commits(db: sqlite3.Connection) -> int:
    """How many transactions the file has seen, modulo 2³¹; kept where SQLite has room for any number."""
    return int(db.execute("PRAGMA application_id").fetchone()[0])


def add_up(table: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """A statement that adds to the columns of a row, which it makes if there is none of these keys."""
    names, sums = (*keys, *columns), ", ".join(f"{name} = {name} + excluded.{name}" for name in columns)
    row = f"({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    return f"INSERT INTO {table} {row} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {sums}"


def named(rows: sqlite3.Cursor) -> list[dict[str, Any]]:
    """Rows as dictionaries by the names of their columns."""
    names = [column[0] for column in rows.description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def utc_now() -> str:
    """As times are written into files."""
    return datetime.now(UTC).isoformat()


class SqliteFile(ABC):
    """A SQLite file with one opener at a time, used by one thread at a time; a call that returned is on disk.

    ``<path>.lock`` beside it is locked while it is open.
    """

    kind: ClassVar[str]
    migrations: ClassVar[tuple[str, ...]]  # append; never change one that was published
    secret: ClassVar[bool] = True  # whether what is deleted is overwritten too

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        self._owner = (os.getpid(), threading.get_ident())
        require_whole(self.path)
        self._lock: int | None = take_lock(self.path)
        self._connection: sqlite3.Connection | None = None
        self._moves = 0  # changes of what is in memory since it was opened
        self._spoilt = False  # whether a call of this transaction failed half-way
        try:
            self._connection = connect(self.path, secret=self.secret)
            self._migrate(self._connection)
            self._set_up()
            mark_open(self._connection, self.path)
        except BaseException:
            self.close()
            raise

    def _migrate(self, db: sqlite3.Connection) -> None:
        migrate(db, self.path, self.migrations, self.kind)

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
                mark_open(self._connection, None)
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
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Several writes, one durable commit: all of them or none, in the file and in memory.

        One within another fails both. An error of a `part` may be caught within it.

        Guarantees:
            If it raises, nothing of it is in the file, so that it can be tried again and counts once; if that
            cannot be found out, a store closes.
        """
        db, moves, number = self.database, self._moves, None
        if db.in_transaction:
            self._spoilt = True
            raise StoreError("a commit within another: neither of them happens")
        try:
            db.execute("BEGIN IMMEDIATE")
            yield db
            if self._spoilt or not db.in_transaction:  # SQLite may have rolled it back by itself
                raise StoreError("a call of this commit failed half-way, so nothing of the commit happened")
            number = (_commits(db) + 1) % 2**31
            db.execute(f"PRAGMA application_id = {number}")
            db.execute("COMMIT")
        except sqlite3.Error:
            self._recover()
            # A commit may report an error and be on disk all the same: then it has happened.
            if self.closed or number is None or _commits(self.database) != number:
                raise
        except RecordOutOfBoundsError:
            if self._moves == moves and not self._spoilt:  # memory is as it was: no need to load it anew
                db.execute("ROLLBACK")
            else:
                self._recover()
            raise
        except BaseException:
            self._recover()
            if number is not None and not self.closed and _commits(self.database) == number:
                self.close()  # interrupted when it was on disk already: whoever goes on must look first
            raise

    def part(self, db: sqlite3.Connection) -> AbstractContextManager[sqlite3.Connection]:
        """A call within a transaction, whose error may be caught there.

        If it was refused before it changed anything, the others of the transaction go on; if it failed
        half-way, none of them happens: whoever ends the transaction hears so.
        """
        return _Part(self, db)

    def _recover(self) -> None:
        """Undo in the file what a failed transaction did, and forget it in memory."""
        self._spoilt = False
        with suppress(sqlite3.Error):
            self.database.execute("ROLLBACK")
        self._load()


class _Part(AbstractContextManager[sqlite3.Connection]):
    """See `SqliteFile.part`; a class, since every decision goes through one, and a generator takes longer."""

    __slots__ = ("_before", "_db", "_file")

    def __init__(self, file: SqliteFile, db: sqlite3.Connection) -> None:
        self._file, self._db, self._before = file, db, (0, 0)

    def __enter__(self) -> sqlite3.Connection:
        file, db = self._file, self._db
        if file._spoilt or db is not file._connection or not db.in_transaction:
            raise StoreError("the commit that this belongs to has failed")
        self._before = (db.total_changes, file._moves)
        return db

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            file, db = self._file, self._db
            # On a full disk SQLite itself may have rolled everything back: what followed would stand alone.
            whole = db is file._connection and db.in_transaction
            file._spoilt |= not whole or (db.total_changes, file._moves) != self._before
