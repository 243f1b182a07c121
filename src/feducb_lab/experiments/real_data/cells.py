"""What is measured: every data set × records per agent × play, each with all budgets and trusts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from feducb.evaluation.study import Online, Study
from feducb.evaluation.weighted_sums import Estimate
from feducb.trust import CONTROLLER, KEEPERS, NOBODY
from feducb_lab.experiments.experiment import Scale
from feducb_lab.experiments.real_data.carried import Ready

__all__ = ["EPSILONS", "PLAYS", "TRUSTS", "Cell", "Measured", "cells_of", "combined", "measure"]

Play = Literal["released", "own"]

PLAYS: tuple[Play, ...] = ("released", "own")
TRUSTS = {"nobody": NOBODY, "keepers": KEEPERS, "controller": CONTROLLER}
EPSILONS = (1.0, 8.0)
LEVELS = (5, 10, 20, 50, 100, 200, 500, 1000, 3000)
_FEWEST = 20  # records per agent, but where agents have not many more
_RUNS = {"quick": (2, 1), "full": (5, 4)}  # runs a part, and parts; letter's rounds are long
_PARTS_OF_LONG = 2
_LONG = 100  # d from which they are
_REPEATS = {"quick": 3, "full": 20}


@dataclass(frozen=True, slots=True)
class Cell:
    """One comparison. Parts are runs under other seeds, to be put together."""

    name: str
    play: Play
    records: int | None  # per agent; None: all
    part: int = 0

    @property
    def key(self) -> str:
        """Its name in files."""
        return f"{self.name}, {self.play}, {self.records or 'all'}, {self.part}"

    @property
    def group(self) -> str:
        """The name that its parts share."""
        return self.key.rpartition(", ")[0]


def cells_of(ready: Ready, scale: Scale) -> Iterator[Cell]:
    """Those of a data set, the longest first."""
    most = ready.records_each(Study().folds)
    lowest = _FEWEST if most > 2 * _FEWEST else 0
    levels = [one for one in LEVELS if lowest <= one < most]
    if scale == "quick":
        levels = levels[:1]
    parts = 1
    if ready.online:
        parts = _RUNS[scale][1]
        if ready.dim >= _LONG:
            parts = min(parts, _PARTS_OF_LONG)
    for records in (None, *reversed(levels)):
        for play in reversed(PLAYS):
            for part in range(parts):
                yield Cell(ready.name, play, records, part)


def measure(cell: Cell, ready: Ready, spread: Any, scale: Scale) -> dict[str, Any]:
    """Play or value one, as plain data."""
    study = Study(
        epsilons=EPSILONS,
        trusts=tuple(TRUSTS.values()),
        play=cell.play,
        records_per_agent=cell.records,
        repeats=_REPEATS[scale],
        spread=spread,
        seed=cell.part,
    )
    found = ready.compare(study, Online(runs=_RUNS[scale][0]))
    names = iter([f"ε = {epsilon:g}, {trust}" for epsilon in EPSILONS for trust in TRUSTS])
    policies = {}
    for row in found.rows:
        if row.play != found.primary:
            continue
        more = row.over_alone
        name = next(names) if row.private else "alone" if more is None else "no privacy"
        policies[name] = {
            "value": _plain(row.value),
            **({} if more is None else {"over_alone": _plain(more)}),
            **({"reads": row.reads, "shares": row.shares} if row.private else {}),
        }
    facts = {"agents": ready.agents, "dim": ready.dim, "records_each": ready.records_each(study.folds)}
    return {**facts, "primary": found.primary, "reliable": found.reliable, "policies": policies}


def _plain(one: Estimate) -> dict[str, Any]:
    return {"value": one.value, "stderr": one.stderr, "freedom": one.freedom}


@dataclass(frozen=True, slots=True)
class Measured:
    """One policy in one comparison, its parts put together."""

    value: Estimate
    over_alone: Estimate | None
    reads: bool = True
    shares: bool = True


def combined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Measured]:
    """Policies by their names, from the parts of one comparison."""
    made = {}
    for name, first in parts[0]["policies"].items():
        same = [one["policies"][name] for one in parts]
        more = _pooled([one["over_alone"] for one in same]) if "over_alone" in first else None
        value = _pooled([one["value"] for one in same])
        made[name] = Measured(value, more, first.get("reads", True), first.get("shares", True))
    return made


def _pooled(parts: Sequence[Mapping[str, Any]]) -> Estimate:
    """The mean over all runs of all parts, which are equally many, and its standard error."""
    if len(parts) == 1:
        (one,) = parts
        return Estimate(one["value"], one["stderr"], freedom=one["freedom"])
    runs = [one["freedom"] + 1 for one in parts]
    count = sum(runs)
    mean = sum(n * one["value"] for n, one in zip(runs, parts, strict=True)) / count
    scatter = sum(
        (n - 1) * n * one["stderr"] ** 2 + n * (one["value"] - mean) ** 2
        for n, one in zip(runs, parts, strict=True)
    )
    return Estimate(mean, math.sqrt(scatter / (count - 1) / count), freedom=count - 1)
