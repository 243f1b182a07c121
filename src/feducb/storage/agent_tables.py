"""An agent's tables beside its decisions (`events`) and releases (`store`): settings, sums, counts, curve.

Functions that write work within a transaction of the store.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from feducb.errors import StoreError
from feducb.storage import events, sqlite
from feducb.storage.agent_store import REMEMBER_SUMS, AgentStore
from feducb.storage.sqlite import utc_now

__all__ = ["CURVE_COLUMNS", "KeptSettings", "ReceivedSum", "RememberedSum", "look_into"]

CURVE_COLUMNS = (
    "decisions",
    "rewards",
    "settled",
    "value",  # Σ r of what settled
    "value_square",  # Σ r²
    "uniform_chance",  # Σ of the chance to be drawn uniformly, where every candidate could be shown
    "weight",  # Σ w
    "weighted",  # Σ w r
    "weight_square",  # Σ w²
    "weighted_square",  # Σ w² r
    "weighted_square_square",  # Σ w² r²
)
_NAMES = ", ".join(CURVE_COLUMNS)
_DECISIONS_BEFORE, _EARLIER_START = "_decisions_before", "_earlier_start"  # marks of the open season
_IN_LAST_SUM, _HEARING, _CLOSED_AFTER = "_in_last_sum", "_hearing", "_closed_after"  # under own play
_ROSTER = "_roster"  # likewise, where rows leave under pads
_OTHER_LANES = "_other_lanes"  # likewise, where visitors are drawn into lanes by other shares than before
_ADD_TO_CURVE = sqlite.add_up("curve", ("width", "start"), CURVE_COLUMNS)


class KeptSettings(NamedTuple):
    """Settings as they are written, and the season that is open: a later one, if it has none yet."""

    season: int
    body: str
    started_at: float
    id_key: bytes
    open_season: int


class ReceivedSum(NamedTuple):
    """The newest sum of a group."""

    group: int
    season: int
    number: int
    received_at: str
    payload: bytes


class RememberedSum(NamedTuple):
    """A sum that outlives its season, and the settings and terms of that season."""

    season: int
    group: int
    number: int
    payload: bytes
    body: str
    started_at: float
    terms: str


def look_into(path: str | Path) -> sqlite3.Connection:
    """Read an agent's file, which another process may have open."""
    return sqlite.read_only(Path(path).resolve(), version=len(AgentStore.migrations))


def read_settings(db: sqlite3.Connection) -> KeptSettings | None:
    """The newest; None if there are none yet."""
    columns = "settings.season, body, started_at, id_key, open_season.season"
    row = db.execute(f"SELECT {columns} FROM settings, open_season").fetchone()
    return None if row is None else KeptSettings(*row)


def write_settings(
    db: sqlite3.Connection, *, season: int, body: str, started_at: float, id_key: bytes
) -> None:
    """Those of a season."""
    db.execute("REPLACE INTO settings VALUES (1, ?, ?, ?, ?)", (season, body, started_at, id_key))


def is_unused(db: sqlite3.Connection) -> bool:
    """Whether nothing has happened in the open season: no decision, record, release or sum.

    What was discarded or erased has happened: decisions are counted, and `mark_season` says from where on. A
    file from before there were marks counts those of all seasons.
    """
    before = f"SELECT coalesce(max(value), 0) FROM counters WHERE name = '{_DECISIONS_BEFORE}'"
    traces = (
        f"counters WHERE name = 'decisions' AND value > ({before})",
        f"decisions WHERE state = {events.OPEN}",
        *("pending", "batches", "people", "tallies", "inbox", "own WHERE part IN ('shared', 'kept')"),
        "outgoing JOIN open_season USING (season)",
        "opened JOIN open_season USING (season)",
        "seasons JOIN open_season USING (season) WHERE continued_elsewhere OR excluded",
    )
    return not any(db.execute(f"SELECT EXISTS (SELECT 1 FROM {one})").fetchone()[0] for one in traces)


