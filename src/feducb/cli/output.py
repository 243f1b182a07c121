"""What commands print and write: progress, tables, warnings, files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from feducb.errors import ConfigurationError
from feducb.protocol.graphs import Topology
from feducb.protocol.trouble import Plain, exit_status
from feducb.service.api_keys import read_keys
from feducb.simulation.results import SimulationResult
from feducb.system import counted

__all__ = [
    "counted",
    "errors_to",
    "facts_table",
    "late_bar",
    "note",
    "regret_text",
    "require_writable",
    "result_table",
    "screen_beside",
    "show_keys",
    "show_status",
    "steps_progress",
    "warnings_for",
    "write_json",
]

# Without markup: it would swallow what stands in square brackets, in a file's name or a table's.
errors_to = Console(stderr=True, markup=False)
_PICTURES = (".png", ".svg", ".pdf")


def require_writable(setting: str, path: Path | None, *, picture: bool = False) -> None:
    """Refuse a file that cannot be written before hours are spent on what goes into it."""
    if path is None or (str(path) == "-" and not picture):
        return
    if picture and path.suffix.lower() not in _PICTURES:
        raise ConfigurationError(setting, str(path), "a file name that ends in .png, .svg or .pdf")
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigurationError(setting, str(path), "a file in a folder that exists")


def note(line: str) -> None:
    """Say on standard error what somebody should know."""
    errors_to.print(f"note: {line}", style="yellow", highlight=False)


def screen_beside(json_file: Path | None) -> Console:
    """Where tables go: standard output, unless JSON is written there."""
    return errors_to if str(json_file) == "-" else Console(markup=False)


def write_json(text: Callable[[], str], json_file: Path | None) -> None:
    """Write what `--json` asks for, if anything: to a file, or to standard output."""
    if str(json_file) == "-":
        typer.echo(text(), nl=False)
    elif json_file is not None:
        json_file.write_text(text(), encoding="utf-8")


def facts_table(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    """Names and what they stand for."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for row in rows:
        table.add_row(*row)
    return table


def show_keys(path: Path) -> None:
    """API keys of a file, one per line: names, roles and ages."""
    for key in read_keys(path):
        age = datetime.now(UTC) - datetime.fromisoformat(key.made_at)
        print(f"{key.name:24} {key.role:12} {counted(age.days, 'day')}")


def show_status(last: dict[str, Any], of: str, judge: Callable[[dict[str, Any]], list[Plain]]) -> None:
    """What a controller or a keeper last said, as JSON, and what is wrong by now; ends with that status."""
    last = last | {"trouble": judge(last | {"at": time.time()})}
    typer.echo(json.dumps(last, indent=1))
    for one in last["trouble"]:
        said = f"the {of} does not run; it said this {last['seconds_ago']:g} s ago"
        typer.echo(said if one["kind"] == "stopped" else one["says"], err=True)
    raise typer.Exit(exit_status(last["trouble"]))


@contextmanager
def late_bar(clock: ProgressColumn) -> Iterator[Progress]:
    """A bar on standard error, to be started once there is something to show: an error stays alone."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), clock)
    bar = Progress(*columns, console=errors_to, transient=True)
    try:
        yield bar
    finally:
        if bar.live.is_started:
            bar.stop()


@contextmanager
def steps_progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that counts agent-steps."""
    with late_bar(TimeRemainingColumn()) as bar:
        task = bar.add_task(label, total=None)

        def tell(done: int, total: int) -> None:
            if not bar.live.is_started:
                bar.start()
            bar.update(task, completed=done, total=total)

        yield tell


def regret_text(result: SimulationResult) -> str:
    """Mean ± standard error."""
    error = "" if result.stderr is None else f" ± {result.stderr:,.2f}"
    return f"{result.mean:,.2f}{error}"


def result_table(result: SimulationResult) -> Table:
    """The result in a few rows."""
    return facts_table(result.label, _result_rows(result))


