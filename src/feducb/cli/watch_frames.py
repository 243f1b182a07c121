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
from feducb.cli.row_frames import agent_rows, controller_rows

__all__ = ["agent_facts", "frame", "sparkline"]

_COLOURS = {"wrong": "red", "doubtful": "yellow"}
_BLOCKS = "▁▂▃▄▅▆▇█"
_POINTS = 48


def frame(snapshot: dict[str, Any]) -> RenderableType:
    """Draw one snapshot, whatever kind it is of, with what is wrong on top."""
    kind = {"agent": _agent, "controller": _controller, "simulation": _simulation}.get(
        str(snapshot.get("kind"))
    )
    if kind is None:
        return Text(f"nothing is known about a snapshot of kind {snapshot.get('kind')!r}", style="red")
    panels = [
        Panel(Text(one["says"]), title=one["severity"], border_style=_COLOURS[one["severity"]])
        for one in snapshot.get("trouble", [])
    ]
    return Group(*panels, kind(snapshot)) if panels else kind(snapshot)


def sparkline(values: Sequence[float | None], low: float, high: float) -> str:
    """A line of blocks; a space where there is no value."""
    reach = (high - low) or 1.0

    def block(value: float) -> str:
        return _BLOCKS[min(max(int((value - low) / reach * len(_BLOCKS)), 0), len(_BLOCKS) - 1)]

    return "".join(" " if value is None else block(value) for value in values)


def _agent(snapshot: dict[str, Any]) -> RenderableType:
    curve = snapshot["curve"]
    now = Panel(_facts(*_standing(snapshot)), title="now")
    privacy = Panel(_facts(*_promise(snapshot)), title="privacy")
    mode = ", shadow mode" if snapshot["shadow"] else ""
    counts = (f"{name.replace('_', ' ')} {count:,}" for name, count in sorted(snapshot["counts"].items()))
    return Group(
        Text(f"agent {snapshot['name']}, season {snapshot['season']}{mode}", style="bold"),
        Columns([now, privacy], padding=(0, 1)),
        Panel(_learning(curve), title=f"learning, in steps of {_length(curve['width'])}"),
        Text("  ".join(counts), "dim"),
    )


def agent_facts(snapshot: dict[str, Any]) -> list[tuple[str, str]]:
    """How an agent stands, as names and words for `feducb agent status`."""
    first = [
        ("runs", "yes" if snapshot["running"] else "no"),
        *([(one["severity"], one["says"]) for one in snapshot["trouble"]] or [("wrong", "nothing known")]),
        ("season", str(snapshot["season"])),
        ("started", _moment(snapshot["started_at"])),
        *_all_seasons(snapshot["all_seasons"]),
    ]
    return [*first, *_promise(snapshot), *_standing(snapshot)[2:]]


def _all_seasons(spent: dict[str, Any]) -> list[tuple[str, str]]:
    """What a person has paid who was there in each season."""
    most = "" if spent["most_epsilon"] is None else f", of at most {spent['most_epsilon']:g}"
    seasons = "1 season" if spent["seasons"] == 1 else f"{spent['seasons']} seasons"
    lost = spent["presumed"]
    presumed = f"; {lost} of them for what a lost file may have released" if lost else ""
    total = f"ε = {spent['epsilon']:.3g} at δ = {spent['delta']:g} in {seasons}{most}"
    return [("all seasons", total + presumed)]


def _standing(snapshot: dict[str, Any]) -> list[tuple[str, str]]:
    counts = snapshot["counts"]
    sums = (f"{one['number']} with {one['agents']} in it" for one in snapshot["sums"])
    return [
        ("decisions", f"{counts.get('decisions', 0):,}"),
        ("rewards", f"{counts.get('rewards', 0):,}"),
        ("windows open", f"{snapshot['open_decisions']:,}"),
        ("model", ", ".join(snapshot["model"])),
        *([("play", snapshot["own"]["says"])] if snapshot.get("own") else []),
        ("reward", _gained(snapshot["gain"])),
        ("newest sum", ", ".join(sums) or "none yet"),
        *_memory(snapshot.get("memory")),
        ("waits to be sent", f"{snapshot['outbox']:,}"),
        *_values(snapshot.get("recipe")),
        *agent_rows(snapshot),
        *_engine(snapshot.get("engine")),
    ]


