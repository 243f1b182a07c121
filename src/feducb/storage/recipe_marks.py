"""Since which decision an agent's recipe is what it is: what was decided before may go by other names.

Decisions keep their numbers when a season ends, so that these marks stay. Functions that write work within a
transaction of the store.
"""

from __future__ import annotations

import sqlite3

from feducb.storage import agent_tables, events, operator_log

__all__ = [
    "mark_other_actions",
    "mark_other_recipe",
    "of_other_actions",
    "of_other_recipe",
    "settle_other_recipe",
]

_OTHER_ACTIONS, _OTHER_RECIPE = "_other_actions", "_other_recipe"


def mark_other_actions(db: sqlite3.Connection) -> None:
    """Decisions so far were made before actions were last added or retired."""
    _mark(db, _OTHER_ACTIONS, _decided(db))


def of_other_actions(db: sqlite3.Connection) -> int | None:
    """The number of the newest decision that was, 0 if none was; None in a file that does not say."""
    return _marked(db, _OTHER_ACTIONS)


def mark_other_recipe(db: sqlite3.Connection) -> None:
    """Decisions so far were made by a recipe that the present one does not continue."""
    _mark(db, _OTHER_RECIPE, _decided(db))


def of_other_recipe(db: sqlite3.Connection) -> int:
    """The number of the newest decision that was; 0 if none was.

    A file of an earlier version does not say. Where its log does not show that the recipe never changed, all
    that was decided before the open season may have been: within a season none but the same goes on.
    """
    marked = _marked(db, _OTHER_RECIPE)
    if marked is not None:
        return marked
    log = operator_log.entries(db)
    whole = any(one.what == "made" for one in log)
    if whole and not any("recipe" in one.details.get("changed", ()) for one in log):
        return 0
    before = agent_tables.decided_before(db)
    return _decided(db) if before is None else before


def settle_other_recipe(db: sqlite3.Connection) -> None:
    """Write down what a file does not say, before another season moves what it is known by."""
    _mark(db, _OTHER_RECIPE, of_other_recipe(db))


def _decided(db: sqlite3.Connection) -> int:
    """The number of the newest decision so far."""
    total = db.execute("SELECT coalesce(max(value), 0) FROM counters WHERE name = 'decisions'").fetchone()[0]
    return max(int(total), events.last_number(db))


def _mark(db: sqlite3.Connection, name: str, number: int) -> None:
    db.execute("REPLACE INTO counters VALUES (?, ?)", (name, number))


def _marked(db: sqlite3.Connection, name: str) -> int | None:
    row = db.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])