def _result_rows(result: SimulationResult) -> Iterator[tuple[str, str]]:
    config, privacy, theory = result.config, result.privacy, result.theory
    yield "per-agent regret", regret_text(result)
    yield (
        "setting",
        f"{counted(config['agents'], 'agent')}, d = {config['dim']}, K = {config['arms']}, "
        f"T = {config['horizon']:,}, {counted(config['runs'], 'run')}, seed {config['seed']}",
    )
    if "absence" in config:
        yield "absences", f"an agent misses {100 * config['absence']:g} % of rows"
    if "heterogeneity" in config:
        yield "sites", f"θ* of each is {config['heterogeneity']:g} of its length from the common one"
    if "history" in config:
        leaves = ", in its first release" if result.releases else ""
        yield "history", f"{counted(config['history'], 'record')} of each agent{leaves}"
    if result.played is not None:
        yield "play", result.played
    if result.topology is not None:
        yield from _graph_rows(result, result.topology)
    hops = "" if result.topology is None else ", one per hop"
    yield (
        "communication",
        f"{counted(result.releases, 'release', 'g')} per agent, "
        f"{counted(round(result.messages), 'message')}{hops}, {result.bytes:,.0f} bytes per run",
    )
    if privacy["epsilon"] is None:
        yield "privacy", "none"
    else:
        yield (
            "privacy",
            f"(ε, δ) = ({privacy['epsilon']:g}, {privacy['delta']:g}), "
            f"μ = {privacy['mu']:.4g}, mechanism {privacy['mechanism']}",
        )
        yield "  protects", privacy["unit"]
        yield "  against", privacy["adversary"]
        yield "  trusting", privacy["trust"]
    if theory:
        syncs = ""
        if theory["sync_bound"] is not None:
            syncs = f"at most {theory['sync_bound']:.1f} syncs (measured {theory['syncs']:g}), "
        promised = theory.get("regret_bound_theorem_1", theory.get("regret_bound_theorem_2"))
        measured = f"(measured {theory['group_regret']:.3g})"
        yield "paper's theory", f"{syncs}group regret at most {promised:.3g} {measured}"
    speed = f"{result.agent_steps_per_second:,.0f} agent-steps per second"
    yield "time", f"{result.seconds:.1f} s, {speed} ({config['backend']})"


def _graph_rows(result: SimulationResult, graph: Topology) -> Iterator[tuple[str, str]]:
    """Graph, γ/|C| and the regret of the cliques of each size."""
    sizes = sorted({len(clique) for clique in graph.cliques}, reverse=True)
    yield (
        "topology",
        f"{graph.name}, diameter {graph.diameter}, γ = {graph.ttl}, "
        f"{counted(len(graph.cliques), 'clique')} of "
        + (f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[-1]} to {sizes[0]}"),
    )
    if result.clique_regret is None:
        return
    used = 1 if result.config["estimators"] == "one" else graph.ttl
    ratio = "γ/|C|" if used == graph.ttl else "1/|C|"
    over_all = used * len(graph.cliques) / graph.agents
    yield "  estimators", f"{used} per agent; {ratio} {over_all:.3g} over all agents"
    for size in (*sizes[:2], *sizes[2:][-1:]):
        alike = [one for one, clique in enumerate(graph.cliques) if len(clique) == size]
        regret = result.clique_regret[alike].mean()
        yield f"  |C| = {size}", f"{ratio} {used / size:.3g}, per-agent regret {regret:,.2f}"


def warnings_for(result: SimulationResult) -> list[str]:
    """What a careful reader must know before believing the result."""
    notes = []
    config, privacy = result.config, result.privacy
    if config["mode"] == "paper" and config["baseline"] is None:
        notes.append("paper mode is NOT private against an interactive adversary; it is here to compare with")
    if "policy" in config and not config["proven_bound"]:
        notes.append(f"the policy {config['policy']} is NOT covered by the proven bound on regret")
    elif config["exploration"] not in (None, 1.0):
        proven = "wider than" if config["exploration"] > 1.0 else "NOT covered by"
        notes.append(f"exploration {config['exploration']:g}: the bonus is {proven} the proven bound")
    graph = result.topology
    if graph is not None and result.clique_regret is not None:
        single = sum(len(clique) == 1 for clique in graph.cliques)
        if single and graph.agents > 1:
            alone = f"{single} of {graph.agents} agents {'is' if single == 1 else 'are'} alone in a clique"
            notes.append(f"{alone}, to release and learn from nobody")
    delta = privacy["delta"]
    if delta is not None and delta >= 0.001:
        notes.append(f"delta {delta:g} allows one record in {1 / delta:.0f} to be published in clear")
    return notes
