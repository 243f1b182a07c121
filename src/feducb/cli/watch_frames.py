"""One frame of `feducb watch`, out of a snapshot: of an agent, a controller or a simulation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from feducb.cli.output import counted

__all__ = ["agent_facts", "frame", "sparkline"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_POINTS = 48


def frame(told: dict[str, Any]) -> RenderableType:
    """How it stands."""
    kind = {"agent": _agent, "controller": _controller, "simulation": _simulation}.get(str(told.get("kind")))
    if kind is None:
        return Text(f"nothing is known about a snapshot of kind {told.get('kind')!r}", style="red")
    trouble = [("something is wrong", "red", told["failing"])] if told.get("failing") else []
    trouble += [("a setting does not fit", "yellow", said) for said in told.get("warnings", {}).values()]
    panels = [Panel(Text(str(said)), title=title, border_style=style) for title, style, said in trouble]
    return Group(*panels, kind(told)) if panels else kind(told)


def sparkline(values: Sequence[float | None], low: float, high: float) -> str:
    """A line of blocks; a space where there is no value."""
    reach = (high - low) or 1.0

    def block(value: float) -> str:
        return _BLOCKS[min(max(int((value - low) / reach * len(_BLOCKS)), 0), len(_BLOCKS) - 1)]

    return "".join(" " if value is None else block(value) for value in values)


def _agent(told: dict[str, Any]) -> RenderableType:
    counts, curve = told["counts"], told["curve"]
    left = _facts(*_standing(told))
    right = _facts(*_promise(told))
    title = f"agent {told['name']}, season {told['season']}" + (", shadow mode" if told["shadow"] else "")
    return Group(
        Text(title, style="bold"),
        Columns([Panel(left, title="now"), Panel(right, title="privacy")], padding=(0, 1)),
        Panel(_learning(curve), title=f"learning, in steps of {_length(curve['width'])}"),
        _counts(counts),
    )


def agent_facts(told: dict[str, Any]) -> list[tuple[str, str]]:
    """How an agent stands, as names and words for `feducb agent status`."""
    first = [
        ("runs", "yes" if told["running"] else "no"),
        ("wrong now", told["failing"] or "nothing known"),
        *(("does not fit", said) for said in told["warnings"].values()),
        ("season", str(told["season"])),
        ("started", _moment(told["started_at"])),
    ]
    return [*first, *_promise(told), *_standing(told)[2:]]


def _standing(told: dict[str, Any]) -> list[tuple[str, str]]:
    counts = told["counts"]
    return [
        ("decisions", f"{counts.get('decisions', 0):,}"),
        ("rewards", f"{counts.get('rewards', 0):,}"),
        ("windows open", f"{told['open_decisions']:,}"),
        ("model", ", ".join(told["model"])),
        ("newest sum", _sums(told["sums"])),
        ("waits to be sent", f"{told['outbox']:,}"),
        *_engine(told.get("engine")),
    ]


def _promise(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("promise", f"ε = {told['epsilon']:g}, δ = {told['delta']:g}"),
        ("spent", "yes, in full: further releases cost nothing" if told["spent"] else "nothing left yet"),
        ("releases", f"{told['releases_made']:,} made, {told['releases_left']:,} left"),
        ("next release", _moment(told["next_release_at"])),
        ("runs out", _moment(told["runs_out_at"]) if told["runs_out_at"] else "it has"),
        ("season ends", _moment(told["season_ends_at"])),
    ]


def _engine(told: dict[str, Any] | None) -> list[tuple[str, str]]:
    if told is None:
        return []
    refused = ", ".join(f"{reason} {count:,}" for reason, count in told["refused"].items())
    return [
        ("broker", "reached" if told["connected"] else "not reached"),
        ("last receipt", _moment(told["last_receipt_at"])),
        ("refused", refused or "nothing"),
        *_neighbours(told.get("refused_neighbours") or {}),
    ]


def _neighbours(told: dict[str, dict[str, int]]) -> list[tuple[str, str]]:
    """Whose releases were refused here, on a graph."""
    words = [
        f"{name} ({', '.join(f'{reason} {count:,}' for reason, count in reasons.items())})"
        for name, reasons in told.items()
    ]
    return [("refused neighbours", ", ".join(words))] if words else []


def _learning(curve: dict[str, Any]) -> RenderableType:
    points = curve["points"][-_POINTS:]
    values, uniform = [one["value"] for one in points], [one["uniform"] for one in points]
    known = [one for one in (*values, *uniform) if one is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    most = max((one["decisions"] for one in points), default=1)
    table = Table.grid(padding=(0, 2))
    whole = curve["whole"]
    table.add_row("this agent", sparkline(values, low, high), _mean(whole["value"], whole["value_error"]))
    table.add_row(
        "uniform choice, estimated",
        sparkline(uniform, low, high),
        _mean(whole["uniform"], whole["uniform_error"]),
    )
    rates = sparkline([float(one["decisions"]) for one in points], 0.0, float(most))
    table.add_row("decisions", rates, f"at most {most:,} a step" if points else "")
    return table


def _controller(told: dict[str, Any]) -> RenderableType:
    agents = Table(box=None, pad_edge=False)
    for name in ("agent", "last seen", "newest message", "in the newest sum", "refused"):
        agents.add_column(name, justify="left" if name == "agent" else "right")
    for one in told["agents"]:
        refused = one.get("refused") or {}
        agents.add_row(
            one["name"],
            _moment(one.get("last_seen")),
            "–" if one.get("number") is None else str(one["number"]),
            "yes" if one.get("in_sum") else "no",
            ", ".join(f"{reason} {count:,}" for reason, count in refused.items()) or "0",
        )
    newest = told.get("newest_sum")
    facts = _facts(
        (
            "newest sum",
            "none yet" if not newest else f"{newest['number']}, {counted(newest['agents'], 'agent')} in it",
        ),
        ("a sum needs", counted(told["quorum"], "agent") if told.get("quorum") else "–"),
        ("refused from strangers", f"{sum((told.get('strangers') or {}).values()):,}"),
    )
    graph = told.get("graph")
    cliques = (
        [] if not graph else [Panel("\n".join(", ".join(one) for one in graph["cliques"]), title="cliques")]
    )
    words = [f"{one['name']}: {one['last_refusal']}" for one in told["agents"] if one.get("last_refusal")]
    refusals = [Panel(Text("\n".join(words)), title="last refused")] if words else []
    title = f"controller of {told['name']}, season {told.get('season') or '–'}"
    return Group(
        Text(title, style="bold"),
        Panel(facts, title="now"),
        Panel(agents, title="agents"),
        *refusals,
        *cliques,
    )


def _simulation(told: dict[str, Any]) -> RenderableType:
    settings, done, total = told["settings"], told["done"], told["total"]
    rate = done / told["seconds"] if told["seconds"] else 0.0
    finished = total is not None and done >= total
    rows = [
        ("agent-steps", f"{done:,} of {'?' if total is None else f'{total:,}'}"),
        ("seconds", f"{told['seconds']:,.1f}"),
        ("a second", f"{rate:,.0f}"),
        ("still to go", "nothing: it is done" if finished else _left(done, total, rate)),
        ("last word", _ago(told["at"])),
        ("last saved", _ago(told["saved_at"])),
    ]
    shown = ("agents", "dim", "arms", "horizon", "runs", "mode", "baseline", "epsilon", "backend")
    rows += [(name, str(settings[name])) for name in shown if settings.get(name) is not None]
    table = Table.grid()
    table.add_row(ProgressBar(total=total or 1, completed=done, width=60))
    table.add_row(_facts(*rows))
    return Panel(table, title="simulation", expand=False)


def _facts(*rows: tuple[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, value in rows:
        table.add_row(name, value)
    return table


def _counts(counts: dict[str, int]) -> RenderableType:
    return Text(
        "  ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in sorted(counts.items())), "dim"
    )


def _sums(sums: list[dict[str, Any]]) -> str:
    return ", ".join(f"{one['number']} with {one['agents']} in it" for one in sums) or "none yet"


def _mean(value: float | None, error: float | None) -> str:
    if value is None:
        return "cannot be estimated"
    return f"{value:.3f}" + (f" ± {1.96 * error:.3f}" if error else "")


def _length(seconds: float) -> str:
    for size, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"


def _moment(at: float | None) -> str:
    """A date, and how far off."""
    if at is None:
        return "–"
    off = at - time.time()
    away = f"in {_length(off)}" if off > 0 else f"{_length(-off)} ago"
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S} ({away})"


def _ago(at: float | None) -> str:
    return "–" if at is None else f"{_length(max(time.time() - at, 0.0))} ago"


def _left(done: int, total: int | None, rate: float) -> str:
    return "unknown" if total is None or not rate else f"about {_length((total - done) / rate)}"
