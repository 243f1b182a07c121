"""All measurements as one report: text, JSON, and a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from feducb_lab.bench.backends import BACKENDS, Backend, long_run
from feducb_lab.bench.growth import growth, memory, starts, thread_gain
from feducb_lab.bench.machine import ceilings, machine
from feducb_lab.bench.measure import Effort, Row, Simulated, measure
from feducb_lab.bench.rivals import PEERS, Peer, available, check_learns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Check", "Report", "Table", "Verdict", "draw_report", "run_bench"]

SCHEMA = 2
_LEARNT = 0.5  # of what uniform play loses, at most
_OURS: dict[str, Callable[[], Any]] = {
    "long_run": long_run,
    "growth": growth,
    "two_threads": thread_gain,
    "peak_mib": memory,
    "seconds_to_first_steps": starts,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """Whether a peer really learns."""

    name: str
    regret: float  # per step, after practice, in a world that it can understand
    uniform: float  # what choosing uniformly loses there
    learns: bool  # the first is at most half of the second


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One size of problem: peers, and whole agent-steps."""

    dim: int
    arms: int
    rows: list[Row]
    simulated: list[Simulated]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A promise about speed, what was measured, what is wanted, and whether this run kept it."""

    what: str
    found: float
    wanted: str
    holds: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Everything that one run measured."""

    machine: dict[str, Any]
    ceilings: dict[str, float]  # what numpy gets out of the machine
    checks: list[Check]  # of every peer that was timed
    missing: dict[str, str]  # peers that could not be, and why
    tables: list[Table]  # one for each size
    ours: dict[str, Any]  # long run, growth, threads, memory, starts; empty if not asked for

    @property
    def verdicts(self) -> list[Verdict]:
        """What is promised at d = 10, K = 100, as far as it was measured."""
        verdicts = []
        for table in self.tables:
            if (table.dim, table.arms) == (10, 100):
                verdicts += _decision_verdicts(table.rows) + _step_verdicts(table)
        return verdicts + _own_verdicts(self.ours)

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON, written to ``path`` if given."""
        plain = asdict(self) | {"verdicts": [asdict(one) for one in self.verdicts]}
        text = json.dumps({"schema": SCHEMA, **plain}, indent=2, ensure_ascii=False) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_text(self) -> str:
        """The report as `feducb bench` prints it."""
        lines = [", ".join(f"{name} {value}" for name, value in self.machine.items())]
        lines += [f"  {name}: {value:,.1f}" for name, value in self.ceilings.items()]
        lines += ["", "Does it learn? Regret per step after practice, and that of uniform play:"]
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
        lines += _own_lines(self.ours)
        if self.verdicts:
            lines += ["", "What is promised:"]
            lines += [
                f"  {'holds ' if one.holds else 'MISSED'} {one.found:10,.2f}  {one.what}, wanted {one.wanted}"
                for one in self.verdicts
            ]
        return "\n".join(lines)


def run_bench(
    peers: Sequence[type[Peer]] = PEERS,
    backends: Sequence[tuple[str, Backend]] = BACKENDS,
    *,
    dims: Sequence[int] = (10, 50),
    effort: Effort | None = None,
    ours: bool = True,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Check and time everything that is installed; all on one thread but the ceilings.

    With ``ours`` also a long run, growth, threads, memory and starts of our own simulations; ``tell`` is
    called with what is being done. The first peer is the one that the others are compared with.
    """
    effort = effort or Effort()
    missing: dict[str, str] = {}
    present: list[type[Peer]] = []
    checks: list[Check] = []
    tell("ceilings")
    most = ceilings(size=effort.ceiling_size)
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
            present.append(peer)
        tables = []
        for dim in dims:
            tell(f"timing at d = {dim}, K = {effort.arms}")
            rows, whole = measure(present, backends, dim, effort)
            tables.append(Table(dim=dim, arms=effort.arms, rows=rows, simulated=whole))
    own: dict[str, Any] = {}
    for name, measured in _OURS.items() if ours else ():
        tell(name.replace("_", " "))
        own[name] = measured()
    return Report(machine=machine(), ceilings=most, checks=checks, missing=missing, tables=tables, ours=own)


