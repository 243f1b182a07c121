"""Own play beside each agent alone, cell by cell: of docs/what-to-expect.md and docs/theory.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from feducb_lab.experiments.experiment import Point, Scale
from feducb_lab.experiments.figures.tables import table_figure
from feducb_lab.experiments.own_runs import LIES

__all__ = ["FIGURE"]

_USUAL: dict[str, Any] = {"dim": 10, "arms": 100, "horizon": 10_000, "delta": 1e-6, "seed": 0}
_OWN: dict[str, Any] = {"play": "own", "epsilon": 1.0}
_ALONE: dict[str, Any] = {"baseline": "alone", "agents": 10}
_TRUSTS = ("nobody", "keepers")
_PLAYER = "feducb_lab.experiments.own_runs:play_runs"
_RUNS = {"sizes": 100, "sites differ": 20, "others lie": 19, "small gap": 19, "other worlds": 12, "long": 10}
_QUICK = {"sizes", "others lie", "other worlds"}


def _cell(table: str, row: str, column: str, **setting: Any) -> Point:
    plain = _USUAL | {"runs": _RUNS[table]} | setting
    return Point({"table": table, "row": row, "column": column}, plain, _PLAYER)


def _cells() -> Iterator[Point]:
    yield _cell("sizes", "all", "alone", **_ALONE)
    yield _cell("small gap", "all", "alone", **_ALONE, gap=0.02)
    yield _cell("long", "T = 1e5", "alone", **_ALONE, horizon=100_000)
    for trust in _TRUSTS:
        for agents in (10, 30, 100, 300):
            for epsilon in (1.0, 4.0):
                where = _OWN | {"agents": agents, "epsilon": epsilon}
                yield _cell("sizes", f"{agents}, {epsilon:g}", trust, **where, trust=trust)
        large = _OWN | {"agents": 100, "trust": trust}
        for apart in (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 1.0):
            yield _cell("sites differ", f"{apart:g}", trust, **large, heterogeneity=apart)
            if trust == "keepers" and apart > 0.4:
                known = {"heterogeneity": apart, "distance": 0.5}
                yield _cell("sites differ", f"{apart:g}", f"{trust}, distance 0.5", **large, **known)
        for lie in LIES:
            yield _cell("others lie", lie, trust, **large, lie=lie)
        for agents in (10, 30, 100):
            small = _OWN | {"agents": agents, "trust": trust, "gap": 0.02}
            yield _cell("small gap", f"M = {agents}, {trust}", "own", **small)
        yield _cell("long", "T = 1e5", trust, **_OWN, agents=30, trust=trust, horizon=100_000)
    for world, arms in {"isotropic": 50, "correlated": 50, "one-hot": 10}.items():
        where = {"environment": world, "arms": arms}
        yield _cell("other worlds", world, "alone", **_ALONE, **where)
        for trust in _TRUSTS:
            yield _cell("other worlds", world, trust, **_OWN, **where, agents=30, trust=trust)


def _points(scale: Scale) -> list[Point]:
    if scale == "full":
        return list(_cells())
    return [
        Point(one.label, dict(one.setting) | {"runs": 2, "horizon": 2000}, one.player)
        for one in _cells()
        if one.label["table"] in _QUICK and one.setting["agents"] <= 30
    ]


FIGURE = table_figure(
    "own",
    "Share first, then act on everything one knows",
    "What does the average agent lose under own play, beside an agent alone: by the number of agents M, ε "
    "and whom one trusts, where sites differ, where the others lie, with a small gap, in other worlds, and "
    "in a long season? T = 10⁴, d = 10, K = 100, ε = 1 and δ = 1e-6 unless a row says otherwise; the others "
    "of an honest agent send the opposite of what they saw, that of another θ, rewards of nothing, or half.",
    _points,
)
