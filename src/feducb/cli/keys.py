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
        ),
    )
    errors_to.print(f"wrote {new.folder}; ca/ca.key signs for the server: keep it off line", highlight=False)
    if address.startswith(_LOOPBACK):
        note(
            f"only programs on its own machine reach the server at {new.listen}; for agents on other "
            f"machines `feducb keys rotate {new.folder} --listen 0.0.0.0:{port}`"
        )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@app.command()
def rotate(
    folder: _Folder,
    agent: list[str] | None = option(None, "Whose key; can be repeated."),
    keeper: list[str] | None = option(None, "Whose key as a keeper; can be repeated."),
    controller: bool = option(False, "The controller's keys.", "--controller"),
    server: bool = option(False, "The server's certificate.", "--server"),
    host: _Host = None,
    days: _Days = 365,
    listen: str | None = option(None, _LISTEN, shown="as before"),
) -> None:
    """Make new keys in place of old ones, and say who must be given what and be restarted."""
    from feducb.carriers import nats_keys as keys

    if not (agent or keeper or controller or server or host or listen):
        expected = "--agent, --keeper, --controller or --server, --host, --listen"
        raise ConfigurationError("rotate", "nothing", expected)
    roster = keys.rotate(
        folder,
        agents=agent or [],
        keepers=keeper or [],
        controller=controller,
        server=server,
        hosts=host,
        days=days,
        listen=None if listen is None else _parse_listen(listen),
    )
    errors_to.print(f"wrote {folder}; now", highlight=False)
    given = (agent or [], keeper or [])
    for step in _next_steps(roster, *given, controller=controller, listen=listen is not None):
        errors_to.print(f"- {step}", highlight=False)


def _next_steps(
    roster: Roster, agents: Sequence[str], keepers: Sequence[str], *, controller: bool, listen: bool
) -> list[str]:
    """Everybody checks signatures with the public keys that he read when he started."""
    changed = bool(agents or keepers or controller)
    everybody = controller or (changed and (roster.controller is None or bool(roster.keepers)))
    given = ["server to the server", *(f"agents/{name} to {name}" for name in agents)]
    given += [f"keepers/{name} to keeper {name}" for name in keepers]
    if roster.controller is not None and changed:
        given.append("controller to the controller")
    if everybody:
        given.append(f"federation.json to all agents{' and keepers' if roster.keepers else ''}")
    change = "restart nats-server (an address is not reloaded)" if listen else "reload nats-server"
    restarted = ["all agents"] if everybody else list(agents)
    if everybody and roster.keepers:
        restarted.append("all keepers")
    if roster.controller is not None and changed:
        restarted = ["the controller", *restarted] if everybody else [*restarted, "the controller"]
    steps = [f"give out what changed: {'; '.join(given)}", change]
    if restarted:
        named = " and ".join(filter(None, (", ".join(restarted[:-1]), restarted[-1])))
        steps.append(f"restart {named}, who know the old keys")
    if roster.keepers and changed:
        steps.append(
            "do so in a new season, at everybody: rows of the open one are bound to the keys of its start"
        )
    return steps


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
    """On a graph: make the JetStream stream and one consumer an agent, on the running server."""
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
