"""Chowdhury & Zhou 2022, "Shuffle private linear contextual bandits": batches of users, and no tree.

Their Shuffle Private LinUCB shuffles the messages of all users of a batch, and adds up batches: a user is in
one batch alone, so that (ε, δ) of a batch is (ε, δ) of the stream, and the noise of k batches grows as √k.
Neighbours differ in one interaction. Two protocols:

* *amplified*: every user adds Gaussian noise to x xᵀ and y x herself, and the shuffler amplifies;
* *vector sum*: the users of a batch together add one noise (Cheu, Joseph, Mao & Peng 2021).

What is resolved, in their favour: a batch is shuffled over all agents, so that n = M B users hide each other;
amplification is by the numerical bound of `shuffling`, not by its closed form; the vector sum is given its
limit of many messages, one Gaussian without rounding.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from feducb.simulation.results import SimulationResult
from feducb_lab.experiments.prior.batches import Batching, BoundOf, Separate, play_batches
from feducb_lab.experiments.prior.shuffling import shuffled_mu

__all__ = ["batch_of_users", "shuffled_batch"]

Protocol = Literal["amplified", "vector sum"]


def batch_of_users(horizon: int, agents: int) -> int:
    """B = N^(3/5) of N = M T users (of their T^(3/5) regret), in rounds of M users."""
    return max(1, round(math.pow(horizon * agents, 0.6) / agents))


def shuffled_batch(
    *, batch: int, protocol: Protocol = "vector sum", bound: BoundOf = "closed form", **setting: Any
) -> SimulationResult:
    """All users of ``batch`` rounds are shuffled together; everybody acts on the sums of batches."""
    how: dict[str, Any] = {"batch": batch, "mechanism": Separate, "bound": bound}
    if protocol == "vector sum":
        return play_batches(Batching(**how), trust="controller", **setting)
    epsilon, delta = setting.get("epsilon", 1.0), setting.get("delta", 1e-6)
    own = shuffled_mu(epsilon, delta, batch * setting["agents"])  # of one user
    promise = {"mu": None, "spent": epsilon, "trust": "a shuffler"}
    # the noise of an agent's batch is that of its users, one each
    return play_batches(Batching(**how, mu=own / math.sqrt(batch), promise=promise), **setting)
