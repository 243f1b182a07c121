"""What the ServerApp has seen and published, on disk: it may be killed at any instruction."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, Self

from feducb.config import require_integer
from feducb.engines.flower.admission import Admission
from feducb.errors import ConfigurationError, StoreError
from feducb.privacy.deployed import Terms
from feducb.protocol import messages
from feducb.store.file import take_lock

__all__ = ["Book", "SumBook"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS federation (id INTEGER PRIMARY KEY CHECK (id = 1), terms TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS releases (
    season INTEGER NOT NULL, number INTEGER NOT NULL, agent TEXT NOT NULL, arrived_at REAL NOT NULL,
    sha256 TEXT NOT NULL, payload BLOB, PRIMARY KEY (season, number, agent));
CREATE INDEX IF NOT EXISTS waiting ON releases (season, number) WHERE payload IS NOT NULL;
CREATE TABLE IF NOT EXISTS sums (
    season INTEGER NOT NULL, number INTEGER NOT NULL, payload BLOB NOT NULL, PRIMARY KEY (season, number));
CREATE TRIGGER IF NOT EXISTS a_sum_is_final BEFORE UPDATE ON sums
    BEGIN SELECT RAISE(ABORT, 'a published sum is never changed'); END;
"""
_MOST_SEASONS = 2  # that one agent may have waiting, beyond the season of the newest sum


class Book(Protocol):
    """What a collector needs of its memory."""

    def put(self, agent: str, payload: bytes) -> bool:
        """Keep an agent's release, on disk before this returns; whether it is new. Else ``ValueError``."""
        ...

    def sum_for(self, number: int, *, season: int | None = None) -> bytes | None:
        """The sum of releases ``number``, if published; of the newest season unless another is named."""
        ...

    def newest(self) -> bytes | None:
        """The newest sum, after publishing what is due."""
        ...


