"""`keeper.toml`: what a keeper is told.

[keeper]
state = "keeper.db"           # its file; one process at a time, and no copy of it, ever
season = 1                    # raise it with the controller's, and restart

[terms]                       # as in the controller's file

[engine]                      # see `protocol.engine_table`; agent: the keeper's name, seed: as a keeper
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feducb.config import require_integer
from feducb.controller.controller_file import read_toml, terms_of_all
from feducb.errors import ConfigurationError
from feducb.privacy.terms import Terms
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

    def __post_init__(self) -> None:
        require_integer("keeper.season", self.season, at_least=1)
        if self.engine.agent is None:
            raise ConfigurationError("engine.agent", None, "the keeper's name")

    @classmethod
    def read(cls, path: Path, *, season: int | None = None) -> KeeperSettings:
        """Read a TOML file, for a season or the one that it names; its paths are relative to its folder."""
        plain = read_toml(path)
        require_keys("config", plain, needed=("keeper", "terms", "engine"))
        engine = NatsSettings.from_table(plain["engine"], base=path.parent)
        require_keys("keeper", plain["keeper"], needed=("state",), known=("season",))
        table = plain["keeper"] | ({} if season is None else {"season": season})
        roster = engine.read_roster(require_integer("keeper.season", table.get("season", 1), at_least=1))
        terms = terms_of_all(plain["terms"], {}, tuple(roster.agents))
        return cls.of(table, engine, next(iter(terms.values())), path.parent)

    @classmethod
    def of(cls, table: Mapping[str, Any], engine: NatsSettings, terms: Terms, base: Path) -> KeeperSettings:
        """From a ``[keeper]`` table, whose paths are relative to ``base``."""
        state = base / require_text("keeper.state", table["state"])
        season = {name: table[name] for name in ("season",) if name in table}
        return cls(state=state, terms=terms, engine=engine, **season)

    def open(self) -> KeeperBook:
        """The keeper's file; raises `StoreInUseError` if another process has it."""
        assert self.engine.agent is not None
        roster, signer = self.engine.read_roster(self.season), Signer(self.engine.seed)
        return KeeperBook(self.state, self.engine.agent, roster, self.terms, signer, season=self.season)
