"""The controller's file where rows are padded: rows in, one list a row, keepers' answers, sums out."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from feducb.config import require_finite
from feducb.errors import ConfigurationError, RefusedError
from feducb.privacy.grid import entry_variance
from feducb.privacy.terms import Terms
from feducb.protocol.admission import Receipt
from feducb.protocol.calendar import LINGER, Calendar, Leap
from feducb.protocol.keeping import quorum_of
from feducb.protocol.opening import RowReader
from feducb.protocol.pads import Label
from feducb.protocol.parcels import ParcelKind
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.row_gate import RowGate
from feducb.protocol.secure_rows import Answer, Ask, Entry, KeyCard, Opened, PaddedRow, list_digest, open_sum
from feducb.storage.past_sums import PastSum, PastSums
from feducb.storage.release_book import Quorum
from feducb.storage.sqlite import STORE_TABLE, SqliteFile

__all__ = ["PublishedRow", "RowBook"]

_ROW = "(season, row, attempt) = (?, ?, ?)"


class PublishedRow(NamedTuple):
    """A row that is over, as carriers see it."""

    season: int
    number: int  # k
    names: tuple[str, ...]  # who is in it; nobody, if it was closed empty
    body: bytes  # `Opened`, signed


class _List(NamedTuple):
    """The open row's list, which is final."""

    digest: bytes
    ask: bytes


