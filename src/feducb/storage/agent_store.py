"""An agent's file."""

from __future__ import annotations

import hmac
import sqlite3
from collections.abc import Callable, Sequence
from itertools import compress
from typing import TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feducb.config import require_integer
from feducb.errors import (
    ConfigurationError,
    PrivacyError,
    RecordOutOfBoundsError,
    ReleasesExhaustedError,
    StoreError,
)
from feducb.privacy.encoders import Wide
from feducb.privacy.grid import FINE_BITS
from feducb.privacy.ledger import Entered, admit
from feducb.privacy.rows import MOST_RECORDS
from feducb.privacy.tally import exact_tally, noisy_tally
from feducb.privacy.terms import Terms
from feducb.privacy.uploads import encode_upload
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.storage import agent_rows, carried, events, own_sums, row_counts
from feducb.storage.clique_store import CliqueStore
from feducb.storage.own_sums import OwnSums, Part
from feducb.types import Statistics

__all__ = ["AgentStore", "is_text"]

Array = NDArray[np.float64]

REMEMBER_SUMS = (
    'INSERT OR IGNORE INTO remembered (season, "group", number, payload, body, started_at)'
    ' SELECT inbox.season, inbox."group", number, payload, body, started_at'
    " FROM inbox JOIN settings ON inbox.season = settings.season"
)  # released, hence private already: what a later season reads of this one (docs/theory.md, 11)


