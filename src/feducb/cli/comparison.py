"""A comparison on the screen and in files, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from feducb.cli.output import counted, errors_to
from feducb.evaluation.verdicts import Comparison, Row

__all__ = ["progress", "show"]


def show(found: Comparison, json_file: Path | None, plot_file: Path | None) -> None:
    """Print tables, notes and verdict; write JSON and picture where asked for."""
    to_standard_output = json_file is not None and str(json_file) == "-"
    console = errors_to if to_standard_output else Console(markup=False)
    for table in _tables(found):
        console.print(table)
    if not all(row.reads for row in found.rows):
        console.print("* no release is worth reading at this noise: plays at random\n", highlight=False)
    for note in found.notes:
        console.print(f"  {note}", style="dim", highlight=False, markup=False)
    console.print(found.verdict(), highlight=False, markup=False)
    for warning in found.warnings:
        errors_to.print(f"note: {warning}", style="yellow", highlight=False, markup=False)
    if found.settings.get("recipe_is_public") is False:
        errors_to.print(
            "note: ranges, levels or actions were read off the log; before deploying, fix them in public "
            "(--context NAME:LOW:HIGH, --actions, or --recipe): they would tell about people",
            style="yellow",
            highlight=False,
            markup=False,
        )
    if to_standard_output:
        typer.echo(found.to_json(), nl=False)
    elif json_file is not None:
        found.to_json(json_file)
    if plot_file is not None:
        found.plot(plot_file)


def _tables(found: Comparison) -> Iterator[Table]:
    """The values, and of a log what the other estimators say of the play that the verdict is about."""
    settings = found.settings
    records = settings.get("rows", settings.get("records"))
    size = f"{counted(records, 'record')}, {counted(settings['agents'], 'agent')}"
    table = _empty(f"{found.source}: {found.measure} ({size}, d = {settings['dim']})", "value", "− alone")
    for row in found.rows:
        over = "" if row.over_alone is None else row.over_alone.text(sign="+")
        table.add_row(_short(row), row.value.text(), over)
    yield table
    rows = [(row, row.details) for row in found.rows if row.play in ("fixed", found.primary)]
    if any(details is None for _, details in rows):
        return
    table = _empty("the same by other estimators", "SNIPS", "IPS", "replay", "effective n")
    for row, details in rows:
        assert details is not None
        others = (details.snips, details.ips, details.replay)
        table.add_row(_short(row), *(one.text(digits=3) for one in others), f"{details.effective:,.0f}")
    yield table


def _empty(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("policy")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _short(row: Row) -> str:
    """A name that leaves room for numbers; * if it reads no release."""
    name = row.name.replace("private federation, ", "private ").replace(" trusted", "").replace(" = ", "=")
    name = (
        name.replace("federation without privacy", "no privacy")
        .replace("each agent alone", "alone")
        .removeprefix("the ")
    )
    return f"{name}{'' if row.play == 'fixed' else f', {row.play}'}{'' if row.reads else ' *'}"


@contextmanager
def progress() -> Iterator[Callable[[str, int], None]]:
    """A bar on standard error, one line a stage; of stages after the first the length is known."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=errors_to, transient=True)
    tasks: dict[str, Any] = {}
    done: dict[str, int] = {}

    def tell(stage: str, count: int) -> None:
        if not tasks and errors_to.is_terminal:
            bar.start()
        if stage not in tasks:
            total = done.get("checking")
            tasks[stage], done[stage] = bar.add_task(stage, total=total), 0
        done[stage] += count
        bar.update(tasks[stage], completed=done[stage])

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()
