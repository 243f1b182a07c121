"""`keeper.toml`: what a keeper is told.

[keeper]
state = "keeper.db"           # its file; one process at a time, and no copy of it, ever

[seasons]                     # as in the controller's file; without it `season = 1` in [keeper]

[terms]                       # as in the controller's file

[engine]                      # see `protocol.engine_table`; agent: the keeper's name, seed: as a keeper
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from feducb.config import require_integer
from feducb.controller.controller_file import read_calendar, read_toml, season_now, terms_of_all
from feducb.errors import ConfigurationError
from feducb.privacy.terms import Terms
from feducb.protocol.calendar import Calendar
from feducb.protocol.engine_table import NatsSettings, require_keys, require_text
from feducb.protocol.roster import Signer
from feducb.storage.keeper_book import KeeperBook

__all__ = ["KeeperSettings"]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeeperSettings:
    """What a keeper's file says."""

    state: Path  # the keeper's own file
    terms: Terms  # of everybody
    engine: NatsSettings  # how it is reached, in the keeper's name
    season: int = 1
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
        require_keys("keeper", plain["keeper"], needed=("state",), known=("season",))
        table, calendar = plain["keeper"], read_calendar(plain, plain["keeper"])
        if season is not None and calendar is None:
            table = table | {"season": season}
        roster = engine.read_roster(season or season_now(table, calendar, of="keeper."))
        terms = terms_of_all(plain["terms"], {}, tuple(roster.agents))
        kept = cls.of(table, engine, next(iter(terms.values())), path.parent, calendar)
        return replace(kept, path=path)

    @classmethod
    def of(
        cls,
        table: Mapping[str, Any],
        engine: NatsSettings,
        terms: Terms,
        base: Path,
        calendar: Calendar | None = None,
    ) -> KeeperSettings:
        """From a ``[keeper]`` table, whose paths are relative to ``base``."""
        state = base / require_text("keeper.state", table["state"])
        season = {name: table[name] for name in ("season",) if name in table}
        return cls(state=state, terms=terms, engine=engine, calendar=calendar, **season)

    def open(self) -> KeeperBook:
        """The keeper's file; raises `StoreInUseError` if another process has it."""
        assert self.engine.agent is not None
        number = self.season if self.calendar is None else self.calendar.number_at(time.time())
        roster, signer = self.engine.read_roster(number), Signer(self.engine.seed)
        name, seasons = self.engine.agent, {"season": self.season, "calendar": self.calendar}
        return KeeperBook(self.state, name, roster, self.terms, signer, **seasons)  # type: ignore[arg-type]
