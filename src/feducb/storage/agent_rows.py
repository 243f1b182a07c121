"""An agent's tables for secure sums: its keys of the season, keepers' cards, and rows that are over.

Functions that write work within a transaction of the store.
"""

from __future__ import annotations

import sqlite3
from secrets import token_bytes
from typing import NamedTuple

from feducb.protocol.pads import Label, SeasonKey
from feducb.protocol.secure_rows import KeyCard

__all__ = ["Secrets", "begin", "cards", "halt", "next_label", "put_card", "put_opened", "secrets_of"]


class Secrets(NamedTuple):
    """What an agent draws for a season."""

    key: SeasonKey
    secret: bytes  # for nonces
    halted: str  # why no row is built any more; empty if they are


def begin(db: sqlite3.Connection) -> None:
    """Draw what a new season needs; what the old one had is deleted."""
    for table in ("cards", "settled", "said"):
        db.execute(f"DELETE FROM {table}")
    db.execute("REPLACE INTO secrets VALUES (1, ?, ?, '')", (token_bytes(32), token_bytes(32)))


def secrets_of(db: sqlite3.Connection) -> Secrets:
    """Of the open season."""
    private, secret, halted = db.execute("SELECT private, secret, halted FROM secrets").fetchone()
    return Secrets(SeasonKey(bytes(private)), bytes(secret), halted)


def halt(db: sqlite3.Connection, why: str) -> None:
    """Build no row any more in this season."""
    db.execute("UPDATE secrets SET halted = ? WHERE halted = ''", (why,))


def cards(db: sqlite3.Connection) -> dict[str, KeyCard]:
    """By keeper, its card of the season."""
    rows = db.execute("SELECT keeper, public, signature FROM cards")
    return {row[0]: KeyCard(row[0], bytes(row[1]), bytes(row[2])) for row in rows}


def put_card(db: sqlite3.Connection, card: KeyCard) -> None:
    """The first of a keeper stays."""
    db.execute("INSERT INTO cards VALUES (?, ?, ?)", (card.keeper, card.public, card.signature))


def put_opened(db: sqlite3.Connection, label: Label, *, agents: int, refused: str, listed: bool) -> None:
    """A row is over."""
    row = (label.season, label.group, label.row, label.attempt, agents, refused, listed)
    db.execute("INSERT INTO opened VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def newest_opened(db: sqlite3.Connection, season: int, group: int) -> tuple[Label, bool] | None:
    """The newest row that is over, and whether it was closed empty."""
    row = db.execute(
        'SELECT row, attempt, agents FROM opened WHERE season = ? AND "group" = ?'
        " ORDER BY row DESC, attempt DESC LIMIT 1",
        (season, group),
    ).fetchone()
    return None if row is None else (Label(season, group, row[0], row[1]), row[2] == 0)


def next_label(db: sqlite3.Connection, season: int, group: int) -> Label:
    """The row that comes next."""
    newest = newest_opened(db, season, group)
    return Label(season, group, 1) if newest is None else newest[0].following(empty=newest[1])
