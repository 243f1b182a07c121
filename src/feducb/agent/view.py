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
from feducb.agent.gain import view_gain
from feducb.agent.health import with_trouble
from feducb.agent.kept import Season, season_to_begin
from feducb.agent.own_phase import has_shared, view_own
from feducb.agent.remembered import Memory
from feducb.agent.roster_place import NEVER
from feducb.agent.row_view import view_rows
from feducb.agent.season_roll import view_spent
from feducb.agent.settings import AgentSettings
from feducb.agent.warning import read_warnings
from feducb.protocol import messages
from feducb.storage import agent_tables, row_counts
from feducb.storage.keeper_facts import look_at_keeper
from feducb.worlds.features import Recipe
from feducb.worlds.features.season import added_to, fixed_part, slots_left

__all__ = ["look", "view", "view_over_time"]

_MOST_ENTRIES = 50


def view(
    db: sqlite3.Connection,
    season: Season,
    counts: Mapping[str, int],
    *,
    keepers: Collection[str] | None = None,
    joins: int | None = None,
) -> dict[str, Any]:
    """How it stands in the open season.

    Args:
        db: the agent's file.
        season: the open one.
        counts: totals by name, with what is not yet written.
        keepers: those of the roster, where it is known.
        joins: with which later season it comes in, if it is none of the federation's agents yet.
    """
    number, settings, started_at = season
    comes = None if has_shared(db, settings) else _view_joins(season, joins)
    received = agent_tables.received_sums(db)
    newest = {one.group: one.number for one in received}
    counts, values = _told_apart(counts)
    least, team = settings.sizes_of_sums
    memory = Memory.load(db, settings, season=number, started_at=started_at)
    rule = memory.rule(0)  # what earlier seasons told may be worth reading by itself
    closed = sum(counts.get(name, 0) for name in ("settled", "discarded", "dropped"))
    return {
        "name": settings.name,
        "season": number,
        "started_at": started_at,
        "opened_at": agent_tables.opened_at(db),
        "joins": comes,
        "model": [f"{number}.{newest.get(group, 0)}" for group in range(settings.groups)],
        "shadow": settings.shadow,
        "epsilon": settings.terms.promised[0],
        "delta": settings.terms.promised[1],
        "all_seasons": view_spent(db, settings),
        "releases_made": agent_tables.count_made(db, number),
        "releases_left": _left(db, season),
        "restored": agent_tables.continued_elsewhere(db, number),
        "rows": view_rows(db, season, keepers) if settings.trust.padded else None,
        "own": view_own(db, season, left=0 if comes else _left(db, season)),  # a newcomer shares nothing yet
        "gain": view_gain(db, settings),
        "season_ends_at": started_at + settings.season,
        "next_due_at": _next_due(db, season),
        "reads": settings.reads or (rule is not None and rule.first <= settings.releases),
        "agents": settings.agents,
        "team": team,
        "quorum": least,
        "sums": [
            {
                "group": one.group,
                "number": one.number,
                "received_at": one.received_at,
                "agents": messages.decode(one.payload).agents,
            }
            for one in received
        ],
        "awaited": None if settings.trust.padded else agent_tables.awaited(db, number),
        "memory": memory.view(),
        "outbox": agent_tables.count_unsent(db),
        "oldest_unsent_at": agent_tables.oldest_unsent(db),
        "open_decisions": counts.get("decisions", 0) - closed,
        "warnings": read_warnings(db, settings),
        "recipe": None if settings.recipe is None else _view_recipe(settings.recipe, values),
        "counts": counts,
    }


def _view_joins(season: Season, joins: int | None) -> dict[str, Any] | None:
    """The season with which it comes in, and when that begins, None each of `NEVER`; None once it is open."""
    number, settings, started_at = season
    if joins is None or joins <= number:
        return None
    if joins == NEVER:
        return {"season": None, "at": None}
    return {"season": joins, "at": settings.calendar(number, started_at).starts(joins)}


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
        "promised": fixed_part(recipe).fingerprint,
        "dim": recipe.dim,
        "actions": recipe.offered,
        "added": added_to(recipe),
        "retired": recipe.retired,
        "room": slots_left(recipe),
        "values": values,
    }


def view_over_time(db: sqlite3.Connection, season: Season, *, now: float) -> dict[str, Any]:
    """Beside `view`: what came and went, the season's calendar, and the value over time."""
    number, settings, started_at = season
    made, left = agent_tables.count_made(db, number), _left(db, season)
    later = [one for one in settings.release_times if one > now - started_at]
    return {
        "kind": "agent",
        "trust": settings.trust.name,
        "groups": settings.groups,
        "releases": settings.groups * settings.releases,
        "spent": bool(made) or agent_tables.continued_elsewhere(db, number),
        "next_release_at": started_at + later[0] if later and left else None,
        "runs_out_at": started_at + settings.release_times[-1] if left else None,
        "reward_range": settings.problem.reward_range,
        "uniform_share": settings.uniform_share,
        "window": settings.window,
        "history": agent_tables.newest_outgoing(db, number, most=_MOST_ENTRIES),
        "curve": points(db, width_for(settings.season)),
    }


def _gone(db: sqlite3.Connection, season: Season) -> int:
    """Releases that were made, and rows that were over before this agent built them.

    All, where the season may have gone on elsewhere: nothing more of it leaves here.
    """
    if agent_tables.continued_elsewhere(db, season.number):
        return season.settings.groups * season.settings.releases
    return agent_tables.count_made(db, season.number) + sum(row_counts.skipped(db, season.number).values())


def _left(db: sqlite3.Connection, season: Season) -> int:
    """Releases that can still be made."""
    return season.settings.groups * season.settings.releases - _gone(db, season)


def _next_due(db: sqlite3.Connection, season: Season) -> float | None:
    """When the first release is due that is not made, in the past if it is late; None after the last."""
    settings, times = season.settings, season.settings.release_times
    place = _gone(db, season) // settings.groups
    return season.started_at + times[place] if place < len(times) else None


def look(
    path: str | Path,
    *,
    over_time: bool = False,
    keepers: Collection[str] | None = None,
    keeper: Path | None = None,
    misfit: str | None = None,
    joins: int | None = None,
    settings: AgentSettings | None = None,
) -> dict[str, Any]:
    """`view` of a file whose agent may be running elsewhere; whether it runs, its engine, and what is wrong.

    Args:
        path: of the file.
        over_time: add `view_over_time`.
        keepers: those of the roster, where it is known.
        keeper: the file of the keeper in its process, if there is one.
        misfit: why its configuration would not be taken (`kept.misfit`), where that was looked at.
        joins: with which later season it comes in (`AgentFile.joins`).
        settings: as `agent.toml` has them, for a season that it has not begun.
    """
    now = time.time()
    with closing(agent_tables.look_into(path)) as db:
        season = season_to_begin(db, path, settings, now)
        facts = view(db, season, agent_tables.read_counts(db), keepers=keepers, joins=joins)
        later = view_over_time(db, season, now=now) if over_time else {}
    said = read_engine_file(Path(path).resolve())
    beside = {"at": now, "running": said.running, "engine": said.engine, "misfit": misfit}
    beside["seconds_ago"] = None if said.at is None else now - said.at
    beside["keeper"] = None if keeper is None else look_at_keeper(keeper)
    return with_trouble(facts | beside | later)
