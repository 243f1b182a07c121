"""Settings of engines, as an ``[engine]`` table writes them.

[engine]
kind = "nats"
servers = ["tls://broker.example:4222"]
federation = "clinics"            # must be the roster's
agent = "a"                       # an agent's name in the roster
roster = "federation.json"        # paths are relative to the file that holds the table
seed = "agent.seed"
ca = "ca.pem"
state = "peers.db"                # on a graph only: what was heard of the clique
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feducb.config import require_finite
from feducb.errors import ConfigurationError
from feducb.protocol.names import require_name
from feducb.protocol.roster import Roster
from feducb.protocol.signed_roster import all_rosters, of_season, with_newest_keys

__all__ = ["NatsSettings", "require_keys", "require_text"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NatsSettings:
    """How an agent or a controller reaches its federation over NATS."""

    servers: tuple[str, ...]  # ``tls://HOST:PORT``, tried in turn
    federation: str  # its name
    roster: Path  # the public file, see `Roster`
    seed: Path  # the own nkey's seed, a private file
    ca: Path  # whom to trust with the server's certificate
    agent: str | None = None  # the own name; None for a controller
    state: Path | None = None  # a peer's file; needed on a graph
    sealing: Path | None = None  # a controller's X25519 key; opens raw uploads
    timeout: float = 5.0  # seconds to wait for an answer
    retry: float = 1.0  # seconds between attempts; with trouble it grows up to ten times this
    refresh: float = 30.0  # seconds after which to ask for the newest sum again, in case one was missed

    def __post_init__(self) -> None:
        require_name("engine.federation", self.federation)
        if self.agent is not None:
            require_name("engine.agent", self.agent)
        if not self.servers:
            raise ConfigurationError("engine.servers", [], "at least one tls://HOST:PORT")
        for server in self.servers:
            if not isinstance(server, str) or not server.startswith(("tls://", "nats://")):
                raise ConfigurationError("engine.servers", server, "tls://HOST:PORT")
        for name in ("timeout", "retry", "refresh"):
            require_finite(f"engine.{name}", getattr(self, name), above=0.0)
        for name in ("roster", "seed", "ca", "sealing"):
            path = getattr(self, name)
            if path is not None and not path.is_file():
                raise ConfigurationError(f"engine.{name}", str(path), "a file that exists")

    @classmethod
    def from_table(cls, table: Mapping[str, Any], *, base: Path = Path()) -> NatsSettings:
        """Read an ``[engine]`` table, whose paths are relative to ``base``."""
        paths, numbers = ("roster", "seed", "ca", "state", "sealing"), ("timeout", "retry", "refresh")
        needed = ("servers", "federation", "roster", "seed", "ca")
        require_keys("engine", table, needed=needed, known=("kind", "agent", *paths, *numbers))
        if table.get("kind", "nats") != "nats":
            raise ConfigurationError("engine.kind", table["kind"], "nats")
        servers = table["servers"]
        if not isinstance(servers, list):
            raise ConfigurationError("engine.servers", servers, "a list of tls://HOST:PORT")
        settings: dict[str, Any] = {name: table[name] for name in ("agent", *numbers) if name in table}
        for name in paths:
            if name in table:
                settings[name] = base / require_text(f"engine.{name}", table[name])
        federation = require_text("engine.federation", table["federation"])
        return cls(servers=tuple(servers), federation=federation, **settings)

    def read_roster(self, season: int | None = None, *, newest_keys: bool = False) -> Roster:
        """The roster of a season, or the newest: of this federation, and this agent must be in one of them.

        It may come with a later one, or have been in an earlier one. With ``newest_keys`` keys are those of
        today, whoever is in it (`with_newest_keys`).
        """
        rosters = self.read_rosters()
        roster = rosters[-1] if season is None else of_season(rosters, season)
        return with_newest_keys(roster, rosters[-1]) if newest_keys else roster

    def read_rosters(self) -> list[Roster]:
        """All versions of the roster, oldest first; checked as one of them is."""
        rosters = all_rosters(self.roster, self.ca)
        federation, agents = rosters[-1].federation, rosters[-1].agents
        if federation != self.federation:
            raise ConfigurationError("engine.federation", self.federation, f"{federation}, as in the roster")
        if self.agent is not None and not any(self.agent in one.agents for one in rosters):
            raise ConfigurationError("engine.agent", self.agent, f"one of {', '.join(agents)}")
        return rosters


def require_keys(
    name: str, table: Mapping[str, Any], *, needed: tuple[str, ...] = (), known: tuple[str, ...] = ()
) -> None:
    """Raise unless a table has all keys that are needed, and none that nobody reads."""
    if not isinstance(table, Mapping):
        raise ConfigurationError(name, table, "a table")
    for key in needed:
        if key not in table:
            raise ConfigurationError(f"{name}.{key}", None, "a value: it is needed")
    for key in table:
        if key not in needed and key not in known:
            expected = f"one of {', '.join(sorted((*needed, *known)))}"
            raise ConfigurationError(f"{name}.{key}", table[key], expected)


def require_text(name: str, value: object) -> str:
    """Return ``value`` if it is text, else raise."""
    if not isinstance(value, str) or not value:
        raise ConfigurationError(name, value, "text")
    return value