def mark_season(db: sqlite3.Connection, earlier_start: float | None) -> None:
    """Remember, for a season that opens: how many decisions there were, and when the last season started."""
    total = db.execute("SELECT coalesce(max(value), 0) FROM counters WHERE name = 'decisions'").fetchone()[0]
    db.execute("REPLACE INTO counters VALUES (?, ?)", (_DECISIONS_BEFORE, total))
    marks = (_IN_LAST_SUM, _HEARING, _CLOSED_AFTER, _ROSTER, _OTHER_LANES)
    db.executemany("DELETE FROM counters WHERE name = ?", [(mark,) for mark in marks])
    if earlier_start is not None:
        db.execute("REPLACE INTO counters VALUES (?, ?)", (_EARLIER_START, int(1000.0 * earlier_start)))


def decided_before(db: sqlite3.Connection) -> int | None:
    """How many decisions there were when the open season opened; None in a file that does not say."""
    row = db.execute("SELECT value FROM counters WHERE name = ?", (_DECISIONS_BEFORE,)).fetchone()
    return None if row is None else int(row[0])


def earlier_start(db: sqlite3.Connection) -> float | None:
    """When the season before the open one started, in seconds since 1970; None if there was none."""
    row = db.execute("SELECT value FROM counters WHERE name = ?", (_EARLIER_START,)).fetchone()
    return None if row is None else row[0] / 1000.0


def mark_other_lanes(db: sqlite3.Connection) -> None:
    """Decisions so far were drawn into lanes by other shares than the open season's (`agent.gain`)."""
    total = "SELECT coalesce(max(value), 0) FROM counters WHERE name = 'decisions'"
    db.execute(f"REPLACE INTO counters VALUES (?, ({total}))", (_OTHER_LANES,))


def of_other_lanes(db: sqlite3.Connection) -> int:
    """The number of the newest decision that was; 0 if none was."""
    row = db.execute("SELECT value FROM counters WHERE name = ?", (_OTHER_LANES,)).fetchone()
    return 0 if row is None else int(row[0])


def mark_roster(db: sqlite3.Connection, version: int) -> None:
    """Remember by which version of the roster the season was opened: its rows are bound to that."""
    db.execute("REPLACE INTO counters VALUES (?, ?)", (_ROSTER, version))


def roster_version(db: sqlite3.Connection) -> int | None:
    """What `mark_roster` was told; None if nothing."""
    row = db.execute("SELECT value FROM counters WHERE name = ?", (_ROSTER,)).fetchone()
    return None if row is None else int(row[0])


def mark_last_sum(db: sqlite3.Connection, agents: int) -> None:
    """Remember how many agents' last batches are in the sum after which none comes (`agent.own_phase`)."""
    db.execute("REPLACE INTO counters VALUES (?, ?)", (_IN_LAST_SUM, agents))


def in_last_sum(db: sqlite3.Connection) -> int | None:
    """What `mark_last_sum` was told; None if nothing."""
    row = db.execute("SELECT value FROM counters WHERE name = ?", (_IN_LAST_SUM,)).fetchone()
    return None if row is None else int(row[0])


def mark_hearing(db: sqlite3.Connection, hearing: int) -> None:
    """Remember whether the others' sum is heard in the own phase (`models.joint.Hearing`)."""
    db.execute("REPLACE INTO counters VALUES (?, ?)", (_HEARING, hearing))


def hearing(db: sqlite3.Connection) -> int | None:
    """What `mark_hearing` was told; None if nothing."""
    row = db.execute("SELECT value FROM counters WHERE name = ?", (_HEARING,)).fetchone()
    return None if row is None else int(row[0])


def mark_close(db: sqlite3.Connection) -> None:
    """Remember which decision is the last that was made without own records: clocks may be set back."""
    db.execute("REPLACE INTO counters VALUES (?, ?)", (_CLOSED_AFTER, events.last_number(db)))


def closed_after(db: sqlite3.Connection) -> int | None:
    """The number of that decision; None before the close, and where an earlier version closed."""
    row = db.execute("SELECT value FROM counters WHERE name = ?", (_CLOSED_AFTER,)).fetchone()
    return None if row is None else int(row[0])


