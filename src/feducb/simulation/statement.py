"""What is promised for a plan, and what the paper promises for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from feducb.core import theory
from feducb.privacy.calibration import record_radius
from feducb.privacy.mechanisms import BinaryTree
from feducb.simulation.plan import Plan

__all__ = ["describe_privacy", "describe_theory"]

_UNIT = "one interaction: an action and its reward, replaced by another"
_NOTHING_LEAVES = "nothing leaves an agent"


def describe_privacy(plan: Plan) -> dict[str, Any]:
    """The privacy statement: for whom, against whom, how much, by what."""
    statement: dict[str, Any] = {
        "epsilon": None,
        "delta": None,
        "mu": None,
        "mechanism": "none",
        "unit": _UNIT,
        "adversary": _NOTHING_LEAVES,
        "trust": "nobody",
        "holds": True,
    }
    if plan.privatizer is None:
        return statement | {"epsilon": 0.0, "delta": 0.0, "mu": 0.0}
    if plan.baseline == "no-privacy":
        return statement | {
            "adversary": "none: agents see each other's raw sums",
            "trust": "everybody",
            "holds": False,
        }
    worst = {
        "epsilon": max(budget.epsilon for budget in plan.budgets),
        "delta": max(budget.delta for budget in plan.budgets),
        "mechanism": plan.privatizer.mechanism.name,
    }
    if len(set(plan.budgets)) > 1:
        worst["budgets"] = [{"epsilon": b.epsilon, "delta": b.delta} for b in plan.budgets]
    if plan.mode == "calibrated":
        pooled = plan.trust == "controller"
        readers = "all that the controller shows" if pooled else "every release"
        quietest = float(np.min(plan.privatizer.noise_scale))
        found = {
            # from the noise that is really added, not from the budget that asked for it
            "mu": record_radius(plan.problem, plan.privatizer.reward_weight) / quietest,
            "adversary": f"interactive: reads {readers} and chooses later visitors by it",
            "trust": plan.trust,
        }
        return statement | worst | found
    tree = plan.privatizer.mechanism
    assert isinstance(tree, BinaryTree)
    quietest = min(constants.noise_scale for constants in plan.printed)
    leak = "own-data play lets one reward change later actions and so the releases"
    if plan.determinant:
        leak = "release rounds read raw data, so that no epsilon holds; " + leak
    return (
        statement
        | worst
        | {
            "mu": record_radius(plan.problem) * tree.touched**0.5 / quietest,
            "adversary": f"a fixed stream only, NOT private against an interactive adversary: {leak}",
            "holds": False,
        }
    )


def describe_theory(plan: Plan, *, releases: Sequence[int], per_agent_regret: float) -> dict[str, Any] | None:
    """The paper's constants and bounds beside what was measured; None outside ``paper`` mode."""
    if not plan.printed or plan.threshold is None:
        return None
    problem, horizon = plan.problem, plan.horizon
    rho_min = float(np.mean([one.rho_min for one in plan.printed]))
    rho_max = float(np.mean([one.rho_max for one in plan.printed]))
    kappa = float(np.mean([one.kappa for one in plan.printed]))
    spread = {"rho_min": rho_min, "rho_max": rho_max}
    radius = theory.uniform_radius(
        problem,
        horizon,
        alpha=plan.alpha,
        agents=plan.agents,
        kappa=kappa,
        releases=plan.privatizer.mechanism.releases if plan.privatizer else None,
        **spread,
    )
    return {
        "depth": plan.printed[0].depth,
        "noise_scale": float(np.mean([one.noise_scale for one in plan.printed])),
        "operator_bound": float(np.mean([one.operator_bound for one in plan.printed])),
        **spread,
        "kappa": kappa,
        "threshold": plan.threshold,
        # Proposition 1 is about the trigger; a public schedule synchronises when it says.
        "sync_bound": theory.sync_bound(problem, horizon, threshold=plan.threshold, **spread)
        if plan.determinant
        else None,
        "syncs": float(np.mean(releases)),
        "radius": radius,
        "regret_bound_theorem_1": theory.regret_bound_centralised(
            problem,
            horizon,
            agents=plan.agents,
            threshold=plan.threshold,
            radius=radius,
            **spread,
        ),
        "regret_bound_theorem_1_printed": theory.regret_bound_centralised_printed(
            problem, horizon, agents=plan.agents, radius=radius, **spread
        ),
        "regret_bound_theorem_2_complete_graph": theory.regret_bound_decentralised(
            problem, horizon, cliques=[plan.agents], ttl=1, radius=radius, **spread
        ),
        "group_regret": per_agent_regret * plan.agents,
    }
