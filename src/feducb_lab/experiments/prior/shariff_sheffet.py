"""Shariff & Sheffet 2018, "Differentially private contextual linear bandits": LinUCB on a tree, by oneself.

Their private LinUCB keeps Gram and moment under tree-based Gaussian noise and acts by the optimistic bound
that allows for it. Joint privacy of one interaction, as here. What is resolved: the noise is the exact
Gaussian of the budget for the whole tree, the least that it can have; and batches may be longer than one
round, since a tree over fewer releases has less noise.
"""

from __future__ import annotations

from typing import Any

from feducb.simulation.results import SimulationResult
from feducb_lab.experiments.prior.batches import Batching, BoundOf, play_batches

__all__ = ["single_agent"]


def single_agent(
    *, agents: int, batch: int, bound: BoundOf = "closed form", **setting: Any
) -> SimulationResult:
    """Each agent by itself, on a tree over its own Gram and moment.

    Nobody hears of anybody, so M identical agents are M runs of one: ``agents`` changes nothing.

    A batch is the rounds between two releases to itself (1 in their paper).
    """
    del agents
    return play_batches(Batching(batch=batch, bound=bound), agents=1, **setting)
