"""What the ServerApp has seen and published, on disk: it may be killed at any instruction."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from feducb.config import require_integer
from feducb.errors import ConfigurationError, RefusedError, StoreError
from feducb.privacy.deployed import Terms
from feducb.protocol import messages
from feducb.protocol.admission import check_release
from feducb.storage.sqlite import STORE_TABLE, SqliteFile

__all__ = ["SumBook"]

_MOST_SEASONS = 2  # that one agent may have waiting, beyond the season of the newest sum


class SumBook(SqliteFile):
    """A book in one SQLite file, used by one process and one thread at a time; made by `open`.

    Sum k of a season is published once releases k of all agents are in, or once a quorum is in and the
    deadline has passed since the first of them came. It is final: a release that comes later is kept on
    record and enters no sum, which costs nothing but time, as the agent's next release contains it. Sums
    only move forward: once k is out, nothing below k is published.

    Guarantees:
        A call returns after its transaction is on disk, or leaves no trace. A sum, once returned, is the same
        bytes for ever.
    """

    kind = "flower sums"
    secret = False
    migrations = (
        STORE_TABLE
        + """
        CREATE TABLE federation (id INTEGER PRIMARY KEY CHECK (id = 1), terms TEXT NOT NULL);
        CREATE TABLE releases (
            season INTEGER NOT NULL, number INTEGER NOT NULL, agent TEXT NOT NULL, arrived_at REAL NOT NULL,
            sha256 BLOB NOT NULL, payload BLOB, PRIMARY KEY (season, number, agent));
        CREATE INDEX waiting ON releases (season, number) WHERE payload IS NOT NULL;
        CREATE TABLE sums (
            season INTEGER NOT NULL, number INTEGER NOT NULL, payload BLOB NOT NULL,
            PRIMARY KEY (season, number));
        CREATE TRIGGER a_sum_stays BEFORE DELETE ON sums
            BEGIN SELECT RAISE(ABORT, 'what was published is never deleted'); END;
        CREATE TRIGGER a_sum_is_final BEFORE UPDATE ON sums
            BEGIN SELECT RAISE(ABORT, 'what was published is never changed'); END;
        """,
    )

    def __init__(
        self,
        path: Path,
        terms: Terms,
        *,
        agents: int,
        quorum: int,
        deadline: float,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(path)
        self._terms = terms
        self._agents, self._quorum, self._deadline = agents, quorum, deadline
        self._clock = clock
        try:
            self._require_same(terms)
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
        if terms.trust != "nobody":
            raise ConfigurationError(
                "trust",
                terms.trust,
                "nobody: over Flower agents add their own noise, as the SuperLink keeps what passes",
            )
        if terms.groups != 1:
            raise ConfigurationError("groups", terms.groups, "1: a controller adds up a single group")
        return cls(Path(path), terms, agents=agents, quorum=quorum, deadline=deadline, clock=clock)

    def _load(self) -> None:
        """It keeps nothing in memory."""

    def put(self, agent: str, payload: bytes) -> bool:
        """Keep an agent's release; whether it is new. Acknowledge it either way.

        Args:
            agent: who sent it, as the link authenticated it.
            payload: what the agent released.

        Raises:
            ValueError: it is refused, and must not be acknowledged.
        """
        release = check_release(payload, self._terms, agents=self._agents)
        season, number = release.season, release.number
        if season < 1:
            raise RefusedError("season", f"season {season}, expected at least 1")
        digest = hashlib.sha256(payload).digest()
        known = self.database.execute(
            "SELECT sha256 FROM releases WHERE season = ? AND number = ? AND agent = ?",
            (season, number, agent),
        ).fetchone()
        if known is not None:
            if known[0] != digest:
                raise RefusedError(
                    "replay", f"release {number} of season {season} is known with other content"
                )
            return False
        last = self._last()
        self._require_room(agent, season, last[0] if last is not None else 0)
        content = None if last is not None and (season, number) <= last else payload
        with self._transaction():
            self.database.execute(
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
        row = self.database.execute(
            "SELECT payload FROM sums WHERE season = ? AND number = ?",
            (last[0] if season is None else season, number),
        ).fetchone()
        return None if row is None else bytes(row[0])

    def newest(self) -> bytes | None:
        """The newest sum, after publishing what a quorum and the deadline allow."""
        due = self.database.execute(
            "SELECT season, number FROM releases WHERE payload IS NOT NULL GROUP BY season, number"
            " HAVING count(*) >= ? AND min(arrived_at) <= ? ORDER BY season DESC, number DESC LIMIT 1",
            (self._quorum, self._clock() - self._deadline),
        ).fetchone()
        if due is not None:
            with self._transaction():
                self._publish(*due)
        last = self._last()
        return None if last is None else self.sum_for(last[1], season=last[0])

    def _last(self) -> tuple[int, int] | None:
        row = self.database.execute(
            "SELECT season, number FROM sums ORDER BY season DESC, number DESC LIMIT 1"
        ).fetchone()
        return None if row is None else (row[0], row[1])

    def _waiting(self, season: int, number: int) -> int:
        (count,) = self.database.execute(
            "SELECT count(*) FROM releases WHERE season = ? AND number = ? AND payload IS NOT NULL",
            (season, number),
        ).fetchone()
        return int(count)

    def _publish(self, season: int, number: int) -> None:
        rows = self.database.execute(
            "SELECT payload FROM releases WHERE season = ? AND number = ? AND payload IS NOT NULL"
            " ORDER BY agent",
            (season, number),
        )
        total = messages.combine([messages.decode(row[0]) for row in rows])
        self.database.execute("INSERT INTO sums VALUES (?, ?, ?)", (season, number, messages.encode(total)))
        # What is in, or too old to be in any: its digest stays, to recognise it when it comes again.
        self.database.execute(
            "UPDATE releases SET payload = NULL WHERE (season, number) <= (?, ?)", (season, number)
        )

    def _require_room(self, agent: str, season: int, current: int) -> None:
        others, mine = self.database.execute(
            "SELECT count(DISTINCT iif(agent = ?1, NULL, agent)), max(agent = ?1) FROM releases"
            " WHERE season = ?2",
            (agent, season),
        ).fetchone()
        if not mine and others >= self._agents:
            raise RefusedError("sender", f"{agent} is none of the {self._agents} of season {season}")
        ahead = self.database.execute(
            "SELECT DISTINCT season FROM releases WHERE agent = ? AND season > ?", (agent, current)
        ).fetchall()
        if season > current and (season,) not in ahead and len(ahead) >= _MOST_SEASONS:
            raise RefusedError(
                "season",
                f"season {season}, but {agent} has {len(ahead)} seasons waiting after {current}, expected at "
                f"most {_MOST_SEASONS}",
            )

    def _require_same(self, terms: Terms) -> None:
        text = terms.to_json()
        self.database.execute("INSERT OR IGNORE INTO federation VALUES (1, ?)", (text,))
        (kept,) = self.database.execute("SELECT terms FROM federation").fetchone()
        if Terms.from_json(kept).to_json() != text:  # written anew: an older file lacks newer names
            raise StoreError(f"{self.path} is the book of a federation with other terms: {kept}")
