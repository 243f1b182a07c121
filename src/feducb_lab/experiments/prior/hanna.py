"""Hanna, Girgis, Fragouli & Diggavi 2022: "Differentially private stochastic linear bandits" by core sets.

Batches of growing length play a core set of the surviving actions, and only private sums of rewards of each
core action are used; neighbours differ in one reward, since actions are a public function of what was told.
A reward is in one sum of one batch, so that the stream costs what one sum does. Told

* *centrally*: each sum under Laplace noise, for pure ε, whose variance 2/ε² is less than that of a Gaussian
  at (ε, δ); or by every agent for its own sums (*silos*);
* *shuffled*: every user rounds her reward to a bit and says a fair coin in its place with chance γ.

What is resolved: the core set is a G-optimal design; widths are Chernoff bounds of the very law of rewards
and noise, for α as ours, in place of closed constants; the share γ is the least that the exact law of
shuffled bits allows; the first batch, the growth and the boldness are tuned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from feducb.simulation.results import SimulationResult
from feducb.types import Array
from feducb_lab.experiments.prior.by_itself import Lasting
from feducb_lab.experiments.prior.elimination import Counts, Elimination, Phases, design
from feducb_lab.experiments.prior.shuffling import said_at_random

__all__ = ["Laplace", "ShuffledBits", "core_set"]

UNIT = "the reward of one interaction, replaced by another; actions and contexts are public"


def _apportioned(actions: Array, plays: int) -> Counts:
    """Whole numbers in proportion to the design that add up to ``plays``."""
    exact = design(actions) * plays
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact)[: plays - int(counts.sum())]] += 1
    return counts


@dataclass(frozen=True, slots=True)
class Laplace:
    """Sums of rewards in [0, 1], each under Laplace noise of scale 1/ε, added by so many.

    Attributes:
        epsilon: ε, of one reward; ∞ tells sums as they are.
        noises: how many add noise to each sum: 1, or M silos.
    """

    epsilon: float
    noises: int = 1

    def counts(self, actions: Array, plays: int) -> Counts:
        """By the design."""
        return _apportioned(actions, plays)

    def noise(self, generator: np.random.Generator, size: int) -> Array:
        """Laplace noises, added up: a difference of Gamma variables."""
        both = generator.gamma(self.noises, 1.0 / self.epsilon, (2, size))
        return np.asarray(both[0] - both[1])

    def tell(self, generator: np.random.Generator, counts: Counts, chances: Array) -> Array:
        """Sums of Beta rewards, and noise."""
        sums = [generator.beta(p, 1.0 - p, n).sum() for p, n in zip(chances, counts, strict=True)]
        return np.where(counts > 0, np.array(sums) + self.noise(generator, len(counts)), 0.0)

    def cumulants(self, slopes: Array, counts: Counts, weights: Array) -> Array:
        """½-sub-Gaussian rewards, and −log(1 − λ²w²/ε²) for each noise."""
        tilted = np.outer(slopes, weights[counts > 0] / self.epsilon) ** 2
        with np.errstate(invalid="ignore", divide="ignore"):
            laplace = np.where(tilted < 1.0, -np.log1p(-np.minimum(tilted, 1.0)), np.inf).sum(axis=1)
        return np.asarray(slopes**2 / 8.0 * float(counts @ weights**2) + self.noises * laplace)


@dataclass(frozen=True, slots=True)
class ShuffledBits:
    """Shuffled bits of all users of an action; γ follows from how many there are."""

    epsilon: float
    delta: float

    def counts(self, actions: Array, plays: int) -> Counts:
        """By the design."""
        return _apportioned(actions, plays)

    def random_shares(self, counts: Counts) -> Array:
        """γ of each action."""
        return np.array([said_at_random(self.epsilon, self.delta, int(n)) if n else 0.0 for n in counts])

    def tell(self, generator: np.random.Generator, counts: Counts, chances: Array) -> Array:
        """A Beta reward rounded to a bit is a bit of the same mean: those said add up to a binomial."""
        share = self.random_shares(counts)
        said = generator.binomial(counts, (1.0 - share) * chances + share / 2.0)
        return np.asarray((said - counts * share / 2.0) / (1.0 - share))

    def cumulants(self, slopes: Array, counts: Counts, weights: Array) -> Array:
        """Bits are ½-sub-Gaussian, scaled up by 1/(1 − γ)."""
        scaled = weights / (1.0 - self.random_shares(counts))
        return np.asarray(slopes**2 / 8.0 * float(counts @ scaled**2))


def core_set(
    *,
    first: int,
    growth: float,
    boldness: float = 1.0,
    trust: Literal["controller", "nobody", "shuffler"],
    epsilon: float = 1.0,
    delta: float = 1e-6,
    **setting: Any,
) -> SimulationResult:
    """Batched elimination by core sets, in such `Phases`."""
    lasting, phases = Lasting(**setting), Phases(first=first, growth=growth, boldness=boldness)
    noises = lasting.agents if trust == "nobody" else 1
    telling = ShuffledBits(epsilon, delta) if trust == "shuffler" else Laplace(epsilon, noises)
    promise = {"epsilon": epsilon, "delta": delta, "mu": None, "spent": epsilon, "trust": trust}
    privacy = promise | {"unit": UNIT, "mechanism": "one sum a batch"}
    return Elimination(telling, phases, lasting).play(privacy)