class RowBook(SqliteFile):
    """One row is open at a time: it gathers padded rows, then a list that is final, then keepers' answers.

    Guarantees:
        A receipt is given after the row is on disk, and a list or a sum is told after it is. An agent has one
        content for a row; a row has one list and one sum, told again byte for byte. Padded rows are deleted,
        and overwritten, once their sum has opened. A season's rows are bound to the roster that it was opened
        with, whatever comes later.

    Attributes:
        renewal: called before a season is opened, with its number, so that it is opened with what holds in it
            (`renew`); None goes on with what is known.
    """

    renewal: Callable[[int], None] | None

    kind = "rows"
    takes: ClassVar[ParcelKind] = ParcelKind.ROW
    migrations: ClassVar[tuple[str, ...]] = (
        STORE_TABLE
        + """
        CREATE TABLE open_season (
            id INTEGER PRIMARY KEY CHECK (id = 1), season INTEGER NOT NULL, charter TEXT NOT NULL);
        CREATE TABLE cards (
            season INTEGER NOT NULL, keeper TEXT NOT NULL, card BLOB NOT NULL,
            PRIMARY KEY (season, keeper)) WITHOUT ROWID;
        CREATE TABLE rows (
            season INTEGER NOT NULL, row INTEGER NOT NULL, attempt INTEGER NOT NULL, agent TEXT NOT NULL,
            received_at REAL NOT NULL, sha256 BLOB NOT NULL,
            PRIMARY KEY (season, row, attempt, agent)) WITHOUT ROWID;
        CREATE TABLE waiting (
            place INTEGER PRIMARY KEY, received_at REAL NOT NULL, public BLOB NOT NULL, nonce BLOB NOT NULL,
            digest BLOB NOT NULL, signature BLOB NOT NULL, body BLOB NOT NULL);
        CREATE TABLE lists (
            season INTEGER NOT NULL, row INTEGER NOT NULL, attempt INTEGER NOT NULL, made_at REAL NOT NULL,
            digest BLOB NOT NULL, ask BLOB NOT NULL, PRIMARY KEY (season, row, attempt));
        CREATE TABLE answers (
            season INTEGER NOT NULL, row INTEGER NOT NULL, attempt INTEGER NOT NULL, keeper TEXT NOT NULL,
            received_at REAL NOT NULL, answer BLOB NOT NULL, PRIMARY KEY (season, row, attempt, keeper));
        CREATE TABLE opened (
            season INTEGER NOT NULL, row INTEGER NOT NULL, attempt INTEGER NOT NULL, opened_at REAL NOT NULL,
            names TEXT NOT NULL, refused TEXT NOT NULL, body BLOB NOT NULL,
            PRIMARY KEY (season, row, attempt));
        """
        + "".join(
            f"CREATE TRIGGER {table}_stay_{verb} BEFORE {verb} ON {table}"
            f" BEGIN SELECT RAISE(ABORT, 'what was told or acknowledged stays as it is'); END;"
            for table in ("cards", "rows", "lists", "answers", "opened")
            for verb in ("delete", "update")
        ),
    )

    def __init__(
        self,
        path: str | Path,
        roster: Roster,
        terms: Terms,
        signer: Signer,
        *,
        deadline: float | None = None,
        close_after: float | None = None,
        season: int = 1,
        calendar: Calendar | None = None,
    ) -> None:
        """Open or make the file.

        Args:
            path: of the file; ``<path>.lock`` beside it is locked meanwhile.
            roster: with keepers.
            terms: of everybody.
            signer: in the controller's name.
            deadline: seconds after the first row arrived, or `listen`, when a quorum will do; None waits for
                everybody.
            close_after: seconds, counted likewise, when one below its quorum is closed empty; None waits for
                ever. Where agents may be away it needs a deadline.
            season: the open one, where there is no calendar.
            calendar: which season runs when. The next is opened once all rows of the one before are over, or
                have had a tenth of a season more than they were to have.
        """
        season = season if calendar is None else calendar.first  # of a new file
        self._gate, self._signer = RowGate.of(roster, terms, signer, season=season), signer
        self._calendar, self._renewed = calendar, (roster, terms, signer)
        self.renewal, self._leap, self._new = None, Leap(), False
        self.quorum = Quorum(len(roster.agents), quorum_of(terms), deadline)
        if close_after is not None:
            require_finite("close_after", close_after, at_least=deadline or 0.0)
            if deadline is None and self.quorum.enough < self.quorum.everybody:
                expected = f"a deadline beside it: without one {self.quorum.enough} rows wait for everybody"
                raise ConfigurationError("close_after", close_after, expected)
        self.season, self._close_after, self._listens_since = season, close_after, 0.0
        self._opened_since: list[PublishedRow] = []  # and not yet handed out by `publish_due`
        self._published = PastSums(self._sums_after)
        super().__init__(path)

    def _set_up(self) -> None:
        with self.writing() as db:
            row = db.execute("SELECT season, charter FROM open_season").fetchone()
            if self._calendar is not None and row is not None:
                self._enter(row[0])  # it may not be over yet
            self._new = row is None  # it begins with the season that runs
            charter = self._gate.charter.digest
            if row is not None and row[0] > self.season:
                expected = f"at least {row[0]}, the open one of {self.path}"
                raise ConfigurationError("season", self.season, expected)
            if row is not None and row[0] == self.season and row[1] != charter:
                expected = f"those of season {self.season} in {self.path}; others need a new season"
                raise ConfigurationError("terms or roster", charter[:16], expected)
            if row is None or row[0] < self.season:  # nothing more is made of the season before
                db.execute("REPLACE INTO open_season VALUES (1, ?, ?)", (self.season, charter))
                db.execute("DELETE FROM waiting")
        self._load()

    def _enter(self, season: int) -> None:
        roster, terms, self._signer = self._renewed
        self.season, self._gate = season, RowGate.of(roster, terms, self._signer, season=season)
        self.quorum = Quorum(len(roster.agents), quorum_of(terms), self.quorum.deadline)

    @property
    def roster(self) -> Roster:
        """Who is in the open season."""
        return self._gate.roster

    def renew(self, roster: Roster, terms: Terms, signer: Signer) -> None:
        """Take another roster, other terms or another key for the next season.

        A key that was put in place before the season of its roster waits for that.
        """
        if roster.controller == self._signer.nkey:
            signer = self._signer
        RowGate.of(roster, terms, signer, season=self.season + 1)  # or it is refused now
        self._renewed = (roster, terms, signer)

    def _roll(self, now: float) -> None:
        """Open the season that runs, once the one before is over."""
        calendar = self._calendar
        if calendar is None or (number := calendar.number_at(now)) <= self.season:
            self._leap, self._new = Leap(), False
            return
        leapt = calendar.leaves_out(self.season, now)
        if not self._new and not self._leap.is_believed(leapt=leapt):
            return
        waits = now < calendar.ends(self.season) + LINGER * calendar.length
        if waits and self._open.row <= self._gate.terms.releases:
            return
        if self.renewal is not None:
            self.renewal(number)
        self._enter(number)
        self._new = False
        with self.writing() as db:
            row = (number, self._gate.charter.digest)
            db.execute("REPLACE INTO open_season VALUES (1, ?, ?)", row)
            db.execute("DELETE FROM waiting")
        self._load()

    def listen(self, *, now: float) -> None:
        """Rows can come in again: what was waited while none could does not count against those who send.

        A row that was built for a list which it then missed is spent, so nobody is to miss one because the
        controller was away.

        Args:
            now: in seconds since 1970.
        """
        self._listens_since = now

    def _load(self) -> None:
        self._reader: RowReader | None = None
        rows = self.database.execute("SELECT agent, max(received_at) FROM rows GROUP BY agent")
        self._last_received: dict[str, float] = dict(rows)
        query = "SELECT row, attempt, names FROM opened WHERE season = ? ORDER BY row DESC, attempt DESC"
        last = self.database.execute(query, (self.season,)).fetchone()
        self._open = Label(self.season, 0, 1)
        if last is not None:
            self._open = Label(self.season, 0, last[0], last[1]).following(empty=last[2] == "[]")

    def receive(self, batch: Sequence[tuple[str, bytes]], *, now: float) -> list[Receipt]:
        """Take padded rows in, all in one transaction; one that is refused does not touch the others.

        Args:
            batch: who (as the link authenticated it) and what.
            now: in seconds since 1970.
        """
        self._roll(now)
        read = [self._gate.row(agent, payload) for agent, payload in batch]
        told = [one for one in read if isinstance(one, Receipt)]
        if len(told) == len(read):
            return told
        with self._advancing(now) as db:
            return [
                one if isinstance(one, Receipt) else self._put_row(db, agent, one, payload, now)
                for one, (agent, payload) in zip(read, batch, strict=True)
            ]

    def hear(self, batch: Sequence[tuple[str, bytes]], *, now: float) -> list[Receipt]:
        """Take in what keepers say, their cards and answers, as `receive` does.

        The last answer opens the row; `publish_due` returns it then.
        """
        self._roll(now)
        read = [self._gate.word(keeper, payload) for keeper, payload in batch]
        told = [one for one in read if isinstance(one, Receipt)]
        if len(told) == len(read):
            return told
        with self._advancing(now) as db:
            return [
                one if isinstance(one, Receipt) else self._put_word(db, one, payload, now)
                for one, (_, payload) in zip(read, batch, strict=True)
            ]

    def exchange(
        self, batch: Sequence[tuple[str, bytes]], *, now: float
    ) -> tuple[list[Receipt], list[PublishedRow]]:
        """`receive`, then `publish_due`."""
        return self.receive(batch, now=now), self.publish_due(now=now)

    def publish_due(self, *, now: float) -> list[PublishedRow]:
        """Rows that have opened since the last call; and a list is made, if it is time to (`asks`).

        All of it is on disk before this returns.
        """
        self._roll(now)
        if self._is_due(now):
            with self._advancing(now):
                pass
        opened, self._opened_since = self._opened_since, []
        return opened

    def asks(self) -> dict[str, bytes]:
        """The open row's list, for each keeper that has not answered: the same bytes for ever."""
        listed, answers = self._list(), self._answers()
        waits = [name for name in self._gate.roster.keepers if name not in answers]
        return {} if listed is None else dict.fromkeys(waits, listed.ask)

    def cards(self) -> list[bytes]:
        """Of the keepers that have shown theirs this season."""
        return list(self._cards().values())

    def since(self, label: Label | None, *, most: int = -1) -> list[bytes]:
        """Rows that are over (`Opened`), in order: those after a label, or all of this season.

        Args:
            label: the newest one that is known already; None for none.
            most: how many to return at most; all if negative.
        """
        after = (self.season, 0, 0) if label is None else _key(label)
        name = "season, row, attempt"
        query = f"SELECT body FROM opened WHERE ({name}) > (?, ?, ?) ORDER BY {name} LIMIT ?"
        return [bytes(body) for (body,) in self.database.execute(query, (*after, most))]

    def next_due(self) -> float | None:
        """When, in seconds since 1970, the open row's list is made though nobody else sends; None: never."""
        here, first = self._here()
        if first is None or self._list() is not None:
            return None
        wait = self.quorum.deadline if here >= self.quorum.enough else self._close_after
        return None if wait is None else max(first, self._listens_since) + wait

    def newest(self) -> PublishedRow | None:
        """The newest row that is over, of this season or one before."""
        order = "ORDER BY season DESC, row DESC, attempt DESC LIMIT 1"
        row = self.database.execute(f"SELECT season, row, names, body FROM opened {order}").fetchone()
        return None if row is None else PublishedRow(row[0], row[1], tuple(json.loads(row[2])), bytes(row[3]))

    def progress(self) -> dict[str, int]:
        """By agent, the newest row of this season that is here."""
        query = "SELECT agent, max(row) FROM rows WHERE season = ? GROUP BY agent"
        return dict(self.database.execute(query, (self.season,)))

    def last_received(self) -> dict[str, float]:
        """By agent, when its last new row came, of any season; in seconds since 1970."""
        return dict(self._last_received)

    def sums(self) -> list[dict[str, Any]]:
        """Rows that are over and whose sum was used, newest first (`PastSum`)."""
        return self._published.listed()

    def waits(self) -> None:
        """What the open row waits for is among `facts`."""

    def arrivals(self) -> dict[str, float]:
        """By agent, when its part of the newest row that is over came."""
        query = "SELECT agent, received_at FROM rows WHERE season = ?1 AND (row, attempt) = "
        newest = "(SELECT row, attempt FROM opened WHERE season = ?1 ORDER BY row DESC, attempt DESC LIMIT 1)"
        return dict(self.database.execute(query + newest, (self.season,)))

    def _sums_after(self, season: int, row: int) -> Iterator[PastSum]:
        """Noise is stated as if all agents were in every row, which is how agents read sums."""
        query = "SELECT season, row, opened_at, names FROM opened WHERE (season, row) > (?, ?)"
        used = f"{query} AND names != '[]' AND refused = '' ORDER BY season, row"
        terms = self._gate.terms
        for of, number, at, names in self.database.execute(used, (season, row)):
            of_one = entry_variance(terms.certificate(), terms.factors, number)
            yield PastSum(of, number, at, tuple(json.loads(names)), math.sqrt(terms.agents * of_one))

    def facts(self) -> dict[str, Any]:
        """How the open row stands, for status and pages: all of it public."""
        roster, over = self._gate.roster, self._open.row > self._gate.terms.releases
        places = self.database.execute("SELECT place FROM waiting ORDER BY place")
        sent = [roster.names[place] for (place,) in places]
        shown, listed = self._cards(), self._list() is not None
        keepers = list(self.asks()) or [name for name in roster.keepers if name not in shown and not over]
        begun = bool(sent) and not listed
        return {
            "season": self.season,
            "row": None if over else self._open.row,
            "attempt": None if over else self._open.attempt,
            "quorum": self.quorum.enough,
            "since": self._here()[1],
            "sent": sent,
            "listed": listed,
            "answered": list(self._answers()),
            "waits_for_keepers": keepers,
            "waits_for_agents": [name for name in roster.agents if begun and name not in sent],
            "waiting": self._sentence(len(sent), keepers, listed=listed),
            **self._counts(),
        }

    def _counts(self) -> dict[str, int]:
        """Of rows of this season that are over: sums that were used, that were not, and attempts without."""
        states = {"opened": "names != '[]' AND refused = ''", "refused": "refused != ''"}
        states["closed_empty"] = "names = '[]'"
        counts = ", ".join(f"count(*) FILTER (WHERE {one})" for one in states.values())
        row = self.database.execute(
            f"SELECT {counts} FROM opened WHERE season = ?", (self.season,)
        ).fetchone()
        return dict(zip(states, row, strict=True))

    def _sentence(self, here: int, keepers: Sequence[str], *, listed: bool) -> str:
        """What the open row waits for; empty if for nothing but its time."""
        row, named = str(self._open).capitalize(), f"keeper{'s' * (len(keepers) > 1)} {', '.join(keepers)}"
        if listed:
            return f"{row} waits for {named}."
        if keepers:
            return f"No row can be sent before {named} showed a key."
        if 0 < here < self.quorum.enough:
            return f"{row} has {here} of {self.quorum.everybody} agents, and needs {self.quorum.enough}."
        return ""

    def _list(self) -> _List | None:
        query = f"SELECT digest, ask FROM lists WHERE {_ROW}"
        row = self.database.execute(query, _key(self._open)).fetchone()
        return None if row is None else _List(bytes(row[0]), bytes(row[1]))

    def _answers(self) -> dict[str, bytes]:
        """To the open row's list, by keeper."""
        query = f"SELECT keeper, answer FROM answers WHERE {_ROW}"
        found = {name: bytes(answer) for name, answer in self.database.execute(query, _key(self._open))}
        return {name: found[name] for name in self._gate.roster.keepers if name in found}

    def _cards(self) -> dict[str, bytes]:
        query = "SELECT keeper, card FROM cards WHERE season = ?"
        return {name: bytes(card) for name, card in self.database.execute(query, (self.season,))}

    def _here(self) -> tuple[int, float | None]:
        """How many rows wait for the open row's list, and when the first came."""
        here, first = self.database.execute("SELECT count(*), min(received_at) FROM waiting").fetchone()
        return here, first

    def _put_row(
        self, db: sqlite3.Connection, agent: str, row: PaddedRow, payload: bytes, now: float
    ) -> Receipt:
        key, digest = _key(row.label), hashlib.sha256(payload).digest()
        query = f"SELECT sha256 FROM rows WHERE {_ROW} AND agent = ?"
        known = db.execute(query, (*key, agent)).fetchone()
        if known is not None:
            same = bytes(known[0]) == digest
            return Receipt("known") if same else _refused("replay", row.label, "known with other content")
        if row.label > self._open:
            return _refused("order", row.label, f"expected {self._open}")
        db.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", (*key, agent, now, digest))
        self._last_received[agent] = now
        if row.label < self._open or self._list() is not None:
            return Receipt("past")
        place, *signed = row.entry(self._gate.roster.names.index(agent))
        db.execute("INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?)", (place, now, *signed, row.body))
        return Receipt("stored")

    def _put_word(
        self, db: sqlite3.Connection, word: KeyCard | Answer, payload: bytes, now: float
    ) -> Receipt:
        if isinstance(word, KeyCard):
            return self._put_card(db, word, payload)
        return self._put_answer(db, word, payload, now)

    def _put_card(self, db: sqlite3.Connection, card: KeyCard, payload: bytes) -> Receipt:
        known = self._cards().get(card.keeper)
        if known is None:
            db.execute("INSERT INTO cards VALUES (?, ?, ?)", (self.season, card.keeper, payload))
            return Receipt("stored")
        other = Receipt("refused", "key", f"keeper {card.keeper} has shown another key this season")
        return Receipt("known") if known == payload else other

    def _put_answer(self, db: sqlite3.Connection, answer: Answer, payload: bytes, now: float) -> Receipt:
        key, listed = _key(answer.label), self._list()
        query = f"SELECT answer FROM answers WHERE {_ROW} AND keeper = ?"
        known = db.execute(query, (*key, answer.keeper)).fetchone()
        if known is not None:
            same = bytes(known[0]) == payload
            return Receipt("known") if same else _refused("replay", answer.label, "answered otherwise before")
        if answer.label != self._open or listed is None:
            return _refused("order", answer.label, "for which no answer is waited for")
        if answer.listed != listed.digest:
            return _refused("list", answer.label, "answered for another list")
        db.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?)", (*key, answer.keeper, now, payload))
        return Receipt("stored")

    @contextmanager
    def _advancing(self, now: float) -> Iterator[sqlite3.Connection]:
        """A transaction, at whose end the open row's list is made or the row opens, if that is due."""
        opened: list[PublishedRow] = []
        with self.writing() as db:
            yield db
            if self._is_due(now):
                listed = self._list()
                if listed is None:
                    self._make_list(db, now)
                else:
                    opened.append(self._open_row(db, listed, now))
        self._opened_since += opened

    def _is_due(self, now: float) -> bool:
        """Whether the open row's list is to be made, or the row to be opened."""
        if self._list() is not None:
            return len(self._answers()) == len(self._gate.roster.keepers)
        here, first = self._here()
        if first is None:
            return False
        first, close_after = max(first, self._listens_since), self._close_after
        if self.quorum.due(here, first, now):
            return True
        return here < self.quorum.enough and close_after is not None and now - first >= close_after

    def _make_list(self, db: sqlite3.Connection, now: float) -> None:
        """Of all that are here, or empty if they are too few."""
        gate, columns = self._gate, "place, public, nonce, digest, signature"
        rows = db.execute(f"SELECT {columns} FROM waiting ORDER BY place").fetchall()
        entries = tuple(Entry(*row) for row in rows) if len(rows) >= self.quorum.enough else ()
        ask = Ask(self._open, entries)
        digest = list_digest(self._open, ask.listed(gate.roster))
        row = (*_key(self._open), now, digest, ask.to_bytes(gate.charter, self._signer))
        db.execute("INSERT INTO lists VALUES (?, ?, ?, ?, ?, ?)", row)

    def _open_row(self, db: sqlite3.Connection, listed: _List, now: float) -> PublishedRow:
        gate, answers = self._gate, self._answers()
        ask = Ask.read(listed.ask, gate.charter, gate.roster)
        read = [
            Answer.read(one, gate.charter, gate.roster, coordinates=gate.coordinates)
            for one in answers.values()
        ]
        bodies = [body for (body,) in db.execute("SELECT body FROM waiting")]
        values = open_sum(bodies, read) if ask.entries else None
        proofs = tuple(answer.proof for answer in read)
        opened = self._judged(Opened(self._open, ask.listed(gate.roster), proofs, values))
        names, body = opened.names(gate.roster), opened.to_bytes(gate.charter, gate.roster, self._signer)
        row = (*_key(self._open), now, json.dumps(names), opened.refused, body)
        db.execute("INSERT INTO opened VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        db.execute("DELETE FROM waiting")
        published = PublishedRow(self.season, self._open.row, names, body)
        self._open = self._open.following(empty=opened.empty)
        return published

    def _judged(self, opened: Opened) -> Opened:
        """With the reason why its sum is not used, if there is one."""
        self._reader = self._reader or RowReader(self._gate.terms, self._past())
        try:
            self._reader.require_usable(opened)
        except RefusedError as error:
            self._reader = None  # it may have taken the sum in
            return replace(opened, refused=error.reason)
        return opened

    def _past(self) -> Iterator[Opened]:
        gate = self._gate
        for body in self.since(None):
            yield Opened.read(
                body, gate.charter, gate.roster, coordinates=gate.coordinates, quorum=self.quorum.enough
            )


def _key(label: Label) -> tuple[int, int, int]:
    return label.season, label.row, label.attempt


def _refused(reason: str, label: Label, why: str) -> Receipt:
    return Receipt("refused", reason, f"{label}, {why}")
