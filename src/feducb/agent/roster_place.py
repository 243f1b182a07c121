"""An agent's place among the others, as the roster of a season has it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from feducb.agent.settings import AgentSettings
from feducb.config import Budget
from feducb.errors import ConfigurationError
from feducb.protocol.engine_table import require_text
from feducb.protocol.roster import Roster
from feducb.protocol.signed_roster import all_rosters, of_season, quorum_among, stamp

__all__ = ["NEVER", "Place", "in_season", "joins", "read_place", "rosters_of"]

NEVER: Final = sys.maxsize  # a season that does not come


def rosters_of(engine: Mapping[str, Any], base: Path) -> list[Roster]:
    """All versions of the roster that the ``[engine]`` table names, oldest first."""
    authority = base / require_text("engine.ca", engine["ca"]) if "ca" in engine else None
    rosters = all_rosters(base / require_text("engine.roster", engine["roster"]), authority)
    if authority is None and len(rosters) > 1:  # anybody could have written them
        expected = f"ca.pem, which proves who signed version {rosters[-1].version} of the roster"
        raise ConfigurationError("engine.ca", None, expected)
    return rosters


def in_season(rosters: Sequence[Roster], season: int | None, version: int | None = None) -> Roster:
    """The roster of a season; the newest if none is given, or this version if one is."""
    if version is not None and (known := [one for one in rosters if one.version == version]):
        return known[0]
    return rosters[-1] if season is None else of_season(rosters, season)


def joins(rosters: Sequence[Roster], name: str, season: int, version: int | None = None) -> int | None:
    """With which later season an agent comes in, or `NEVER`, for all that is known; None if it is in."""
    if name in in_season(rosters, season, version).agents:
        return None
    later = (one.since for one in rosters if one.since > season)
    return min((since for since in later if name in of_season(rosters, since).agents), default=NEVER)


class Place:
    """With which season an agent comes in, by the versions of the roster that are there when it is asked."""

    def __init__(self, engine: Mapping[str, Any], base: Path, name: str) -> None:
        self._engine, self._base, self._name = engine, base, name
        self._path = base / require_text("engine.roster", engine["roster"])
        self._known: tuple[object, int | None] = (None, None)  # files are read again when one of them changes

    def __call__(self, season: int) -> int | None:
        """As `joins`."""
        seen = (season, stamp(self._path))
        if seen != self._known[0]:
            self._known = (seen, joins(rosters_of(self._engine, self._base), self._name, season))
        return self._known[1]


def _own_roster(rosters: Sequence[Roster], name: str, first: int) -> Roster:
    """That of an agent's first season to come; where there is none, the last that it was in."""
    if first != NEVER:
        return of_season(rosters, first)
    return next((one for one in reversed(rosters) if name in one.agents), rosters[-1])


def read_place(
    engine: Mapping[str, Any],
    base: Path,
    settings: Mapping[str, Any],
    budgets: Mapping[str, Budget],
    season: int | None,
    version: int | None = None,
) -> dict[str, Any]:
    """What the roster says about the agent's place: its clique, where there is a graph.

    A later version than the first one here also says how many agents there are, and the quorum follows; to
    a newcomer the first one does, too, whether its ``agents`` count it or not. Budgets are those of the
    roster's agents: what the file says of others, who come later or have left, is for their seasons. Without
    one of its own an agent has no place: with budgets a newcomer goes by its first season, and who was
    removed by its last; as sums meanwhile are not of all those agents, it reads none of them.

    Args:
        engine: the ``[engine]`` table.
        base: the folder that its paths are relative to.
        settings: what the other tables say.
        budgets: everybody's, which must be those of the roster; of agents of other versions too.
        season: of which the roster is wanted; None takes the newest.
        version: the one that the agent opened that season with, if it is known.
    """
    if engine.get("kind", "none") == "none" or "roster" not in engine:
        return {}
    rosters = rosters_of(engine, base)
    roster, followed = in_season(rosters, season, version), dict[str, Any]()
    name, agents = settings.get("name", AgentSettings.name), settings.get("agents", 1)
    own = engine.get("agent", name)
    first = joins(rosters, own, season) if budgets and season is not None else None
    if first is not None:
        roster, settings = _own_roster(rosters, own, first), {**settings, "quorum": None}
    known = roster.agents.keys()
    if roster is not rosters[0] or (own not in known and any(own in one.agents for one in rosters)):
        many = len(roster.agents)
        followed = {"agents": many, "quorum": quorum_among(settings.get("quorum"), agents, many)}
        agents = many
    if budgets:
        others = {one for version in rosters for one in version.agents} - known
        if budgets.keys() - others != known or own != name:
            listed, expected = ", ".join(budgets), f"{', '.join(known)} as in the roster, this one as {own}"
            raise ConfigurationError("budgets", listed, expected)
        followed["budgets"] = {one: budget for one, budget in budgets.items() if one in known}
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
