"""`controller.toml`: what a controller is told; and the small file in which it says how it is.

[controller]
state = "controller.db"       # its file; one process at a time
quorum = 2                    # agents that a sum needs; all if left out
deadline = 60.0               # seconds after the first release of a number; left out: wait for all
close_after = 3600.0          # under trust "keepers": below the quorum for so long, a row is closed empty

[seasons]                     # as `feducb agent terms` writes it: the clock opens the next one
start = 2027-01-01T00:00:00Z  # without this table: `season = 1` in [controller]; raise it, and restart
season = 2592000.0            # seconds
first_season = 1              # the number of the one that starts at `start`

[terms]                       # public, the same for all agents
dim = 20
epsilon = 1.0
delta = 1e-6
releases = 200
trust = "nobody"              # or "controller", or "keepers" with
away = 1                      # how many agents may miss a row, and
colluding = 2                 # may tell the controller what they sent: a tenth and a fifth if left out
agents_per_person = 1         # but under "nobody": agents that one person visits; all if left out

[budgets.a]                   # where agents have budgets of their own: a table for each, and none in [terms];
epsilon = 2.0                 # as in every agent's file: `feducb agent terms` writes them
delta = 1e-6

[engine]                      # see `settings`; with sealing = "controller.x25519" to be trusted
"""

from __future__ import annotations

import json
import sqlite3
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from feducb.config import Budget, Problem, require_integer
from feducb.controller.collector import Collector, open_collector
from feducb.errors import ConfigurationError
from feducb.formats import CONTROLLER_TOML
from feducb.interfaces import Trust
from feducb.privacy.terms import Terms, require_agents_per_person
from feducb.protocol.calendar import Calendar
from feducb.protocol.engine_table import NatsSettings, require_keys, require_text
from feducb.protocol.pads import Charter
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.signed_roster import all_rosters, quorum_among
from feducb.storage import RowBook
from feducb.storage.sqlite import is_locked
from feducb.system import write_atomically
from feducb.trust import NOBODY, trust_with

__all__ = [
    "ControllerSettings",
    "read_calendar",
    "read_status",
    "read_toml",
    "roster_agreed",
    "season_after",
    "season_now",
    "status_path",
    "terms_from_table",
    "terms_of_all",
    "write_status",
]

_PROBLEM = ("action_bound", "reward_bound", "parameter_bound", "noise_scale", "reward_centre")
_PEOPLE = ("records_per_person", "agents_per_person", "spacing")
_TERMS = ("mechanism", "quiet", "decay", *_PEOPLE, "model", "recipe")
_TRUST = ("trust", "away", "colluding")
_TIMES = ("quorum", "deadline", "season", "close_after")


def terms_from_table(table: Mapping[str, Any], *, agents: int = 0) -> Terms:
    """Read a ``[terms]`` table: names of `Problem`, `Budget` and `Terms`, flat; for so many agents."""
    known = (*_PROBLEM, *_TERMS, *_TRUST)
    require_keys("terms", table, needed=("dim", "epsilon", "delta", "releases"), known=known)
    return Terms(
        problem=Problem(dim=table["dim"], **{name: table[name] for name in _PROBLEM if name in table}),
        budget=Budget(epsilon=table["epsilon"], delta=table["delta"]),
        releases=table["releases"],
        trust=_trust_of(table),
        agents=agents,
        **{name: table[name] for name in _TERMS if name in table},
    )


def _trust_of(table: Mapping[str, Any]) -> Trust:
    numbers = {name: table[name] for name in ("away", "colluding") if name in table}
    return trust_with(table.get("trust", NOBODY), **numbers)


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError("config", str(path), f"a TOML file ({error})") from None


