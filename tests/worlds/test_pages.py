"""Pages about real data say what the commands beside them say."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from feducb.worlds.data import DATA_SETS
from feducb.worlds.features import Category, Number, Recipe

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = (DOCS / "tutorials" / "your-own-data.md").read_text(encoding="utf-8")
PAGE = (DOCS / "real-data.md").read_text(encoding="utf-8")


def _run(*command: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", TUTORIAL, flags=re.DOTALL)
    commands = re.findall(r"^    feducb (evaluate .*)$", TUTORIAL, flags=re.MULTILINE)
    quotes = re.findall(r"((?:^> .*\n)+)", TUTORIAL, flags=re.MULTILINE)
    assert (len(blocks), len(commands), len(quotes)) == (4, 3, 2)
    _run("-c", blocks[0], cwd=tmp_path)
    for command, quote in zip(commands[:2], quotes, strict=True):
        told = _run("-m", "feducb", *shlex.split(command), cwd=tmp_path)
        assert " ".join(quote.replace("\n> ", " ").removeprefix("> ").split()) in told
    shown = _run("-c", blocks[1], cwd=tmp_path)
    assert shown in ("show book", "show game", "show film")
    _run("-c", blocks[2], cwd=tmp_path)
    told = _run("-m", "feducb", *shlex.split(commands[2]), cwd=tmp_path)
    for said in ("2,000 records, 2 agents, d = 6", "no best single action", "the agents' default"):
        assert said in told
    assert "controller trusted" in _run("-W", "ignore::ResourceWarning", "-c", blocks[3], cwd=tmp_path)


def test_a_plan_for_the_tutorial_s_recipe_says_what_the_page_says(tmp_path: Path) -> None:
    (command,) = re.findall(r"^    feducb (privacy plan .*)$", TUTORIAL, flags=re.MULTILINE)
    columns = (Number("age", 0, 120), Category("region", ("city", "country")))
    offers = (Category("offer", ("book", "game", "film")),)
    recipe = Recipe(context=columns, action=offers, terms=(("offer",), ("offer", "age")))
    (tmp_path / "recipe.json").write_text(recipe.to_json(), encoding="utf-8")
    told = _run("-m", "feducb", *shlex.split(command), cwd=tmp_path)
    (after,) = re.findall(r"It says that federating (pays after about .*?), and the log", TUTORIAL)
    assert f"Federating {after.replace('`', '')}." in told
    assert "at `--epsilon 1` it says of neither play that it pays within 40." in TUTORIAL
    told = _run("-m", "feducb", *shlex.split(command.replace("--epsilon 8", "--epsilon 1")), cwd=tmp_path)
    assert "Federating pays" not in told
    assert "with play = released" in told
    assert "with play = own" in told


@pytest.mark.parametrize("name", list(DATA_SETS))
def test_the_page_quotes_its_numbers(name: str) -> None:
    kept = json.loads((DOCS / "real-data" / f"{name}.json").read_text(encoding="utf-8"))
    assert f"> {kept['verdict']}\n" in PAGE
    for row in kept["policies"]:
        if row["play"] in ("fixed", kept["primary"]):
            value = row["value"]
            digits = 3 if "snips" in row else 4
            margin = (value["high"] - value["low"]) / 2
            star = "" if row["reads_a_release"] else " *"
            shown = f"| {row['policy']}{star} | {value['value']:.{digits}f} ± {margin:.{digits}f} |"
            assert shown in PAGE


def test_the_page_s_trial_is_what_the_command_finds(tmp_path: Path) -> None:
    _run("-m", "feducb", "evaluate", "actg175", "--json", "found.json", cwd=tmp_path)
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    kept = json.loads((DOCS / "real-data" / "actg175.json").read_text(encoding="utf-8"))
    for one, other in zip(found["policies"], kept["policies"], strict=True):
        assert one["policy"] == other["policy"]
        # Other processors round otherwise, and a choice between two nearly equal arms may fall differently.
        assert one["value"]["value"] == pytest.approx(other["value"]["value"], abs=0.002)