def is_text(value: object) -> TypeGuard[str]:
    """Whether it is text that can be written down: without half characters (lone surrogates)."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


class AgentStore(CliqueStore):
    """An agent's file: records in; releases out, or raw uploads if its terms trust the controller.

    Guarantees:
        At most ``records_per_person`` records of a person enter the statistics of a season, all groups
        together, and where they are spaced no two of releases, of whatever group, that are fewer than
        ``spacing`` apart. Her id is kept only as HMAC-SHA256 under a key that is drawn for each season and
        lies in this file. With p_g records in group g she costs no more than if all were in one
        (docs/theory.md, 2).
    """

    kind = "agent"

    def record(
        self,
        actions: ArrayLike,
        rewards: ArrayLike,
        persons: Sequence[str | None] | None = None,
        *,
        group: int = 0,
    ) -> int:
        """Take records in; returns how many entered the statistics. The others are counted as excluded.

        Args:
            actions: (n, d).
            rewards: (n,).
            persons: whose record each is. Where a person may have one record only, it can be left
                out, or ``None`` for some: such a record counts as that of a person who never comes again.
            group: the one that these records enter, and no other; what others recorded must not decide it.
        """
        group = self._require_group(group)
        if not self.terms.trust.raw:
            self._require_releases_left(group)  # the record could never leave
        rows = np.atleast_2d(np.asarray(actions, dtype=np.float64))
        worth = np.atleast_1d(np.asarray(rewards, dtype=np.float64))
        people = list(persons) if persons is not None else [None] * len(worth)
        if rows.ndim != 2 or worth.shape != rows.shape[:1] or len(people) != len(worth):
            shapes = f"shapes {rows.shape} and {worth.shape} for {len(people)} persons"
            expected = f"(n, {self.terms.problem.dim}), (n,) and n"
            raise RecordOutOfBoundsError(f"records have {shapes}, expected {expected}")
        hashes = [self.hash_person(person) for person in people]
        with self.writing() as db:
            for person in people:
                self.find_person(db, person)
            entered = self._take_in(db, group, rows, worth, hashes)
            rows, worth = rows[entered], worth[entered]
            if len(worth):
                db.execute(
                    'INSERT INTO pending (actions, rewards, "group") VALUES (?, ?, ?)',
                    (rows.tobytes(), worth.tobytes(), group),
                )
        return len(worth)

    def settle(
        self,
        db: sqlite3.Connection,
        group: int,
        actions: Array,
        rewards: Array,
        hashes: Sequence[bytes | None],
        out_of_range: Sequence[bool] | None = None,
        *,
        own: bool = False,
    ) -> int:
        """As `record`, within `writing`, but only sums are kept: records leave no other trace in the file.

        An error of it may be caught there: if the records were refused, other calls go on; if it failed
        half-way, so does the commit.

        Args:
            db: the transaction.
            group: as of `record`.
            actions: (n, d).
            rewards: (n,).
            hashes: of whose record it is.
            out_of_range: whose reward was refused, so that it counts with the default (`privacy.tally`). If
                left out these records are not in the tally, and nothing is written to it.
            own: also add them up for own play: those that enter, and those that do not (`own_sums`).
        """
        with self.part(db):
            entered = self._take_in(db, group, actions, rewards, hashes)
            if own:
                part = np.array(entered, dtype=bool)
                self.keep_own(db, actions[part], rewards[part], part="shared")
                self.keep_own(db, actions[~part], rewards[~part])
            if out_of_range is not None:
                db.execute(
                    'INSERT INTO tallies ("group", number, exact) VALUES (?, ?, ?)'
                    " ON CONFLICT DO UPDATE SET exact = coalesce(exact, 0) + excluded.exact",
                    (group, self._batches_made(group) + 1, exact_tally(compress(out_of_range, entered))),
                )
            db.execute("REPLACE INTO batches VALUES (?, ?)", (group, self._privatizers[group].dump_batch()))
            db.execute('DELETE FROM pending WHERE "group" = ?', (group,))  # they are in those sums
        return sum(entered)

    def keep_own(
        self, db: sqlite3.Connection, actions: Array, rewards: Array, *, part: Part = "kept"
    ) -> None:
        """Add records up for own play, within `writing`; by itself this lets none of them leave."""
        stream = self._privatizers[0]
        sums, squares = stream.sums_of(actions, rewards), stream.squares_of(actions, rewards)
        own_sums.add(db, part, OwnSums(len(rewards), sums, squares))

    def hold_out(
        self, db: sqlite3.Connection, actions: Array, rewards: Array, hashes: Sequence[bytes | None]
    ) -> None:
        """Add up records of visitors who were held out, within `writing`: no release is made of them.

        Guarantees:
            Nor does any later record of theirs enter one, as far as they have an id: what they were shown
            followed from raw records, and they may carry it over.
        """
        self.keep_own(db, actions, rewards, part="held_out")
        limit = self.terms.records_per_person
        db.executemany(
            "REPLACE INTO people VALUES (?, ?, ?)",
            [(one, limit, self._batches_made(0) + 1) for one in set(hashes) if one is not None],
        )

    @property
    def no_records(self) -> OwnSums:
        """Sums of none."""
        return OwnSums(0, np.zeros(self.terms.model.coordinates(self.terms.problem.dim), dtype=object), 0)

    def real(self, sums: Wide) -> Array:
        """(q,), own sums off the grid."""
        exponent = self._privatizers[0].certificate.exponent - FINE_BITS
        return np.ldexp(sums.astype(np.float64), exponent)

    def read_own(self, own: OwnSums) -> Statistics:
        """Own sums as statistics: Gram, moment, and squares of rewards, infinite where they are not known."""
        terms = self.terms
        gram, moment = terms.model.read(self.real(own.values), dim=terms.problem.dim, weight=terms.weight)
        if own.squares is None:
            return Statistics(gram, moment, own.records)
        (squares,) = self.real(np.array([own.squares], dtype=object)) / terms.weight**2
        return Statistics(gram, moment, own.records, float(squares))

    def tell_tallies(self, db: sqlite3.Connection, scale: int) -> tuple[int, int]:
        """Put noise on the tallies of batches that have left, each once; their sum, and how many they are.

        Guarantees:
            Each batch that left has a noisy tally, whatever is in it. It is drawn once, and on disk with
            this transaction, before anybody sees it; the exact one is gone then.
        """
        for group in range(self.terms.groups):
            newest = 'SELECT coalesce(max(number), 0) FROM tallies WHERE "group" = ? AND noisy IS NOT NULL'
            (last,) = db.execute(newest, (group,)).fetchone()
            for number in range(last + 1, self._batches_made(group) + 1):
                name = (group, number)
                row = db.execute('SELECT exact FROM tallies WHERE ("group", number) = (?, ?)', name)
                (exact,) = row.fetchone() or (0,)
                db.execute("REPLACE INTO tallies VALUES (?, ?, NULL, ?)", (*name, noisy_tally(exact, scale)))
        total, count = db.execute("SELECT coalesce(sum(noisy), 0), count(noisy) FROM tallies").fetchone()
        return int(total), int(count)

    def _batches_made(self, group: int) -> int:
        """How many batches have left, as releases or, where the controller is trusted, as uploads."""
        return self.uploads_made if self.terms.trust.raw else self._privatizers[group].released

    def _take_in(
        self,
        db: sqlite3.Connection,
        group: int,
        actions: Array,
        rewards: Array,
        hashes: Sequence[bytes | None],
    ) -> list[bool]:
        """Those that may enter do; which ones."""
        terms, batch = self.terms, self._batches_made(group) + 1
        known = self._entered(db, hashes)
        room = MOST_RECORDS - self._privatizers[group].taken if terms.trust.padded else len(hashes)
        entered, moved = admit(
            hashes[: max(0, room)], known, terms.records_per_person, batch=batch, spacing=terms.spacing
        )
        entered += [False] * (len(hashes) - len(entered))
        self._privatizers[group].record(actions[entered], rewards[entered])  # or refused, and nothing moved
        self._moves += 1
        db.executemany("REPLACE INTO people VALUES (?, ?, ?)", [(one, *now) for one, now in moved.items()])
        if not all(entered):
            count = (len(entered) - sum(entered), self.season)
            db.execute("UPDATE seasons SET excluded = excluded + ? WHERE season = ?", count)
        return entered

    def release(self, group: int = 0) -> bytes:
        """As `Store.release`; refused where the terms trust the controller, which then makes releases."""
        if self.terms.trust.raw:
            raise PrivacyError("under trust='controller' the controller releases: an agent calls upload()")
        if self.terms.trust.padded:
            raise PrivacyError("under trust='keepers' rows leave under pads: an agent calls build_row()")
        return super().release(group)

    def upload(self) -> bytes:
        """Hand what is pending over raw, for a trusted controller alone; refused under any other trust."""
        if self.silent:
            self._require_releases_left(0)
        with self.writing() as db:
            number = self.uploads_made + 1
            if number > self.terms.releases:
                raise ReleasesExhaustedError(
                    f"all {self.terms.releases} uploads of season {self.season} have been made; new_season() "
                    "(`feducb agent new-season`) goes on, over new records only"
                )
            payload = encode_upload(self._privatizers[0].upload(), season=self.season, number=number)
            self._put_out(db, ParcelKind.UPLOAD, number, payload)
            self._end_batch(db, 0)
        return payload

    @property
    def uploads_made(self) -> int:
        """How many uploads this season has made."""
        query = "SELECT coalesce(max(number), 0) FROM outgoing WHERE kind = 'upload' AND season = ?"
        return int(self.database.execute(query, (self.season,)).fetchone()[0])

    def uploads(self) -> list[Parcel]:
        """Uploads not yet acknowledged, oldest first. For the controller alone."""
        return self._unsent(ParcelKind.UPLOAD)

    def acknowledge(self, season: int, number: int) -> None:
        """The controller has an upload on disk: forget its content."""
        self._sent(ParcelKind.UPLOAD, season, number)

    def find_person(self, db: sqlite3.Connection, person: str | None) -> tuple[bytes, ...]:
        """Under which hashes she may be known, this season's first; within `writing`, before she is counted.

        What was carried over under an earlier hash is hers from now on.
        """
        now = self.hash_person(person)
        if now is None or person is None:
            return ()
        before = [hmac.digest(key, person.encode(), "sha256") for key in self._earlier_keys]
        carried.rekey(db, before, now)
        return (now, *before)

    def _load(self) -> None:
        super()._load()
        self._earlier_keys = carried.keys(self.database)

    def hash_person(self, person: str | None) -> bytes | None:
        """How an id is kept: HMAC-SHA256 under this season's key."""
        if is_text(person):
            return hmac.digest(self._person_key, person.encode(), "sha256")
        if isinstance(person, str):
            raise ConfigurationError("person", "half a character", "text, or None")
        if person is not None:  # say its type alone: an id must not end up in a log
            raise ConfigurationError("person", type(person).__name__, "text, or None")
        if self.terms.records_per_person > 1:
            expected = f"an id, to hold {self.terms.records_per_person} records a person"
            raise ConfigurationError("person", None, expected)
        return None

    def _entered(self, db: sqlite3.Connection, hashes: Sequence[bytes | None]) -> dict[bytes, Entered]:
        rows = (
            db.execute("SELECT hash, records, last FROM people WHERE hash = ?", (one,)).fetchone()
            for one in {one for one in hashes if one is not None}
        )
        return {row[0]: Entered(*row[1:]) for row in rows if row is not None}

    def roll(
        self,
        terms: Terms,
        *,
        number: int,
        carries: bool,
        keep_keys: int,
        then: Callable[[sqlite3.Connection], None],
    ) -> bool:
        """Close this season and open another by the clock; what entered no release goes along (`carried`).

        Guarantees:
            As of `new_season`, but for records that no release of this season has: each enters one release
            of the next, and counts there for its person. Retained events stay until their time is over.

        Args:
            terms: of the new season.
            number: of the new season.
            carries: whether what waits may go along, as far as settings beside the terms say.
            keep_keys: of so many earlier seasons, so that people of retained events can still be found.
            then: what else is written in the same transaction.

        Returns:
            Whether what waited went along: if the new terms add up something else, it is dropped.
        """
        self._require_usable()
        require_integer("season", number, at_least=self.season + 1)
        whole = carries and carried.fits(self.terms, terms)
        with self.writing() as db:
            db.execute("UPDATE outgoing SET payload = NULL WHERE kind = 'upload' AND payload IS NOT NULL")
            made = [self._batches_made(group) for group in range(self.terms.groups)]
            batch = carried.take(db, self._privatizers, made)
            self._carrying = whole
            try:
                self._close_season(db, number, terms, dropped=0 if whole else self.pending)
            finally:
                self._carrying = False
            if whole:
                carried.unpack(db, batch, keep_keys=keep_keys)
            then(db)
            self._load()
        return whole

    def has_made(self) -> bool:
        """Whether anything of the open season was made here, or a row of it is over."""
        query = "SELECT EXISTS (SELECT 1 FROM outgoing WHERE season = ?)"
        made = bool(self.database.execute(query, (self.season,)).fetchone()[0])
        return made or any(row_counts.count_rows(self.database, self.season))

    def reopen(self, terms: Terms, *, carries: bool, then: Callable[[sqlite3.Connection], None]) -> bool:
        """Give the open season other terms, since its roster is another one: before anything of it was made.

        Guarantees:
            Nothing left under the terms before, whose keys are deleted, and no row has opened. Who has
            records in the season keeps their count.

        Args:
            terms: of the season from now on.
            carries: whether what waits may go along, as far as settings beside the terms say.
            then: what else is written in the same transaction.

        Returns:
            Whether what waited went along: if the new terms add up something else, it is dropped.
        """
        self._require_usable()
        if self.has_made():
            raise StoreError(f"season {self.season} has releases or rows already: its terms stay")
        whole = carries and carried.fits(self.terms, terms)
        with self.writing() as db:
            waiting = carried.take(db, self._privatizers, [0] * self.terms.groups).sums
            dropped = (terms.to_json(), 0 if whole else self.pending, self.season)
            db.execute("UPDATE seasons SET terms = ?, dropped = dropped + ? WHERE season = ?", dropped)
            for group in range(self.terms.groups):
                self._end_batch(db, group)
            if not whole:
                db.execute("DELETE FROM tallies")
                self._keep_what_was_alone(db, terms)
            self._open_streams(db, terms)
            agent_rows.begin(db)  # keys are for what was agreed on
            if whole:
                db.executemany("INSERT INTO batches VALUES (?, ?)", list(waiting.items()))
            then(db)
            self._load()
        return whole

    _carrying = False

    def _begin(self, db: sqlite3.Connection, season: int, terms: Terms) -> None:
        if not self._carrying:
            dropped = events.drop_open(db)  # decisions of an earlier season never enter this one
            events.strip(db, before=2**62, limit=-1)  # nobody could be found: the key of the hashes goes
            events.add_counts(db, [("dropped", dropped)])
            db.execute("DELETE FROM person_keys")
        db.execute(REMEMBER_SUMS)
        for table in ("inbox", "tallies", "warnings", "learnt", "gain"):
            db.execute(f"DELETE FROM {table}")
        self._keep_what_was_alone(db, terms)
        agent_rows.begin(db)
        super()._begin(db, season, terms)

    def _keep_what_was_alone(self, db: sqlite3.Connection, terms: Terms) -> None:
        """Own records stay if nothing ever left of them, and as far as the new terms can read them.

        Guarantees:
            They are `own_sums` alone, which no release is made of, and none of them is read: where the new
            season shares, not before its close.
        """
        before = getattr(self, "terms", None)  # there is none in a new file
        if before is None:
            return
        finer = None
        if _same_records(before, terms):
            finer = before.certificate().exponent - terms.certificate().exponent
        own_sums.carry(db, shared=before.trust.leaves, finer=finer)

    def drop_waiting(self) -> None:
        """Forget what waits to leave in this season: decisions whose window is open, and records."""
        with self.writing() as db:
            count = (self.pending, self.season)
            db.execute("UPDATE seasons SET dropped = dropped + ? WHERE season = ?", count)
            events.add_counts(db, [("dropped", events.drop_open(db))])
            for group in range(self.terms.groups):
                self._end_batch(db, group)
            db.execute("UPDATE outgoing SET payload = NULL WHERE kind = 'upload' AND payload IS NOT NULL")
            self._load()

    def restate(self, db: sqlite3.Connection, terms: Terms) -> None:
        """Give the open season other terms, within `writing`: only before anything has happened in it."""
        if terms == self.terms:
            return
        self._keep_what_was_alone(db, terms)
        db.execute("UPDATE seasons SET terms = ? WHERE season = ?", (terms.to_json(), self.season))
        self._open_streams(db, terms)
        agent_rows.begin(db)  # keys are for what was agreed on
        self._load()  # in the transaction: memory and file move on together, or neither does

    def _feed(self, db: sqlite3.Connection) -> None:
        own_sums.require_undamaged(db)
        dim = self.terms.problem.dim
        for group, sums in db.execute('SELECT "group", sums FROM batches'):
            self._privatizers[group].load_batch(sums)
        for group, actions, rewards in db.execute(
            'SELECT "group", actions, rewards FROM pending ORDER BY id'
        ):
            self._privatizers[group].record(np.frombuffer(actions).reshape(-1, dim), np.frombuffer(rewards))

    def _end_batch(self, db: sqlite3.Connection, group: int) -> None:
        db.execute('DELETE FROM pending WHERE "group" = ?', (group,))
        db.execute('DELETE FROM batches WHERE "group" = ?', (group,))

    def _waiting(self) -> bool:
        if not self.terms.trust.raw and self.releases_left == 0:
            return False  # what waits can never leave
        return self.pending > 0 or bool(self.uploads()) or events.any_open(self.database)


def _same_records(before: Terms, after: Terms) -> bool:
    """Whether sums of records mean the same under both."""
    return (before.problem, before.model, before.weight) == (after.problem, after.model, after.weight)