def _decision_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Our decision against the fastest of plain numpy and against the fastest library."""
    rivals = [row for row in rows[1:] if row.sees_candidates and row.reads_features]
    verdicts = []
    for wanted, numpy in ((2.5, True), (15.0, False)):
        group = [row for row in rivals if (row.package == "numpy") is numpy]
        if group:
            nearest = min(group, key=lambda row: row.decide_ratio)
            what = f"× as fast a decision as {nearest.name}"
            verdicts.append(_judge(what, nearest.decide_ratio, least=wanted))
    return verdicts


def _step_verdicts(table: Table) -> list[Verdict]:
    """The compiled backend, all arms drawn, against the reference and against the fastest library."""
    by_name = {entry.name: entry for entry in table.simulated}
    ours = by_name.get("feducb cpu, all arms drawn")
    if ours is None:
        return []
    verdicts = [_judge("× as many steps as the reference, all arms drawn", 1.0 / ours.ratio, least=6.0)]
    libraries = {row.name for row in table.rows if row.package not in ("feducb", "numpy")}
    steps = [entry for name, entry in by_name.items() if name in libraries]
    if steps:
        fastest = min(steps, key=lambda entry: entry.step)
        what = f"× as many steps as {fastest.name}, all arms drawn"
        verdicts.append(_judge(what, fastest.ratio / ours.ratio, least=60.0))
    return verdicts


def _own_verdicts(ours: dict[str, Any]) -> list[Verdict]:
    if not ours:
        return []
    starts_in, peaks = ours["seconds_to_first_steps"], list(ours["peak_mib"].values())
    long = "× as many steps as the reference in a long run, arms deferred, early phase included"
    verdicts = [_judge(long, ours["long_run"]["ratio"], least=30.0)]
    for name, symbol in (("horizon", "T"), ("agents", "M")):
        slope = ours["growth"][name]["exponent"]
        what, holds = f"exponent of time in {symbol}", abs(slope - 1.0) <= 0.1
        verdicts.append(Verdict(what=what, found=slope, wanted="1 ± 0.1", holds=holds))
    return [
        *verdicts,
        _judge("× the memory at 100 times the rounds", peaks[-1] / peaks[0], most=1.05),
        _judge("× as fast on two threads as on one", ours["two_threads"], least=1.7),
        _judge("s to the first steps, nothing compiled yet", starts_in["nothing compiled yet"], most=8.0),
        _judge("s to the first steps in later processes", starts_in["later processes"], most=1.5),
    ]


def _judge(what: str, value: float, *, least: float | None = None, most: float = math.inf) -> Verdict:
    wanted = f"at most {most:g}" if least is None else f"at least {least:g}"
    return Verdict(what=what, found=value, wanted=wanted, holds=(least or -math.inf) <= value <= most)


def _own_lines(ours: dict[str, Any]) -> list[str]:
    if not ours:
        return []
    lines = ["", "Our own simulations (cpu backend):"]
    lines += [f"  long run, {name}: {value:,.4g}" for name, value in ours["long_run"].items()]
    for name, curve in ours["growth"].items():
        points = zip(curve["sizes"], curve["seconds"], strict=True)
        listed = ", ".join(f"{size:,}: {seconds:.3f}" for size, seconds in points)
        lines.append(f"  seconds by {name}: {listed}; exponent {curve['exponent']:.2f}")
    lines.append(f"  two threads against one: {ours['two_threads']:.2f}")
    lines += [f"  peak MiB at {name}: {value:,.0f}" for name, value in ours["peak_mib"].items()]
    waits = ours["seconds_to_first_steps"].items()
    return lines + [f"  seconds to the first steps, {name}: {value:.2f}" for name, value in waits]


def draw_report(report: Report, path: str | Path) -> None:
    """Bars of time per decision and per agent-step, one row of panels for each size."""
    from matplotlib.figure import Figure

    longest = max(len(table.rows) + len(table.simulated) for table in report.tables)
    figure = Figure(figsize=(15.0, 1.4 + (0.9 + 0.2 * longest) * len(report.tables)), layout="constrained")
    panels = figure.subplots(len(report.tables), 2, squeeze=False)
    for (left, right), table in zip(panels, report.tables, strict=True):
        size = f"d = {table.dim}, K = {table.arms}"
        decisions = [(row.name, row.decide) for row in table.rows]
        _bars(left, decisions, f"µs per decision, one per call, {size}")
        steps = [(entry.name, entry.step) for entry in table.simulated]
        _bars(right, steps or [(row.name, row.step) for row in table.rows], f"µs per agent-step, {size}")
    figure.supxlabel(
        f"{report.machine['processor']}, one thread; log scale; “a model per arm” reads one context of d "
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
    axes.bar_label(bars, [f" {time:,.1f}" if time >= 10 else f" {time:.2g}" for time in times], fontsize=8.5)
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
        "  ¹ reads one context of d features per decision instead of K × d: less work, another problem",
        "  ² the features were read in “prepare”: no decision on fresh features can be that fast",
    ]
    if table.simulated:
        lines += ["", f"  Agent-steps, environment included; × as many as {table.simulated[0].name}"]
        lines += [f"  {e.name:<38} {e.step:9,.3f} µs {1 / e.ratio:10,.3g} ×" for e in table.simulated]
    return lines