def terms_of_all(
    common: Mapping[str, Any], budgets: Mapping[str, Any], names: tuple[str, ...]
) -> dict[str, Terms]:
    """By agent: the ``[terms]`` table with the budget of its own ``[budgets.NAME]``, if it has one.

    How many releases at the start nobody reads (``quiet``) follows from everybody's budgets, and ``decay``
    from the others. So one from an agent that was given no others' budgets does not go with them, and is
    refused here: or else the releases of all whose budget is another one would be, from number 2 on.
    """
    trust, agents = _trust_of(common), len(names)
    common = {"agents_per_person": trust.agents_visited(agents), **common}
    require_keys("budgets", budgets, known=names)
    for name, budget in budgets.items():
        require_keys(f"budgets.{name}", budget, needed=("epsilon", "delta"))
    if not budgets:
        return dict.fromkeys(names, terms_from_table(common, agents=agents))
    planned_for_one = "epsilon" in common and (common.get("quiet", 0) or "decay" in common)
    if planned_for_one or ("epsilon" not in common and len(budgets) < len(names)):
        expected = f"one for each of {', '.join(names)}, in every agent's file too"
        terms_then = "[terms] as `feducb agent terms` then writes it, without epsilon and delta"
        raise ConfigurationError("budgets", ", ".join(budgets), f"{expected}, and {terms_then}")
    terms = {name: terms_from_table({**common, **budgets.get(name, {})}, agents=agents) for name in names}
    trust.refuse("budgets", "budgets", ", ".join(budgets))
    return terms


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerSettings:
    """What a controller's file says."""

    state: Path  # the controller's own file
    terms: Mapping[str, Terms]  # by agent
    engine: NatsSettings  # how it is reached
    quorum: int | None = None  # see `open_collector`, as for the next three
    deadline: float | None = None
    season: int = 1
    close_after: float | None = None
    calendar: Calendar | None = None
    roster: Roster | None = None  # of the season that it was read for; by the engine's files if not given
    path: Path | None = None  # of the file itself, to be read again for the next season
    page: Mapping[str, Any] | None = None  # where the dashboard is served; None if it is not

    @classmethod
    def read(cls, path: Path, *, season: int | None = None) -> ControllerSettings:
        """Read a TOML file, for a season or the one that it names; its paths are relative to its folder.

        Agents are those of the season's roster, and where it is a later one the quorum follows.
        """
        plain = read_toml(path)
        known = ("budgets", "page", "seasons")
        require_keys("config", plain, needed=("controller", "terms", "engine"), known=known)
        table = plain["controller"]
        CONTROLLER_TOML.require(table.get("format", 1), "controller.format")
        require_keys("controller", table, needed=("state",), known=(*_TIMES, "format"))
        engine = NatsSettings.from_table(plain["engine"], base=path.parent)
        calendar = read_calendar(plain, table)
        if season is not None and calendar is None:
            table = table | {"season": season}
        state = path.parent / require_text("controller.state", table["state"])

        rosters, budgets = all_rosters(engine.roster, engine.ca), plain.get("budgets", {})
        require_keys("budgets", budgets, known=tuple(budgets) if isinstance(budgets, Mapping) else ())

        def promised(roster: Roster) -> dict[str, Terms]:
            others = {name for one in rosters for name in one.agents} - roster.agents.keys()
            here = {
                name: budgets[name] for name in budgets if name not in others
            }  # those are of other seasons
            return terms_of_all(plain["terms"], here, tuple(roster.agents))

        roster = engine.read_roster(season or season_now(table, calendar, state))
        if season is None:
            opened = season_now(table, calendar, state)
            roster = roster_agreed(engine, state, opened, lambda one: next(iter(promised(one).values())))
        many = (len(rosters[0].agents), len(roster.agents))
        if "quorum" in table:
            table = table | {"quorum": quorum_among(table["quorum"], *many)}
        terms = promised(roster)
        shared = next(iter(terms.values()))
        require_agents_per_person("terms.agents_per_person", shared.agents_per_person, len(terms))
        if shared.trust.raw and engine.sealing is None:
            raise ConfigurationError("engine.sealing", None, "a key file, where the controller is trusted")
        return cls(
            state=state,
            terms=terms,
            engine=engine,
            page=plain.get("page"),
            calendar=calendar,
            roster=roster,
            path=path,
            **{name: table[name] for name in _TIMES if name in table},
        )

    def open(self) -> Collector | RowBook:
        """The controller's file; raises `StoreInUseError` if another process has it."""
        padded = next(iter(self.terms.values())).trust.padded
        return open_collector(
            self.state,
            self.terms,
            quorum=self.quorum,
            deadline=self.deadline,
            season=self.season,
            close_after=self.close_after,
            signing=(self._of_season, Signer(self.engine.seed)) if padded else None,
            calendar=self.calendar,
        )

    @property
    def _of_season(self) -> Roster:
        return self.roster or self.engine.read_roster(self.season)

    def renew(self, collector: Collector | RowBook) -> None:
        """Give a controller what this file says for the seasons after the open one."""
        if isinstance(collector, RowBook):
            collector.renew(self._of_season, next(iter(self.terms.values())), Signer(self.engine.seed))
        else:
            collector.renew(self.terms, quorum=self.quorum)


