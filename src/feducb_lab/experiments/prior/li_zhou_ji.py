"""Li, Zhou & Ji 2022, "Differentially private linear bandits with partial distributed feedback": DP-DPE.

Phased elimination: in each phase clients are drawn, every one of them plays the same near-G-optimal plan, and
the server hears their summed rewards of each action under noise. Neighbours differ in all rewards of one
client, who takes part in one phase. Noise is Gaussian, added *centrally* or, in the shuffle model, by a
vector sum (Cheu, Joseph, Mao & Peng 2021), which is given its limit of many messages: the same Gaussian.

What is resolved: a client is a person with k visits in a row to one site, who plays the plan's k actions; all
persons are clients, since here nobody plays without being heard, and they do not differ in θ*, which favours
it; sums move by at most √Σ m², m how often the plan plays each action; widths and tuning as for `hanna`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from feducb.config import Budget
from feducb.privacy.calibration import to_mu
from feducb.simulation.results import SimulationResult
from feducb.types import Array
from feducb_lab.experiments.prior.by_itself import Lasting
from feducb_lab.experiments.prior.elimination import Counts, Elimination, Phases, greedy_design

__all__ = ["ClientSums", "distributed_elimination"]

_WHOSE = "the rewards of one person: of up to {} interactions at all agents together"
UNIT = _WHOSE + "; actions and contexts are public"


@dataclass(frozen=True, slots=True)
class ClientSums:
    """Sums over clients who all play the same plan.

    Attributes:
        records: k, visits of a client.
        mu: μ of one client; ∞ tells sums as they are.
        noises: how many add noise to each sum: 1, or M silos.
    """

    records: int
    mu: float
    noises: int = 1

    def counts(self, actions: Array, plays: int) -> Counts:
        """The plan, as often as there are clients."""
        return greedy_design(actions, self.records) * (plays // self.records)

    def deviation(self, counts: Counts) -> float:
        """Of the noise of each sum: that of all sums' move by one client, √Σ m², over μ."""
        clients = max(1, int(counts.sum()) // self.records)
        return float(np.linalg.norm(counts / clients)) * math.sqrt(self.noises) / self.mu

    def tell(self, generator: np.random.Generator, counts: Counts, chances: Array) -> Array:
        """Sums of Beta rewards, and Gaussian noise."""
        sums = [generator.beta(p, 1.0 - p, n).sum() for p, n in zip(chances, counts, strict=True)]
        noise = self.deviation(counts) * generator.standard_normal(len(counts))
        return np.where(counts > 0, np.array(sums) + noise, 0.0)

    def cumulants(self, slopes: Array, counts: Counts, weights: Array) -> Array:
        """½-sub-Gaussian rewards and Gaussian noise."""
        heard = weights * (counts > 0)
        variance = 0.25 * float(counts @ weights**2) + self.deviation(counts) ** 2 * float(heard @ heard)
        return np.asarray(slopes**2 / 2.0 * variance)


def distributed_elimination(
    *,
    first: int,
    growth: float,
    boldness: float = 1.0,
    records_per_person: int,
    trust: str,
    **setting: Any,
) -> SimulationResult:
    """DP-DPE with persons as clients, in such `Phases`; the budget as epsilon= and delta= of the setting."""
    given = {name: setting.pop(name, usual) for name, usual in (("epsilon", 1.0), ("delta", 1e-6))}
    lasting, mu = Lasting(**setting), to_mu(Budget(**given))
    telling = ClientSums(records_per_person, mu, lasting.agents if trust == "nobody" else 1)
    privacy = given | {"mu": mu, "unit": UNIT.format(records_per_person), "trust": trust}
    phases = Phases(first=first, growth=growth, boldness=boldness)
    return Elimination(telling, phases, lasting).play(privacy | {"mechanism": "one sum a phase"})
