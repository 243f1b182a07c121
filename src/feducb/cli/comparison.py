"""A comparison on the screen and in files, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.progress import TimeElapsedColumn
from rich.table import Table

from feducb.cli.output import counted, errors_to, late_bar, note, screen_beside, write_json
from feducb.evaluation.verdicts import Comparison, Row

__all__ = ["progress", "show"]

_OWN = "own: agents share first, close, and then act on their own records beside the others' sum"


def show(compared: Comparison, json_file: Path | None, plot_file: Path | None) -> None:
    """Print tables, notes and verdict; write JSON and picture where asked for."""
    console = screen_beside(json_file)
    for table in _tables(compared):
        console.print(table)
    if not all(row.reads for row in compared.rows):
        console.print("* no release is worth reading at this noise: plays at random\n", highlight=False)
    if any(row.federation_play == "own" for row in compared.rows):
        console.print(f"{_OWN}\n", highlight=False)
    if not all(row.shares for row in compared.rows):
        console.print(
            "† stays alone: nothing is worth its noise, so no agent shares anything\n", highlight=False
        )
    for remark in compared.notes:
        console.print(f"  {remark}", style="dim", highlight=False)
    console.print(compared.verdict(), highlight=False)
    for warning in compared.warnings:
        note(warning)
    if compared.settings.get("recipe_is_public") is False:
        note(
            "ranges, levels or actions were read off the log; before deploying, fix them in public "
            "(--context NAME:LOW:HIGH, --actions, or --recipe): they would tell about people"
        )
    write_json(compared.to_json, json_file)
    if plot_file is not None:
        compared.plot(plot_file)


def _tables(compared: Comparison) -> Iterator[Table]:
    """The values, and of a log what the other estimators say of the play that the verdict is about."""
    settings = compared.settings
    records = settings.get("rows", settings.get("records"))
    size = f"{counted(records, 'record')}, {counted(settings['agents'], 'agent')}"
    table = _empty(
        f"{compared.source}: {compared.measure} ({size}, d = {settings['dim']})", "value", "− alone"
    )
    for row in compared.rows:
        over = "" if row.over_alone is None else row.over_alone.text(sign="+")
        table.add_row(_short(row), row.value.text(), over)
    yield table
    rows = [(row, row.details) for row in compared.rows if row.play in ("fixed", compared.primary)]
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
    """A name that leaves room for numbers, and its play; * if it reads no release, † if it shares nothing."""
    name = row.name.replace("private federation, ", "private ").replace(" trusted", "").replace(" = ", "=")
    name = name.replace("federation without privacy", "no privacy").replace("each agent alone", "alone")
    name = name.removeprefix("the ")
    told = ", own" if row.own_play else ""
    mark = " †" if not row.shares else "" if row.reads else " *"
    return f"{name}{told}{'' if row.play == 'fixed' else f', {row.play}'}{mark}"


@contextmanager
def progress() -> Iterator[Callable[[str, int], None]]:
    """A bar with a line per stage; of stages after the first the length is known."""
    tasks: dict[str, Any] = {}
    done: dict[str, int] = {}
    with late_bar(TimeElapsedColumn()) as bar:

        def tell(stage: str, count: int) -> None:
            if not tasks and errors_to.is_terminal:
                bar.start()
            if stage not in tasks:
                tasks[stage], done[stage] = bar.add_task(stage, total=done.get("checking")), 0
            done[stage] += count
            bar.update(tasks[stage], completed=done[stage])

        yield tell
