"""What to expect: released play, history, seasons and graphs, as in docs/what-to-expect.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from feducb_lab.experiments.experiment import Point, Scale
from feducb_lab.experiments.figures.tables import table_figure

__all__ = ["FIGURE"]

_USUAL: dict[str, Any] = {"dim": 10, "arms": 100, "horizon": 10_000, "seed": 0, "epsilon": 1.0, "delta": 1e-6}
_ALIKE = {"play": "own", "distance": 0.0}
_TRUSTS = ("nobody", "keepers")
_SUMS = ((100, 10, 20), (100, 15, 20), (16, 2, 3), (16, 4, 3), (4, 1, 1))  # M, away, colluding
_MISSING = "keepers, every agent misses a tenth of rows"
_READINGS: dict[str, dict[str, Any]] = {
    "remembers all": {},
    "half-life of 1,500 rounds": {"half_life": 1500.0},
    "half-life of 500": {"half_life": 500.0},
    "half-life of 150": {"half_life": 150.0},
    "begins anew each season": {"remember": "none"},
}
_DRIFTS = {
    "θ* stands still": None,
    "turns by 10° in 1,000 rounds": "turn:10",
    "jumps by 90° at round 4,500": "jump:4500",
}
_RING = {"agents": 100, "topology": "ring:100"}


def _cell(table: str, row: str, column: str, runs: int, **setting: Any) -> Point:
    return Point({"table": table, "row": row, "column": column}, _USUAL | {"runs": runs} | setting)


def _simulation() -> Iterator[Point]:
    sizes = (
        ("M = 10, T = 10⁴", 10, 10_000),
        ("M = 100, T = 10⁴", 100, 10_000),
        ("M = 1000, T = 10³", 1000, 1000),
    )
    for section, agents, horizon in sizes:
        size = {"agents": agents, "horizon": horizon}
        few = agents == 10
        private: dict[str, Any] = {"delta": 0.1} if few else {}
        rows: dict[str, dict[str, Any]] = {
            "no privacy": {"baseline": "no-privacy"},
            "private, calibrated" if few else "private": private,
        }
        if few:
            rows |= {"each agent alone": {"baseline": "alone"}, "uniform play": {"baseline": "uniform"}}
            rows |= {"the paper's constants": private | {"mode": "paper"}}
        else:
            rows |= {"private, controller trusted": {"trust": "controller"}}
        for row, setting in rows.items():
            yield _cell("simulation", f"{section}: {row}", "regret", 40, **size, **setting)


def _secure_sums() -> Iterator[Point]:
    runs = 100
    for agents, away, colluding in _SUMS:
        row = f"{agents}, {away}, {colluding}"
        keepers = {"agents": agents, "trust": f"keepers:{away}:{colluding}"}
        if away in (10, 2, 1):
            for trust in ("nobody", "controller"):
                yield _cell("secure sums", row, trust, runs, agents=agents, trust=trust)
        yield _cell("secure sums", row, "keepers", runs, **keepers)
        yield _cell("secure sums", row, _MISSING, runs, **keepers, absence=0.1)


def _beside_own() -> Iterator[Point]:
    where: dict[str, Any]
    for agents in (10, 30, 100, 300):
        for epsilon in (1.0, 4.0):
            where = {"agents": agents, "epsilon": epsilon}
            row, runs = f"{agents}, {epsilon:g}", 100 if agents < 300 else 10
            for trust in _TRUSTS:
                yield _cell("released", row, trust, runs, **where, trust=trust)
            yield _cell("alike", row, "keepers", min(runs, 50), **where, **_ALIKE, trust="keepers")
    for apart in (0.0, 0.05, 0.1, 0.2, 0.4):
        for trust in _TRUSTS:
            runs = 30 if apart < 0.2 else 5
            where = {"agents": 100, "trust": trust, "heterogeneity": apart}
            yield _cell("sites differ, released", f"{apart:g}", trust, runs, **where)
    for agents, trust in ((10, "keepers"), (30, "keepers"), (100, "keepers"), (100, "nobody")):
        where = {"agents": agents, "trust": trust, "gap": 0.02}
        yield _cell("small gap", f"M = {agents}, {trust}", "released", 20, **where)
        yield _cell("small gap", f"M = {agents}, {trust}", "alike", 20, **where, **_ALIKE)
    for world, arms in {"isotropic": 50, "correlated": 50, "one-hot": 10}.items():
        where = {"agents": 30, "trust": "keepers", "environment": world, "arms": arms}
        yield _cell("other worlds", world, "released", 12, **where)
        yield _cell("other worlds", world, "alike", 12, **where, **_ALIKE)


def _history() -> Iterator[Point]:
    for records in (100, 300, 1000):
        where = {"agents": 10, "history": records}
        yield _cell("history", f"{records:,}", "alone", 40, **where, baseline="alone")
        for column, trust in (("own, nobody trusted", "nobody"), ("own, keepers", "keepers")):
            yield _cell("history", f"{records:,}", column, 40, **where, play="own", trust=trust)


def _drift() -> Iterator[Point]:
    where = {"agents": 10, "dim": 5, "arms": 10, "epsilon": 4.0, "horizon": 9000, "seasons": 6}
    for row, reading in _READINGS.items():
        for column, drift in _DRIFTS.items():
            moves = {} if drift is None else {"drift": drift}
            yield _cell("θ* moves", row, column, 8, **where, **reading, **moves)


def _graphs() -> Iterator[Point]:
    yield _cell("graphs", "complete:100", "γ = 1", 40, topology="complete:100", agents=100)
    yield _cell("graphs", "ring:100", "γ = 10", 5, **_RING, ttl=10)
    for ttl in (10, 50):
        yield _cell("graphs", "ring:100, one estimator", f"γ = {ttl}", 40, **_RING, ttl=ttl, estimators="one")
    yield _cell(
        "graphs",
        "ring:100, one estimator, keepers",
        "γ = 10",
        5,
        **_RING,
        ttl=10,
        estimators="one",
        trust="keepers",
    )


def _points(scale: Scale) -> list[Point]:
    made = [*_simulation(), *_secure_sums(), *_beside_own(), *_history(), *_drift(), *_graphs()]
    if scale == "full":
        return made
    return [_quick(point) for point in made if _small(point)]


def _small(point: Point) -> bool:
    """What is played at quick scale: no hundreds of agents, or long plans of them."""
    return point.setting["agents"] <= 30 and "topology" not in point.setting


def _quick(point: Point) -> Point:
    shorter = {"runs": 2, "horizon": min(point.setting["horizon"], 3000)}
    return Point(point.label, dict(point.setting) | shorter, point.player)


FIGURE = table_figure(
    "expect",
    "What to expect",
    "What does the average agent lose, without privacy and with it, by whom one trusts, by how sites differ, "
    "with a history, over seasons in which θ* moves, and on graphs? d = 10, K = 100, T = 10⁴, (1, 1e-6) "
    "unless a row says otherwise; at quick scale fewer agents, rounds and runs.",
    _points,
)
