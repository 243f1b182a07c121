"""The file of a controller that nobody needs to trust: everybody's releases in, one sum a number out."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from feducb.errors import ConfigurationError, RefusedError, StoreError
from feducb.privacy.terms import Terms
from feducb.protocol import messages, sums
from feducb.protocol.admission import Receipt, prepare, read_release, refusal
from feducb.protocol.calendar import LINGER, Calendar, Leap
from feducb.protocol.parcels import ParcelKind
from feducb.protocol.sums import NamedSum
from feducb.storage.past_sums import PastSum, PastSums
from feducb.storage.sqlite import STORE_TABLE, SqliteFile

__all__ = ["Quorum", "ReleaseBook"]


class Quorum(NamedTuple):
    """When a sum is published: when everybody is in it, or enough are and the others had their time."""

    everybody: int  # how many agents there are
    enough: int  # how many are needed
    deadline: float | None  # seconds after the first arrived; None waits for everybody

    def due(self, here: int, first: float, now: float) -> bool:
        """Whether to publish what is here."""
        if here >= self.everybody:
            return True
        return self.deadline is not None and here >= self.enough and now - first >= self.deadline


# Of terms: what need not be common to all.
_OWN = ("epsilon", "delta", "records_per_person", "agents_per_person", "spacing", "excess")


def _plain(terms: Terms) -> dict[str, Any]:
    """Terms as flat names and values."""
    plain: dict[str, Any] = json.loads(terms.to_json())
    return {**plain.pop("problem"), **plain}


class ReleaseBook(SqliteFile):
    """Release k of every agent, and the sum published for k.

    Guarantees:
        A receipt is given after the release is on disk. A number has one content for each agent, and one sum:
        what was published is published again byte for byte. Sums rise: once k is out, none is made of numbers
        up to k, and a release that came too late for it is in the next, since releases are cumulative.
        An agent's terms stay the same for a season, from its first release on.
    """

    kind = "releases"
    secret = False  # releases have left
    takes: ClassVar[ParcelKind] = ParcelKind.RELEASE
    migrations: ClassVar[tuple[str, ...]] = (
        STORE_TABLE
        + """
        CREATE TABLE releases (
            season INTEGER NOT NULL, number INTEGER NOT NULL, agent TEXT NOT NULL, received_at REAL NOT NULL,
            sha256 BLOB NOT NULL, PRIMARY KEY (season, number, agent)) WITHOUT ROWID;
        CREATE TABLE waiting (
            id INTEGER PRIMARY KEY, number INTEGER NOT NULL, agent TEXT NOT NULL, payload BLOB NOT NULL);
        CREATE TABLE sums (
            season INTEGER NOT NULL, number INTEGER NOT NULL, published_at REAL NOT NULL, named BLOB NOT NULL,
            PRIMARY KEY (season, number));
        CREATE TABLE open_season (id INTEGER PRIMARY KEY CHECK (id = 1), season INTEGER NOT NULL);
        CREATE TRIGGER a_sum_stays BEFORE DELETE ON sums
            BEGIN SELECT RAISE(ABORT, 'what was published is never deleted'); END;
        CREATE TRIGGER a_sum_is_final BEFORE UPDATE ON sums
            BEGIN SELECT RAISE(ABORT, 'what was published is never changed'); END;
        CREATE TRIGGER a_release_stays BEFORE DELETE ON releases
            BEGIN SELECT RAISE(ABORT, 'what was acknowledged is never deleted'); END;
        CREATE TRIGGER a_release_is_final BEFORE UPDATE ON releases
            BEGIN SELECT RAISE(ABORT, 'what was acknowledged is never changed'); END;
        """,
        # What a season's releases were made under; a file from before this has none until its next start.
        """
        CREATE TABLE terms (
            season INTEGER NOT NULL, agent TEXT NOT NULL, body TEXT NOT NULL,
            PRIMARY KEY (season, agent)) WITHOUT ROWID;
        """,
        # Over Flower, releases of several seasons may wait.
        """
        ALTER TABLE waiting ADD COLUMN season INTEGER NOT NULL DEFAULT 0;
        UPDATE waiting SET season = (SELECT season FROM open_season);
        """,
    )

    def __init__(
        self,
        path: str | Path,
        terms: Mapping[str, Terms],
        *,
        quorum: int | None = None,
        deadline: float | None = None,
        season: int = 1,
        calendar: Calendar | None = None,
    ) -> None:
        """Open or make the file.

        Args:
            path: of the file; ``<path>.lock`` beside it is locked meanwhile.
            terms: of each agent.
            quorum: how many agents a sum needs; all if not given.
            deadline: seconds after the first release of a number came, when a quorum will do.
            season: the open one, where there is no calendar.
            calendar: which season runs when. Then releases are taken of every season from that of the newest
                sum to the one after the running one: who is late or early by its clock loses nothing.
        """
        self.season, self._terms, self._calendar = season, terms, calendar
        self._renewed: tuple[int, Mapping[str, Terms], Quorum] | None = None
        self._renewed_from: tuple[int, Mapping[str, Terms]] | None = None
        self._leap, self._new = Leap(), False
        self._last_received: dict[str, float] = {}
        self._past = PastSums(self._sums_after)
        super().__init__(path)
        self.quorum = Quorum(len(self._terms), quorum or len(self._terms), deadline)
        if self._renewed_from is not None:
            later, wanted = self._renewed_from
            self._renewed = (later, wanted, Quorum(len(wanted), quorum or len(wanted), deadline))
        prepare(self._terms)

    def renew(self, terms: Mapping[str, Terms], *, quorum: int | None = None) -> None:
        """Take other terms, or other agents, for seasons after the running one."""
        if terms != self._terms or (quorum or len(terms)) != self.quorum.enough:
            prepare(terms)
            rule = Quorum(len(terms), quorum or len(terms), self.quorum.deadline)
            self._renewed = (self.season + 1, terms, rule)

    def _advance(self, now: float) -> None:
        """Go with the clock; terms that were renewed hold from their season on, once all before is over.

        A clock that leaves out a whole season is believed after a minute (`Leap`): until then all stays.
        """
        if self._calendar is None:
            return
        leapt = self._calendar.leaves_out(self.season, now)
        if not self._leap.is_believed(leapt=leapt and not self._new):
            return
        self._new = False
        running = self._running(self._calendar, now)
        before, self.season = self.season, max(self._newest_version()[0], running)
        if self._renewed is not None and self.season >= self._renewed[0]:
            _, self._terms, self.quorum = self._renewed
            self._renewed = None
        if self.season != before:
            with self.writing() as db:
                rows = [(self.season, agent, one.to_json()) for agent, one in self._terms.items()]
                db.executemany("REPLACE INTO terms VALUES (?, ?, ?)", rows)

    def _running(self, calendar: Calendar, now: float) -> int:
        """The season that runs; the one before while its last sum is under way, where the next has others.

        Who leaves is in that last sum, and who comes is not waited for in it.
        """
        number = calendar.number_at(now)
        if self._renewed is None or number < self._renewed[0]:
            return number
        last = self._renewed[0] - 1
        made = self._newest_version() >= (last, next(iter(self._terms.values())).releases)
        return number if made or now >= calendar.ends(last) + LINGER * calendar.length else last

    def _set_up(self) -> None:
        with self.writing():
            self._open_season()
            self._keep_terms(self._terms)
        self._load()

    def _load(self) -> None:
        rows = self.database.execute("SELECT agent, max(received_at) FROM releases GROUP BY agent")
        self._last_received = dict(rows)

    def receive(self, batch: Sequence[tuple[str, bytes]], *, now: float) -> list[Receipt]:
        """Take releases in, all in one transaction; one that is refused does not touch the others.

        Args:
            batch: who (as the link authenticated it) and what.
            now: in seconds since 1970.
        """
        self._advance(now)
        read = [self._check(agent, payload) for agent, payload in batch]
        refused = [one for one in read if isinstance(one, Receipt)]
        if len(refused) == len(read):
            return refused
        with self.writing():
            return self._put_all(batch, read, now)

    def exchange(
        self, batch: Sequence[tuple[str, bytes]], *, now: float
    ) -> tuple[list[Receipt], list[NamedSum]]:
        """`receive`, then `publish_due`, with one commit for both: nothing is told to anybody before it."""
        self._advance(now)
        if not batch and not self._due(now):
            return [], []
        read = [self._check(agent, payload) for agent, payload in batch]
        with self.writing():
            receipts = self._put_all(batch, read, now)
            return receipts, [self._publish(season, number, now) for season, number in self._due(now)]

    def publish_due(self, *, now: float) -> list[NamedSum]:
        """Make the sums that are due, in rising order; they are on disk before this returns."""
        return self.exchange([], now=now)[1]

    def next_due(self) -> float | None:
        """When, in seconds since 1970, a deadline passes next; None where none is open."""
        if self.quorum.deadline is None:
            return None
        starts = [first for _, _, here, first in self._open_numbers() if here >= self.quorum.enough]
        return min(starts) + self.quorum.deadline if starts else None

    def newest(self) -> NamedSum | None:
        """The newest sum of this season, or of the one before it while there is none."""
        row = self._newest("named")
        return None if row is None else sums.decode(row[0])

    def last_before(self, season: int) -> NamedSum | None:
        """The last sum of the newest season before this one that has any."""
        order = "ORDER BY season DESC, number DESC LIMIT 1"
        row = self.database.execute(f"SELECT named FROM sums WHERE season < ? {order}", (season,)).fetchone()
        return None if row is None else sums.decode(row[0])

    def published(self, season: int, number: int) -> NamedSum:
        """A sum, for ever the same."""
        query = "SELECT named FROM sums WHERE season = ? AND number = ?"
        row = self.database.execute(query, (season, number)).fetchone()
        if row is None:
            raise StoreError(f"sum {number} of season {season} was never made")
        return sums.decode(row[0])

    def progress(self) -> dict[str, int]:
        """By agent, the newest release of this season that is here."""
        query = "SELECT agent, max(number) FROM releases WHERE season = ? GROUP BY agent"
        return dict(self.database.execute(query, (self.season,)))

    def last_received(self) -> dict[str, float]:
        """By agent, when its last new release came, of any season; in seconds since 1970."""
        return dict(self._last_received)

    def sums(self) -> list[dict[str, Any]]:
        """What was published, newest first (`PastSum`)."""
        return self._past.listed()

    def waits(self) -> dict[str, Any] | None:
        """The next sum that has releases and is not made: ``number``, ``since`` when, and who is ``here``."""
        for season, number, _, first in self._open_numbers():
            query = "SELECT agent FROM releases WHERE season = ? AND number = ? ORDER BY agent"
            here = [agent for (agent,) in self.database.execute(query, (season, number))]
            return {"number": number, "since": first, "here": here}
        return None

    def arrivals(self) -> dict[str, float]:
        """By agent, when its release of the newest sum's number came, in time for it or not."""
        query = "SELECT agent, received_at FROM releases WHERE season = ? AND number = ?"
        return dict(self.database.execute(query, self._newest_version()))

    def _sums_after(self, season: int, number: int) -> Iterator[PastSum]:
        query = "SELECT season, number, published_at, named FROM sums WHERE (season, number) > (?, ?)"
        rows = self.database.execute(f"{query} ORDER BY season, number", (season, number))
        for of, k, at, named in rows:
            read = sums.decode(named)
            yield PastSum(of, k, at, read.names, math.sqrt(read.total.variance))

    def _open_season(self) -> None:
        db, season = self.database, self.season
        if self._calendar is not None:
            (written,) = db.execute("SELECT max(season) FROM terms").fetchone()
            used = written or db.execute("SELECT 1 FROM releases LIMIT 1").fetchone()
            self._new = not used  # it begins with the season that runs
            self.season = max(self._newest_version()[0], written or 0, self._calendar.first)
            return
        row = db.execute("SELECT season FROM open_season").fetchone()
        if row is not None and row[0] > season:
            raise ConfigurationError("season", season, f"at least {row[0]}, the open one of {self.path}")
        db.execute("REPLACE INTO open_season VALUES (1, ?)", (season,))
        if row is not None and row[0] < season:  # nothing more is made of the season before
            db.execute("DELETE FROM waiting")

    def _keep_terms(self, terms: Mapping[str, Terms]) -> None:
        """Refuse other terms than those under which releases of this season were taken in.

        Agents may come and go. Terms of one that has sent nothing yet may still be mended.
        """
        if self._calendar is not None:
            self._keep_terms_by_the_clock(terms)
            return
        db, senders = self.database, "SELECT agent FROM releases WHERE season = ?1"
        query = f"SELECT agent, body FROM terms WHERE season = ?1 AND agent IN ({senders})"
        for agent, body in db.execute(query, (self.season,)).fetchall():
            self._require_same(agent, Terms.from_json(body), terms)
        db.executemany(
            "REPLACE INTO terms VALUES (?, ?, ?)",
            [(self.season, agent, one.to_json()) for agent, one in terms.items()],
        )

    def _keep_terms_by_the_clock(self, terms: Mapping[str, Terms]) -> None:
        """Terms that were written down for a season stay for it; others are for those after it."""
        query = "SELECT season, agent, body FROM terms WHERE season = (SELECT max(season) FROM terms)"
        rows = self.database.execute(query).fetchall()
        kept = {agent: Terms.from_json(body) for _, agent, body in rows}
        if rows and kept != dict(terms):
            self._terms, self._renewed_from = kept, (rows[0][0] + 1, terms)

    def _require_same(self, agent: str, kept: Terms, terms: Mapping[str, Terms]) -> None:
        before, now = _plain(kept), _plain(terms.get(agent) or next(iter(terms.values())))
        for name in before | now:  # what is plain is not written
            value, given = before.get(name), now.get(name)
            if given != value and (agent in terms or name not in _OWN):
                season = f"season {self.season} in {self.path}"
                under = f"{value!r}, under which releases of {season} were taken in"
                remedy = "new terms need a new season: raise `season`, here and at every agent"
                raise ConfigurationError(f"terms.{name} of {agent}", given, f"{under}; {remedy}")

    def _check(self, agent: str, payload: bytes) -> Receipt | messages.GridSum:
        try:
            return self._read(agent, payload)
        except RefusedError as error:
            return refusal(error)

    def _read(self, agent: str, payload: bytes) -> messages.GridSum:
        """Read a release, or raise `RefusedError`."""
        release = read_release(payload, self._terms, agent=agent)
        if release.group != 0:
            raise RefusedError("group", f"group {release.group}, expected 0 with a controller")
        renewed = self._renewed is not None and self._renewed[0] == self.season + 1  # not by these terms
        ahead = self._calendar is not None and not renewed  # a clock may be
        if release.season > self.season + ahead:
            raise RefusedError("season", f"season {release.season}, expected {self.season}")
        return release

    def _require_room(self, agent: str, season: int) -> None:
        """Raise `RefusedError` for a new release that is one too many."""

    def _newest_version(self) -> tuple[int, int]:
        """Season and number of the newest sum; nothing up to it is published any more."""
        newest: tuple[int, int] = self._newest("season, number") or (0, 0)
        return newest if self._calendar is not None else max(newest, (self.season, 0))

    def _newest(self, columns: str) -> Any:
        """Of the newest sum; None before the first."""
        query = f"SELECT {columns} FROM sums ORDER BY season DESC, number DESC LIMIT 1"
        return self.database.execute(query).fetchone()

    def _open_numbers(self) -> list[tuple[int, int, int, float]]:
        """Season, number, how many releases, when the first came; above the newest sum."""
        return self.database.execute(
            "SELECT season, number, count(*), min(received_at) FROM releases"
            " WHERE (season, number) > (?, ?) GROUP BY season, number ORDER BY season, number",
            self._newest_version(),
        ).fetchall()

    def _due(self, now: float) -> list[tuple[int, int]]:
        return [
            (season, number)
            for season, number, here, first in self._open_numbers()
            if self.quorum.due(here, first, now)
        ]

    def _put_all(
        self, batch: Sequence[tuple[str, bytes]], read: Sequence[Receipt | messages.GridSum], now: float
    ) -> list[Receipt]:
        newest = self._newest_version()
        return [
            one if isinstance(one, Receipt) else self._put(agent, one, payload, newest, now)
            for one, (agent, payload) in zip(read, batch, strict=True)
        ]

    def _put(
        self, agent: str, release: messages.GridSum, payload: bytes, newest: tuple[int, int], now: float
    ) -> Receipt:
        db, digest = self.database, hashlib.sha256(payload).digest()
        version = (release.season, release.number)
        known = db.execute(
            "SELECT sha256 FROM releases WHERE season = ? AND number = ? AND agent = ?", (*version, agent)
        ).fetchone()
        if known is not None and known[0] != digest:
            return Receipt("refused", "replay", f"release {release.number} is known with other content")
        if known is not None:
            return Receipt("known")
        if release.season < (self.season if self._calendar is None else newest[0]):
            return Receipt("past")
        try:
            self._require_room(agent, release.season)
        except RefusedError as error:
            return refusal(error)
        db.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?)", (*version, agent, now, digest))
        self._last_received[agent] = now
        if version > newest:  # otherwise it is too late for its sum, and the next one has it
            db.execute(
                "INSERT INTO waiting (season, number, agent, payload) VALUES (?, ?, ?, ?)",
                (*version, agent, payload),
            )
        return Receipt("stored")

    def _publish(self, season: int, number: int, now: float) -> NamedSum:
        db, version = self.database, (season, number)
        query = "SELECT agent, payload FROM waiting WHERE season = ? AND number = ?"
        rows = db.execute(query, version).fetchall()
        total = messages.combine([messages.decode(payload) for _, payload in rows])
        named = NamedSum(tuple(sorted(agent for agent, _ in rows)), messages.encode(total), total)
        db.execute("INSERT INTO sums VALUES (?, ?, ?, ?)", (*version, now, sums.encode(named)))
        db.execute("DELETE FROM waiting WHERE (season, number) <= (?, ?)", version)  # hashes are enough now
        return named
