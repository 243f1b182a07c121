"""How an agent stands, read from its file while it may be running elsewhere."""

from __future__ import annotations

import time
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from feducb.agent.carrier_file import read_engine_file
from feducb.agent.overview import overview
from feducb.agent.settings import AgentSettings
from feducb.agent.warning import read_warnings
from feducb.errors import StoreError
from feducb.storage import agent_tables

__all__ = ["look", "look_over", "settings_in"]


def look(path: str | Path) -> dict[str, Any]:
    """What `Agent.snapshot` says, as far as the file tells; and whether it runs, and how its engine does."""
    with closing(agent_tables.look_into(path)) as db:
        season, settings, started_at = settings_in(db, path)
        (made,) = db.execute("SELECT count(*) FROM outgoing WHERE season = ?", (season,)).fetchone()
        (unsent,) = db.execute(
            "SELECT count(*) FROM outgoing WHERE sent_at IS NULL AND payload IS NOT NULL"
        ).fetchone()
        (waiting,) = db.execute("SELECT count(*) FROM decisions WHERE state = 0").fetchone()
        sums = dict(db.execute('SELECT "group", number FROM inbox'))
        counts = dict(db.execute("SELECT name, value FROM counters ORDER BY name"))
        warnings = read_warnings(db, settings)
    running, engine = read_engine_file(Path(path).resolve())
    return {
        "name": settings.name,
        "running": running,
        "season": season,
        "started_at": started_at,
        "model": [f"{season}.{sums.get(group, 0)}" for group in range(settings.groups)],
        "shadow": settings.shadow,
        "epsilon": settings.budget.epsilon,
        "delta": settings.budget.delta,
        "releases_made": made,
        "releases_left": settings.groups * settings.releases - made,
        "outbox": unsent,
        "open_decisions": waiting,
        "engine": engine,
        "failing": None if engine is None else engine["trouble"],
        "warnings": warnings,
        "counts": counts,
    }


def look_over(path: str | Path) -> dict[str, Any]:
    """What `Agent.overview` says, as far as the file tells."""
    with closing(agent_tables.look_into(path)) as db:
        season, settings, started_at = settings_in(db, path)
        told = overview(db, settings, season=season, started_at=started_at, now=time.time())
    return look(path) | told


def settings_in(db: Connection, path: str | Path) -> tuple[int, AgentSettings, float]:
    """Season, settings and start, as the file has them."""
    row = db.execute("SELECT open_season.season, body, started_at FROM settings, open_season").fetchone()
    if row is None:
        raise StoreError(f"{path} is no agent's file, or was never opened by one")
    season, body, started_at = row
    return season, _read(body, started_at), started_at


@lru_cache(maxsize=8)
def _read(body: str, started_at: float) -> AgentSettings:
    """Once: whoever watches looks every second."""
    return AgentSettings.from_json(body, started_at=started_at)
