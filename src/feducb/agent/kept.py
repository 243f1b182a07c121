"""Settings as an agent's file keeps them, and which of them hold until its season is over.

What is promised holds from the first decision, record, release or sum of a season on: before that, other
settings are simply taken. A carrier moves parcels and promises nothing, so it may come and go. An agent's
place on a graph decides how sums are read: it stays from the first roster that tells it, or the first sum.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from feducb.agent.promises import PLACE, PROMISED
from feducb.agent.settings import SAME_START, AgentSettings
from feducb.errors import ConfigurationError, StoreError
from feducb.privacy.terms import Terms
from feducb.protocol.hiding import Member
from feducb.storage import agent_tables
from feducb.storage.store import require_same
from feducb.worlds.features import Recipe
from feducb.worlds.features.season import require_continued

__all__ = [
    "Season",
    "edited",
    "misfit",
    "placed",
    "require_later",
    "require_place",
    "require_promised",
    "season_in",
    "season_to_begin",
    "stored_settings",
    "written",
]


class Season(NamedTuple):
    """The open season: its number, its settings, and when it started, in seconds since 1970."""

    number: int
    settings: AgentSettings
    started_at: float

    @property
    def ends_at(self) -> float:
        """When the next one is due, in seconds since 1970."""
        return self.started_at + self.settings.season


def season_in(db: sqlite3.Connection, path: str | Path) -> Season:
    """The open season, as the file has it."""
    kept = agent_tables.read_settings(db)
    if kept is None:
        raise StoreError(f"{path} is no agent's file, or was never opened by one")
    settings = _read(kept.body, kept.started_at)
    if kept.season == kept.open_season:
        settings = _under(settings, agent_tables.open_terms(db))
    return Season(kept.open_season, settings, kept.started_at)


def season_to_begin(
    db: sqlite3.Connection, path: str | Path, settings: AgentSettings | None, now: float
) -> Season:
    """The open season; where its agent has not begun it, as after a restore, as it would with these settings.

    Args:
        db: the agent's file.
        path: its name, for errors.
        settings: as `agent.toml` has them; those of the season before if left out.
        now: in seconds since 1970.
    """
    season, kept = season_in(db, path), agent_tables.read_settings(db)
    if kept is None or kept.season == kept.open_season:
        return season
    settings = season.settings if settings is None else placed(db, settings)
    starts = now if settings.start is None else settings.common_calendar.starts(season.number)
    return Season(season.number, settings, starts)


@lru_cache(maxsize=8)
def _read(body: str, started_at: float) -> AgentSettings:
    """Once: whoever watches looks every second."""
    return AgentSettings.from_json(body, started_at=started_at)


@lru_cache(maxsize=8)
def _under(settings: AgentSettings, terms: str) -> AgentSettings:
    return settings.under(Terms.from_json(terms))


def stored_settings(path: Path) -> AgentSettings:
    """Those to go on with where none are given."""
    if not path.exists():
        raise ConfigurationError("settings", None, f"settings, to make the agent {path}")
    with closing(agent_tables.look_into(path)) as db:
        kept = agent_tables.read_settings(db)
    if kept is None:
        raise ConfigurationError("settings", None, f"settings: {path} holds none yet")
    settings = _read(kept.body, kept.started_at)
    if kept.season == kept.open_season:
        return settings
    if settings.agents > 1:
        raise ConfigurationError("settings", None, f"settings with the start of the new season in {path}")
    return replace(settings, start=None)  # a new season has begun since


def require_promised(db: sqlite3.Connection, settings: AgentSettings) -> None:
    """Raise unless settings promise what the open season does, if anything has happened in it."""
    kept, settings = agent_tables.read_settings(db), placed(db, settings)
    if agent_tables.is_unused(db):
        earlier = agent_tables.earlier_start(db)
        if kept is not None and earlier is not None and started_at(settings, kept) <= earlier:
            require_later(settings, earlier)
        return
    if kept is not None and kept.season == kept.open_season:
        before = _read(kept.body, kept.started_at)
        on_graph = before.clique or agent_tables.received_sums(db)
        for name in (*PROMISED, *(PLACE if on_graph else ())):
            given, stands = getattr(settings, name), getattr(before, name)
            if given == stands:
                continue
            if name == "recipe" and given is not None and stands is not None:
                _require_continued(stands, given)
            else:
                raise _until_a_new_season(name, *(_shown(getattr(one, name)) for one in (settings, before)))
        if started_at(settings, kept) != kept.started_at:
            assert settings.start is not None
            raise _until_a_new_season(
                "start", written(settings.start), written(before.start or kept.started_at)
            )
    try:
        terms = Terms.from_json(agent_tables.open_terms(db))
        require_same(settings.under(terms).terms, terms)
    except ConfigurationError as error:
        expected = f"{error.expected} (`feducb agent new-season`)"
        raise ConfigurationError(error.setting, error.value, expected) from None


def require_place(member: Member, settings: AgentSettings) -> None:
    """Raise unless the settings go with the roster: the same clique, and rows that leave hidden."""
    if set(member.clique) != set(settings.clique):
        expected = f"{', '.join(member.clique) or 'nobody'}, as the roster has it"
        raise ConfigurationError("clique", ", ".join(settings.clique), expected)
    member.require_hidden(settings.terms)


def misfit(path: Path, settings: AgentSettings) -> str | None:
    """Why an agent's file would not be opened with these settings; None if it would."""
    with closing(agent_tables.look_into(path)) as db:
        try:
            require_promised(db, settings)
        except ConfigurationError as error:
            return str(error)
    return None


