"""The help page reads like a page, and the shell completes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from rich.text import Text

from feducb.cli.program import app

FEDUCB = Path(sys.executable).parent / "feducb"
PANELS = ("Try it on this machine", "Ask your own data", "Run it", "Answer for it", "Evidence")


def _help(*arguments: str, columns: str = "100") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "feducb", *arguments, "--help"],
        env={**os.environ, "COLUMNS": columns, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_commands_stand_in_panels_in_a_reader_s_order() -> None:
    page = _help()
    places = [page.index(panel) for panel in PANELS]
    assert places == sorted(places)
    assert "─ Commands ─" not in page  # a command without a panel would stand there
    assert "feducb demo" in page
    assert "--install-completion" in page


def test_every_argument_and_option_says_what_it_is() -> None:
    def parameters(command: click.Command, name: str) -> Iterator[tuple[str, click.Parameter]]:
        if isinstance(command, click.Group):
            for part, inner in command.commands.items():
                yield from parameters(inner, f"{name} {part}")
        for one in command.params:
            yield name, one

    found = list(parameters(typer.main.get_command(app), "feducb"))
    assert len(found) > 100
    assert [f"{name} {one.name}" for name, one in found if not getattr(one, "help", None)] == []
    assert "The figure: 1a, 1b, 1c" in _help("figure")  # and it is shown


def test_json_is_one_thing_everywhere() -> None:
    def options(command: click.Command, name: str) -> Iterator[tuple[str, click.Parameter]]:
        for part, inner in getattr(command, "commands", {}).items():
            yield from options(inner, f"{name} {part}")
        yield from ((name, one) for one in command.params if "--json" in one.opts)

    found = dict(options(typer.main.get_command(app), "feducb"))
    assert {"feducb agent status", "feducb bench", "feducb simulate", "feducb evaluate"} <= set(found)
    for name, one in found.items():
        assert not getattr(one, "is_flag", False), name
        assert "- for standard output" in getattr(one, "help", ""), name


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_the_page_fits_its_width(columns: str) -> None:
    assert max(len(line) for line in _help(columns=columns).splitlines()) <= int(columns)


_TEXTS = """
import json, typer
from feducb.cli.program import app

def texts(name, command):
    said = [command.help, command.epilog, *(getattr(one, "help", None) for one in command.params)]
    found = {name: [one for one in said if one]}
    for inner, one in getattr(command, "commands", {}).items():
        found |= texts(f"{name} {inner}", one)
    return found

print(json.dumps(texts("feducb", typer.main.get_command(app))))
"""


def test_nothing_in_square_brackets_is_swallowed() -> None:
    """Rich takes them for styles; what is meant as text must be escaped."""
    done = subprocess.run([sys.executable, "-c", _TEXTS], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert len(found) > 30
    for name, texts in found.items():
        for text in texts:
            meant = re.sub(r"\[/?bold\]", "", text).replace("\\[", "[")
            assert Text.from_markup(text).plain == meant, name
    assert "as `[seasons]` and `[terms]` of" in _help("agent", "terms")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("pri", {"privacy"}),
        ("privacy a", {"audit"}),
        ("simulate --top", {"--topology"}),
        ("ev", {"evaluate"}),
    ],
)
def test_bash_completes(words: str, found: set[str]) -> None:
    script = f"""
        source <("$FEDUCB" --show-completion bash)
        feducb() {{ "$FEDUCB" "$@"; }}
        COMP_WORDS=(feducb {words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        _feducb_completion "$FEDUCB"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "FEDUCB": str(FEDUCB)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == found
