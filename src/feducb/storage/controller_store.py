"""A trusted controller's file."""

from __future__ import annotations

import hashlib
import math
import sqlite3
from collections.abc import Iterator
from datetime import datetime

from feducb.errors import ConfigurationError, PrivacyError, StoreError
from feducb.privacy.terms import Terms
from feducb.privacy.uploads import decode_upload
from feducb.protocol import messages
from feducb.storage.past_sums import PastSum
from feducb.storage.sqlite import utc_now
from feducb.storage.store import Store

__all__ = ["ControllerStore"]


class ControllerStore(Store):
    """A trusted controller's file: agents' raw uploads in, releases of their sum out.

    Guarantees:
        An upload enters once, however often it arrives. Agents hold ``records_per_person`` each for itself;
        the controller's noise covers so many at each of ``agents_per_person`` agents. There is one group:
        terms that trust the controller have no more.

        Where records of a person are spaced, agents hold that by the numbers of their uploads. Then an
        agent's uploads enter in the order of their numbers, one a release: those that are ``spacing`` apart
        are in releases at least as far apart. An agent that is behind stays so, and its last uploads are
        lost with the season.
    """

    kind = "controller"

    def receive(self, payload: bytes, *, from_agent: str) -> bool:
        """Take in what an agent's `AgentStore.upload` returned; whether it is new. Acknowledge it either way.

        The link has authenticated who it is from.
        """
        season, number, upload = decode_upload(payload, self.terms)
        digest = hashlib.sha256(payload).hexdigest()
        known = self.database.execute(
            "SELECT sha256 FROM received WHERE season = ? AND agent = ? AND number = ?",
            (season, from_agent, number),
        ).fetchone()
        if known is not None:
            if known[0] != digest:
                raise PrivacyError(f"upload {number} of {from_agent} arrived twice with different content")
            return False
        if season != self.season:
            raise StoreError(f"upload {number} of {from_agent} is of season {season}, expected {self.season}")
        self._require_releases_left(0)
        with self.writing() as db:
            (kept,) = db.execute("SELECT count(*) FROM received WHERE payload IS NOT NULL").fetchone()
            self._privatizers[0].require_upload(upload, ahead=kept if self.terms.spacing else 0)
            db.execute(
                "INSERT INTO received VALUES (?, ?, ?, ?, ?, ?)",
                (season, from_agent, number, utc_now(), digest, payload),
            )
            query = f"SELECT EXISTS (SELECT 1 FROM {self._next} AND agent = ? AND number = ?)"
            if db.execute(query, (from_agent, number)).fetchone()[0]:
                self._privatizers[0].receive(upload)
        return True

    @property
    def _next(self) -> str:
        """Those of the uploads that are in the next release, as a part of a query."""
        waiting = "received AS one WHERE payload IS NOT NULL"
        if not self.terms.spacing:
            return waiting
        used = "season = one.season AND agent = one.agent AND payload IS NULL"
        return f"{waiting} AND number = 1 + (SELECT count(*) FROM received WHERE {used})"

    def waiting(self) -> dict[str, str]:
        """Whose uploads wait for the next release, and since when (UTC, ISO 8601): the last one at most."""
        last, query = self.last_released() or "", f"SELECT agent, min(received_at) FROM {self._next}"
        return {agent: max(since, last) for agent, since in self.database.execute(f"{query} GROUP BY agent")}

    def included(self, season: int | None = None) -> list[str]:
        """Whose uploads of a season, the open one if left out, are in its newest release."""
        query = "SELECT DISTINCT agent FROM received WHERE payload IS NULL AND season = ? ORDER BY agent"
        return [agent for (agent,) in self.database.execute(query, (season or self.season,))]

    def sealed(self, season: int | None = None) -> list[str]:
        """Which agents have all their uploads of a season in its newest release: nothing more comes."""
        used = "SELECT agent FROM received WHERE payload IS NULL AND season = ? GROUP BY agent"
        query = f"{used} HAVING count(*) = ? ORDER BY agent"
        named = (season or self.season, self.terms.releases)
        return [agent for (agent,) in self.database.execute(query, named)]

    def newest_release(self, *, before: int = 2**62) -> tuple[int, int] | None:
        """Season and number of the newest, of whichever season before one; None before the first."""
        query = "SELECT season, number FROM outgoing WHERE season < ? ORDER BY season DESC, number DESC"
        row = self.database.execute(f"{query} LIMIT 1", (before,)).fetchone()
        return None if row is None else (row[0], row[1])

    def newest_uploads(self) -> dict[str, int]:
        """By agent, the number of its newest upload of this season."""
        query = "SELECT agent, max(number) FROM received WHERE season = ? GROUP BY agent"
        return dict(self.database.execute(query, (self.season,)))

    def last_received(self) -> dict[str, str]:
        """By agent, when its last upload of any season came (UTC, ISO 8601)."""
        return dict(self.database.execute("SELECT agent, max(received_at) FROM received GROUP BY agent"))

    def last_released(self) -> str | None:
        """When the newest release of any season was made (UTC, ISO 8601)."""
        (at,) = self.database.execute("SELECT max(made_at) FROM outgoing").fetchone()
        return None if at is None else str(at)

    def releases_after(self, season: int, number: int) -> Iterator[PastSum]:
        """What was released after this one, in order; who is in it had an upload here by then."""
        query = "SELECT season, number, made_at, payload FROM outgoing WHERE (season, number) > (?, ?)"
        rows = self.database.execute(f"{query} ORDER BY season, number", (season, number)).fetchall()
        there = "SELECT DISTINCT agent FROM received WHERE season = ? AND received_at <= ? ORDER BY agent"
        for of, k, made_at, payload in rows:
            names = tuple(agent for (agent,) in self.database.execute(there, (of, made_at)))
            at = datetime.fromisoformat(made_at).timestamp()
            yield PastSum(of, k, at, names, math.sqrt(messages.decode(payload).variance))

    def arrivals(self, number: int) -> dict[str, str]:
        """By agent, when its upload of this season and number came (UTC, ISO 8601)."""
        query = "SELECT agent, received_at FROM received WHERE season = ? AND number = ?"
        return dict(self.database.execute(query, (self.season, number)))

    def _begin(self, db: sqlite3.Connection, season: int, terms: Terms) -> None:
        if not terms.trust.raw:
            raise ConfigurationError("trust", terms.trust.name, "controller, for the store of a controller")
        db.execute("UPDATE received SET payload = NULL WHERE payload IS NOT NULL")  # of the season before
        super()._begin(db, season, terms)

    def _feed(self, db: sqlite3.Connection) -> None:
        for (payload,) in db.execute(f"SELECT payload FROM {self._next} ORDER BY agent, number").fetchall():
            self._privatizers[0].receive(decode_upload(payload, self.terms)[2])

    def _end_batch(self, db: sqlite3.Connection, group: int) -> None:
        used = db.execute(f"SELECT season, agent, number FROM {self._next}").fetchall()
        name = "(season, agent, number) = (?, ?, ?)"
        db.executemany(f"UPDATE received SET payload = NULL WHERE {name}", used)
        self._feed(db)  # an agent's next upload, where they enter one by one

    def _waiting(self) -> bool:
        query = "SELECT EXISTS (SELECT 1 FROM received WHERE payload IS NOT NULL)"
        return bool(self.database.execute(query).fetchone()[0])