def edited(path: Path, settings: AgentSettings) -> list[str]:
    """Names of settings that are others than in an agent's file: before anything happens, they are taken."""
    with closing(agent_tables.look_into(path)) as db:
        kept, settings = season_in(db, path).settings, placed(db, settings)
    names = (one.name for one in fields(settings) if one.name != "start" or settings.start is not None)
    return [name for name in names if getattr(settings, name) != getattr(kept, name)]


def started_at(settings: AgentSettings, kept: agent_tables.KeptSettings) -> float:
    """When the open season starts by the settings; as the file has it, where that is the same."""
    by_them = settings.calendar(kept.season, kept.started_at).starts(kept.season)
    return kept.started_at if abs(by_them - kept.started_at) <= SAME_START else by_them


def placed(db: sqlite3.Connection, settings: AgentSettings) -> AgentSettings:
    """Settings with the number that their start goes with, where the file knows it and they leave it out.

    Seasons that were opened by hand may have moved the start along with the number; so may whoever moves the
    start of a season in which nothing has happened yet.
    """
    kept = agent_tables.read_settings(db)
    if kept is None or settings.start is None:
        return settings
    before, earlier = _read(kept.body, kept.started_at), agent_tables.earlier_start(db)
    if settings.first_season not in (None, before.first_season):
        return settings
    if before.start is not None and abs(settings.start - before.start) <= SAME_START:
        return replace(settings, first_season=before.first_season)
    if kept.season != kept.open_season:  # from a backup
        earlier = kept.started_at
    if earlier is not None and settings.start > earlier + SAME_START and agent_tables.is_unused(db):
        return replace(settings, first_season=kept.open_season)
    return replace(settings, first_season=None)


def require_later(settings: AgentSettings, earlier: float) -> None:
    """Raise if a new season starts before the last: it would make all its releases at once."""
    if settings.start is not None and settings.start <= earlier:
        or_none = ", or none," if settings.agents == 1 else ""
        expected = f"after the last season's{or_none} in a new season"
        raise ConfigurationError("start", written(settings.start), expected)


def written(moment: float) -> str:
    """A moment as text, as it stands in agent.toml."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


def _require_continued(before: Recipe, after: Recipe) -> None:
    """Raise unless a season may go on with another recipe: actions were added to its reserve, or retired."""
    try:
        require_continued(before, after)
    except ConfigurationError as error:
        expected = f"{error.expected} until a new season opens (`feducb agent new-season`)"
        raise ConfigurationError(error.setting, error.value, expected) from None


def _shown(value: object) -> object:
    """A setting as an error names it: a recipe is long, and known by its fingerprint."""
    return f"one of fingerprint {value.fingerprint}" if isinstance(value, Recipe) else value


def _until_a_new_season(name: str, value: object, kept: object) -> ConfigurationError:
    return ConfigurationError(name, value, f"{kept!r} until a new season opens (`feducb agent new-season`)")
