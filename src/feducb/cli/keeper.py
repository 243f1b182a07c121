"""`feducb keeper`: run a keeper of pads, and see how it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feducb.cli.output import show_status
from feducb.controller.controller_file import read_status
from feducb.controller.controller_health import judge_keeper
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
    """What the keeper last said of itself, as JSON. Status 0: green, 1: it does not run, 3: trouble."""
    show_status(read_status(KeeperSettings.read(config), of="keeper"), "keeper", judge_keeper)
