"""How an agent stands where rows leave under pads: what it built, what opened, what the next row needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any

from feducb.agent.kept import Season
from feducb.protocol.pads import Label
from feducb.storage import agent_rows, row_counts

__all__ = ["view_rows"]


def view_rows(db: sqlite3.Connection, season: Season, keepers: Collection[str] | None) -> dict[str, Any]:
    """Rows of the open season, for status and page.

    Args:
        db: the agent's file.
        season: the open one.
        keepers: those of the roster, where it is known: whose keys of the season are needed.

    Returns:
        Counts by name, as of `RowCounts`; ``open``, a row each group that is not over; ``keepers`` and
        ``missing_cards``, or None; ``halted``, why no row is built any more, or None; ``says`` in words.
    """
    shown = agent_rows.cards(db)
    missing = None if keepers is None else [name for name in keepers if name not in shown]
    halted = agent_rows.secrets_of(db).halted or None
    labels = [
        label
        for group in range(season.settings.groups)
        if (label := agent_rows.next_label(db, season.number, group)).row <= season.settings.releases
    ]
    others = [name for name in season.settings.clique if name != season.settings.name]
    stands = [row_counts.open_row(db, label, others) for label in labels]
    return row_counts.count_rows(db, season.number)._asdict() | {
        "open": [
            {"group": label.group, "row": label.row, "attempt": label.attempt, **stand._asdict()}
            for label, stand in zip(labels, stands, strict=True)
        ],
        "keepers": None if keepers is None else list(keepers),
        "missing_cards": missing,
        "halted": halted,
        "says": _sentence(labels, stands, missing or [], halted=halted is not None),
    }


def _sentence(
    labels: list[Label], stands: list[row_counts.OpenRow], missing: list[str], *, halted: bool
) -> str:
    """What this agent does next, or waits for."""
    if not labels:
        return "All rows of this season are over."
    if halted:
        return "No row is built any more."
    if missing and not all(stand.built for stand in stands):
        one = len(missing) == 1
        shown = (
            f"keeper {missing[0]} has shown its key" if one else f"{_named(missing)} have shown their keys"
        )
        return f"The next row cannot be built before {shown} of this season."
    return " ".join(_of_one(label, stand) for label, stand in zip(labels, stands, strict=True))


def _of_one(label: Label, stand: row_counts.OpenRow) -> str:
    row = f"Row {label.row}" + (f" of group {label.group}" if label.group else "")
    row += ", made up for since it was closed empty," if label.attempt == 2 else ""
    if not stand.built:
        return f"{row} is the next to be built."
    if stand.waits_for:
        return f"{row} waits for {', '.join(stand.waits_for)}."
    if not stand.sent:
        return f"{row} is built, and waits to be sent."
    return f"{row} is sent; its sum is not open yet."


def _named(names: list[str]) -> str:
    return f"keepers {', '.join(names[:-1])} and {names[-1]}"