def open_terms(db: sqlite3.Connection) -> str:
    """The terms of the open season, as text."""
    query = "SELECT terms FROM seasons JOIN open_season USING (season)"
    return str(db.execute(query).fetchone()[0])


def opened_at(db: sqlite3.Connection) -> float:
    """When the open season was opened, by this machine's clock at the time; in seconds since 1970."""
    query = "SELECT opened_at FROM seasons JOIN open_season USING (season)"
    return datetime.fromisoformat(db.execute(query).fetchone()[0]).timestamp()


def put_sum(db: sqlite3.Connection, *, group: int, season: int, number: int, payload: bytes) -> None:
    """Keep the newest sum of a group, in place of the one before."""
    db.execute("REPLACE INTO inbox VALUES (?, ?, ?, ?, ?)", (group, season, number, utc_now(), payload))


def received_sums(db: sqlite3.Connection) -> list[ReceivedSum]:
    """The newest sum of each group, by group."""
    rows = db.execute('SELECT "group", season, number, received_at, payload FROM inbox ORDER BY "group"')
    return [ReceivedSum(*row) for row in rows]


def remember_sums(db: sqlite3.Connection) -> None:
    """Keep the newest sum of each group, where sums before the last are needed too."""
    db.execute(REMEMBER_SUMS)


def remembered_sums(db: sqlite3.Connection) -> list[RememberedSum]:
    """Sums that outlive their season, of this one too, oldest first; with the terms they were made under."""
    terms = "coalesce(remembered.terms, seasons.terms)"
    columns = f'remembered.season, "group", number, payload, body, started_at, {terms}'
    known = f"{terms} IS NOT NULL AND coalesce(since, 0) <= (SELECT season FROM open_season)"
    query = f"SELECT {columns} FROM remembered LEFT JOIN seasons USING (season) WHERE {known}"
    return [RememberedSum(*row) for row in db.execute(f"{query} ORDER BY 1, 2, 3")]


def tell_sum(db: sqlite3.Connection, told: RememberedSum) -> bool:
    """Remember a sum of a season before this file's first; whether it is new.

    It is read from the open season on, if nothing has happened in that; else from the next.
    """
    earlier = "SELECT EXISTS (SELECT 1 FROM seasons WHERE season <= ?)"
    known = 'SELECT EXISTS (SELECT 1 FROM remembered WHERE season = ? AND "group" = ?)'
    for query, names in ((earlier, told[:1]), (known, told[:2])):
        if db.execute(query, names).fetchone()[0]:
            return False
    since = "(SELECT season FROM open_season)" + ("" if is_unused(db) else " + 1")
    db.execute(f"INSERT INTO remembered VALUES (?, ?, ?, ?, ?, ?, ?, {since})", told)
    return True


def earliest_season(db: sqlite3.Connection) -> int:
    """The oldest that the file knows of, also one whose sum is read from the next season on."""
    tables = ("seasons", "remembered", "open_season")
    known = " UNION ".join(f"SELECT season FROM {table}" for table in tables)
    return int(db.execute(f"SELECT min(season) FROM ({known})").fetchone()[0])


def seasons_since(db: sqlite3.Connection, season: int) -> int:
    """How many seasons came after this one, as far as the file knows."""
    known = "SELECT season FROM seasons UNION SELECT season FROM remembered"
    return int(db.execute(f"SELECT count(*) FROM ({known}) WHERE season > ?", (season,)).fetchone()[0])


def add_learnt(
    db: sqlite3.Connection, *, group: int, number: int, read_at: float, body: str, most: int
) -> None:
    """What a sum told; so many of the newest are kept."""
    db.execute("REPLACE INTO learnt VALUES (?, ?, ?, ?)", (group, number, read_at, body))
    newest = 'SELECT number FROM learnt WHERE "group" = ?1 ORDER BY number DESC LIMIT ?2'
    db.execute(f'DELETE FROM learnt WHERE "group" = ?1 AND number NOT IN ({newest})', (group, most))


