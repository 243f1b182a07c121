"""How a keeper stands, by its file alone, which another thread or process may have open."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from feducb.errors import StoreError
from feducb.storage import sqlite
from feducb.storage.keeper_book import KeeperBook
from feducb.storage.sqlite import is_locked

__all__ = ["look_at_keeper"]


def look_at_keeper(path: Path) -> dict[str, Any] | None:
    """Of the open season, all of it public; None before the file was made.

    Returns:
        ``runs``, ``keeper``, ``season``, ``answered`` (how many lists), ``row`` and ``attempt`` of the newest
        and when (``answered_at``), ``halted`` (why, or None) and ``second_lists``, that were asked for.
    """
    try:
        opened = sqlite.read_only(path.resolve(), version=len(KeeperBook.migrations))
    except StoreError:
        return None
    with closing(opened) as db:
        found = db.execute("SELECT keeper, season, halted FROM open_season").fetchone()
        if found is None:
            return None
        keeper, season, halted = found
        newest = "SELECT row, attempt, answered_at FROM answers WHERE season = ?"
        order = "ORDER BY answered_at DESC, row DESC, attempt DESC LIMIT 1"
        row = db.execute(f"{newest} {order}", (season,)).fetchone() or (None, None, None)
        (answered,) = db.execute("SELECT count(*) FROM answers WHERE season = ?", (season,)).fetchone()
        (twice,) = db.execute("SELECT count(*) FROM evidence WHERE season = ?", (season,)).fetchone()
    return {
        "runs": is_locked(path.resolve()),
        "keeper": keeper,
        "season": season,
        "answered": answered,
        **dict(zip(("row", "attempt", "answered_at"), row, strict=True)),
        "halted": halted or None,
        "second_lists": twice,
    }
