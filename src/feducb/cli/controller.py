"""`feducb controller`: run a controller, and see how it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(
    help="The controller of a federation: collects releases, publishes their sums.", no_args_is_help=True
)

_Config = Annotated[Path, typer.Option("--config", help="The controller's TOML file (docs/deploy.md).")]


@app.command()
def serve(config: _Config = Path("controller.toml")) -> None:
    """Run until SIGTERM; logs are JSON lines on standard error."""
    from feducb.engines.controller import ControllerSettings
    from feducb.engines.controller import serve as run

    settings = ControllerSettings.read(config)
    if settings.page is not None:
        from feducb.service.controller_page import serve_beside

        serve_beside(settings, base=config.resolve().parent)
    run(settings)


@app.command()
def status(config: _Config = Path("controller.toml")) -> None:
    """What the controller last said about itself, as JSON; fails if it does not run."""
    from feducb.engines.controller import ControllerSettings, read_status

    told = read_status(ControllerSettings.read(config))
    typer.echo(json.dumps(told, indent=1))
    if not told["running"]:
        typer.echo(f"the controller does not run; it said this {told['seconds_ago']:g} s ago", err=True)
        raise typer.Exit(1)
