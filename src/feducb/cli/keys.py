"""`feducb keys`: keys, certificates and the server's configuration for a federation over NATS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feducb.cli.output import errors_to

__all__ = ["app"]

app = typer.Typer(
    help="Keys, certificates and the NATS server's configuration for a federation.", no_args_is_help=True
)

_Folder = Annotated[Path, typer.Argument(help="The folder with everything; keep it private.")]
_Host = Annotated[
    list[str] | None, typer.Option("--host", help="A name or address of the server; can be repeated.")
]
_Days = Annotated[int, typer.Option(help="Until the server's certificate expires.")]


@app.command()
def init(
    folder: _Folder,
    agents: Annotated[str, typer.Option(help="Names, separated by commas.")],
    federation: Annotated[str, typer.Option(help="The federation's name.")] = "feducb",
    host: _Host = None,
    topology: Annotated[
        str | None, typer.Option(help="A graph over the agents in their order, e.g. ring:8; no controller.")
    ] = None,
    ttl: Annotated[int, typer.Option(help="γ, hops that a release lives on the graph.")] = 1,
    port: Annotated[int, typer.Option(help="The server's port.")] = 4222,
    days: _Days = 365,
    max_payload: Annotated[int, typer.Option(help="Bytes of the largest message.")] = 2**20,
) -> None:
    """Make everything for a new federation."""
    from feducb import keys
    from feducb.protocol.graphs import parse_topology

    keys.init(
        folder,
        [name.strip() for name in agents.split(",") if name.strip()],
        federation=federation,
        hosts=host or ["localhost", "127.0.0.1"],
        topology=None if topology is None else parse_topology(topology, ttl=ttl),
        port=port,
        days=days,
        max_payload=max_payload,
    )
    errors_to.print(f"wrote {folder}; ca/ca.key signs for the server: keep it off line", highlight=False)


@app.command()
def rotate(
    folder: _Folder,
    agent: Annotated[list[str] | None, typer.Option(help="Whose key; can be repeated.")] = None,
    controller: Annotated[bool, typer.Option("--controller", help="The controller's keys.")] = False,
    server: Annotated[bool, typer.Option("--server", help="The server's certificate.")] = False,
    host: _Host = None,
    days: _Days = 365,
) -> None:
    """Make new keys in place of old ones; then give out the files and reload the server."""
    from feducb import keys
    from feducb.errors import ConfigurationError

    if not (agent or controller or server or host):
        raise ConfigurationError("rotate", "nothing", "--agent, --controller or --server")
    keys.rotate(folder, agents=agent or [], controller=controller, server=server, hosts=host, days=days)
    errors_to.print(
        f"wrote {folder}; give out federation.json and the new seeds, reload nats-server, restart agents",
        highlight=False,
    )


@app.command()
def streams(
    folder: _Folder,
    server: Annotated[str, typer.Option(help="tls://HOST:PORT of the running server.")],
    days: Annotated[float, typer.Option(help="How long messages are kept for an agent that is away.")] = 30.0,
) -> None:
    """On a graph: make the JetStream stream and one consumer an agent, on the running server."""
    import asyncio

    from feducb.engines.nats import make_streams
    from feducb.engines.settings import NatsSettings
    from feducb.roster import Roster

    settings = NatsSettings(
        servers=(server,),
        federation=Roster.read(folder / "federation.json").federation,
        roster=folder / "federation.json",
        seed=folder / "admin" / "admin.seed",
        ca=folder / "ca.pem",
    )
    asyncio.run(make_streams(settings, days=days))
    errors_to.print("the stream and its consumers are there", highlight=False)