class SumBook:
    """A book in one SQLite file, used by one process and one thread at a time; made by `open`.

    Sum k of a season is published once releases k of all agents are in, or once a quorum is in and the
    deadline has passed since the first of them came. It is final: a release that comes later is kept on
    record and enters no sum, which costs nothing but time, as the agent's next release contains it. Sums
    only move forward: once k is out, nothing below k is published.

    Guarantees:
        A call returns after its transaction is on disk, or leaves no trace. A sum, once returned, is the same
        bytes for ever.
    """

    def __init__(
        self,
        path: Path,
        admission: Admission,
        *,
        agents: int,
        quorum: int,
        deadline: float,
        clock: Callable[[], float],
    ) -> None:
        self.path = path
        self._admission = admission
        self._agents, self._quorum, self._deadline = agents, quorum, deadline
        self._clock = clock
        self._lock: int | None = take_lock(path)
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)
            self._require_same(admission.terms)
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(
        cls,
        path: str | Path,
        terms: Terms,
        *,
        agents: int,
        quorum: int | None = None,
        deadline: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Open a book, or make one.

        Args:
            path: of the file; ``<path>.lock`` beside it is locked meanwhile.
            terms: of all agents. Those of the file, if it exists.
            agents: M, at most so many have releases in a season.
            quorum: the least number of agents in a sum; all, if left out.
            deadline: seconds from a number's first release on, after which a quorum is enough.
            clock: the time in seconds; it must go on over restarts.
        """
        require_integer("agents", agents, at_least=1)
        quorum = agents if quorum is None else quorum
        require_integer("quorum", quorum, at_least=1)
        if quorum > agents:
            raise ConfigurationError("quorum", quorum, f"at most agents, {agents}")
        if not deadline >= 0.0:
            raise ConfigurationError("deadline", deadline, "seconds, at least 0")
        admission = Admission(terms, agents=agents)
        return cls(
            Path(path).resolve(), admission, agents=agents, quorum=quorum, deadline=deadline, clock=clock
        )

    def put(self, agent: str, payload: bytes) -> bool:
        """Keep an agent's release; whether it is new. Acknowledge it either way.

        Args:
            agent: who sent it, as the link authenticated it.
            payload: what the agent released.

        Raises:
            ValueError: it is refused, and must not be acknowledged.
        """
        release = self._admission.read(payload)
        season, number = release.season, release.number
        digest = hashlib.sha256(payload).hexdigest()
        known = self._db.execute(
            "SELECT sha256 FROM releases WHERE season = ? AND number = ? AND agent = ?",
            (season, number, agent),
        ).fetchone()
        if known is not None:
            if known[0] != digest:
                raise ValueError(f"release {number} of season {season} came before with different content")
            return False
        last = self._last()
        self._require_room(agent, season, last[0] if last is not None else 0)
        content = None if last is not None and (season, number) <= last else payload
        with self._transaction():
            self._db.execute(
                "INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?)",
                (season, number, agent, self._clock(), digest, content),
            )
            if content is not None and self._waiting(season, number) == self._agents:
                self._publish(season, number)
        return True

    def sum_for(self, number: int, *, season: int | None = None) -> bytes | None:
        """The sum of releases ``number``, if published; of the newest season unless another is named."""
        last = self._last()
        if last is None:
            return None
        row = self._db.execute(
            "SELECT payload FROM sums WHERE season = ? AND number = ?",
            (last[0] if season is None else season, number),
        ).fetchone()
        return None if row is None else bytes(row[0])

    def newest(self) -> bytes | None:
        """The newest sum, after publishing what a quorum and the deadline allow."""
        due = self._db.execute(
            "SELECT season, number FROM releases WHERE payload IS NOT NULL GROUP BY season, number"
            " HAVING count(*) >= ? AND min(arrived_at) <= ? ORDER BY season DESC, number DESC LIMIT 1",
            (self._quorum, self._clock() - self._deadline),
        ).fetchone()
        if due is not None:
            with self._transaction():
                self._publish(*due)
        last = self._last()
        return None if last is None else self.sum_for(last[1], season=last[0])

    def close(self) -> None:
        """Give the file back; a second time does nothing."""
        if self._lock is None:
            return
        if hasattr(self, "_db"):
            self._db.close()
        os.close(self._lock)
        self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _last(self) -> tuple[int, int] | None:
        row = self._db.execute(
            "SELECT season, number FROM sums ORDER BY season DESC, number DESC LIMIT 1"
        ).fetchone()
        return None if row is None else (row[0], row[1])

    def _waiting(self, season: int, number: int) -> int:
        (count,) = self._db.execute(
            "SELECT count(*) FROM releases WHERE season = ? AND number = ? AND payload IS NOT NULL",
            (season, number),
        ).fetchone()
        return int(count)

    def _publish(self, season: int, number: int) -> None:
        rows = self._db.execute(
            "SELECT payload FROM releases WHERE season = ? AND number = ? AND payload IS NOT NULL"
            " ORDER BY agent",
            (season, number),
        )
        total = messages.combine([messages.decode(row[0]) for row in rows])
        self._db.execute("INSERT INTO sums VALUES (?, ?, ?)", (season, number, messages.encode(total)))
        # What is in, or too old to be in any: its digest stays, to recognise it when it comes again.
        self._db.execute(
            "UPDATE releases SET payload = NULL WHERE (season, number) <= (?, ?)", (season, number)
        )

    def _require_room(self, agent: str, season: int, current: int) -> None:
        others, mine = self._db.execute(
            "SELECT count(DISTINCT iif(agent = ?1, NULL, agent)), max(agent = ?1) FROM releases"
            " WHERE season = ?2",
            (agent, season),
        ).fetchone()
        if not mine and others >= self._agents:
            raise ValueError(f"agent {agent} is none of the {self._agents} of season {season}")
        ahead = self._db.execute(
            "SELECT DISTINCT season FROM releases WHERE agent = ? AND season > ?", (agent, current)
        ).fetchall()
        if season > current and (season,) not in ahead and len(ahead) >= _MOST_SEASONS:
            raise ValueError(
                f"release is of season {season}, but agent {agent} has {len(ahead)} seasons waiting after "
                f"{current}, expected at most {_MOST_SEASONS}"
            )

    def _require_same(self, terms: Terms) -> None:
        text = terms.to_json()
        self._db.execute("INSERT OR IGNORE INTO federation VALUES (1, ?)", (text,))
        (kept,) = self._db.execute("SELECT terms FROM federation").fetchone()
        if kept != text:
            raise StoreError(f"{self.path} is the book of a federation with other terms: {kept}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
