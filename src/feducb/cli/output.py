"""What commands print and write: progress, tables, warnings, files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from feducb.config import counted
from feducb.errors import ConfigurationError
from feducb.simulation.results import SimulationResult

__all__ = [
    "counted",
    "errors_to",
    "regret_text",
    "require_writable",
    "result_table",
    "show_keys",
    "steps_progress",
    "warnings_for",
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


def show_keys(path: Path) -> None:
    """API keys of a file, one per line: names, roles and ages."""
    from feducb.service.api_keys import read_keys

    for key in read_keys(path):
        age = datetime.now(UTC) - datetime.fromisoformat(key.made_at)
        print(f"{key.name:24} {key.role:12} {counted(age.days, 'day')}")


@contextmanager
def steps_progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error that counts agent-steps."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=errors_to, transient=True)
    task = bar.add_task(label, total=None)

    started = False

    def tell(done: int, total: int) -> None:
        nonlocal started
        if not started:  # not before there is something to show: an error stays alone on its line
            started = True
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        if started:
            bar.stop()


def regret_text(result: SimulationResult) -> str:
    """Mean ± standard error."""
    error = "" if result.stderr is None else f" ± {result.stderr:,.2f}"
    return f"{result.mean:,.2f}{error}"


def result_table(result: SimulationResult) -> Table:
    """The result in a few rows."""
    config, privacy = result.config, result.privacy
    table = Table(title=result.label, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("per-agent regret", regret_text(result))
    table.add_row(
        "setting",
        f"{counted(config['agents'], 'agent')}, d = {config['dim']}, K = {config['arms']}, "
        f"T = {config['horizon']:,}, {counted(config['runs'], 'run')}, seed {config['seed']}",
    )
    if result.topology is not None:
        _add_topology(table, result)
    hops = "" if result.topology is None else ", one per hop"
    table.add_row(
        "communication",
        f"{result.releases:g} release{'' if result.releases == 1 else 's'} per agent, "
        f"{counted(round(result.messages), 'message')}{hops}, "
        f"{result.bytes:,.0f} bytes per run",
    )
    if privacy["epsilon"] is None:
        table.add_row("privacy", "none")
    else:
        table.add_row(
            "privacy",
            f"(ε, δ) = ({privacy['epsilon']:g}, {privacy['delta']:g}), "
            f"μ = {privacy['mu']:.4g}, mechanism {privacy['mechanism']}",
        )
        table.add_row("  protects", privacy["unit"])
        table.add_row("  against", privacy["adversary"])
        table.add_row("  trusting", privacy["trust"])
    if result.theory:
        theory, syncs = result.theory, ""
        if theory["sync_bound"] is not None:
            syncs = f"at most {theory['sync_bound']:.1f} syncs (measured {theory['syncs']:g}), "
        promised = theory.get("regret_bound_theorem_1", theory.get("regret_bound_theorem_2"))
        table.add_row(
            "paper's theory",
            f"{syncs}group regret at most {promised:.3g} (measured {theory['group_regret']:.3g})",
        )
    table.add_row(
        "time",
        f"{result.seconds:.1f} s, {result.agent_steps_per_second:,.0f} agent-steps per second "
        f"({config['backend']})",
    )
    return table


def _add_topology(table: Table, result: SimulationResult) -> None:
    """Graph, γ/|C| and the regret of the cliques of each size."""
    graph = result.topology
    assert graph is not None
    sizes = sorted({len(clique) for clique in graph.cliques}, reverse=True)
    table.add_row(
        "topology",
        f"{graph.name}, diameter {graph.diameter}, γ = {graph.ttl}, "
        f"{len(graph.cliques):,} clique{'s' if len(graph.cliques) > 1 else ''} of "
        + (f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[-1]} to {sizes[0]}"),
    )
    if result.clique_regret is None:
        return
    used = 1 if result.config["estimators"] == "one" else graph.ttl
    ratio = "γ/|C|" if used == graph.ttl else "1/|C|"
    table.add_row(
        "  estimators",
        f"{used} an agent; {ratio} {used * len(graph.cliques) / graph.agents:.3g} over all agents",
    )
    for size in (*sizes[:2], *sizes[2:][-1:]):
        alike = [one for one, clique in enumerate(graph.cliques) if len(clique) == size]
        regret = result.clique_regret[alike].mean()
        table.add_row(f"  |C| = {size}", f"{ratio} {used / size:.3g}, per-agent regret {regret:,.2f}")


def warnings_for(result: SimulationResult) -> list[str]:
    """What a careful reader must know before believing the result."""
    notes = []
    config, privacy = result.config, result.privacy
    if config["mode"] == "paper" and config["baseline"] is None:
        notes.append("paper mode is NOT private against an interactive adversary; it is here to compare with")
    if "policy" in config:
        notes.append(f"the policy {config['policy']} is NOT covered by the proven bound on regret")
    elif config["exploration"] != 1.0:
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
