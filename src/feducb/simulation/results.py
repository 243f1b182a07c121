"""What a simulation came to."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feducb.protocol.graphs import Topology
from feducb.system import counted
from feducb.types import Array
from feducb.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SimulationResult"]


@dataclass(frozen=True, kw_only=True)
class SimulationResult:
    """Regret, communication and what was promised.

    Attributes:
        rounds: (points,), the rounds at which the curve is read.
        regret: (runs, points), cumulative pseudo-regret of the average agent.
        release_rounds: the rounds at which releases took place, one tuple per run.
        releases: how many releases an agent made in a run (mean over runs).
        messages: point-to-point messages of a run (mean over runs): uploads and downloads, or hops of floods.
        bytes: their size.
        seconds: wall time.
        agent_steps_per_second: decisions simulated in a second.
        config: the settings, as plain data.
        privacy: the privacy statement, as plain data.
        theory: the paper's bounds beside what was measured (``paper`` mode), else None.
        topology: the graph, if there is one.
        clique_regret: (cliques, runs), regret of the average agent of each clique at the horizon; None
            where cliques play no part.
    """

    rounds: NDArray[np.int64]
    regret: Array
    release_rounds: tuple[tuple[int, ...], ...]
    releases: float
    messages: float
    bytes: float
    seconds: float
    agent_steps_per_second: float
    config: dict[str, Any]
    privacy: dict[str, Any]
    theory: dict[str, Any] | None
    topology: Topology | None = None
    clique_regret: Array | None = None

    @property
    def mean(self) -> float:
        """Per-agent regret at the horizon, mean over runs."""
        return float(self.mean_curve[-1])

    @property
    def stderr(self) -> float | None:
        """Its standard error; None with a single run."""
        error = self.stderr_curve
        return None if error is None else float(error[-1])

    @property
    def mean_curve(self) -> Array:
        """(points,), per-agent regret, mean over runs."""
        return np.asarray(self.regret.mean(axis=0))

    @property
    def stderr_curve(self) -> Array | None:
        """(points,), its standard error; None with a single run."""
        return _stderr(self.regret)

    def as_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        curve = _means(self.regret)
        rounds: list[Any] = [list(rounds) for rounds in self.release_rounds]
        graph = {} if self.topology is None else {"topology": self.topology.as_dict()}
        if self.topology is not None and self.clique_regret is not None:
            graph["topology"] |= {"clique_regret": _means(self.clique_regret.T)}
        return {
            "per_agent_regret": curve[-1],
            "curve": [{"round": int(at), **point} for at, point in zip(self.rounds, curve, strict=True)],
            "releases": _whole(self.releases),
            "release_rounds": rounds[0] if len(set(self.release_rounds)) == 1 else rounds,
            "messages": _whole(self.messages),
            "bytes": _whole(self.bytes),
            "seconds": self.seconds,
            "agent_steps_per_second": self.agent_steps_per_second,
            "config": self.config,
            "privacy": self.privacy,
            "theory": self.theory,
            **graph,
            "version": __version__,
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """The result as JSON text; also written to ``path`` if given."""
        text = json.dumps(self.as_dict(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def plot(self, path: str | Path | None = None, *, beside: Sequence[SimulationResult] = ()) -> Figure:
        """The regret curve with its error band, titled by the setting.

        Args:
            path: where to write it, if anywhere.
            beside: what to compare it with, drawn beside it.
        """
        from feducb.simulation.regret_plot import plot_curves

        curves = {self.label: self} | {one.label: one for one in beside if one.label != self.label}
        return plot_curves(curves, title=self.label, subtitle=self.setting, path=path)

    @property
    def setting(self) -> str:
        """What was simulated, in a line."""
        config, epsilon = self.config, self.privacy["epsilon"]
        agents, runs = (
            f"{config[name]:,} {name[:-1] if config[name] == 1 else name}" for name in ("agents", "runs")
        )
        private = "" if epsilon is None else f", ε = {epsilon:g}, δ = {self.privacy['delta']:g}"
        return f"{agents}, d = {config['dim']}, K = {config['arms']}, {runs}, seed {config['seed']}{private}"

    @property
    def played(self) -> str | None:
        """Under own play, until when agents share, in words; None elsewhere."""
        if self.config.get("play") != "own" or self.config.get("baseline"):
            return None
        (rounds,) = set(self.release_rounds)  # public, and so the same in all runs
        if not rounds:
            return "stays alone: no sum would be worth its noise, and nothing leaves an agent"
        until = f"until visitor {rounds[-1]:,}" if rounds[-1] else "its history"
        return f"shares {until} ({counted(len(rounds), 'release')}), then acts on own records"

    @property
    def label(self) -> str:
        """A short name for a legend."""
        baselines = {"no-privacy": "no privacy", "alone": "each agent alone", "uniform": "uniform play"}
        if baseline := self.config.get("baseline"):
            return baselines[baseline]
        own = "feducb (own play)" if self.config.get("play") == "own" else "feducb (calibrated)"
        name = "the paper's constants" if self.config.get("mode") == "paper" else own
        return name if self.topology is None else f"{name}, {self.topology.name}, γ = {self.topology.ttl}"


def _stderr(values: Array) -> Array | None:
    """Standard errors of the means of (runs, n) values; None of a single run."""
    return None if len(values) < 2 else np.asarray(values.std(axis=0, ddof=1) / math.sqrt(len(values)))


def _means(values: Array) -> list[dict[str, float | None]]:
    """Means of (runs, n) values and their standard errors, as plain data."""
    means = values.mean(axis=0).tolist()
    errors = _stderr(values)
    return [
        {"mean": mean, "stderr": error}
        for mean, error in zip(means, [None] * len(means) if errors is None else errors.tolist(), strict=True)
    ]


def _whole(value: float) -> float:
    return int(value) if float(value).is_integer() else value
