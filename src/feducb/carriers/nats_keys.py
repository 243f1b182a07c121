"""Keys, certificates and the server's configuration for a federation over NATS.

    DIR/
      federation.json  ca.pem              public: everybody needs both
      federation.2.json  …                 public: later versions (`protocol.signed_roster`)
      ca/ca.key                            keep it off line; signs rosters and the server's certificate
      server/server.pem  server.key  nats-server.conf
      agents/NAME/agent.seed               one folder a machine
      controller/controller.seed  controller.x25519
      keepers/NAME/keeper.seed             for those agents that keep pads, another key than the agent's
      admin/admin.seed                     without a controller: makes the streams

Permissions are what the protocol needs and no more. With a controller an agent publishes in its own name and
hears its own replies and the sums; a keeper hears lists for itself, and says its card and answers. On a graph
an agent publishes to its neighbours and reads what is for itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from feducb.carriers.authority import (
    hosts_of,
    issue_server_certificate,
    make_authority,
    write_file,
)
from feducb.carriers.broker_file import (
    Server,
    choose_sync,
    server_configuration,
    server_settings,
    write_server_settings,
)
from feducb.carriers.key_requests import KeyRequest, new_seed
from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.protocol.graphs import Topology
from feducb.protocol.names import require_name
from feducb.protocol.roster import Roster
from feducb.protocol.secure_rows import ask_size
from feducb.protocol.signed_roster import all_rosters, newest_roster, sign_roster
from feducb.system import optional

with optional("making keys", "nats"):
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

__all__ = [
    "Server",
    "add",
    "configure",
    "init",
    "issue_server_certificate",
    "remove",
    "require_bound",
    "require_near",
    "rotate",
]

_SERVER = Server()
_NEAR = 366  # seasons: a year of days


def init(
    folder: Path,
    agents: Sequence[str],
    *,
    federation: str = "feducb",
    topology: Topology | None = None,
    keepers: Sequence[str] = (),
    server: Server = _SERVER,
) -> Roster:
    """Make everything for a new federation, in a folder that does not exist or is empty.

    With a ``topology``, a graph over the agents in their order, there is no controller, and no ``keepers``.
    """
    names = [require_name("agent", name) for name in agents]
    if len(set(names)) != len(names) or not names:
        raise ConfigurationError("agents", ",".join(agents), "one or more different names")
    if topology is not None and topology.agents != len(names):
        raise ConfigurationError("agents", len(names), f"{topology.agents}, as many as in {topology.name}")
    require_name("federation", federation)
    _require_keepers(keepers, names, topology, server)
    sync = choose_sync(server.sync, stores=topology is not None)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigurationError("folder", str(folder), "a folder that does not exist yet, or is empty")
    folder.mkdir(parents=True, exist_ok=True)
    make_authority(folder, federation)
    issue_server_certificate(folder, server.hosts, valid=timedelta(days=server.days))
    public = {name: new_seed(folder / "agents" / name / "agent.seed") for name in names}
    if topology is None:
        controller, sealing = _new_controller(folder)
        own = {name: new_seed(folder / "keepers" / name / "keeper.seed") for name in keepers}
        roster = Roster(
            federation=federation, agents=public, controller=controller, sealing=sealing, keepers=own
        )
    else:
        new_seed(folder / "admin" / "admin.seed")
        near = enumerate(topology.neighbours)
        pairs = ((one, other) for one, others in near for other in others if one < other)
        edges = sorted((names[one], names[other]) for one, other in pairs)
        roster = Roster(federation=federation, agents=public, edges=tuple(edges), ttl=topology.ttl)
    write_server_settings(folder, (server.address, server.port), server.max_payload, sync=sync)
    return _finish(folder, roster)


def _require_keepers(
    keepers: Sequence[str], names: Sequence[str], topology: Topology | None, server: Server
) -> None:
    """Raise unless these can be keepers."""
    if not keepers:
        return
    given = ", ".join(keepers)
    if topology is not None:
        raise ConfigurationError(
            "keepers", given, "none on a graph: members of a clique hide each other's rows"
        )
    if strangers := set(keepers) - set(names):
        raise ConfigurationError("keepers", ", ".join(sorted(strangers)), f"agents: {', '.join(names)}")
    if len(set(keepers)) < 2 or len(set(keepers)) != len(keepers):
        raise ConfigurationError("keepers", given, "at least two different agents, of different owners")
    if (size := ask_size(len(names))) > server.max_payload:
        expected = f"at least {size}, the bytes of a list of {len(names)} agents"
        raise ConfigurationError("max_payload", server.max_payload, expected)


def add(folder: Path, request: KeyRequest, *, season: int, near: Sequence[str] = ()) -> Roster:
    """Take a newcomer in: the next version of the roster has it, last, from a season on.

    Args:
        folder: what `init` made.
        request: what the newcomer's own machine made, whose private keys stay there.
        season: the first one that it is part of.
        near: on a graph, its neighbours.
    """
    before = newest_roster(folder / "federation.json", folder / "ca.pem")
    _require_of(before, request)
    if request.name in before.agents:
        expected = "a new one; `feducb keys rotate --request` gives an agent another key"
        raise ConfigurationError("name", request.name, expected)
    edges = before.edges
    if edges is None and near:
        raise ConfigurationError("near", ", ".join(near), "nothing where there is a controller")
    if edges is not None:
        if not near or not before.agents.keys() >= set(near):
            raise ConfigurationError("near", ", ".join(near), f"neighbours: {', '.join(before.agents)}")
        edges = (*edges, *((name, request.name) for name in sorted(set(near))))
    keepers = before.keepers
    if request.keeper is not None:
        if not keepers:
            raise ConfigurationError("keeper", request.name, "none: this federation has no keepers")
        keepers = keepers | {request.name: request.keeper}
    after = replace(before, agents=before.agents | {request.name: request.nkey}, keepers=keepers, edges=edges)
    after.require_apart()
    _require_season(before, season)
    for kind in ("agent", *(("keeper",) if request.keeper is not None else ())):
        own = folder / f"{kind}s" / request.name
        own.mkdir(parents=True, exist_ok=True)
        (own / f"{kind}.seed").unlink(missing_ok=True)  # of one of this name that left: else it is given out
    return _next(folder, before, after, since=season)


def remove(folder: Path, name: str, *, season: int) -> Roster:
    """Take an agent out of the next version, which holds from a season on; its keys, as a keeper too.

    The server lets it in no more once it has read its new configuration.
    """
    before = newest_roster(folder / "federation.json", folder / "ca.pem")
    if name not in before.agents:
        raise ConfigurationError("agent", name, f"one of {', '.join(before.agents)}")
    after = replace(
        before,
        agents={one: key for one, key in before.agents.items() if one != name},
        keepers={one: key for one, key in before.keepers.items() if one != name},
        edges=None if before.edges is None else tuple(edge for edge in before.edges if name not in edge),
    )
    if before.keepers and not after.keepers:
        raise ConfigurationError("keepers", "none", "at least two, where rows are padded")
    _require_season(before, season)
    return _next(folder, before, after, since=season)


def rotate(
    folder: Path,
    *,
    agents: Iterable[str] = (),
    keepers: Iterable[str] = (),
    requests: Iterable[KeyRequest] = (),
    controller: bool = False,
    server: Server | None = None,
    season: int | None = None,
) -> Roster:
    """Make new keys in place of old ones, which no longer work once the server has read its configuration.

    Args:
        folder: what `init` made.
        agents: whose keys.
        keepers: whose keys as keepers.
        requests: of agents, and keepers, that made their new keys themselves.
        controller: whether to renew the controller's, both of them.
        server: renew the server's certificate for so many days; for its ``hosts``, or those of the old one
            if there are none.
        season: from which on others go by the new keys; at once if not given, also where a version waits for
            a later season. Where there are keepers it is needed: rows of a season are bound to the keys of
            its start. With a controller and no keepers there is none: the server knows the new keys alone.
    """
    path = folder / "federation.json"
    before, agents, keepers, requests = (
        newest_roster(path, folder / "ca.pem"),
        tuple(agents),
        tuple(keepers),
        tuple(requests),
    )
    changed = bool(agents or keepers or requests or controller)
    if changed and before.keepers and season is None:
        expected = "from which on others go by the new keys: rows of a season are bound to those of its start"
        raise ConfigurationError("season", None, expected)
    if changed and season is not None and before.controller is not None and not before.keepers:
        expected = "nothing: where there are no keepers new keys hold at once, as they do at the server"
        raise ConfigurationError("season", season, expected)
    if controller and before.controller is None:
        raise ConfigurationError("controller", True, "a federation with a controller")
    public, kept = dict(before.agents), dict(before.keepers)
    for request in requests:
        _require_of(before, request)
        _require_known(request.name, "agent", public)
        if request.before not in (None, public[request.name]):
            expected = f"the key of {request.name} in the roster, {public[request.name]}"
            raise ConfigurationError("request", f"signed by {request.before} as the key before", expected)
        public[request.name] = request.nkey
        if request.keeper is not None:
            _require_known(request.name, "keeper", kept)
            kept[request.name] = request.keeper
    for names, kind, known in ((agents, "agent", public), (keepers, "keeper", kept)):
        for name in names:
            _require_known(name, kind, known)
    if changed:  # before anything is written
        if requests:
            replace(before, agents=public, keepers=kept).require_apart()
        _require_season(before, season)
        sign_roster(before, folder / "ca" / "ca.key")
    hosts = () if server is None else server.hosts or hosts_of(folder)
    public |= {name: new_seed(folder / "agents" / name / "agent.seed") for name in agents}
    kept |= {name: new_seed(folder / "keepers" / name / "keeper.seed") for name in keepers}
    after = replace(before, agents=public, keepers=kept)
    if controller:
        public_key, sealing = _new_controller(folder)
        after = replace(after, controller=public_key, sealing=sealing)
    if server is not None:
        issue_server_certificate(folder, hosts, valid=timedelta(days=server.days))
    return _next(folder, before, after, since=season) if changed else _finish(folder, before)


def configure(folder: Path, *, listen: tuple[str, int] | None = None, sync: bool | None = None) -> None:
    """Have the server listen elsewhere, or write through or not; what is not given stays as it was."""
    roster = newest_roster(folder / "federation.json", folder / "ca.pem")
    listened, max_payload, synced = server_settings(folder)
    if sync is not None:
        synced = choose_sync(sync, stores=roster.edges is not None)
    write_server_settings(folder, listen or listened, max_payload, sync=synced)
    _finish(folder, roster)


def _require_of(before: Roster, request: KeyRequest) -> None:
    if request.federation != before.federation:
        raise ConfigurationError("request", f"for {request.federation}", f"one for {before.federation}")


def _require_known(name: str, kind: str, known: dict[str, str]) -> None:
    if name not in known:
        expected = f"one of {', '.join(known)}" if known else f"none: this federation has no {kind}s"
        raise ConfigurationError(kind, name, expected)


def _require_season(before: Roster, season: int | None) -> None:
    """Raise unless the version after one can hold from this season on."""
    if season is not None and season < before.since:
        expected = f"at least {before.since}, from which on version {before.version} holds"
        raise ConfigurationError("season", season, expected)
    require_integer("season", before.since if season is None else season, at_least=1)


def require_bound(folder: Path, season: int, trust: str | None) -> None:
    """Raise for a season of new keys on a graph, unless rows are bound to it there, as the trust says."""
    graph = newest_roster(folder / "federation.json", folder / "ca.pem").edges is not None
    if not graph and trust not in (None, "keepers"):
        raise ConfigurationError("--trust", trust, "keepers, or nothing where there is a controller")
    if graph and trust != "keepers":
        expected = (
            'nothing on a graph, where new keys hold at once; but if agent.toml says trust = "keepers" they '
            "hold from a season on: then say --trust keepers too"
        )
        raise ConfigurationError("--season", season, expected)


def require_near(folder: Path, season: int) -> None:
    """Raise for a season that is so far off that it is a slip: no later version may hold before it."""
    newest = newest_roster(folder / "federation.json", folder / "ca.pem")
    if season > (most := newest.since + _NEAR):
        stands = f"version {newest.version} holds from season {newest.since} on"
        expected = f"at most {most} ({stands}), as no later change could hold before it; --far if you mean it"
        raise ConfigurationError("--season", season, expected)


def _next(folder: Path, before: Roster, after: Roster, *, since: int | None) -> Roster:
    """Sign and write the version after, which holds from a season on."""
    if after.edges is not None:
        after.topology()  # or there is none
    after = replace(after, version=before.version + 1, since=before.since if since is None else since)
    after = sign_roster(after, folder / "ca" / "ca.key")
    write_file(folder / f"federation.{after.version}.json", after.to_json())
    return _finish(folder, after)


def _finish(folder: Path, roster: Roster) -> Roster:
    """Write what follows from the newest roster, and put the public files beside every key."""
    path = folder / "federation.json"
    if not path.exists():
        roster = sign_roster(roster, folder / "ca" / "ca.key")
        write_file(path, roster.to_json())
    write_file(folder / "server" / "nats-server.conf", server_configuration(folder, roster))
    versions = [one.version for one in all_rosters(path, folder / "ca.pem")]
    names = ["ca.pem", path.name, *(f"federation.{one}.json" for one in versions[1:])]
    parts = [folder / "agents" / name for name in roster.agents]
    parts += [folder / "keepers" / name for name in roster.keepers]
    for part in (*parts, folder / "controller", folder / "admin"):
        if part.is_dir():
            for name in names:
                shutil.copyfile(folder / name, part / name)
    return roster


def _new_controller(folder: Path) -> tuple[str, str]:
    """New keys of the controller; the public ones, to sign and to seal."""
    sealing = X25519PrivateKey.generate()
    private = sealing.private_bytes_raw().hex() + "\n"
    write_file(folder / "controller" / "controller.x25519", private, private=True)
    signing = new_seed(folder / "controller" / "controller.seed")
    return signing, sealing.public_key().public_bytes_raw().hex()
