"""What agents' and controllers' files share."""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from feducb.config import require_integer
from feducb.errors import ConfigurationError, PrivacyError, ReleasesExhaustedError, StoreError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.ledger import Account, Ledger, LedgerEntry
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.storage import row_counts, sqlite
from feducb.storage.schema import MIGRATIONS
from feducb.storage.sqlite import SqliteFile, named, utc_now

__all__ = ["Store", "read_ledger", "require_same"]


class Store(SqliteFile):
    """What agents' and trusted controllers' files share; made by `open`.

    A store has one stream of releases a group (`Terms.groups`), numbered 1 to n each. Where there is one
    group, it is group 0, and no call needs to name it.

    Guarantees:
        A call returns after its transaction is on disk (fsync), or raises and leaves no trace, in the file
        or in memory. So whatever left was stored before, and a crash at any instruction draws no second noise
        for it; and what was rolled back can be sent again and counts once.
    """

    migrations: ClassVar[tuple[str, ...]] = MIGRATIONS
    season: int  # the open one, counted from 1
    terms: Terms  # what that season promises
    _privatizers: tuple[DeployedPrivatizer, ...]  # one per group
    _person_key: bytes

    def __init__(self, path: Path, terms: Terms | None, first_season: int) -> None:
        self._wanted = (terms, first_season)
        super().__init__(path)

    def _set_up(self) -> None:
        terms, first_season = self._wanted
        if terms is not None and self.database.execute("SELECT 1 FROM open_season").fetchone() is None:
            with self.writing() as db:
                self._begin(db, first_season, terms)
        self._load()
        if terms is not None:
            require_same(terms, self.terms)

    @classmethod
    def open(cls, path: str | Path, terms: Terms | None = None, *, first_season: int = 1) -> Self:
        """Open a store, or make one.

        Args:
            path: of the file; ``<path>.lock`` beside it is locked meanwhile.
            terms: needed to make one. For one that exists they must be those of its open season.
            first_season: the number of a new store's first season; in place of one that was lost take one
                that was never used, so that no release number leaves twice.
        """
        require_integer("first_season", first_season, at_least=1)
        path = Path(path).resolve()
        if terms is None and not path.exists():
            raise ConfigurationError("terms", None, f"terms, to make the store {path}")
        return cls(path, terms, first_season)

    @property
    def releases_left(self) -> int:
        """How many more releases this season's budget covers, in all groups together."""
        return sum(self.releases_left_in(group) for group in range(self.terms.groups))

    def releases_left_in(self, group: int) -> int:
        """How many more releases this season's budget covers in one group."""
        most = self.terms.releases if self.terms.trust.leaves else 0
        group = self._require_group(group)
        return 0 if self.silent else most - self._privatizers[group].released

    def release(self, group: int = 0) -> bytes:
        """Make the next release of everything recorded in this season for a group.

        Guarantees:
            The bytes, the mechanism's new state and the end of the batch are one transaction, on disk before
            this returns. `outbox` and `replay` give the same bytes ever after.
        """
        group = self._require_group(group)
        self._require_releases_left(group)
        stream = self._privatizers[group]
        with self.writing() as db:
            made = stream.release()
            payload = messages.encode(made, season=self.season, group=group)
            self._put_out(db, ParcelKind.RELEASE, made.number, payload, group=group)
            db.execute('UPDATE streams SET state = ? WHERE "group" = ?', (stream.dump(), group))
            self._end_batch(db, group)
        return payload

    def outbox(self) -> list[Parcel]:
        """Releases of all groups not yet reported sent, by season and number: in each group oldest first."""
        return self._unsent(ParcelKind.RELEASE)

    def mark_sent(self, season: int, number: int, *, group: int = 0) -> None:
        """Take a release off the outbox; it stays in the ledger. Doing so twice is no error."""
        self._sent(ParcelKind.RELEASE, season, number, group=group)

    def replay(self, season: int, number: int, *, group: int = 0) -> bytes:
        """The bytes of a release, for ever the same."""
        name = "kind = 'release' AND season = ? AND \"group\" = ? AND number = ?"
        query = f"SELECT payload FROM outgoing WHERE {name}"
        row = self.database.execute(query, (season, group, number)).fetchone()
        if row is None:
            raise _never_made(ParcelKind.RELEASE, season, group, number)
        return bytes(row[0])

    def new_season(
        self,
        terms: Terms | None = None,
        *,
        drop_pending: bool = False,
        number: int | None = None,
        then: Callable[[sqlite3.Connection], None] | None = None,
    ) -> int:
        """Close this season and open the next, over new records only; returns its number.

        Guarantees:
            No record of an earlier season enters: what was pending is deleted. Person counts start again,
            under a new key, so a person in two seasons pays in both (`Ledger.mu_of_a_regular`).

        Args:
            terms: of the new season; those of the old if left out.
            drop_pending: agree that records which wait are lost. Without it they are a reason to refuse.
            number: of the new season, if not the next.
            then: what else is written in the same transaction.
        """
        self._require_usable()
        number = require_integer("season", number or self.season + 1, at_least=self.season + 1)
        if self._waiting() and not drop_pending:
            waiting = f"season {self.season} has records that did not leave yet"
            raise StoreError(f"{waiting}; release them first, or agree to lose them")
        with self.writing() as db:
            self._close_season(db, number, terms or self.terms, dropped=self.pending)
            db.execute("UPDATE outgoing SET payload = NULL WHERE kind = 'upload' AND payload IS NOT NULL")
            if then is not None:
                then(db)
            self._load()  # in the transaction: memory and file move on together, or neither does
        return self.season

    def _close_season(self, db: sqlite3.Connection, number: int, terms: Terms, *, dropped: int) -> None:
        """End the open season and begin another, within `writing`."""
        db.execute("UPDATE seasons SET dropped = ? WHERE season = ?", (dropped, self.season))
        for group in range(self.terms.groups):
            self._end_batch(db, group)
        self._begin(db, number, terms)

    def ledger(self) -> Ledger:
        """What left, when, at what cost, and what is left."""
        *before, newest = read_ledger(self.database).accounts
        return Ledger((*before, replace(newest, pending=self.pending)))

    @abstractmethod
    def _feed(self, db: sqlite3.Connection) -> None:
        """Take what waits on disk into the privatizers, after their states."""

    @abstractmethod
    def _end_batch(self, db: sqlite3.Connection, group: int) -> None:
        """What waited for this group has been used: it enters nothing else."""

    @abstractmethod
    def _waiting(self) -> bool:
        """Whether anything would be lost if the season ended now."""

    def _require_group(self, group: int) -> int:
        last = self.terms.groups - 1
        if require_integer("group", group, at_least=0) > last:
            raise ConfigurationError("group", group, f"0 to {last}" if last else "0, the only one")
        return int(group)

    @property
    def pending(self) -> int:
        """How many records wait for the next release, in all groups together."""
        return sum(stream.pending for stream in self._privatizers)

    def _require_releases_left(self, group: int) -> None:
        self._require_usable()
        if not self.terms.trust.leaves:
            raise PrivacyError(f"under trust='{self.terms.trust}' nothing leaves: there are no releases")
        if self.silent:
            raise ReleasesExhaustedError(
                f"season {self.season} may have gone on after the backup that {self.path} was made of: what "
                "leaves of it would have other noise; the next season goes on"
            )
        if self.releases_left_in(group) <= 0:
            made = f"all {self.terms.releases} releases of season {self.season}, group {group} have been made"
            remedy = "new_season() (`feducb agent new-season`) goes on, over new records only"
            raise ReleasesExhaustedError(f"{made}; {remedy}")

    def _recover(self) -> None:
        """Forget what is in memory and go on from the file, opened anew; if that fails too, close.

        A commit whose fsync failed may be in the page cache alone: what `connect` reads is on disk.
        """
        self._spoilt = False
        try:
            with suppress(sqlite3.Error):
                self.database.close()
            self._connection = sqlite.connect(self.path)
            self._load()
        except BaseException:
            self.close()

    def _load(self) -> None:
        db = self.database
        columns = "season, terms, person_key, continued_elsewhere"
        query = f"SELECT {columns} FROM open_season JOIN seasons USING (season)"
        row = db.execute(query).fetchone()
        if row is None:
            raise ConfigurationError("terms", None, f"terms: {self.path} holds no season yet")
        self.season, terms, self._person_key, silent = row
        self.silent = bool(silent)  # the season may have gone on elsewhere: nothing more of it leaves here
        self.terms = Terms.from_json(terms)
        states = dict(db.execute('SELECT "group", state FROM streams'))
        if sorted(states) != list(range(self.terms.groups)):
            has = f"it has states of groups {sorted(states)}, expected {self.terms.groups} of them"
            raise StoreError(f"{self.path} is damaged: {has}")
        self._privatizers = tuple(DeployedPrivatizer(self.terms) for _ in states)
        for group, stream in enumerate(self._privatizers):
            stream.load(states[group])
            made = "outgoing WHERE kind = 'release' AND season = ? AND \"group\" = ?"
            query = f"SELECT coalesce(max(number), 0) FROM {made}"
            (last,) = db.execute(query, (self.season, group)).fetchone()
            if last != stream.released and not self.terms.trust.padded:  # rows may be skipped
                state = f"the state of group {group} is after release {stream.released}"
                raise StoreError(f"{self.path} is damaged: {state}, its last release is {last}")
        self._feed(db)

    def _begin(self, db: sqlite3.Connection, season: int, terms: Terms) -> None:
        db.execute(
            "INSERT INTO seasons (season, opened_at, terms) VALUES (?, ?, ?)",
            (season, utc_now(), terms.to_json()),
        )
        db.execute("DELETE FROM people")
        db.execute("REPLACE INTO open_season VALUES (1, ?, ?)", (season, secrets.token_bytes(32)))
        self._open_streams(db, terms)

    @staticmethod
    def _open_streams(db: sqlite3.Connection, terms: Terms) -> None:
        state = DeployedPrivatizer(terms).dump()
        db.execute("DELETE FROM streams")
        db.executemany("INSERT INTO streams VALUES (?, ?)", [(group, state) for group in range(terms.groups)])

    def _put_out(
        self, db: sqlite3.Connection, kind: ParcelKind, number: int, payload: bytes, *, group: int = 0
    ) -> None:
        name, digest = (kind, self.season, group, number), hashlib.sha256(payload).hexdigest()
        row = (*name, utc_now(), len(payload), digest, payload, None)
        db.execute("INSERT INTO outgoing VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _unsent(self, kind: ParcelKind) -> list[Parcel]:
        rows = self.database.execute(
            'SELECT season, "group", number, payload FROM outgoing'
            " WHERE kind = ? AND sent_at IS NULL AND payload IS NOT NULL"
            ' ORDER BY season, number, "group"',
            (kind,),
        )
        return [Parcel(kind, season, group, number, payload) for season, group, number, payload in rows]

    def _sent(self, kind: ParcelKind, season: int, number: int, *, group: int = 0) -> None:
        with self.writing() as db:
            changed = db.execute(
                "UPDATE outgoing SET sent_at = coalesce(sent_at, ?),"
                " payload = iif(kind = 'upload', NULL, payload)"  # raw sums are not kept longer than needed
                ' WHERE kind = ? AND season = ? AND "group" = ? AND number = ?',
                (utc_now(), kind, season, group, number),
            )
            if changed.rowcount != 1:
                raise _never_made(kind, season, group, number)


def read_ledger(db: sqlite3.Connection) -> Ledger:
    """As `Store.ledger`, of a file that another process may have open; but for what is pending there."""
    accounts = []
    columns = "season, opened_at, terms, excluded, dropped, continued_elsewhere"
    for row in named(db.execute(f"SELECT {columns} FROM seasons ORDER BY season")):
        entries = db.execute(
            'SELECT kind, season, "group", number, made_at, size, sha256, sent_at FROM outgoing'
            ' WHERE season = ? ORDER BY number, "group"',
            (row["season"],),
        )
        row["terms"] = Terms.from_json(row["terms"])
        row["continued_elsewhere"] = bool(row["continued_elsewhere"])
        made = tuple(LedgerEntry(**entry) for entry in named(entries))
        skipped = row_counts.skipped(db, row["season"])
        account = Account(**row, entries=made, skipped=skipped)
        if account.continued_elsewhere:  # nothing more of it leaves here
            groups = range(account.terms.groups)
            never = {one: skipped.get(one, 0) + account.releases_left_in(one) for one in groups}
            account = replace(account, skipped=never)
        accounts.append(account)
    return Ledger(tuple(accounts))


def _never_made(kind: ParcelKind, season: int, group: int, number: int) -> StoreError:
    return StoreError(f"{kind} {number} of season {season}, group {group} was never made")


def require_same(given: Terms, stored: Terms) -> None:
    """Raise if terms differ from those of a season, with the first that does."""
    if given.contexts != stored.contexts:  # by its name in agent.toml; in terms it is part of the model
        expected = f"{stored.contexts!r} as stored; a new season takes new terms"
        raise ConfigurationError("contexts", given.contexts, expected)
    wanted, kept = _flat(given), _flat(stored)
    for name in (*wanted, *(kept.keys() - wanted.keys())):  # the linear model goes without saying
        value, stands = wanted.get(name), kept.get(name)
        if value != stands:
            raise ConfigurationError(
                f"terms.{name}", value, f"{stands!r} as stored; a new season takes new terms"
            )


def _flat(terms: Terms) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(terms.to_json())
    return plain | {f"problem.{name}": value for name, value in plain.pop("problem").items()}
