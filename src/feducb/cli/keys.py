"""`feducb keys`: keys, certificates and the server's configuration for a federation over NATS."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feducb.cli.options import option, takes_options
from feducb.cli.output import errors_to, note
from feducb.errors import ConfigurationError

if TYPE_CHECKING:
    from feducb.carriers.key_requests import KeyRequest
    from feducb.protocol.roster import Roster

__all__ = ["app"]

app = typer.Typer(
    help="Keys, certificates and the NATS server's configuration for a federation.", no_args_is_help=True
)

_Folder = Annotated[Path, typer.Argument(help="The folder with everything; keep it private.")]
_Host = Annotated[
    list[str] | None, typer.Option("--host", help="A name or address of the server; can be repeated.")
]
_Days = Annotated[int, typer.Option(help="Until the server's certificate expires.")]
_LISTEN = "HOST:PORT on which the server listens; 0.0.0.0:4222 so that other machines reach it."
_Sync = Annotated[
    bool | None,
    typer.Option(
        "--sync/--no-sync",
        help="On a graph: the server acknowledges what is on disk, which nats-server can from 2.10 on.",
        show_default="as the nats-server here can",
    ),
]
_LOOPBACK = ("127.", "[::1]", "localhost")


@dataclass(frozen=True, kw_only=True, slots=True)
class _New:
    """The options of `init`."""

    folder: _Folder
    agents: Annotated[str, typer.Option(help="Names, separated by commas.")]
    federation: str = option("feducb", "The federation's name.")
    host: _Host = None
    topology: str | None = option(None, "A graph over the agents in their order, e.g. ring:8; no controller.")
    ttl: int = option(1, "γ, hops that a release lives on the graph.")
    keepers: str | None = option(
        None, "Agents that keep pads, for trust = keepers: names, separated by commas.", shown="none"
    )
    listen: str = option("127.0.0.1:4222", _LISTEN)
    days: _Days = 365
    max_payload: int = option(2**20, "Bytes of the largest message.")
    sync: _Sync = None


@app.command()
@takes_options
def init(new: _New) -> None:
    """Make everything for a new federation."""
    from feducb.carriers import nats_keys as keys
    from feducb.protocol.graphs import parse_topology

    address, port = _parse_listen(new.listen)
    keys.init(
        new.folder,
        _names(new.agents),
        keepers=_names(new.keepers or ""),
        federation=new.federation,
        topology=None if new.topology is None else parse_topology(new.topology, ttl=new.ttl),
        server=keys.Server(
            hosts=new.host or ["localhost", "127.0.0.1"],
            address=address,
            port=port,
            days=new.days,
            max_payload=new.max_payload,
            sync=new.sync,
        ),
    )
    errors_to.print(
        f"wrote {new.folder}; ca/ca.key signs rosters and for the server: keep it off line", highlight=False
    )
    if address.startswith(_LOOPBACK):
        note(
            f"only programs on its own machine reach the server at {new.listen}; for agents on other "
            f"machines `feducb keys rotate {new.folder} --listen 0.0.0.0:{port}`"
        )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


_Request = Annotated[Path, typer.Argument(help="The file that `feducb keys request` wrote at the site.")]
_Season = Annotated[int, typer.Option(help="From which season on; a later one than the open one.")]
_FAR = "The season is meant, though it is more than 366 after the newest version's."


@app.command()
def request(
    name: Annotated[str, typer.Argument(help="The agent's name in the federation.")],
    federation: Annotated[str, typer.Option(help="The federation's name.")],
    keeper: bool = option(False, "It keeps pads too, with a key for that.", "--keeper"),
    folder: Annotated[Path, typer.Option(help="Where the keys are kept.")] = Path(),
    before: Path | None = option(
        None,
        "The agent's seed so far, which signs the request for a new one.",
        shown="agent.seed, if it is here",
    ),
) -> None:
    """At a site that wants to join, or another key: make its keys, which stay here, and a request."""
    from feducb.carriers.key_requests import make_request, read_request

    here = Path("agent.seed")
    if before is None and here.exists() and folder.resolve() != Path.cwd():
        before = here
    path = make_request(folder, name, federation=federation, keeper=keeper, before=before)
    errors_to.print(f"wrote {path}, for the operator; the private key stays in {folder}", highlight=False)
    _show_keys(read_request(path))


@app.command()
def add(
    folder: _Folder,
    request: _Request,
    season: _Season,
    near: str | None = option(None, "On a graph: its neighbours, separated by commas.", shown="none"),
    far: bool = option(False, _FAR, "--far"),
) -> None:
    """Take a newcomer in: sign the next version of the roster, and say who must be given what."""
    from feducb.carriers import nats_keys as keys
    from feducb.carriers.key_requests import read_request

    asked = read_request(request)
    if not far:
        keys.require_near(folder, season)
    roster = keys.add(folder, asked, season=season, near=_names(near or ""))
    _show_keys(asked)
    folders = [f"agents/{asked.name}"] + ([f"keepers/{asked.name}"] if asked.keeper else [])
    _say_next(folder, roster, f"{' and '.join(folders)} (nothing private) to {asked.name}")


@app.command()
def remove(
    folder: _Folder,
    name: Annotated[str, typer.Argument(help="The agent's name.")],
    season: _Season,
    far: bool = option(False, _FAR, "--far"),
) -> None:
    """Take an agent out of the next version of the roster, and say who must be given what."""
    from feducb.carriers import nats_keys as keys

    if not far:
        keys.require_near(folder, season)
    roster = keys.remove(folder, name, season=season)
    _say_next(folder, roster, None)
    note(
        f"once the server has reloaded, {name} is cut off; sums of the seasons before {season} still count "
        "it among all agents, and go on by their quorum and deadline"
    )


def _show_keys(asked: KeyRequest) -> None:
    """So that operator and site can compare over another line that nobody changed the file."""
    for role, nkey in (("agent", asked.nkey), ("keeper", asked.keeper)):
        if nkey is not None:
            errors_to.print(f"{role} {asked.name}: {nkey}", highlight=False)


def _say_next(folder: Path, roster: Roster, newcomer: str | None) -> None:
    """What to do with a new version."""
    file = f"federation.{roster.version}.json"
    errors_to.print(f"wrote {folder}; now", highlight=False)
    where = "the controller, whom agents and keepers ask for it," if roster.edges is None else "each agent,"
    steps = [
        f"give out what changed: server to the server; {file} to {where} beside its federation.json",
        "reload nats-server",
        f"version {roster.version} holds from season {roster.since} on; nobody is restarted",
    ]
    if newcomer is not None:
        steps.insert(1, f"give {newcomer}")
        if roster.edges is not None:
            steps.insert(3, f"run `feducb keys streams {folder} --server tls://HOST:PORT` once more, for it")
    for step in steps:
        errors_to.print(f"- {step}", highlight=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Renewed:
    """The options of `rotate`."""

    folder: _Folder
    agent: list[str] | None = option(None, "Whose key; can be repeated.")
    keeper: list[str] | None = option(None, "Whose key as a keeper; can be repeated.")
    request: list[Path] | None = option(None, "Of an agent that made its new keys itself; can be repeated.")
    controller: bool = option(False, "The controller's keys.", "--controller")
    server: bool = option(False, "The server's certificate.", "--server")
    host: _Host = None
    days: _Days = 365
    listen: str | None = option(None, _LISTEN, shown="as before")
    sync: _Sync = None
    old_key_lost: bool = option(
        False,
        "Take a --request that the key so far did not sign. Nothing proves who sent it: first compare its "
        "keys with the site over another line.",
        "--old-key-lost",
    )
    season: int | None = option(
        None,
        "From which season on others go by the new keys: needed with keepers, and on a graph where trust = "
        "keepers.",
        shown="at once",
    )
    trust: str | None = option(
        None, "On a graph, beside --season: keepers, as every agent.toml says.", shown="any other"
    )
    far: bool = option(False, _FAR, "--far")


@app.command()
@takes_options
def rotate(new: _Renewed) -> None:
    """Make new keys in place of old ones, and say who must be given what and be restarted."""
    from feducb.carriers import nats_keys as keys
    from feducb.carriers.key_requests import read_request

    changed = bool(new.agent or new.keeper or new.request or new.controller)
    settled = new.listen is not None or new.sync is not None
    if not (changed or new.server or new.host or settled):
        expected = "--agent, --keeper, --request, --controller or --server, --host, --listen, --sync"
        raise ConfigurationError("rotate", "nothing", expected)
    if new.season is not None and not new.far:
        keys.require_near(new.folder, new.season)
    if new.season is None and new.trust is not None:
        raise ConfigurationError("--trust", new.trust, "nothing without --season, when new keys hold")
    if new.season is not None and not changed:
        expected = "nothing where no keys change: the rest holds at once"
        raise ConfigurationError("--season", new.season, expected)
    if new.season is not None:
        keys.require_bound(new.folder, new.season, new.trust)
    asked = [read_request(path) for path in new.request or []]
    for one in asked:
        _show_keys(one)
        if one.before is None and not new.old_key_lost:
            expected = (
                f"one that the key of {one.name} so far signed too (`feducb keys request --before`); if that "
                "is lost, compare the keys above with the site over another line and say --old-key-lost"
            )
            raise ConfigurationError("--request", f"one for {one.name}", expected)
    listen = None if new.listen is None else _parse_listen(new.listen)
    certificate = keys.Server(hosts=new.host or (), days=new.days) if new.server or new.host else None
    roster = keys.rotate(
        new.folder,
        agents=new.agent or [],
        keepers=new.keeper or [],
        requests=asked,
        controller=new.controller,
        server=certificate,
        season=new.season,
    )
    if settled:
        keys.configure(new.folder, listen=listen, sync=new.sync)
    errors_to.print(f"wrote {new.folder}; now", highlight=False)
    for step in _next_steps(roster, new, asked):
        errors_to.print(f"- {step}", highlight=False)


def _next_steps(roster: Roster, new: _Renewed, requests: Sequence[KeyRequest]) -> list[str]:
    """Whose own key is another one must be restarted with it; others take a new roster over as it comes."""
    agents, keepers, asked = new.agent or [], new.keeper or [], [one.name for one in requests]
    anew = new.listen is not None or new.sync is not None
    change = "restart nats-server (it does not reload this)" if anew else "reload nats-server"
    if new.season is not None and (agents or keepers or asked or new.controller):
        return _steps_of_season(roster, new, requests, change)
    given = ["server to the server", *(f"agents/{name} to {name}" for name in agents)]
    given += [f"keepers/{name} to keeper {name}" for name in keepers]
    changed = bool(agents or keepers or asked or new.controller)
    if changed:
        file, central = f"federation.{roster.version}.json", roster.edges is None
        given.append(f"{file} to {'the controller' if central else 'all agents'}")
        # Its seed must be that of a roster that it has, and its old key asks for none any more.
        given += [f"{file} to {name}, beside its federation.json" for name in asked if central]
    if new.controller:
        given.append("controller to the controller")
    steps = [f"give out what changed: {'; '.join(given)}", change]
    restarted = ["the controller"] * new.controller + [*agents, *asked, *(f"keeper {one}" for one in keepers)]
    if restarted:
        named = " and ".join(filter(None, (", ".join(restarted[:-1]), restarted[-1])))
        steps.append(f"restart {named}, with the new key; nobody else")
    return steps


def _steps_of_season(roster: Roster, new: _Renewed, requests: Sequence[KeyRequest], change: str) -> list[str]:
    """Where new keys hold from a season on: whoever opens it needs its own by then, the server not before."""
    own = [
        *(f"agents/{name} to {name}" for name in new.agent or []),
        *(f"its agent.seed to {one.name}" for one in requests),
        *(f"its keeper.seed to keeper {one.name}" for one in requests if one.keeper is not None),
    ]
    own += [f"keepers/{name} to keeper {name}" for name in new.keeper or []]
    own += ["controller to the controller"] * new.controller
    where = "the controller" if roster.edges is None else "all agents"
    return [
        f"give federation.{roster.version}.json to {where}",
        f"shortly before season {new.season} begins put new keys in place, and restart nobody (with a new "
        f"key nobody starts before that season): {'; '.join(own)}",
        f"when everybody has opened season {new.season}: server to the server, and {change}",
        "then restart the controller; nobody else" if new.controller else "nobody is restarted",
    ]


def _parse_listen(text: str) -> tuple[str, int]:
    """Address and port of HOST:PORT; IPv6 in brackets, as nats-server wants it."""
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5})", text)
    if match is None or not 1 <= int(match[2]) <= 65535:
        expected = "HOST:PORT, such as 127.0.0.1:4222, 0.0.0.0:4222 (all addresses) or [::]:4222"
        raise ConfigurationError("--listen", text, expected)
    return match[1], int(match[2])


@app.command()
def streams(
    folder: _Folder,
    server: Annotated[str, typer.Option(help="tls://HOST:PORT of the running server.")],
    days: float = option(30.0, "How long messages are kept for an agent that is away."),
) -> None:
    """On a graph: make the JetStream stream and one consumer per agent, on the running server."""
    import asyncio

    from feducb.carriers.nats import make_streams
    from feducb.protocol.engine_table import NatsSettings
    from feducb.protocol.roster import Roster

    settings = NatsSettings(
        servers=(server,),
        federation=Roster.read(folder / "federation.json").federation,
        roster=folder / "federation.json",
        seed=folder / "admin" / "admin.seed",
        ca=folder / "ca.pem",
    )
    asyncio.run(make_streams(settings, days=days))
    errors_to.print("the stream and its consumers are there", highlight=False)
