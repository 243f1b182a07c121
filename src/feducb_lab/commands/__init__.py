"""The lab's commands; the library's command line finds them by their entry point."""

from __future__ import annotations

import typer

from feducb_lab.commands.evidence import bench, figure, report
from feducb_lab.commands.tour_command import tour

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add them to the command line."""
    app.command(rich_help_panel="Try it on this machine")(tour)
    for command in (figure, report, bench):
        app.command(rich_help_panel="Evidence: figures, speed")(command)
