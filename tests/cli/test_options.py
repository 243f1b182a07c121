"""Commands that take their options as one object."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, TypedDict

import typer
from typer.testing import CliRunner

from feducb.cli.options import Dim, option, picked, takes_options


class Settings(TypedDict, total=False):
    dim: int
    runs: int
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="Whose.")]
    dim: Dim = 10
    runs: int | None = option(None, "Repetitions.", shown="as many as fit")
    loud: bool = option(False, "Say more.", "--loud", "-l")


@takes_options
def command(asked: Asked) -> None:
    """Say what was asked."""
    typer.echo(f"{asked} {picked(asked, Settings)}")


def test_fields_are_options_and_come_back_as_one_object() -> None:
    app = typer.Typer()
    app.command()(command)
    said = CliRunner().invoke(app, ["ada", "--runs", "3", "-l"]).output
    assert said == f"{Asked(name='ada', dim=10, runs=3, loud=True)} {{'dim': 10, 'runs': 3}}\n"
    said = CliRunner().invoke(app, ["ada"]).output
    assert said.endswith("{'dim': 10}\n")  # what was not given is left to whoever takes it
    page = CliRunner().invoke(app, ["--help"]).output
    for words in ("Say what was asked.", "--dim", "Repetitions.", "as many as fit", "--loud", "Whose."):
        assert words in page
    assert CliRunner().invoke(app, []).exit_code == 2


def test_commands_of_the_lab_can_be_imported_first() -> None:
    code = "import feducb_lab.commands, feducb.cli.program; print('both')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "both\n"
