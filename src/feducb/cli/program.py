"""`feducb`: commands, and how errors end (status 2 and one sentence)."""

from __future__ import annotations

import sqlite3
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated

import click
import typer
from typer.core import TyperGroup

from feducb import __version__
from feducb.cli.agent import app as agent
from feducb.cli.controller_commands import app as controller
from feducb.cli.data import app as data
from feducb.cli.demo import demo
from feducb.cli.evaluate import evaluate
from feducb.cli.keeper import app as keeper
from feducb.cli.keys import app as keys
from feducb.cli.privacy import app as privacy
from feducb.cli.recipe import app as recipe
from feducb.cli.simulate import simulate
from feducb.cli.topology import topology
from feducb.cli.watch import watch
from feducb.errors import FeducbError

__all__ = ["app", "main"]

_HELP = (
    "Private federated decision-making: agents learn together without showing each other a visitor.\n\n"
    "Start with [bold]feducb demo[/bold], a minute on this machine. Before anything is deployed, "
    "[bold]feducb privacy plan[/bold] says whether federating pays, and [bold]feducb evaluate[/bold] asks a "
    "log of your own."
)
_EPILOG = (
    "Every command has [bold]--help[/bold]. Bad input ends with status 2 and one sentence; status 1 of "
    "[bold]feducb privacy audit[/bold] means that a claim broke."
)

# Panels of the help page, in the order of a reader's needs.
_PANELS = _TRY, _DATA, _RUN, _PRIVACY, _ = (
    "Try it on this machine",
    "Ask your own data",
    "Run it",
    "Answer for it",
    "Evidence: figures, speed",
)


class _Page(TyperGroup):
    """Lists commands panel by panel; left to itself Typer puts those with commands of their own last."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the panels."""

        def place(name: str) -> int:
            panel = getattr(self.commands[name], "rich_help_panel", None)
            return _PANELS.index(panel) if panel in _PANELS else len(_PANELS)

        return sorted(super().list_commands(ctx), key=place)


app = typer.Typer(
    name="feducb",
    cls=_Page,
    help=_HELP,
    epilog=_EPILOG,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(rich_help_panel=_TRY)(demo)
app.command(rich_help_panel=_TRY)(simulate)
app.command(rich_help_panel=_TRY)(topology)
app.command(rich_help_panel=_DATA)(evaluate)
app.add_typer(data, name="data", rich_help_panel=_DATA)
app.add_typer(recipe, name="recipe", rich_help_panel=_DATA)
app.add_typer(agent, name="agent", rich_help_panel=_RUN)
app.command(rich_help_panel=_RUN)(watch)
app.add_typer(keys, name="keys", rich_help_panel=_RUN)
app.add_typer(controller, name="controller", rich_help_panel=_RUN)
app.add_typer(keeper, name="keeper", rich_help_panel=_RUN)
app.add_typer(privacy, name="privacy", rich_help_panel=_PRIVACY)
for _plugin in entry_points(group="feducb.commands"):  # the lab's, and whoever else adds a command
    _plugin.load()(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"feducb {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; bad input ends with status 2 and one sentence on standard error."""
    command = typer.main.get_command(app)
    try:
        status = command.main(
            args=None if arguments is None else list(arguments), prog_name="feducb", standalone_mode=False
        )
    except click.exceptions.NoArgsIsHelpError as help_page:
        typer.echo(help_page.format_message())
        status = 0
    except click.ClickException as error:
        status = _complain(error.format_message())
    except FeducbError as error:
        status = _complain(str(error))
    except sqlite3.Error as error:
        status = _complain(f"a store could not be read: {error}")
    except OSError as error:
        status = _complain(f"{error.filename or 'a file'}: {error.strerror or error}")
    except (click.Abort, KeyboardInterrupt):
        status = _complain("stopped", status=130)
    except Exception:
        traceback.print_exc()
        status = _complain("this is a defect of feducb; please report it", status=70)  # never 1: see audit
    sys.exit(status if isinstance(status, int) else 0)


def _complain(sentence: str, *, status: int = 2) -> int:
    typer.echo(f"feducb: {' '.join(sentence.split())}", err=True)
    return status
