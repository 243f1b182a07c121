"""`agent.toml`: what an agent is told, read once, with a clear word about whatever is wrong."""

from __future__ import annotations

import sqlite3
import tomllib
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from feducb.agent.durations import parse_duration
from feducb.agent.problem_table import read_problem
from feducb.agent.roster_place import Place, in_season, joins, read_place, rosters_of
from feducb.agent.service_settings import ServiceSettings
from feducb.agent.settings import AgentSettings
from feducb.agent.toml_sections import SECTIONS, TIME, require_known
from feducb.config import Budget, require_integer
from feducb.errors import ConfigurationError, StoreError
from feducb.formats import AGENT_TOML
from feducb.privacy.terms import Terms
from feducb.protocol.engine_table import require_keys, require_text
from feducb.protocol.hiding import Member
from feducb.protocol.roster import Roster, Signer
from feducb.storage import agent_tables
from feducb.storage.keeper_book import KeeperBook
from feducb.trust import NOBODY, SELF, trust_with

__all__ = ["CURRENT_VERSION", "AgentFile", "read_agent_file", "read_budgets"]

CURRENT_VERSION = AGENT_TOML.number
_BEFORE = {"schedule": "periodic", "policy": "optimistic"}  # what version 1 left unsaid


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentFile:
    """Everything `agent.toml` says.

    Attributes:
        path: of the file itself; other paths in it are relative to its folder.
        store: the agent's SQLite file.
        agent: the agent's settings.
        service: how it is reached.
        season: for which it was read; None before the agent has a file.
        version: of the roster with which the agent opened that season; None where that is not known.
        engine: the table of the engine, read by the engine itself; empty if the agent is on its own.
        keeper: the table of an agent that is a keeper too, read by the keeper itself; None if it is not.
    """

    path: Path
    store: Path
    agent: AgentSettings
    service: ServiceSettings
    season: int | None = None
    version: int | None = None
    engine: dict[str, Any] = field(default_factory=dict)
    keeper: dict[str, Any] | None = None

    def member(self) -> Member | None:
        """Who the agent is among the others, where rows leave under pads: by the ``[engine]`` table.

        None too for one that comes with a later season: it builds no row until then.
        """
        if not self.agent.trust.padded:
            return None
        require_keys("engine", self.engine, needed=("roster", "seed"), known=tuple(self.engine))
        seed = self.path.parent / require_text("engine.seed", self.engine["seed"])
        name, rosters = self.engine.get("agent", self.agent.name), rosters_of(self.engine, self.path.parent)
        roster = in_season(rosters, self.season, self.version)
        if name not in roster.agents and any(name in one.agents for one in rosters):
            return None  # it is one of them in another season
        return Member(name, roster, Signer(seed))

    def joins(self) -> int | None:
        """With which later season it comes in, or `NEVER`; None if it is one of the agents in this one."""
        if not self._has_roster or self.season is None:
            return None
        name = self.engine.get("agent", self.agent.name)
        return joins(rosters_of(self.engine, self.path.parent), name, self.season, self.version)

    def place(self) -> Place | None:
        """The same for any season, while the agent runs and versions of the roster come; None without one."""
        name = self.engine.get("agent", self.agent.name)
        return Place(self.engine, self.path.parent, name) if self._has_roster else None

    @property
    def _has_roster(self) -> bool:
        return self.engine.get("kind", "none") != "none" and "roster" in self.engine

    def keepers(self) -> tuple[str, ...] | None:
        """Who they are, where rows leave under pads; None where that is not known."""
        if not self.agent.trust.padded or "roster" not in self.engine:
            return None
        return tuple(self._roster().keepers)

    def keeper_state(self) -> Path | None:
        """The file of the keeper in the agent's process; None if there is none."""
        if self.keeper is None or "state" not in self.keeper:
            return None
        return self.path.parent / require_text("keeper.state", self.keeper["state"])

    def of_season(self, season: int, *, version: int | None = None) -> AgentFile:
        """The same file, as it is to be read in another season, or by a version of the roster."""
        return read_agent_file(self.path, season=season, version=version)

    def _roster(self) -> Roster:
        return in_season(rosters_of(self.engine, self.path.parent), self.season, self.version)

    def open_keeper(self, terms: Terms, season: int) -> KeeperBook:
        """The file of the ``[keeper]`` table, for the agent's own terms and season."""
        member, table = self.member(), self.keeper
        require_keys("keeper", table or {}, needed=("state", "seed"), known=("season",))
        if table is None or member is None:
            raise ConfigurationError("keeper", "a table", f"none under trust = '{self.agent.trust.name}'")
        names, base = ("state", "seed"), self.path.parent
        state, seed = (base / require_text(f"keeper.{name}", table[name]) for name in names)
        season = require_integer("keeper.season", table.get("season", season), at_least=1)
        calendar = None if self.agent.start is None else self.agent.common_calendar
        signer = Signer(seed)
        return KeeperBook(state, member.name, member.roster, terms, signer, season=season, calendar=calendar)

    def renewed(self, season: int) -> tuple[AgentSettings, Member | None]:
        """What the file says by now, and the roster, for a season that opens."""
        again = self.of_season(season)
        return again.agent, again.member()


