"""Releases after batches of a fixed length, on the library's simulator: what several papers have in common.

All agents act optimistically on released sums, by the closed form of the bound (`two_widths`), which is valid
for all of them, or by our confidence set. Noise is the exact Gaussian of the budget for the whole stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from feducb.config import Budget
from feducb.models.play import ReleasedPlay
from feducb.privacy.calibration import to_epsilon
from feducb.privacy.mechanisms import BinaryTree, Mechanism, Memory
from feducb.protocol.estimators import calibrated_estimator
from feducb.protocol.federation import Tuning
from feducb.simulation.plan import make_plan
from feducb.simulation.results import SimulationResult
from feducb.simulation.runner import run_plan
from feducb.simulation.shortcuts import LASTS, RunOptions, spell_out
from feducb.types import Array
from feducb_lab.experiments.prior.two_widths import TwoWidths

__all__ = ["OUR_BOUND", "PLAIN", "Batching", "BoundOf", "Separate", "play_batches"]

BoundOf = Literal["closed form", "ours"]

PLAIN = Tuning(simulated=False, weighted=False, patience=0, quiet=False, by_use=False)
"""Even noise, and every release is read: nothing of ours. With it goes `TwoWidths`, a valid bound."""

OUR_BOUND = Tuning(quiet=False, by_use=False)
"""Our confidence set, split of noise and patience; the mechanism stays what it is."""


@dataclass(frozen=True, slots=True)
class Separate(Mechanism):
    """Fresh noise for every batch: a record is in one release alone, and the noise of sums grows as √k."""

    name: ClassVar[str] = "separate"

    def encoder(self) -> Array:
        """The identity: batch k is released as it is."""
        return np.eye(self.releases)

    def error(self, release: int) -> float:
        """√k."""
        return float(np.sqrt(release))

    def worst_error(self) -> float:
        """That of the last."""
        return self.error(self.releases)

    def correlate(self, memory: Memory, release: int, fresh: Array) -> tuple[Memory, Array]:
        """All noise so far, added up."""
        held = fresh[0] if not memory else memory[0] + fresh[0]
        return (held,), held


@dataclass(frozen=True, kw_only=True, slots=True)
class Batching:
    """How batches are released.

    Attributes:
        batch: rounds between two releases.
        mechanism: how noise is spread over them.
        bound: by what sums are read.
        mu: of the Gaussian that is really added at each agent, where it is not that of the budget.
        promise: what of the privacy statement is said otherwise.
    """

    batch: int
    mechanism: type[Mechanism] = BinaryTree
    bound: BoundOf = "closed form"
    mu: float | None = None
    promise: dict[str, Any] | None = None


def play_batches(how: Batching, **setting: Any) -> SimulationResult:
    """Simulate it in a setting of `feducb.simulate`."""
    tuning = OUR_BOUND if how.bound == "ours" else PLAIN
    asked = setting | {"tuning": tuning, "policy": "optimistic", "schedule": f"periodic:{how.batch}"}
    federation, world, words = spell_out(None, None, asked | {"mechanism": "tree"})
    budget = federation.budgets[0]
    if how.mu is not None:
        small = Budget(epsilon=to_epsilon(how.mu, budget.delta), delta=budget.delta)
        federation = replace(federation, budget=small)
    lasts = {name: setting.get(name, usual) for name, usual in LASTS.items()}
    plan = make_plan(federation, world, **lasts)
    team, rounds, alpha = plan.teams[0], plan.estimators[0].release_rounds, federation.alpha
    mechanism = how.mechanism(len(rounds))
    estimator = calibrated_estimator(federation, rounds, team.agents, alpha=alpha, promised=mechanism)
    if how.bound == "closed form":
        bound = TwoWidths(problem=plan.problem, alpha=alpha, releases=len(rounds))
        estimator = replace(estimator, rule=ReleasedPlay(bound))
    plan = replace(plan, teams=(replace(team, estimators=(estimator,)),))
    said = {"epsilon": budget.epsilon, "delta": budget.delta, "mechanism": mechanism.name}
    config = federation.as_dict() | {"arms": world.arms} | lasts | words | said
    options: Any = {name: setting[name] for name in RunOptions.__annotations__ if name in setting}
    played = run_plan(plan, config, options)
    return replace(played, privacy=played.privacy | said | (how.promise or {}))
