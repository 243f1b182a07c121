"""`keeper.toml`: what a keeper is told.

[keeper]
state = "keeper.db"           # its file; one process at a time, and no copy of it, ever

[seasons]                     # as in the controller's file; without it `season = 1` in [keeper]

[terms]                       # as in the controller's file

[engine]                      # see `protocol.engine_table`; agent: the keeper's name, seed: as a keeper
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from feducb.config import require_integer
from feducb.controller.controller_file import (
    read_calendar,
    read_toml,
    roster_agreed,
    season_now,
    terms_of_all,
)
from feducb.errors import ConfigurationError
from feducb.formats import KEEPER_TOML
from feducb.privacy.terms import Terms
from feducb.protocol.calendar import Calendar
from feducb.protocol.engine_table import NatsSettings, require_keys, require_text
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.signed_roster import all_rosters, of_season
from feducb.storage.keeper_book import KeeperBook

__all__ = ["KeeperSettings"]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeeperSettings:
    """What a keeper's file says."""

    state: Path  # the keeper's own file
    engine: NatsSettings  # how it is reached, in the keeper's name
    season: int  # that its file has open, or that it was read for
    roster: Roster  # of that season
    terms: Terms  # of everybody in it
    calendar: Calendar | None = None
    path: Path | None = None  # of the file itself, to be read again for the next season

    def __post_init__(self) -> None:
        require_integer("keeper.season", self.season, at_least=1)
        if self.engine.agent is None:
            raise ConfigurationError("engine.agent", None, "the keeper's name")

    @classmethod
    def read(cls, path: Path, *, season: int | None = None) -> KeeperSettings:
        """Read a TOML file, for a season or the one that it names; its paths are relative to its folder."""
        plain = read_toml(path)
        known = ("keeper", "terms", "engine")
        require_keys("config", plain, needed=known, known=("budgets", "seasons"))
        engine = NatsSettings.from_table(plain["engine"], base=path.parent)
        KEEPER_TOML.require(plain["keeper"].get("format", 1), "keeper.format")
        require_keys("keeper", plain["keeper"], needed=("state",), known=("season", "format"))
        calendar = read_calendar(plain, plain["keeper"])

        def terms(_: int, roster: Roster) -> Terms:
            return next(iter(terms_of_all(plain["terms"], {}, tuple(roster.agents)).values()))

        kept = cls.of(plain["keeper"], engine, terms, path.parent, calendar, season=season)
        return replace(kept, path=path)

    @classmethod
    def of(
        cls,
        table: Mapping[str, Any],
        engine: NatsSettings,
        terms: Callable[[int, Roster], Terms],
        base: Path,
        calendar: Calendar | None = None,
        *,
        season: int | None = None,
    ) -> KeeperSettings:
        """From a ``[keeper]`` table.

        Args:
            table: the table.
            engine: how the federation is reached, in the keeper's name.
            terms: of everybody, by season and its roster.
            base: to which its paths are relative.
            calendar: which season runs when.
            season: for which it is read; the one that its file has open if not given. Who comes with a later
                roster opens that one's first season, ahead of time.
        """
        state = base / require_text("keeper.state", table["state"])
        rosters = all_rosters(engine.roster, engine.ca)
        number = season or season_now(table, calendar, state, of="keeper.")
        if season is None and engine.agent not in of_season(rosters, number).keepers and not state.exists():
            later = (one.since for one in rosters if one.since > number and engine.agent in one.keepers)
            number = min(later, default=number)
        roster = engine.read_roster(number)
        if season is None:
            roster = roster_agreed(engine, state, number, lambda one: terms(number, one))
        return cls(
            state=state,
            engine=engine,
            season=number,
            roster=roster,
            terms=terms(number, roster),
            calendar=calendar,
        )

    def open(self) -> KeeperBook:
        """The keeper's file; raises `StoreInUseError` if another process has it."""
        assert self.engine.agent is not None
        return KeeperBook(
            self.state,
            self.engine.agent,
            self.roster,
            self.terms,
            Signer(self.engine.seed),
            season=self.season,
            calendar=self.calendar,
        )
