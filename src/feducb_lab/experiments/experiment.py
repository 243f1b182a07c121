"""What a figure is made of: points to be simulated, a picture, and a text that says what was found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from feducb.version import __version__
from feducb_lab.experiments.provenance import fingerprint

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["SIMULATE", "Figure", "Outcome", "Point", "Results", "Scale"]

Scale = Literal["quick", "full"]
SIMULATE = "feducb.simulation.runner:simulate"


@dataclass(frozen=True, slots=True)
class Point:
    """One simulation of a sweep.

    The player is a function as ``module:name``; it takes the setting and returns a result, or its
    ``as_dict()``.
    """

    label: Mapping[str, Any]  # in the figure, such as {"M": 100, "epsilon": 1.0, "who": "calibrated"}
    setting: Mapping[str, Any]  # keyword arguments of `feducb.simulate`, plain data only
    player: str = SIMULATE

    @property
    def module(self) -> str:
        """Where its player is."""
        return self.player.partition(":")[0]

    @property
    def key(self) -> str:
        """A name that changes with anything that changes the result, the player's code included."""
        plain = json.dumps([fingerprint(self.module), self.player, dict(self.setting)], sort_keys=True)
        return hashlib.sha256(plain.encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Label and setting of a point, and what it came to."""

    label: Mapping[str, Any]
    setting: Mapping[str, Any]
    result: Mapping[str, Any]  # `SimulationResult.as_dict`, with ``finals``, the per-agent regret of each run

    @property
    def mean(self) -> float:
        """Per-agent regret, mean over runs."""
        return float(self.result["per_agent_regret"]["mean"])

    @property
    def stderr(self) -> float:
        """Its standard error; 0 with one run."""
        return float(self.result["per_agent_regret"]["stderr"] or 0.0)

    @property
    def curve(self) -> tuple[list[int], list[float], list[float]]:
        """Rounds, mean regret and standard error."""
        points = self.result["curve"]
        rounds, means = ([point[name] for point in points] for name in ("round", "mean"))
        return rounds, means, [point["stderr"] or 0.0 for point in points]


@dataclass(frozen=True, slots=True)
class Results:
    """All outcomes of a figure, in the order of its points."""

    figure: str
    scale: Scale
    outcomes: Sequence[Outcome]

    def where(self, **label: Any) -> list[Outcome]:
        """Outcomes whose label has these entries."""
        return [one for one in self.outcomes if all(one.label.get(k) == v for k, v in label.items())]

    def along(self, name: str, **label: Any) -> list[Outcome]:
        """Outcomes whose label has these entries, by rising ``name``."""
        return sorted(self.where(**label), key=lambda one: one.label[name])

    def values(self, name: str, **label: Any) -> list[Any]:
        """What entry ``name`` of these labels is, once each, rising."""
        return sorted({one.label[name] for one in self.where(**label)})

    def one(self, **label: Any) -> Outcome:
        """The only outcome with this label."""
        (only,) = self.where(**label)
        return only

    def as_dict(self) -> dict[str, Any]:
        """What is written to the figure's JSON file."""
        return {
            "figure": self.figure,
            "scale": self.scale,
            "version": __version__,
            "points": [asdict(one) for one in self.outcomes],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Results:
        """Back from plain data."""
        outcomes = [Outcome(one["label"], one["setting"], one["result"]) for one in plain["points"]]
        return cls(plain["figure"], plain["scale"], outcomes)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: what to simulate at a scale, and what is made of the results.

    The text says in Markdown what came out, from the results alone: no sentence is written in advance of what
    it says. The table's first row is its head.
    """

    name: str  # as in ``feducb figure NAME``
    title: str
    question: str  # a sentence or two; of the paper's figures, what the paper claims
    points: Callable[[Scale], list[Point]]
    draw: Callable[[Results], Picture]
    text: Callable[[Results], str]
    table: Callable[[Results], list[list[str]]]
