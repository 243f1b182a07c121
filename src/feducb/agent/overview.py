"""What the agent's own people see of it at a glance: its value over time, its budget, what came and went."""

from __future__ import annotations

import sqlite3
from typing import Any

from feducb.agent.curve import points, width_for
from feducb.agent.settings import AgentSettings
from feducb.protocol import messages

__all__ = ["overview"]

_MOST_ENTRIES = 50


def overview(
    db: sqlite3.Connection, settings: AgentSettings, *, season: int, started_at: float, now: float
) -> dict[str, Any]:
    """Read from the file, beside what `Agent.snapshot` says. Raw counts: not for others.

    Args:
        db: the agent's file.
        settings: its settings.
        season: the open one.
        started_at: when it started, seconds since 1970.
        now: seconds since 1970.
    """
    entries = db.execute(
        'SELECT kind, "group", number, made_at, sent_at, size FROM outgoing WHERE season = ?'
        ' ORDER BY made_at DESC, number DESC, "group" DESC LIMIT ?',
        (season, _MOST_ENTRIES),
    )
    names = ("kind", "group", "number", "made_at", "sent_at", "size")
    made = dict(
        db.execute("SELECT kind, count(*) FROM outgoing WHERE season = ? GROUP BY kind", (season,)).fetchall()
    )
    (elsewhere,) = db.execute(
        "SELECT continued_elsewhere FROM seasons WHERE season = ?", (season,)
    ).fetchone()
    left = settings.groups * settings.releases - made.get("release", 0)
    later = [one for one in settings.release_times if one > now - started_at]
    return {
        "kind": "agent",
        "at": now,
        "trust": settings.trust.name,
        "groups": settings.groups,
        "releases": settings.groups * settings.releases,
        "spent": bool(made) or bool(elsewhere),
        "next_release_at": started_at + later[0] if later and left else None,
        "runs_out_at": started_at + settings.release_times[-1] if left else None,
        "season_ends_at": started_at + settings.season,
        "reward_bound": settings.problem.reward_bound,
        "uniform_share": settings.uniform_share,
        "window": settings.window,
        "sums": [
            {"group": group, "number": number, "received_at": received, "agents": _agents(payload)}
            for group, number, received, payload in db.execute(
                'SELECT "group", number, received_at, payload FROM inbox ORDER BY "group"'
            )
        ],
        "history": [dict(zip(names, row, strict=True)) for row in entries],
        "curve": points(db, width_for(settings.season)),
    }


def _agents(payload: bytes) -> int:
    return messages.decode(payload).agents
