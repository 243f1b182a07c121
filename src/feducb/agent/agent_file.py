"""`agent.toml`: what an agent is told, read once, with a clear word about whatever is wrong."""

from __future__ import annotations

import sqlite3
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from feducb.agent.problem_table import read_problem
from feducb.agent.settings import AgentSettings, parse_duration
from feducb.config import Budget, require_integer
from feducb.errors import ConfigurationError, StoreError
from feducb.privacy.terms import Terms
from feducb.protocol.engine_table import require_keys, require_text
from feducb.protocol.hiding import Member
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.signed_roster import all_rosters, of_season, quorum_among
from feducb.storage import agent_tables
from feducb.storage.keeper_book import KeeperBook
from feducb.trust import NOBODY, SELF, trust_with

__all__ = ["CURRENT_VERSION", "AgentFile", "ServiceSettings", "read_agent_file", "read_budgets"]

CURRENT_VERSION = 2
_BEFORE = {"schedule": "periodic", "policy": "optimistic"}  # what version 1 left unsaid

# Section → key → types that may stand there
_INT, _NUMBER, _TEXT = (int,), (int, float), (str,)
_TIME, _MOMENT = (int, float, str), (datetime,)
_SECTIONS: dict[str, dict[str, tuple[type, ...]]] = {
    "agent": {"name": _TEXT, "store": _TEXT},
    "problem": {
        "dim": _INT,
        **dict.fromkeys(("action_bound", "parameter_bound", "noise_scale"), _NUMBER),
        **dict.fromkeys(("reward_bound", "reward_centre"), _NUMBER),
        **{"recipe": _TEXT, "reserve": _INT},
        **dict.fromkeys(("actions", "added", "retired", "reward_range"), (list,)),
    },
    "privacy": {
        **dict.fromkeys(("epsilon", "delta"), _NUMBER),
        **dict.fromkeys(("records_per_person", "agents_per_person", "spacing"), _INT),
        **dict.fromkeys(("away", "colluding"), _INT),
        **dict.fromkeys(("trust", "mechanism", "contexts"), _TEXT),
    },
    "federation": {
        **dict.fromkeys(("agents", "decisions", "history", "groups", "quorum"), _INT),
        "alpha": _NUMBER,
    },
    "releases": {
        **dict.fromkeys(("season", "first_release", "last_release"), _TIME),
        **{"releases": _INT, "schedule": _TEXT, "start": _MOMENT},
    },
    "decisions": {
        **dict.fromkeys(("exploration", "uniform_share", "holdout", "distance"), _NUMBER),
        **{"play": _TEXT, "policy": _TEXT, "shadow": (bool,), "follow_policy": _TEXT},
    },
    "rewards": {"window": _TIME, "default_reward": _NUMBER},
    "seasons": {
        **{"remember": (int, str), "discount": _NUMBER, "drift": _TIME, "first_season": _INT},
        **dict.fromkeys(("most_epsilon", "most_delta"), _NUMBER),
    },
    "retention": {"keep_events": _TIME},
    "service": {
        **{"host": _TEXT, "port": _INT},
        **dict.fromkeys(("keys", "certificate", "private_key", "client_ca"), _TEXT),
        "largest_body": _INT,
    },
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSettings:
    """How the agent is reached.

    Attributes:
        host: address to listen on.
        port: 0 takes a free one.
        keys: the file of API keys.
        certificate: TLS certificate chain (PEM); without one only this machine should reach the port.
        private_key: of the certificate (PEM).
        client_ca: if given, callers must show a certificate signed by it, beside their key.
        largest_body: bytes of one request.
    """

    host: str = "127.0.0.1"
    port: int = 8750
    keys: Path = Path("agent.keys")
    certificate: Path | None = None
    private_key: Path | None = None
    client_ca: Path | None = None
    largest_body: int = 1_048_576

    def __post_init__(self) -> None:
        if require_integer("service.port", self.port, at_least=0) > 65535:
            raise ConfigurationError("service.port", self.port, "a port up to 65535")
        require_integer("service.largest_body", self.largest_body, at_least=1024)
        if (self.certificate is None) != (self.private_key is None):
            raise ConfigurationError("service.certificate", self.certificate, "given with its private_key")
        if self.client_ca is not None and self.certificate is None:
            raise ConfigurationError(
                "service.client_ca", str(self.client_ca), "nothing without a certificate"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentFile:
    """Everything `agent.toml` says.

    Attributes:
        path: of the file itself; other paths in it are relative to its folder.
        store: the agent's SQLite file.
        agent: the agent's settings.
        service: how it is reached.
        season: for which it was read; None before the agent has a file.
        engine: the table of the engine, read by the engine itself; empty if the agent is on its own.
        keeper: the table of an agent that is a keeper too, read by the keeper itself; None if it is not.
    """

    path: Path
    store: Path
    agent: AgentSettings
    service: ServiceSettings
    season: int | None = None
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
        name, rosters = self.engine.get("agent", self.agent.name), _rosters(self.engine, self.path.parent)
        roster = _in_season(rosters, self.season)
        if name not in roster.agents and any(name in one.agents for one in rosters):
            return None  # it is one of them in another season
        return Member(name, roster, Signer(seed))

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

    def of_season(self, season: int) -> AgentFile:
        """The same file, as it is to be read in another season."""
        return read_agent_file(self.path, season=season)

    def _roster(self) -> Roster:
        return _in_season(_rosters(self.engine, self.path.parent), self.season)

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


def read_agent_file(path: str | Path, *, season: int | None = None) -> AgentFile:
    """Read and check `agent.toml`.

    Who is in the federation, and so how many they are and the quorum, follow from the roster of a season: the
    one that is asked for, that of the agent's file, or before there is one the newest.
    """
    path = Path(path).resolve()
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
    version = require_integer("version", plain.pop("version", None), at_least=1)
    if version > CURRENT_VERSION:
        raise ConfigurationError("version", version, f"at most {CURRENT_VERSION}: update feducb")
    engine = plain.pop("engine", {})
    if not isinstance(engine, dict):
        raise ConfigurationError("engine", engine, "a table")
    keeper = plain.pop("keeper", None)
    budgets, inline = read_budgets(plain.pop("budgets", {})), plain.pop("recipe", None)
    _require_known(plain)
    agent, problem, privacy, service = (
        dict(plain.pop(section, {})) for section in ("agent", "problem", "privacy", "service")
    )
    bounds, recipe = read_problem(problem, inline, path.parent)
    budget = _read_budget(privacy, engine)
    store = agent.pop("store", "agent.db")
    settings: dict[str, Any] = agent | privacy | (_BEFORE if version == 1 else {})
    for section, table in plain.items():
        for key, value in table.items():
            timed = _SECTIONS[section][key] is _TIME and (key, value) != ("drift", "none")
            settings[key] = parse_duration(f"{section}.{key}", value) if timed else value
    if settings.get("drift") == "none":
        del settings["drift"]
    if "start" in settings:
        settings["start"] = _instant(settings["start"])
    numbers = {name: settings.pop(name) for name in ("away", "colluding") if name in settings}
    settings["trust"] = trust_with(settings.get("trust", NOBODY), **numbers)
    season = season or _open_season(path.parent / store)
    settings |= _read_roster(engine, path.parent, settings, budgets, season)
    for key in service.keys() & {"keys", "certificate", "private_key", "client_ca"}:
        service[key] = path.parent / service[key]
    service.setdefault("keys", path.with_suffix(".keys"))
    return AgentFile(
        path=path,
        store=path.parent / store,
        agent=AgentSettings(problem=bounds, recipe=recipe, budget=budget, budgets=budgets, **settings),
        service=ServiceSettings(**service),
        season=season,
        engine=engine,
        keeper=keeper,
    )


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


def _open_season(store: Path) -> int | None:
    """Of the agent's file; None if there is none that can be read."""
    with suppress(StoreError, sqlite3.Error):
        if store.exists():
            with closing(agent_tables.look_into(store)) as db:
                kept = agent_tables.read_settings(db)
                return None if kept is None else kept.open_season
    return None


def _rosters(engine: Mapping[str, Any], base: Path) -> list[Roster]:
    authority = base / require_text("engine.ca", engine["ca"]) if "ca" in engine else None
    return all_rosters(base / require_text("engine.roster", engine["roster"]), authority)


def _in_season(rosters: Sequence[Roster], season: int | None) -> Roster:
    return rosters[-1] if season is None else of_season(rosters, season)


def _read_roster(
    engine: Mapping[str, Any],
    base: Path,
    settings: Mapping[str, Any],
    budgets: Mapping[str, Budget],
    season: int | None,
) -> dict[str, Any]:
    """What the roster says about the agent's place: its clique, where there is a graph.

    A later version than the first one here also says how many agents there are, and the quorum follows.

    Args:
        engine: the ``[engine]`` table.
        base: the folder that its paths are relative to.
        settings: what the other tables say.
        budgets: everybody's, which must be those of the roster.
        season: of which the roster is wanted; None takes the newest.
    """
    if engine.get("kind", "none") == "none" or "roster" not in engine:
        return {}
    rosters = _rosters(engine, base)
    roster, followed = _in_season(rosters, season), {}
    name, agents = settings.get("name", AgentSettings.name), settings.get("agents", 1)
    if roster is not rosters[0]:
        many = len(roster.agents)
        followed = {"agents": many, "quorum": quorum_among(settings.get("quorum"), agents, many)}
        agents = many
    known, own = roster.agents.keys(), engine.get("agent", name)
    if budgets and (budgets.keys() != known or own != name):
        listed = ", ".join(budgets)
        raise ConfigurationError("budgets", listed, f"{', '.join(known)} as in the roster, this one as {own}")
    graph = roster.edges is not None and own in known  # a stranger is refused by the engine
    # One noise for the total of all agents follows from how many there are.
    if (graph or settings["trust"].joint) and agents != len(known):
        raise ConfigurationError("federation.agents", agents, f"{len(known)}, as many as the roster has")
    if not graph:
        return followed
    topology = roster.topology()
    for clique_size in {len(clique) for clique in topology.cliques}:  # all pass words on for all others
        settings["trust"].on_graph().among(clique_size)
    members = topology.members(topology.labels.index(own))
    clique = tuple(topology.labels[member] for member in members)
    return {**followed, "clique": clique, "cliques": len(topology.cliques)}


def _require_known(plain: dict[str, Any]) -> None:
    for section, table in plain.items():
        if section not in _SECTIONS:
            known = ", ".join((*_SECTIONS, "recipe", "budgets", "engine", "keeper"))
            raise ConfigurationError(section, "a section", f"one of {known}")
        if not isinstance(table, dict):
            raise ConfigurationError(section, table, "a section")
        for key, value in table.items():
            if key not in _SECTIONS[section]:
                known = ", ".join(_SECTIONS[section])
                raise ConfigurationError(f"{section}.{key}", value, f"one of {known}")
            kinds = _SECTIONS[section][key]
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                names = " or ".join(kind.__name__ for kind in kinds)
                raise ConfigurationError(f"{section}.{key}", value, f"of type {names}")


def _instant(value: datetime) -> float:
    if value.tzinfo is None:
        expected = "a time with its zone, such as 2027-01-01T00:00:00Z"
        raise ConfigurationError("releases.start", str(value), expected)
    return value.timestamp()
