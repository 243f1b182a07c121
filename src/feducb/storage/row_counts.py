"""What an agent's file says about rows under pads: how many were built, were skipped, and opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import NamedTuple

from feducb.protocol.pads import Label

__all__ = ["OpenRow", "RowCounts", "count_rows", "open_row", "skipped", "whole_in_sum"]

_BUILT = "('row', 'make-up', 'nonce')"  # what there is of a row once it is built; in a clique its nonce first
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

    built: bool  # data and noise are in it: it is spent
    sent: bool
    waits_for: tuple[str, ...] = ()  # in a clique, members whose nonce, or then whose row, has not come


def count_rows(db: sqlite3.Connection, season: int) -> RowCounts:
    """What became of rows so far."""
    (built,) = db.execute(
        f'SELECT count(*) FROM (SELECT DISTINCT "group", number FROM outgoing'
        f" WHERE season = ? AND kind IN {_BUILT})",
        (season,),
    ).fetchone()
    sums = ("agents > 0 AND refused = ''", "refused != ''", "agents = 0")
    counts = ", ".join(f"count(*) FILTER (WHERE {one})" for one in sums)
    rest = db.execute(f"SELECT {counts} FROM opened WHERE season = ?", (season,)).fetchone()
    return RowCounts(built, sum(skipped(db, season).values()), *rest)


def skipped(db: sqlite3.Connection, season: int) -> dict[int, int]:
    """By group, how many rows are over of which this agent built none."""
    own = f'kind IN {_BUILT} AND number = row AND outgoing."group" = opened."group"'
    rows = db.execute(
        f'SELECT "group", count(*) FROM opened WHERE season = ? AND {_IS_OVER} AND NOT EXISTS'
        f' (SELECT 1 FROM outgoing WHERE outgoing.season = opened.season AND {own}) GROUP BY "group"',
        (season,),
    )
    return dict(rows)


def whole_in_sum(db: sqlite3.Connection, season: int, releases: int) -> bool:
    """Whether all that left this agent is in the sum of all rows, with its whole weight.

    From the first row that it built on, each must have opened with it, built with data.
    """
    query = "SELECT min(number) FROM outgoing WHERE season = ? AND kind IN ('row', 'make-up')"
    (first,) = db.execute(query, (season,)).fetchone()
    built = "SELECT 1 FROM outgoing WHERE season = opened.season AND kind = 'row' AND number = row"
    with_data = f"attempt = iif(EXISTS ({built}), 1, 2)"  # made up for, one that was built has noise alone
    query = f"SELECT count(*) FROM opened WHERE season = ? AND listed AND refused = '' AND {with_data}"
    (opened,) = db.execute(query, (season,)).fetchone()
    return first is not None and bool(opened == releases - first + 1)


def open_row(db: sqlite3.Connection, label: Label, others: Collection[str] = ()) -> OpenRow:
    """How far this agent is with a row that is not over.

    Args:
        db: the agent's file.
        label: the row.
        others: the other members of its clique, on a graph.
    """
    query = 'SELECT kind, sent_at FROM outgoing WHERE (season, "group", number) = (?, ?, ?)'
    sent = dict(db.execute(query, (label.season, label.group, label.row)))
    kind = "row" if label.attempt == 1 else "make-up"
    built = kind in sent or (label.attempt == 1 and "nonce" in sent)
    said = 'SELECT agent FROM said WHERE ("group", kind) = (?, ?)'
    heard = {agent for (agent,) in db.execute(said, (label.group, kind if kind in sent else "nonce"))}
    waits_for = tuple(name for name in others if built and name not in heard)
    return OpenRow(built, sent.get(kind) is not None, waits_for)
