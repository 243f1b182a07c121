"""`feducb keeper`: run a keeper of pads, and see how it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from feducb.controller.controller_file import read_status
from feducb.controller.keeper_file import KeeperSettings

__all__ = ["app"]

app = typer.Typer(
    help="A keeper, under trust = keepers: tells the sum of its pads, for one list a row.",
    no_args_is_help=True,
)

_Config = Annotated[Path, typer.Option("--config", "-c", help="The keeper's TOML file (docs/deploy.md).")]
_DEFAULT = Path("keeper.toml")


@app.command()
def serve(config: _Config = _DEFAULT) -> None:
    """Run until SIGTERM; logs are JSON lines on standard error."""
    from feducb.carriers.keeper_process import serve as run

    run(KeeperSettings.read(config))


@app.command()
def status(config: _Config = _DEFAULT) -> None:
    """What the keeper last said about itself, as JSON; fails if it does not run."""
    last = read_status(KeeperSettings.read(config), of="keeper")
    typer.echo(json.dumps(last, indent=1))
    if not last["running"]:
        typer.echo(f"the keeper does not run; it said this {last['seconds_ago']:g} s ago", err=True)
        raise typer.Exit(1)
