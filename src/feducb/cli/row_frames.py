"""Rows under pads, in words for a terminal: of an agent, of a controller, and of a keeper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from feducb.cli.output import counted

__all__ = ["agent_rows", "controller_rows"]

Facts = list[tuple[str, str]]


def agent_rows(snapshot: dict[str, Any]) -> Facts:
    """What an agent knows of rows; nothing where it has none."""
    rows = snapshot.get("rows")
    if rows is None:
        return []
    told = (snapshot.get("engine") or {}).get("rows") or {}
    return [
        ("rows", f"{rows['built']:,} built, {rows['skipped']:,} skipped, {rows['opened']:,} opened"),
        *_seldom(rows),
        ("row now", rows["says"]),
        *([("the controller says", told["waiting"])] if told.get("waiting") else []),
        ("keepers", _cards(rows)),
        *([("its own keeper", _keeper(snapshot["keeper"]))] if snapshot.get("keeper") else []),
    ]


def controller_rows(rows: dict[str, Any]) -> Facts:
    """What a controller knows of the open row."""
    if rows["row"] is None:
        return [
            ("row", "all rows of this season are over"),
            ("rows opened", f"{rows['opened']:,}"),
            *_seldom(rows),
        ]
    again = ", made up for since it was closed empty" if rows["attempt"] == 2 else ""
    return [
        ("row", f"{rows['row']}{again}"),
        ("waits", rows["waiting"] or "for its time"),
        ("has sent", _some(rows["sent"])),
        ("has not sent", _some(rows["waits_for_agents"])),
        ("keepers that answered", _some(rows["answered"], "keeper") if rows["listed"] else "not asked yet"),
        ("rows opened", f"{rows['opened']:,}"),
        *_seldom(rows),
    ]


def _keeper(keeper: dict[str, Any]) -> str:
    runs, answered = "runs" if keeper["runs"] else "does not run", counted(keeper["answered"], "list")
    return f"{runs}; {answered} answered" + (f", the newest for row {keeper['row']}" if keeper["row"] else "")


def _seldom(rows: dict[str, Any]) -> Facts:
    told = [("sums refused", rows.get("refused")), ("closed empty", rows.get("closed_empty"))]
    return [(name, f"{count:,}") for name, count in told if count]


def _cards(rows: dict[str, Any]) -> str:
    keepers, missing = rows["keepers"], rows["missing_cards"]
    if keepers is None:
        return "not known: no roster is named"
    if not keepers:
        return "none: members of a clique hide their rows in pairs"
    return f"{', '.join(keepers)}; " + (
        f"no key yet of {', '.join(missing)}" if missing else "all keys are here"
    )


def _some(names: Sequence[str], noun: str = "agent", *, most: int = 8) -> str:
    if not names:
        return "nobody"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{counted(len(names), noun)}: {', '.join(names[:most])}{more}"