def read_calendar(plain: Mapping[str, Any], table: Mapping[str, Any]) -> Calendar | None:
    """The ``[seasons]`` of a controller's or keeper's file; None if a number is told in its own table."""
    if "seasons" not in plain:
        return None
    if "season" in table:
        raise ConfigurationError("season", table["season"], "nothing beside [seasons]: the clock says it")
    return Calendar.from_table(plain["seasons"])


def season_now(table: Mapping[str, Any], calendar: Calendar | None, state: Path, *, of: str = "") -> int:
    """The one that a ``[controller]`` or ``[keeper]`` table names; by the clock, the one that is open.

    It may be over by now: what was agreed for it holds until it is closed. Where there is no file yet, the
    one that runs.
    """
    if calendar is not None:
        return _opened(state) or calendar.number_at(time.time())
    return require_integer(f"{of}season", table.get("season", 1), at_least=1)


def _opened(state: Path) -> int | None:
    """The season that a file has open; None if there is none, or it cannot be read."""
    for query in ("SELECT season FROM open_season", "SELECT max(season) FROM seasons"):
        if (found := _look_up(state, query)) is not None:
            return int(found)
    return None


def _look_up(state: Path, query: str, *values: int) -> Any:
    """What a file says; None if there is none, or it does not say that."""
    if not state.is_file():
        return None
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{state.resolve().as_uri()}?mode=ro", uri=True)) as db,
    ):
        row = db.execute(query, values).fetchone()
        return None if row is None else row[0]
    return None


def roster_agreed(engine: NatsSettings, state: Path, season: int, terms: Callable[[Roster], Terms]) -> Roster:
    """The roster of a season; where that is open, and rows or noise are bound to it, the one it began with.

    A later version may have come since: it holds from the next season on, however often this is restarted.
    """
    newest = engine.read_roster(season)
    charter = _look_up(state, "SELECT charter FROM open_season WHERE season = ?", season)
    own = "SELECT terms FROM seasons JOIN open_season USING (season) WHERE season = ?"
    promised = _look_up(state, own, season)  # where the controller is trusted
    if charter is None and promised is None:
        return newest
    for roster in reversed(all_rosters(engine.roster, engine.ca)):
        with suppress(ConfigurationError):  # terms that cannot be with so many agents
            if roster.since > season:
                continue
            if promised is not None and terms(roster) == Terms.from_json(promised):
                return roster
            if Charter.of(roster, terms(roster), season).digest == charter:
                return roster
    return newest


def season_after(opened: int, calendar: Calendar | None) -> int:
    """For which season what was edited holds: the one after the open one, or that runs, if that is later."""
    return opened + 1 if calendar is None else max(opened + 1, calendar.number_at(time.time()))


class _HasState(Protocol):
    @property
    def state(self) -> Path: ...


def status_path(settings: _HasState) -> Path:
    """Where a running controller or keeper says how it is."""
    return settings.state.with_name(f"{settings.state.name}.status.json")


def write_status(path: Path, facts: dict[str, Any]) -> None:
    """Say it; a reader sees the old file or the new one, never half of one."""
    with suppress(OSError):  # a full disk must not stop what can still be done
        write_atomically(path, json.dumps(facts, indent=1) + "\n")


def read_status(settings: _HasState, *, of: str = "controller") -> dict[str, Any]:
    """What a controller or keeper last said about itself, how many seconds ago, and whether it still runs."""
    path = status_path(settings)
    if not path.exists():
        raise ConfigurationError("status", str(path), f"a {of} that has been started")
    plain: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    running = is_locked(settings.state)  # the system frees the lock however a process ends
    since = round(time.time() - plain["at"], 1)
    return {"running": running, "seconds_ago": since, **plain, "connected": running and plain["connected"]}
