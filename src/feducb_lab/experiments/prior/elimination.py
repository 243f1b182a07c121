"""Phased elimination over a fixed set of actions: designs, widths, phases; papers differ in what is told.

A phase plays the surviving actions by a design, hears a private sum of rewards of each action that it played,
and drops what is surely worse than another. Only the sums of its own phase are read. The last phase, which
nobody would read, plays the best estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from feducb.simulation.results import SimulationResult
from feducb.types import Array
from feducb.worlds.streams import Purpose, Streams
from feducb_lab.experiments.prior.by_itself import Lasting
from feducb_lab.experiments.prior.fixed_set import FixedSet

__all__ = ["Elimination", "Phases", "Telling", "design", "greedy_design", "width"]

Counts = NDArray[np.int64]
_STEPS = 300  # of the multiplicative updates of a design
_LEAST = 0.01  # share of a design that is still played: fewer sums are told, each with its own noise
_SLOPES = np.geomspace(1e-3, 1e3, 400)


class Telling(Protocol):
    """How rewards of a phase are told."""

    def counts(self, actions: Array, plays: int) -> Counts:
        """How often each surviving action (k, d) is played in so many plays."""

    def tell(self, generator: np.random.Generator, counts: Counts, chances: Array) -> Array:
        """Estimated sums of rewards of each action, from Beta rewards of these means."""

    def cumulants(self, slopes: Array, counts: Counts, weights: Array) -> Array:
        """(slopes,): at least log E exp(λ Σ w (sum − its mean)), for weights (k,)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Phases:
    """When phases end, and how boldly actions are dropped.

    Attributes:
        first: rounds of the first phase.
        growth: of one phase to the next.
        boldness: 1 drops what is surely worse, with chance α of a mistake; 2 at half of that width.
        alpha: α.
    """

    first: int
    growth: float
    boldness: float = 1.0
    alpha: float = 0.1

    def lengths(self, horizon: int) -> list[int]:
        """Rounds of each phase; what is left over is played by the last estimate."""
        lengths, length = list[int](), float(self.first)
        while sum(lengths) + round(length) < horizon:
            lengths.append(round(length))
            length *= self.growth
        return lengths or [max(1, horizon // 2)]


def design(actions: Array) -> Array:
    """(k,), a G-optimal design by multiplicative updates; small shares are left out."""
    shares = np.full(len(actions), 1.0 / len(actions))
    rank = np.linalg.matrix_rank(actions)
    for _ in range(_STEPS):
        gram = (actions * shares[:, None]).T @ actions
        shares *= np.einsum("kd,de,ke->k", actions, np.linalg.pinv(gram, hermitian=True), actions) / rank
    kept = np.where(shares >= _LEAST, shares, 0.0)
    if np.linalg.matrix_rank(actions[kept > 0.0]) < rank:
        kept = shares
    return np.asarray(kept / kept.sum())


def greedy_design(actions: Array, plays: int) -> Counts:
    """(k,), whole numbers that add up to ``plays``: each goes where the estimate is worst so far."""
    counts, inverse = np.zeros(len(actions), dtype=np.int64), 1e3 * np.eye(actions.shape[1])
    for _ in range(plays):
        at = int(np.einsum("kd,de,ke->k", actions, inverse, actions).argmax())
        counts[at] += 1
        moved = inverse @ actions[at]
        inverse -= np.outer(moved, moved) / (1.0 + actions[at] @ moved)
    return counts


def width(telling: Telling, counts: Counts, weights: Array, log_chance: float) -> float:
    """t such that Σ w (sum − its mean) is above t with a chance of at most e^−log_chance (Chernoff)."""
    length = max(float(np.linalg.norm(weights * np.sqrt(np.maximum(counts, 1)))), 1e-300)
    slopes = _SLOPES / length
    return float(((telling.cumulants(slopes, counts, weights) + log_chance) / slopes).min())


@dataclass(frozen=True, slots=True)
class Elimination:
    """Phased elimination in a world of fixed actions.

    Attributes:
        telling: how rewards are told.
        phases: when, and how boldly actions are dropped.
        lasting: how long.
    """

    telling: Telling
    phases: Phases
    lasting: Lasting

    def play(self, privacy: dict[str, Any]) -> SimulationResult:
        """All runs, as a simulation's result."""
        ends = np.cumsum(self.phases.lengths(self.lasting.horizon))
        return self.lasting.play(self._run, [int(at) for at in ends], privacy=privacy)

    def _run(self, streams: Streams, run: int) -> Array:
        """(T,), what the average agent loses in each round of a run."""
        arms, horizon = self.lasting.arms, self.lasting.horizon
        actions, theta = FixedSet(self.lasting.dim, arms).draw(streams, run)
        means = actions @ theta
        gaps, generator = means.max() - means, streams.shared(run, Purpose.NOISE)
        lengths = self.phases.lengths(horizon)
        log_chance = math.log(arms * len(lengths) / self.phases.alpha)
        alive, best, lost = np.arange(arms), 0, []
        for length in lengths:
            counts = self.telling.counts(actions[alive], length * self.lasting.agents)
            lost.append(np.full(length, counts @ gaps[alive] / max(1, counts.sum())))
            if len(alive) > 1:
                sums = self.telling.tell(generator, counts, 0.5 + means[alive])
                kept, at = self.survivors(actions[alive], counts, sums, log_chance)
                best, alive = int(alive[at]), alive[kept]
        lost.append(np.full(horizon - sum(lengths), gaps[best]))
        return np.concatenate(lost)

    def survivors(
        self, actions: Array, counts: Counts, sums: Array, log_chance: float
    ) -> tuple[NDArray[np.bool_], int]:
        """Which actions (k, d) are kept after a phase, and which looks best.

        The best one is dropped only if another seems better by more than the width of their difference: a
        union over its K rivals and all phases.
        """
        played = counts > 0
        gram = (actions[played] * counts[played, None]).T @ actions[played]
        inverse = np.linalg.pinv(gram, hermitian=True)
        values = actions @ (inverse @ (actions[played].T @ (sums - 0.5 * counts)[played]))
        best = int(values.argmax())
        kept = np.ones(len(actions), dtype=np.bool_)
        for action in range(len(actions)):
            weights = np.zeros(len(actions))
            weights[played] = actions[played] @ (inverse @ (actions[best] - actions[action]))
            if action != best:
                least = width(self.telling, counts, weights, log_chance) / self.phases.boldness
                kept[action] = values[best] - values[action] <= least
        return kept, best
