"""How an agent stands: gathered here, once, for its own people; shown by `status`, `watch`, service and page.

Counts and values are raw: not for others.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from feducb.agent.carrier_file import read_engine_file
from feducb.agent.curve import points, width_for
from feducb.agent.kept import Season, season_in
from feducb.agent.own_phase import view_own
from feducb.agent.remembered import Memory
from feducb.agent.row_view import view_rows
from feducb.agent.warning import read_warnings
from feducb.protocol import messages
from feducb.storage import agent_tables, row_counts
from feducb.storage.keeper_facts import look_at_keeper, trouble_of
from feducb.worlds.features import Recipe

__all__ = ["look", "view", "view_over_time"]

_MOST_ENTRIES = 50


def view(
    db: sqlite3.Connection,
    season: Season,
    counts: Mapping[str, int],
    *,
    keepers: Collection[str] | None = None,
) -> dict[str, Any]:
    """How it stands in the open season.

    Args:
        db: the agent's file.
        season: the open one.
        counts: totals by name, with what is not yet written.
        keepers: those of the roster, where it is known.
    """
    number, settings, started_at = season
    newest = {one.group: one.number for one in agent_tables.received_sums(db)}
    counts, values = _told_apart(counts)
    closed = sum(counts.get(name, 0) for name in ("settled", "discarded", "dropped"))
    return {
        "name": settings.name,
        "season": number,
        "started_at": started_at,
        "model": [f"{number}.{newest.get(group, 0)}" for group in range(settings.groups)],
        "shadow": settings.shadow,
        "epsilon": settings.terms.promised[0],
        "delta": settings.terms.promised[1],
        "releases_made": agent_tables.count_made(db, number),
        "releases_left": _left(db, season),
        "rows": view_rows(db, season, keepers) if settings.trust.padded else None,
        "own": view_own(db, season, left=_left(db, season)),
        "memory": Memory.load(db, settings, season=number, started_at=started_at).view(),
        "outbox": agent_tables.count_unsent(db),
        "open_decisions": counts.get("decisions", 0) - closed,
        "warnings": read_warnings(db, settings),
        "recipe": None if settings.recipe is None else _view_recipe(settings.recipe, values),
        "counts": counts,
    }


def _told_apart(counts: Mapping[str, int]) -> tuple[Counter[str], dict[str, dict[str, int]]]:
    """Counts of what happened; and by column, how many values were missing, unknown or clipped."""
    values: dict[str, dict[str, int]] = {}
    for name, count in sorted(counts.items()):
        rule, is_value, column = name.partition(":")
        if is_value:
            values.setdefault(column, {})[rule] = count
    return Counter({name: count for name, count in counts.items() if ":" not in name}), values


def _view_recipe(recipe: Recipe, values: dict[str, dict[str, int]]) -> dict[str, Any]:
    """How visitors are read, and how many of their values took a rule, since the file was made."""
    return {
        "fingerprint": recipe.fingerprint,
        "dim": recipe.dim,
        "actions": recipe.offered,
        "values": values,
    }


def view_over_time(db: sqlite3.Connection, season: Season, *, now: float) -> dict[str, Any]:
    """Beside `view`: what came and went, the season's calendar, and the value over time."""
    number, settings, started_at = season
    made, left = agent_tables.count_made(db, number), _left(db, season)
    later = [one for one in settings.release_times if one > now - started_at]
    return {
        "kind": "agent",
        "at": now,
        "trust": settings.trust.name,
        "groups": settings.groups,
        "releases": settings.groups * settings.releases,
        "spent": bool(made) or agent_tables.continued_elsewhere(db, number),
        "next_release_at": started_at + later[0] if later and left else None,
        "runs_out_at": started_at + settings.release_times[-1] if left else None,
        "season_ends_at": started_at + settings.season,
        "reward_range": settings.problem.reward_range,
        "uniform_share": settings.uniform_share,
        "window": settings.window,
        "sums": [
            {
                "group": one.group,
                "number": one.number,
                "received_at": one.received_at,
                "agents": messages.decode(one.payload).agents,
            }
            for one in agent_tables.received_sums(db)
        ],
        "history": agent_tables.newest_outgoing(db, number, most=_MOST_ENTRIES),
        "curve": points(db, width_for(settings.season)),
    }


def _left(db: sqlite3.Connection, season: Season) -> int:
    """Releases that can still be made: rows that were over before this agent built them are not."""
    gone = agent_tables.count_made(db, season.number) + sum(row_counts.skipped(db, season.number).values())
    return season.settings.groups * season.settings.releases - gone


def look(
    path: str | Path,
    *,
    over_time: bool = False,
    keepers: Collection[str] | None = None,
    keeper: Path | None = None,
) -> dict[str, Any]:
    """`view` of a file whose agent may be running elsewhere; and whether it runs, and how its engine does.

    Args:
        path: of the file.
        over_time: add `view_over_time`.
        keepers: those of the roster, where it is known.
        keeper: the file of the keeper in its process, if there is one.
    """
    with closing(agent_tables.look_into(path)) as db:
        season = season_in(db, path)
        facts = view(db, season, agent_tables.read_counts(db), keepers=keepers)
        later = view_over_time(db, season, now=time.time()) if over_time else {}
    running, engine = read_engine_file(Path(path).resolve())
    own = None if keeper is None else look_at_keeper(keeper)
    failing = trouble_of(own) or (None if engine is None else engine["trouble"])
    return facts | {"running": running, "engine": engine, "failing": failing, "keeper": own} | later