def read_agent_file(path: str | Path, *, season: int | None = None, version: int | None = None) -> AgentFile:
    """Read and check `agent.toml`.

    Who is in the federation, and so how many they are and the quorum, follow from the roster of a season: the
    one that is asked for, that of the agent's file, or before there is one the newest. Where rows leave under
    pads, an open season stays with the version that it was opened with; or it is read by the one given.
    """
    path = Path(path).resolve()
    plain = _read_tables(path)
    written = AGENT_TOML.require(plain.pop("version", None), "version")
    engine = plain.pop("engine", {})
    if not isinstance(engine, dict):
        raise ConfigurationError("engine", engine, "a table")
    keeper = plain.pop("keeper", None)
    budgets, inline = read_budgets(plain.pop("budgets", {})), plain.pop("recipe", None)
    require_known(plain)
    agent, problem, privacy, service = (
        dict(plain.pop(section, {})) for section in ("agent", "problem", "privacy", "service")
    )
    bounds, recipe = read_problem(problem, inline, path.parent)
    budget = _read_budget(privacy, engine)
    store = agent.pop("store", "agent.db")
    settings: dict[str, Any] = agent | privacy | (_BEFORE if written == 1 else {})
    for section, table in plain.items():
        for key, value in table.items():
            timed = SECTIONS[section][key] is TIME and (key, value) != ("drift", "none")
            settings[key] = parse_duration(f"{section}.{key}", value) if timed else value
    if settings.get("drift") == "none":
        del settings["drift"]
    if "start" in settings:
        settings["start"] = _instant(settings["start"])
    numbers = {name: settings.pop(name) for name in ("away", "colluding") if name in settings}
    settings["trust"] = trust_with(settings.get("trust", NOBODY), **numbers)
    if season is None:
        season, version = _open_season(path.parent / store)
    settings = {"budgets": budgets} | settings
    settings |= read_place(engine, path.parent, settings, budgets, season, version)
    for key in service.keys() & {"keys", "certificate", "private_key", "client_ca"}:
        service[key] = path.parent / service[key]
    service.setdefault("keys", path.with_suffix(".keys"))
    return AgentFile(
        path=path,
        store=path.parent / store,
        agent=AgentSettings(problem=bounds, recipe=recipe, budget=budget, **settings),
        service=ServiceSettings(**service),
        season=season,
        version=version,
        engine=engine,
        keeper=keeper,
    )


def _read_tables(path: Path) -> dict[str, Any]:
    """What stands in the file, which must be an agent's."""
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError("config", str(path), "a file; `feducb agent init` writes one") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError("config", str(path), f"a TOML file: {error}") from None
    if "controller" in plain and "version" not in plain:
        raise ConfigurationError(
            "config",
            str(path),
            "an agent's configuration; this is a controller's: `feducb controller status` and "
            "`feducb controller key` read it, `feducb watch --url` watches its page",
        )
    return plain


def _read_budget(privacy: dict[str, Any], engine: Mapping[str, Any]) -> Budget:
    """Taken out of the ``[privacy]`` table; none under trust self, where nothing leaves by any engine."""
    alone = privacy.get("trust") == SELF.name
    if alone and (kind := engine.get("kind", "none")) != "none":
        raise ConfigurationError("engine.kind", kind, 'none under trust = "self": nothing leaves')
    for name in ("epsilon", "delta"):
        if alone and name in privacy:
            raise ConfigurationError(f"privacy.{name}", privacy[name], 'nothing under trust = "self"')
        if not alone and name not in privacy:
            raise ConfigurationError(f"privacy.{name}", None, "a number: it has no default")
    if alone:
        return None  # type: ignore[return-value]  # `AgentSettings` has one for its grid
    return Budget(epsilon=privacy.pop("epsilon"), delta=privacy.pop("delta"))


def read_budgets(tables: object) -> dict[str, Budget]:
    """Everybody's ``[budgets.NAME]``; empty if all have the same."""
    if not isinstance(tables, Mapping):
        raise ConfigurationError("budgets", tables, "a table [budgets.NAME] for each agent")
    require_keys("budgets", tables, known=tuple(tables))
    for name, table in tables.items():
        require_keys(f"budgets.{name}", table, needed=("epsilon", "delta"))
    return {name: Budget(epsilon=one["epsilon"], delta=one["delta"]) for name, one in tables.items()}


def _open_season(store: Path) -> tuple[int | None, int | None]:
    """Of the agent's file, and the version of the roster that it was opened with; None if it does not say."""
    with suppress(StoreError, sqlite3.Error):
        if store.exists():
            with closing(agent_tables.look_into(store)) as db:
                kept = agent_tables.read_settings(db)
                if kept is None or kept.season != kept.open_season:  # a season that has no settings yet
                    return None if kept is None else kept.open_season, None
                return kept.open_season, agent_tables.roster_version(db)
    return None, None


def _instant(value: datetime) -> float:
    if value.tzinfo is None:
        expected = "a time with its zone, such as 2027-01-01T00:00:00Z"
        raise ConfigurationError("releases.start", str(value), expected)
    return value.timestamp()
