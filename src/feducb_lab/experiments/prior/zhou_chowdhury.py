"""Zhou & Chowdhury 2024, "On differentially private federated linear contextual bandits": silos with trees.

Their federated LinUCB synchronises after batches of a fixed length, through a privacy protocol: a tree of
partial sums over batches. Neighbours differ in one interaction at one silo. Three protocols:

* *local* (silo-level LDP): every silo noises the nodes of its own tree;
* *amplified* (shuffle model): the same, and a shuffler hides which silo sent a node;
* *vector sum* (shuffle model): a shuffled protocol for the sum of vectors (Cheu, Joseph, Mao & Peng 2021) at
  every node, in which all silos together add one noise.

What is resolved, in their favour: noise is the exact Gaussian of the budget for the whole tree. A vector sum
adds binomial noise and rounds to a grid; with more messages both tend to one Gaussian and nothing, and it is
given that limit. Amplification of a node needs that no silo's sum can be told from another's: a node of n
records can differ between silos by n times what one record moves it (group privacy, which is why the paper's
guarantee is for small ε only). Whichever noise is less, with a shuffler or without, is taken.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from feducb.config import Budget
from feducb.privacy.calibration import to_mu
from feducb.privacy.mechanisms import BinaryTree
from feducb.simulation.results import SimulationResult
from feducb_lab.experiments.prior.batches import Batching, BoundOf, play_batches
from feducb_lab.experiments.prior.shuffling import shuffled_mu

__all__ = ["amplified_gain", "batch_rule", "fixed_batch"]

Protocol = Literal["local", "amplified", "vector sum"]


def batch_rule(horizon: int, agents: int) -> int:
    """B = √(T/M), the batch of their regret bounds."""
    return max(1, round(math.sqrt(horizon / agents)))


def amplified_gain(budget: Budget, *, agents: int, batch: int, releases: int) -> float:
    """How many times less noise the shuffler of silos leaves at a leaf of the tree; 1 if none.

    Each of the nodes that a record is in gets an even share of (ε, δ); a leaf holds ``batch`` records, and
    higher nodes more, for which it is worth less still.
    """
    touched = BinaryTree(releases).touched
    share = Budget(epsilon=budget.epsilon / touched, delta=budget.delta / touched)
    shuffled = shuffled_mu(share.epsilon, share.delta, agents) / batch
    return max(1.0, shuffled * math.sqrt(touched) / to_mu(budget))


def fixed_batch(
    *, batch: int, protocol: Protocol = "local", bound: BoundOf = "closed form", **setting: Any
) -> SimulationResult:
    """Every silo releases on a tree after each batch; all act on released sums.

    Where the amplified protocol gains at the leaves, all nodes get that gain, which favours it.
    """
    if protocol == "vector sum":
        return play_batches(Batching(batch=batch, bound=bound), trust="controller", **setting)
    mu = None
    if protocol == "amplified":
        budget = Budget(epsilon=setting.get("epsilon", 1.0), delta=setting.get("delta", 1e-6))
        releases = max(1, setting["horizon"] // batch)
        gain = amplified_gain(budget, agents=setting["agents"], batch=batch, releases=releases)
        mu = to_mu(budget) * gain if gain > 1.0 else None
    promise = None if mu is None else {"mu": None, "spent": setting.get("epsilon", 1.0)}
    return play_batches(Batching(batch=batch, bound=bound, mu=mu, promise=promise), **setting)
