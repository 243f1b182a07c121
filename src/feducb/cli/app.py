"""`feducb`: commands, and how errors end (status 2 and one sentence)."""

from __future__ import annotations

import sqlite3
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import click
import typer

from feducb import __version__
from feducb.cli.agent import app as agent
from feducb.cli.bench import bench
from feducb.cli.controller import app as controller
from feducb.cli.data import app as data
from feducb.cli.demo import demo
from feducb.cli.evaluate import evaluate
from feducb.cli.figure import figure
from feducb.cli.keys import app as keys
from feducb.cli.privacy import app as privacy
from feducb.cli.report import report
from feducb.cli.simulate import simulate
from feducb.cli.topology import topology
from feducb.cli.tour import tour
from feducb.cli.watch import watch
from feducb.errors import FeducbError

__all__ = ["app", "main"]

app = typer.Typer(
    name="feducb",
    help="Private federated decision-making: agents learn together without showing each other a visitor.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(simulate)
app.command()(demo)
app.command()(topology)
app.command()(bench)
app.command()(figure)
app.command()(report)
app.command()(evaluate)
app.command()(tour)
app.command()(watch)
app.add_typer(data, name="data")
app.add_typer(privacy, name="privacy")
app.add_typer(agent, name="agent")
app.add_typer(keys, name="keys")
app.add_typer(controller, name="controller")


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
