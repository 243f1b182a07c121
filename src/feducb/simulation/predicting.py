"""What a plan would find by simulation, predicted in no time from public numbers and a table.

When a sum is worth reading, when all close, and what others' records are worth then are computed as agents
compute them. How much is lost around that is read off smooth functions of logarithms, fitted to simulated
seasons (kernel regression about a polynomial): `benchmarks/plan_fit.py` makes the table, and measures its
error on seasons that were not fitted to.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from feducb.config import Problem
from feducb.protocol.federation import Play
from feducb.simulation.planned_season import Season
from feducb.simulation.public_numbers import Numbers, numbers_of
from feducb.system import counted
from feducb.types import Array
from feducb.worlds.synthetic import PaperEnvironment, paper_world

__all__ = [
    "RANGE",
    "Prediction",
    "agents_needed",
    "features",
    "predict",
    "read_table",
    "terms_of",
    "value_of",
]

RANGE: dict[str, tuple[float, float]] = {
    "dim": (3, 20),
    "arms": (3, 300),
    "visitors": (100, 10_000),
    "agents": (3, 1_000),
    "epsilon": (0.2, 16.0),
}
"""What the table is made for; it asks for the noise that ε leads to, and not for ε."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """What simulation is expected to find.

    Attributes:
        visitors: of each agent.
        agents: how many there are.
        regret: of the average agent: ``alone``, and under each play in which agents share anything.
        play: of these the one that loses less; None if there is none.
        pays_after: from how many visitors on federating pays; None: not within the season.
    """

    visitors: int
    agents: int
    regret: dict[str, float]
    play: Play | None
    pays_after: int | None

    @property
    def verdict(self) -> str:
        """Plain sentences, with the error that was measured."""
        if self.play is None:
            return "Predicted: stay alone, since nothing released is worth reading."
        played = [play for play in self.regret if play != "alone"]
        lost = ", ".join(f"{self.regret[play]:,.1f} with play = {play}" for play in played)
        lost = f"{lost} and {self.regret['alone']:,.1f} by itself"
        head = f"stay alone: federating does not pay within {counted(self.visitors, 'visitor')}"
        if self.pays_after is not None:
            after = counted(self.pays_after, "visitor")
            head = f"federating pays after about {after} with play = {self.play}"
        return f"Predicted: {head}. The average of {self.agents:,} agents loses {lost}. {error_sentence()}"


def predict(season: Season) -> Prediction | None:
    """What a simulation of this season is expected to find; None outside of what the table was made for.

    That is the paper's world with sites that are alike, planned releases, no history and no spacing.
    """
    if not _usual(season):
        return None
    numbers, table = numbers_of(season), read_table()
    said = Prediction(visitors=season.visitors, agents=season.agents, regret={}, play=None, pays_after=None)
    plays: list[Play] = ["released"] if numbers.readable and season.play != "own" else []
    plays += ["own"] if numbers.closes and season.play != "released" else []
    if not plays:
        return said
    least, most = table["noise"]
    within = all(low <= getattr(numbers, name) <= high for name, (low, high) in table["range"].items())
    if not within or numbers.noise > most:
        return None
    numbers = replace(numbers, noise=max(numbers.noise, least))  # less could only help
    regret = {who: value_of(table, who, numbers) for who in ("alone", *plays)}
    play = min(plays, key=regret.__getitem__)
    said, ratio = replace(said, regret=regret, play=play), regret[play] / regret["alone"]
    if ratio >= 1.0:
        return said
    after = math.ceil(value_of(table, f"after, {play}", numbers, math.log(ratio)))
    return replace(said, pays_after=min(max(after, 1), season.visitors))


def error_sentence() -> str:
    """How far off predictions were on seasons that the table was not fitted to."""
    error = read_table()["error"]
    middle = error["median"]
    return (
        f"In {error['seasons']} simulated seasons that the table was not fitted to, {error['agree']} of "
        f"{error['sure']} sure verdicts were as predicted, and half of the predictions were within a factor "
        f"of {middle['visitors']:.2f} for these visitors and {middle['released']:.2f} for regret."
    )


def agents_needed(season: Season) -> int | None:
    """With how many agents federating is expected to pay, all else being equal; None: not up to 1,000."""
    low, high = (int(bound) for bound in RANGE["agents"])

    def pays(agents: int) -> bool:
        said = predict(replace(season, agents=agents))
        return said is not None and said.pays_after is not None

    found = bisect_left(range(low, high + 1), True, key=pays) + low
    return found if found <= high and pays(found) else None


def _usual(season: Season) -> bool:
    """Whether nothing is asked for that no simulated season had."""
    usual = type(season.world) is PaperEnvironment and season.world == paper_world(
        season.world.problem, season.world.arms
    )
    plain = season.releases is None and season.distance is None and not season.history and not season.spacing
    return usual and plain and season.world.problem == Problem(dim=season.world.problem.dim)


def features(which: str, numbers: Numbers, ratio: float = 0.0) -> tuple[float, Array]:
    """What a function of the table is multiplied by, and the logarithms that it is of.

    Args:
        which: ``alone``, ``released`` or ``own``, regret; ``after, released`` or ``after, own``, visitors
            from which on it pays.
        numbers: of the season.
        ratio: log of the predicted regret over alone's, for ``after``.
    """
    both = [math.log(numbers.dim), math.log(numbers.arms)]
    close = numbers.closes[-1] if numbers.closes else 0
    if which == "alone":
        own = [math.log(numbers.visitors), math.log(numbers.alone_from)]
        return numbers.blind * numbers.alone_from, np.array([*both, *own])
    if which == "released":
        longer, noise = math.log(numbers.visitors / numbers.read_from), math.log(numbers.noise)
        own = [math.log(numbers.read_from), longer, noise, math.log(numbers.agents)]
        return numbers.blind * numbers.read_from, np.array([*both, *own])
    if which == "own":
        own = [
            math.log(one)
            for one in (numbers.visitors, numbers.closes[0], close, numbers.worth, numbers.noise)
        ]
        return numbers.blind * close, np.array([*both, *own])
    # A plan looks at 200 points of a season.
    first = max(numbers.read_from if which == "after, released" else close, numbers.visitors / 200)
    times = [numbers.alone_from / first, numbers.visitors / first]
    return first, np.array([*both, *np.log(times), ratio])


def terms_of(logs: Array) -> Array:
    """All products of up to two of the logarithms; 1 first."""
    k = len(logs)
    twice = [logs[i] * logs[j] for i in range(k) for j in range(i, k)]
    return np.array([1.0, *logs, *twice])


def value_of(table: Mapping[str, Any], which: str, numbers: Numbers, ratio: float = 0.0) -> float:
    """What a table says; the rest as in `features`."""
    base, logs = features(which, numbers, ratio)
    model = table["models"][which]
    scaled = (logs - np.array(model["centre"])) / np.array(model["scale"])
    squares = np.sum((np.array(model["points"]) - scaled) ** 2, axis=1)
    near = np.exp(-0.5 * squares / model["length"] ** 2) @ np.array(model["weights"])
    log = float(terms_of(scaled) @ np.array(model["trend"]) + near)
    low, high = model["limits"]  # hardly beyond what was seen
    return base * math.exp(min(max(log, low), high))


@cache
def read_table() -> dict[str, Any]:
    """The table that is shipped: functions, what they were made for, and how far off they are."""
    text = resources.files("feducb.simulation").joinpath("plan_table.json").read_text(encoding="utf-8")
    read: dict[str, Any] = json.loads(text)
    return read