def read_learnt(db: sqlite3.Connection, group: int) -> list[tuple[int, float, str]]:
    """Number, time and body of what sums told, oldest first."""
    return db.execute(
        'SELECT number, read_at, body FROM learnt WHERE "group" = ? ORDER BY number', (group,)
    ).fetchall()


def read_counts(db: sqlite3.Connection) -> dict[str, int]:
    """Totals by name, sorted; without the marks of a season."""
    return dict(db.execute("SELECT name, value FROM counters WHERE name NOT GLOB '_*' ORDER BY name"))


def add_to_curve(db: sqlite3.Connection, width: int, steps: Mapping[int, Iterable[float]]) -> None:
    """By start of a step of so many seconds, what to add to its `CURVE_COLUMNS`."""
    db.executemany(_ADD_TO_CURVE, [(width, start, *sums) for start, sums in steps.items()])


def read_curve(db: sqlite3.Connection, width: int, *, most: int) -> list[tuple[Any, ...]]:
    """Start and `CURVE_COLUMNS` of the newest steps, oldest first."""
    query = f"SELECT start, {_NAMES} FROM curve WHERE width = ? ORDER BY start DESC LIMIT ?"
    return db.execute(query, (width, most)).fetchall()[::-1]


def forget_before(db: sqlite3.Connection, hour: int) -> None:
    """Delete the curve of earlier hours, and counts by the hour that an earlier version kept."""
    db.execute("DELETE FROM activity WHERE hour < ?", (hour,))
    db.execute("DELETE FROM curve WHERE start < ?", (3600 * hour,))


def read_gain(db: sqlite3.Connection) -> str | None:
    """What lanes came to in the open season (`agent.gain`); None if nobody was drawn into one."""
    row = db.execute("SELECT body FROM gain").fetchone()
    return None if row is None else str(row[0])


def write_gain(db: sqlite3.Connection, body: str) -> None:
    """In place of what was there."""
    db.execute("REPLACE INTO gain VALUES (1, ?)", (body,))


def add_warning(db: sqlite3.Connection, kind: str) -> None:
    """From now on; a second time changes nothing."""
    db.execute("INSERT OR IGNORE INTO warnings VALUES (?, ?)", (kind, utc_now()))


def read_warnings(db: sqlite3.Connection) -> list[str]:
    """Kinds of warnings, sorted."""
    return [kind for (kind,) in db.execute("SELECT kind FROM warnings ORDER BY kind")]


def was_loaded(db: sqlite3.Connection, digest: str) -> bool:
    """Whether a log with this SHA-256 was taken in before."""
    return db.execute("SELECT 1 FROM loaded WHERE sha256 = ?", (digest,)).fetchone() is not None


def mark_loaded(db: sqlite3.Connection, digest: str, records: int) -> None:
    """A log was taken in."""
    db.execute("INSERT INTO loaded VALUES (?, ?, ?)", (digest, utc_now(), records))


def records_of(db: sqlite3.Connection, person: bytes) -> int:
    """How many records of this (hashed) person are in the season's sums."""
    row = db.execute("SELECT records FROM people WHERE hash = ?", (person,)).fetchone()
    return int(row[0]) if row else 0


def count_made(db: sqlite3.Connection, season: int) -> int:
    """How many releases, uploads or rows a season has made; a row that is made up for counts once."""
    named = 'SELECT DISTINCT "group", number FROM outgoing WHERE season = ?'
    return int(db.execute(f"SELECT count(*) FROM ({named})", (season,)).fetchone()[0])


def count_unsent(db: sqlite3.Connection) -> int:
    """How many wait to be sent."""
    query = "SELECT count(*) FROM outgoing WHERE sent_at IS NULL AND payload IS NOT NULL"
    return int(db.execute(query).fetchone()[0])


def oldest_unsent(db: sqlite3.Connection) -> float | None:
    """Since when the oldest of them waits, in seconds since 1970."""
    query = "SELECT min(made_at) FROM outgoing WHERE sent_at IS NULL AND payload IS NOT NULL"
    (made_at,) = db.execute(query).fetchone()
    return None if made_at is None else _seconds(made_at)


