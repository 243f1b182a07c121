"""What an agent's file says about rows under pads: how many were built, were skipped, and opened."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

__all__ = ["OpenRow", "RowCounts", "count_rows", "open_row", "skipped"]

_ATTEMPTS = "('row', 'make-up')"  # kinds of what was built for the first and the second attempt at a row
_IS_OVER = "(agents > 0 OR attempt = 2)"  # one that was closed empty is made up for


class RowCounts(NamedTuple):
    """Of a season, in all groups together."""

    built: int  # a row that is built twice, since it is made up for, counts once
    skipped: int  # over without this agent having built one
    opened: int  # whose sum was used
    refused: int  # whose sum opened and was not used
    closed_empty: int  # attempts that too few agents took part in


class OpenRow(NamedTuple):
    """What this agent has done for a row that is not over."""

    built: bool
    sent: bool


def count_rows(db: sqlite3.Connection, season: int) -> RowCounts:
    """What became of rows so far."""
    (built,) = db.execute(
        f'SELECT count(*) FROM (SELECT DISTINCT "group", number FROM outgoing'
        f" WHERE season = ? AND kind IN {_ATTEMPTS})",
        (season,),
    ).fetchone()
    sums = ("agents > 0 AND refused = ''", "refused != ''", "agents = 0")
    counts = ", ".join(f"count(*) FILTER (WHERE {one})" for one in sums)
    rest = db.execute(f"SELECT {counts} FROM opened WHERE season = ?", (season,)).fetchone()
    return RowCounts(built, sum(skipped(db, season).values()), *rest)


def skipped(db: sqlite3.Connection, season: int) -> dict[int, int]:
    """By group, how many rows are over of which this agent built none."""
    own = f'kind IN {_ATTEMPTS} AND number = row AND outgoing."group" = opened."group"'
    rows = db.execute(
        f'SELECT "group", count(*) FROM opened WHERE season = ? AND {_IS_OVER} AND NOT EXISTS'
        f' (SELECT 1 FROM outgoing WHERE outgoing.season = opened.season AND {own}) GROUP BY "group"',
        (season,),
    )
    return dict(rows)


def open_row(db: sqlite3.Connection, season: int, group: int, row: int, attempt: int) -> OpenRow:
    """How far this agent is with a row that is not over."""
    kind = "row" if attempt == 1 else "make-up"
    query = 'SELECT sent_at FROM outgoing WHERE (kind, season, "group", number) = (?, ?, ?, ?)'
    found = db.execute(query, (kind, season, group, row)).fetchone()
    return OpenRow(found is not None, found is not None and found[0] is not None)
