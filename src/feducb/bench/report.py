"""All measurements as one report: text, JSON, and a picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from feducb.bench.backends import BACKENDS, Backend
from feducb.bench.machine import ceilings, machine
from feducb.bench.measure import Row, Simulated, measure
from feducb.bench.peers import PEERS, Peer, available, check_learns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Check", "Report", "Table", "draw_report", "run_bench"]

SCHEMA = 1
_LEARNT = 0.5  # of what uniform play loses, at most


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """Whether a peer really learns.

    Attributes:
        name: of the peer.
        regret: a step, after practice, in a world that it can understand.
        uniform: what choosing uniformly loses there.
        learns: whether the first is at most half of the second.
    """

    name: str
    regret: float
    uniform: float
    learns: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One size of problem.

    Attributes:
        dim: d.
        arms: K.
        rows: the peers.
        simulated: whole agent-steps.
    """

    dim: int
    arms: int
    rows: list[Row]
    simulated: list[Simulated]


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Everything that one run measured.

    Attributes:
        machine: what it ran on.
        ceilings: what numpy gets out of it.
        checks: of every peer that was timed.
        missing: peers that could not be, and why.
        tables: one for each size.
    """

    machine: dict[str, Any]
    ceilings: dict[str, float]
    checks: list[Check]
    missing: dict[str, str]
    tables: list[Table]

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON, written to ``path`` if given."""
        text = json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2, ensure_ascii=False) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_text(self) -> str:
        """For people."""
        lines = [", ".join(f"{name} {value}" for name, value in self.machine.items())]
        lines += [f"  {name}: {value:,.1f}" for name, value in self.ceilings.items()]
        lines += ["", "Does it learn? Regret a step after practice, and that of uniform play:"]
        lines += [
            f"  {check.name:<38} {check.regret:.4f}  {check.uniform:.4f}  {'yes' if check.learns else 'NO'}"
            for check in self.checks
        ]
        lines += [f"  {name:<38} {reason}" for name, reason in self.missing.items()]
        for table in self.tables:
            lines += _table_lines(table)
        if self.tables:
            lines += ["", "What was taken from each:"]
            lines += [
                f"  {row.name} ({row.package} {row.version}): {row.what}" for row in self.tables[0].rows
            ]
        return "\n".join(lines)


def run_bench(
    *,
    dims: Sequence[int] = (10, 50),
    arms: int = 100,
    rounds: int = 9,
    seconds: float = 0.02,
    steps: int = 50_000,
    peers: Sequence[type[Peer]] = PEERS,
    backends: Sequence[tuple[str, Backend]] | None = None,
    ceiling_size: int = 1024,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Check and time everything that is installed; all on one thread but the ceilings.

    Args:
        dims: d of each table.
        arms: K.
        rounds: how often everything is timed.
        seconds: length of a timed block.
        steps: agent-steps of a timed simulation.
        peers: what to time; the first is the one that the others are compared with.
        backends: our simulations; `BACKENDS` if not given.
        ceiling_size: n of the n × n matrices.
        tell: is told what is being done.
    """
    backends = BACKENDS if backends is None else backends
    missing: dict[str, str] = {}
    found: list[type[Peer]] = []
    checks: list[Check] = []
    tell("ceilings")
    most = ceilings(size=ceiling_size)
    with threadpool_limits(1):
        for peer in peers:
            _, reason = available(peer)
            if reason is not None:
                missing[peer.name] = reason
                continue
            tell(f"does {peer.name} learn?")
            regret, uniform = check_learns(peer)
            learns = regret <= _LEARNT * uniform
            checks.append(Check(name=peer.name, regret=regret, uniform=uniform, learns=learns))
            found.append(peer)
        tables = []
        for dim in dims:
            tell(f"timing at d = {dim}, K = {arms}")
            rows, whole = measure(
                found, backends, dim=dim, arms=arms, rounds=rounds, seconds=seconds, steps=steps
            )
            tables.append(Table(dim=dim, arms=arms, rows=rows, simulated=whole))
    return Report(machine=machine(), ceilings=most, checks=checks, missing=missing, tables=tables)


def draw_report(report: Report, path: str | Path) -> None:
    """Bars of time a decision and time an agent-step, one row of panels for each size.

    Args:
        report: what was measured.
        path: where to; the ending says the format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    longest = max(len(table.rows) + len(table.simulated) for table in report.tables)
    figure = Figure(figsize=(15.0, 1.4 + (0.9 + 0.2 * longest) * len(report.tables)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(report.tables), 2, squeeze=False)
    for (left, right), table in zip(panels, report.tables, strict=True):
        size = f"d = {table.dim}, K = {table.arms}"
        decisions = [(row.name, row.decide) for row in table.rows]
        _bars(left, decisions, f"µs a decision, one a call, {size}")
        steps = [(entry.name, entry.step) for entry in table.simulated]
        _bars(right, steps or [(row.name, row.step) for row in table.rows], f"µs an agent-step, {size}")
    figure.supxlabel(
        f"{report.machine['processor']}, one thread; log scale; “a model an arm” reads one context of d "
        "features instead of K",
        x=0.01,
        ha="left",
        fontsize=9.5,
        color="#555555",
    )
    figure.savefig(path, dpi=130)


def _bars(axes: Axes, values: Sequence[tuple[str, float]], title: str) -> None:
    ordered = sorted(values, key=lambda entry: -entry[1])
    names, times = [name for name, _ in ordered], [time for _, time in ordered]
    colours = ["#1b6ca8" if name.startswith("feducb") else "#b8b8b8" for name in names]
    bars = axes.barh(names, times, color=colours)
    axes.bar_label(bars, [f" {time:,.1f}" for time in times], fontsize=8.5)
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8.5)


def _table_lines(table: Table) -> list[str]:
    first = table.rows[0].name
    lines = [
        "",
        f"d = {table.dim}, K = {table.arms}: µs, one thread; × is against {first}",
        f"  {'':<38} {'prepare':>9} {'decide':>9} {'×':>8} {'prepare +':>10} {'decide +':>10} {'×':>8} "
        f"{'batched':>9}",
        f"  {'':<38} {'':>9} {'':>9} {'':>8} {'decide ×':>10} {'learn':>10} {'':>8} {'decide':>9}",
    ]
    for row in table.rows:
        batched = "" if row.batched is None else f"{row.batched:,.2f}"
        marks = "" if row.sees_candidates else " ¹"
        marks += "" if row.reads_features else " ²"
        lines.append(
            f"  {row.name + marks:<38} {row.prepare:9,.1f} {row.decide:9,.2f} {row.decide_ratio:8,.1f} "
            f"{row.call_ratio:10,.1f} {row.step:10,.1f} {row.step_ratio:8,.1f} {batched:>9}"
        )
    lines += [
        "  ¹ reads one context of d features a decision instead of K × d: less work, another problem",
        "  ² the features were read in “prepare”: no decision on fresh features can be that fast",
    ]
    if table.simulated:
        lines += ["", f"  Agent-steps, environment included; × is against {table.simulated[0].name}"]
        lines += [f"  {e.name:<38} {e.step:9,.1f} µs {e.ratio:8,.1f} ×" for e in table.simulated]
    return lines