def awaited(db: sqlite3.Connection, season: int) -> dict[str, Any] | None:
    """The newest message that arrived, with ``number`` and ``sent_at``, if no sum has come of it; else None.

    A trusted controller counts its releases by itself: any sum that came since the message was made will do.
    """
    newest = 'SELECT "group", number, made_at, sent_at, max(sent_at) FROM outgoing WHERE season = ?'
    row = db.execute(f"{newest} AND sent_at IS NOT NULL", (season,)).fetchone()
    if row[0] is None:
        return None
    group, number, made_at, sent_at, _ = row
    came = 'SELECT 1 FROM inbox WHERE "group" = ? AND season = ? AND (number >= ? OR received_at >= ?)'
    if db.execute(came, (group, season, number, made_at)).fetchone():
        return None
    return {"number": number, "sent_at": _seconds(sent_at)}


def newest_outgoing(db: sqlite3.Connection, season: int, *, most: int) -> list[dict[str, Any]]:
    """What a season made, newest first."""
    columns = 'kind, "group", number, made_at, sent_at, size'
    order = 'made_at DESC, number DESC, "group" DESC'
    query = f"SELECT {columns} FROM outgoing WHERE season = ? ORDER BY {order} LIMIT ?"
    return sqlite.named(db.execute(query, (season, most)))


def continued_elsewhere(db: sqlite3.Connection, season: int) -> bool:
    """Whether a season may have gone on after this file's backup."""
    query = "SELECT continued_elsewhere FROM seasons WHERE season = ?"
    return bool(db.execute(query, (season,)).fetchone()[0])


def has_gone_on_elsewhere(db: sqlite3.Connection) -> bool:
    """Whether any season may have: whatever is not known here of the file that was lost may have left it."""
    return bool(db.execute("SELECT EXISTS (SELECT 1 FROM seasons WHERE continued_elsewhere)").fetchone()[0])


def copy_to(path: str | Path, target: Path) -> None:
    """Copy an agent's file, which may be in use, and mark the copy as a backup: no store opens it."""
    with closing(look_into(path)) as source:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(target, isolation_level=None)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            copy.execute("PRAGMA synchronous = FULL")
            copy.execute("UPDATE store SET open_at = ?", (sqlite.BACKUP,))


def batches_out(db: sqlite3.Connection) -> dict[int, int]:
    """By group, the number of the newest release or upload of the open season, where there is one."""
    made = "kind IN ('release', 'upload') AND season = (SELECT season FROM open_season)"
    return dict(db.execute(f'SELECT "group", max(number) FROM outgoing WHERE {made} GROUP BY "group"'))


def count_as_spent(db: sqlite3.Connection, seasons: Iterable[int], terms: str) -> None:
    """Seasons that the file which was lost may have opened, and released in, after this one's backup."""
    columns = "season, opened_at, terms, continued_elsewhere"
    rows = [(one, utc_now(), terms) for one in seasons]
    db.executemany(f"INSERT INTO seasons ({columns}) VALUES (?, ?, ?, 1)", rows)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def migrate_backup(copy_of_backup: Path, *, name: Path) -> None:
    """Bring a backup's copy to this version; no store opens it before `revive`. ``name`` is for errors."""
    with closing(sqlite3.connect(copy_of_backup, isolation_level=None)) as db:
        try:
            marked = db.execute("SELECT open_at FROM store").fetchone() == (sqlite.BACKUP,)
        except sqlite3.DatabaseError:
            marked = False
        if not marked:
            raise StoreError(f"{name} is no backup")
        sqlite.migrate(db, name, AgentStore.migrations, AgentStore.kind)


def revive(copy_of_backup: Path, *, spent: bool) -> None:
    """Make a store of a backup's copy; ``spent`` if something of the open season may have left since."""
    with closing(sqlite3.connect(copy_of_backup, isolation_level=None)) as db:
        if spent:
            season = "season = (SELECT season FROM open_season)"
            db.execute(f"UPDATE seasons SET continued_elsewhere = 1 WHERE {season}")
        db.execute("UPDATE store SET open_at = NULL")
