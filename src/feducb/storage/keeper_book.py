"""A keeper's file: its key of the season, and its one answer for each row. There must be no copy of it.

A copy put back would answer a second list for a row that it has answered already, and two lists that differ
by one agent show that agent's row. So there is no backup of a keeper: if its file is lost, the season ends.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from feducb.errors import ConfigurationError, RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol.calendar import LINGER, Calendar, Leap
from feducb.protocol.keeping import Duty
from feducb.protocol.pads import Charter, Label, SeasonKey
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.secure_rows import Ask, list_digest
from feducb.protocol.two_lists import SignedList, TwoLists
from feducb.storage.sqlite import STORE_TABLE, SqliteFile
from feducb.trust import Keepers

__all__ = ["KeeperBook"]

_HALTED = "its file is older than the federation: it was asked for a row after one that it never answered"


class KeeperBook(SqliteFile):
    """One list a row, on disk before it is answered; asked again, the same bytes.

    Guarantees:
        For each row at most one list is ever answered, whatever is asked and however the process ends. An
        answer is on disk before anybody sees it. The X25519 key of a season is deleted with the next.

    Attributes:
        renewal: called before a season is opened, with its number, so that it is opened with what holds in it
            (`renew`); None goes on with what is known.
    """

    renewal: Callable[[int], None] | None

    kind = "keeper"
    migrations: ClassVar[tuple[str, ...]] = (
        STORE_TABLE
        + """
        CREATE TABLE open_season (
            id INTEGER PRIMARY KEY CHECK (id = 1), keeper TEXT NOT NULL, season INTEGER NOT NULL,
            charter TEXT NOT NULL, private BLOB NOT NULL, halted TEXT NOT NULL DEFAULT '');
        CREATE TABLE answers (
            season INTEGER NOT NULL, "group" INTEGER NOT NULL, row INTEGER NOT NULL, attempt INTEGER NOT NULL,
            listed BLOB NOT NULL, asked BLOB NOT NULL, agents INTEGER NOT NULL, answered_at REAL NOT NULL,
            answer BLOB NOT NULL,
            PRIMARY KEY (season, "group", row, attempt)) WITHOUT ROWID;
        CREATE TABLE evidence (
            season INTEGER NOT NULL, "group" INTEGER NOT NULL, row INTEGER NOT NULL, attempt INTEGER NOT NULL,
            proof BLOB NOT NULL, PRIMARY KEY (season, "group", row, attempt)) WITHOUT ROWID;
        CREATE TRIGGER an_answer_stays BEFORE DELETE ON answers
            BEGIN SELECT RAISE(ABORT, 'an answer is never deleted'); END;
        CREATE TRIGGER an_answer_is_final BEFORE UPDATE ON answers
            BEGIN SELECT RAISE(ABORT, 'an answer is never changed'); END;
        """,
    )

    def __init__(
        self,
        path: str | Path,
        keeper: str,
        roster: Roster,
        terms: Terms,
        signer: Signer,
        *,
        season: int = 1,
        calendar: Calendar | None = None,
    ) -> None:
        """Open or make the file.

        Args:
            path: of the file; ``<path>.lock`` beside it is locked meanwhile.
            keeper: its name.
            roster: who is in the federation.
            terms: of everybody.
            signer: in the keeper's name.
            season: the open one; with a calendar, that of a new file: one that comes later may open it early.
            calendar: which season runs when: `roll` opens the next.
        """
        if keeper not in roster.keepers:
            raise ConfigurationError("keeper", keeper, f"one of {', '.join(roster.keepers)}")
        if signer.nkey != roster.keepers[keeper]:
            raise ConfigurationError("seed", signer.nkey, f"that of keeper {keeper}, as in the roster")
        if not isinstance(terms.trust, Keepers) or terms.agents != len(roster.agents):
            expected = f"keepers, among the {len(roster.agents)} agents of the roster"
            given = f"{terms.trust.name} among {terms.agents}" if terms.agents else terms.trust.name
            raise ConfigurationError("trust", given, expected)
        self.calendar, self.renewal = calendar, None
        self._leap, self._new = Leap(), False
        if calendar is not None:
            season = max(season, calendar.first)  # of a new file; `roll` goes on to the one that runs
        self._duty_of = (keeper, roster, terms, season, signer)
        self.refusals: Counter[str] = Counter()
        super().__init__(path)

    def _set_up(self) -> None:
        query = "SELECT season, keeper, charter, private FROM open_season"
        row = self.database.execute(query).fetchone()
        if self.calendar is not None and row is not None:  # it may not be over yet
            self._duty_of = (*self._duty_of[:3], row[0], self._duty_of[4])
        keeper, roster, terms, season, _ = self._duty_of
        agreed = Charter.of(roster, terms, season)
        if row is not None:
            self._require_same(row[0], row[1], row[2], agreed)
        self._new = row is None  # it begins with the season that runs
        fresh = row is None or row[0] < season
        key = SeasonKey() if fresh else SeasonKey(row[3])
        if fresh:
            with (
                self.writing() as db
            ):  # the key before is overwritten; opening cuts the log, where it was too
                new = (keeper, season, agreed.digest, key.private)
                db.execute("REPLACE INTO open_season VALUES (1, ?, ?, ?, ?, '')", new)
        self.duty = Duty(*self._duty_of, key, agreed)
        self._before: Duty | None = None
        if (
            self.calendar is not None and season > 1
        ):  # for lists that were answered in it alone: its key is gone
            earlier = Charter.of(roster, terms, season - 1)
            self._before = replace(self.duty, season=season - 1, charter=earlier)
        self._load()

    def _require_same(self, season: int, keeper: str, charter: str, agreed: Charter) -> None:
        """Raise unless what the file says goes with what it is opened for."""
        if keeper != self._duty_of[0]:
            raise ConfigurationError("keeper", self._duty_of[0], f"{keeper}, whose file {self.path} is")
        if season > agreed.season:
            expected = f"at least {season}, the open one of {self.path}"
            raise ConfigurationError("season", agreed.season, expected)
        if season == agreed.season and charter != agreed.digest:
            expected = f"those of season {season} in {self.path}; others need a new season"
            raise ConfigurationError("terms or roster", agreed.digest[:16], expected)

    def _load(self) -> None:
        (self.halted,) = self.database.execute("SELECT halted FROM open_season").fetchone()

    @property
    def season(self) -> int:
        """The open one."""
        return self.duty.season

    def renew(self, roster: Roster, terms: Terms, signer: Signer) -> None:
        """Take another roster, other terms or another key for the next season.

        A key that was put in place before the season of its roster waits for that.
        """
        keeper, _, _, season, _ = self._duty_of
        if roster.keepers.get(keeper) == self.duty.signer.nkey:
            signer = self.duty.signer
        self._duty_of = (keeper, roster, terms, season, signer)

    def take_late(self, roster: Roster, terms: Terms) -> bool:
        """Go by a roster of the open season that came after it began; whether it does.

        Guarantees:
            Nothing was answered in this season, and the key that was shown for the roster before is deleted:
            no list of a row under it is ever answered.
        """
        keeper, season, signer = self.duty.keeper, self.season, self.duty.signer
        agreed = Charter.of(roster, terms, season)
        before, fits = self.duty.roster, terms.agents == len(roster.agents)
        newer = roster.version > before.version and roster.content() != before.content()
        if not newer or not fits or roster.keepers.get(keeper) != signer.nkey or self.halted:
            return False
        if any(self.newest(group) is not None for group in range(self.duty.terms.groups)):
            return False
        self._begin((keeper, roster, terms, season, signer), agreed, self._before)
        return True

    def _begin(
        self, duty: tuple[str, Roster, Terms, int, Signer], agreed: Charter, before: Duty | None
    ) -> None:
        """Draw the key of a season, and forget the one before."""
        key = SeasonKey()
        with self.writing() as db:  # the key before is overwritten, and cut off the log
            new = (duty[0], duty[3], agreed.digest, key.private)
            db.execute("REPLACE INTO open_season VALUES (1, ?, ?, ?, ?, '')", new)
        self._duty_of, self._before, self.duty = duty, before, Duty(*duty, key, agreed)
        self.cut_log()
        self._load()

    def roll(self, *, now: float) -> bool:
        """Open the season that runs with a new key, once the one before is over; whether it did.

        It is over when its last row is answered, or has had a tenth of a season more than it was to have. A
        clock that leaves out a whole season is believed after a minute (`Leap`).

        Args:
            now: in seconds since 1970.
        """
        calendar = self.calendar
        if calendar is None or (number := calendar.number_at(now)) <= self.season:
            self._leap, self._new = Leap(), False
            return False
        leapt = calendar.leaves_out(self.season, now)
        if not self._new and not self._leap.is_believed(leapt=leapt):
            return False
        waits = now < calendar.ends(self.season) + LINGER * calendar.length
        if waits and not self.halted and not self._answered_all():
            return False
        if self.renewal is not None:
            self.renewal(number)
        keeper, roster, terms, _, signer = self._duty_of
        self._new = False
        self._begin((keeper, roster, terms, number, signer), Charter.of(roster, terms, number), self.duty)
        return True

    def _answered_all(self) -> bool:
        terms = self.duty.terms
        newest = [self.newest(group) for group in range(terms.groups)]
        return all(one is not None and one[0].row == terms.releases and one[1] > 0 for one in newest)

    def card(self) -> bytes:
        """What agents need before their first row."""
        return self.duty.card()

    def answer(self, data: bytes) -> bytes:
        """The answer to the controller's list, or `RefusedError`, which is counted."""
        try:
            return self._answer(data)
        except RefusedError as error:
            self.refusals[error.reason] += 1
            raise

    def _answer(self, data: bytes) -> bytes:
        try:
            ask = self.duty.read(data)
        except RefusedError:
            if (answered := self._answered_before(data)) is not None:
                return answered
            raise
        if self.halted:
            raise RefusedError("halted", self.halted)
        known = self._known(ask.label)
        if known is not None:
            if known[0] != list_digest(ask.label, ask.listed(self.duty.roster)):
                self._keep_evidence(ask, known[2])
                raise RefusedError("second list", f"{ask.label} was answered for another list")
            return known[1]
        self._require_next(ask)
        answer = self.duty.answer(ask)
        payload = answer.to_bytes(self.duty.roster)
        with self.writing() as db:
            asked = ask.signed.to_bytes()
            row = (*_key(ask.label), answer.listed, asked, len(ask.entries), time.time(), payload)
            db.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return payload

    def _answered_before(self, data: bytes) -> bytes | None:
        """What was answered to a list of the season before, whose answer the controller may lack; or None."""
        if self._before is None:
            return None
        try:
            ask = Ask.read(data, self._before.charter, self._before.roster)
        except RefusedError:
            return None
        known, listed = self._known(ask.label), ask.listed(self._before.roster)
        return known[1] if known is not None and known[0] == list_digest(ask.label, listed) else None

    def _known(self, label: Label) -> tuple[bytes, bytes, SignedList] | None:
        """For a row that was answered: digest of the list, the answer, and what the controller signed."""
        query = (
            'SELECT listed, answer, asked FROM answers WHERE (season, "group", row, attempt) = (?, ?, ?, ?)'
        )
        row = self.database.execute(query, _key(label)).fetchone()
        return None if row is None else (bytes(row[0]), bytes(row[1]), SignedList.from_bytes(row[2]))

    def newest(self, group: int = 0) -> tuple[Label, int] | None:
        """The newest row that was answered in a group, and how many agents its list had."""
        query = (
            'SELECT row, attempt, agents FROM answers WHERE season = ? AND "group" = ?'
            " ORDER BY row DESC, attempt DESC LIMIT 1"
        )
        row = self.database.execute(query, (self.season, group)).fetchone()
        return None if row is None else (Label(self.season, group, row[0], row[1]), row[2])

    def _require_next(self, ask: Ask) -> None:
        newest = self.newest(ask.label.group)
        last = None if newest is None else (newest[0], newest[1] == 0)
        try:
            self.duty.require_next(ask.label, last)
        except RefusedError:
            if last is None or ask.label > last[0]:  # an honest controller has all answers before it goes on
                with self.writing() as db:
                    db.execute("UPDATE open_season SET halted = ?", (_HALTED,))
                self.halted = _HALTED
            raise

    def _keep_evidence(self, ask: Ask, answered: SignedList) -> None:
        """The controller has signed two lists for one row: keep the proof."""
        proof = TwoLists.of(ask.label, answered, ask.signed).to_bytes()
        with self.writing() as db:
            db.execute("INSERT OR IGNORE INTO evidence VALUES (?, ?, ?, ?, ?)", (*_key(ask.label), proof))

    def evidence(self) -> list[bytes]:
        """Proofs that the controller signed two lists for a row of this season; each a `TwoLists`."""
        query = "SELECT proof FROM evidence WHERE season = ?"
        return [bytes(proof) for (proof,) in self.database.execute(query, (self.season,))]

    def facts(self) -> dict[str, Any]:
        """How it stands, for status and pages: all of it public."""
        columns = '"group", row, attempt, agents, answered_at'
        query = f"SELECT {columns} FROM answers WHERE season = ? ORDER BY answered_at"
        rows = self.database.execute(query, (self.season,)).fetchall()
        return {
            "keeper": self.duty.keeper,
            "season": self.season,
            "answered": len(rows),
            "newest": None
            if not rows
            else {"group": rows[-1][0], "row": rows[-1][1], "attempt": rows[-1][2]},
            "agents_in_newest": rows[-1][3] if rows else None,
            "answered_at": rows[-1][4] if rows else None,
            "halted": self.halted,
            "second_lists": len(self.evidence()),
            "refused": dict(self.refusals),
        }


def _key(label: Label) -> tuple[int, int, int, int]:
    return label.season, label.group, label.row, label.attempt