def _memory(memory: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Where there were seasons before: what is remembered of them."""
    return [("memory", memory["says"])] if memory and memory["seasons"] else []


def _gained(gain: dict[str, Any]) -> str:
    """What lanes came to, and what holding out costs."""
    if gain["costs"] is None:
        return str(gain["says"])
    share, (least, most) = gain["lanes"]["alone"]["share"], gain["costs"]
    return f"{gain['says']}; holding {share:.0%} out costs {least:.2g} to {most:.2g} per visitor"


def _values(recipe: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Where there is a recipe: which one, and how many values of visitors took one of its rules."""
    if recipe is None:
        return []
    taken = (
        f"{column} ({', '.join(f'{count:,} {rule}' for rule, count in some.items())})"
        for column, some in recipe["values"].items()
    )
    return [
        ("recipe", f"{recipe['fingerprint']}, d = {recipe['dim']}{_changes(recipe)}"),
        ("values by rule", ", ".join(taken) or "none yet"),
    ]


def _changes(recipe: dict[str, Any]) -> str:
    """What a season did to its recipe's actions, and for how many more there is room."""
    parts = [f"{name} {', '.join(recipe[name])}" for name in ("added", "retired") if recipe.get(name)]
    parts += [f"room for {counted(recipe['room'], 'more action')}"] if recipe.get("room") else []
    return "".join(f"; {part}" for part in parts)


def _promise(snapshot: dict[str, Any]) -> list[tuple[str, str]]:
    if snapshot["trust"] == "self":
        return [
            ("promise", "nothing leaves: ε = 0 to outsiders; visitors see decisions made by raw records"),
            ("season ends", _moment(snapshot["season_ends_at"])),
        ]
    if joins := snapshot.get("joins"):
        begins = f"for season {joins['season']}, which begins {_moment(joins['at'])}"
        if joins["season"] is None:
            begins = "to be in the roster again"
        return [
            ("promise", f"ε = {snapshot['epsilon']:g}, δ = {snapshot['delta']:g}"),
            ("waits", f"{begins}; until then nothing leaves"),
            ("season ends", _moment(snapshot["season_ends_at"])),
        ]
    return [
        ("promise", f"ε = {snapshot['epsilon']:g}, δ = {snapshot['delta']:g}"),
        ("spent", "yes, in full: further releases cost nothing" if snapshot["spent"] else "nothing left yet"),
        ("releases", f"{snapshot['releases_made']:,} made, {snapshot['releases_left']:,} left"),
        ("next release", _moment(snapshot["next_release_at"])),
        ("runs out", _moment(snapshot["runs_out_at"]) if snapshot["runs_out_at"] else "it has"),
        ("season ends", _moment(snapshot["season_ends_at"])),
    ]


def _engine(engine: dict[str, Any] | None) -> list[tuple[str, str]]:
    if engine is None:
        return []
    neighbours = engine.get("refused_neighbours") or {}  # on a graph: whose releases were refused here
    on_graph = ", ".join(f"{name} ({_listed(own)})" for name, own in neighbours.items())
    return [
        ("broker", "reached" if engine["connected"] else "not reached"),
        ("last receipt", _moment(engine["last_receipt_at"])),
        ("refused", _listed(engine["refused"]) or "nothing"),
        *([("refused neighbours", on_graph)] if on_graph else []),
    ]


def _listed(refused: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in refused.items())


def _learning(curve: dict[str, Any]) -> RenderableType:
    points = curve["points"][-_POINTS:]
    values, uniform = [one["value"] for one in points], [one["uniform"] for one in points]
    known = [one for one in (*values, *uniform) if one is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    most = max((one["decisions"] for one in points), default=1)
    table = Table.grid(padding=(0, 2))
    whole = curve["whole"]
    table.add_row("this agent", sparkline(values, low, high), _mean(whole, "value"))
    table.add_row("uniform choice, estimated", sparkline(uniform, low, high), _mean(whole, "uniform"))
    rates = sparkline([float(one["decisions"]) for one in points], 0.0, float(most))
    table.add_row("decisions", rates, f"at most {most:,} a step" if points else "")
    return table


def _controller(snapshot: dict[str, Any]) -> RenderableType:
    agents = Table(box=None, pad_edge=False)
    for name in ("agent", "last seen", "newest message", "in the newest sum", "refused"):
        agents.add_column(name, justify="left" if name == "agent" else "right")
    for one in snapshot["agents"]:
        agents.add_row(
            one["name"],
            _moment(one.get("last_seen")),
            "–" if one.get("number") is None else str(one["number"]),
            "yes" if one.get("in_sum") else "no",
            _listed(one.get("refused") or {}) or "0",
        )
    newest = snapshot.get("newest_sum")
    in_it = f"{newest['number']}, {counted(newest['agents'], 'agent')} in it" if newest else "none yet"
    facts = _facts(
        ("newest sum", in_it),
        ("a sum needs", counted(snapshot["quorum"], "agent") if snapshot.get("quorum") else "–"),
        ("refused from strangers", f"{sum((snapshot.get('strangers') or {}).values()):,}"),
    )
    title = f"controller of {snapshot['name']}, season {snapshot.get('season') or '–'}"
    parts: list[RenderableType] = [Text(title, style="bold"), Panel(facts, title="now")]
    if snapshot.get("rows"):
        parts.append(Panel(_facts(*controller_rows(snapshot["rows"])), title="the open row"))
    parts.append(Panel(agents, title="agents"))
    words = [f"{one['name']}: {one['last_refusal']}" for one in snapshot["agents"] if one.get("last_refusal")]
    if words:
        parts.append(Panel(Text("\n".join(words)), title="last refused"))
    if snapshot.get("graph"):
        cliques = "\n".join(", ".join(one) for one in snapshot["graph"]["cliques"])
        parts.append(Panel(cliques, title="cliques"))
    return Group(*parts)


def _simulation(snapshot: dict[str, Any]) -> RenderableType:
    settings, done, total = snapshot["settings"], snapshot["done"], snapshot["total"]
    rate = done / snapshot["seconds"] if snapshot["seconds"] else 0.0
    finished = total is not None and done >= total
    rows = [
        ("agent-steps", f"{done:,} of {'?' if total is None else f'{total:,}'}"),
        ("seconds", f"{snapshot['seconds']:,.1f}"),
        ("a second", f"{rate:,.0f}"),
        ("still to go", "nothing: it is done" if finished else _left(done, total, rate)),
        ("last word", _ago(snapshot["at"])),
        ("last saved", _ago(snapshot["saved_at"])),
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


def _mean(whole: dict[str, Any], name: str) -> str:
    value, error = whole[name], whole[f"{name}_error"]
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
