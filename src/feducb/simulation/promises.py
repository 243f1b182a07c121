"""What is promised for a plan, and what the paper promises for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from feducb.models import theory
from feducb.privacy.mechanisms import BinaryTree
from feducb.simulation.plan import Plan, Team

__all__ = ["describe_privacy", "describe_theory"]

_UNIT = "one interaction: an action and its reward, replaced by another"
_PERSON = "one person: up to {} interactions {}, all replaced by others"
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
        "trust": plan.trust.name,
        "holds": True,
    }
    way_out, model = plan.estimators[0].privatizer, plan.federation.model
    if way_out is None:
        return statement | {"epsilon": 0.0, "delta": 0.0, "mu": 0.0}
    if plan.federation.baseline == "no-privacy":
        return statement | {
            "adversary": "none: agents see each other's raw sums",
            "trust": "everybody",
            "holds": False,
        }
    worst = {
        "epsilon": max(budget.epsilon for budget in plan.budgets),
        "delta": max(budget.delta for budget in plan.budgets),
        "mechanism": way_out.mechanism.name,
    }
    if plan.topology is not None:
        worst["estimators"] = len(plan.teams[0].estimators)  # over disjoint records: they cost nothing
    if len(set(plan.budgets)) > 1:
        worst["budgets"] = [{"epsilon": b.epsilon, "delta": b.delta} for b in plan.budgets]
    if plan.federation.mode == "calibrated":
        words, records = plan.trust.words, plan.federation.records_per_person
        found = {
            # from the noise that is really added, not from the budget that asked for it
            "mu": records
            * max(
                model.radius(plan.problem, one.privatizer.reward_weight) / np.min(one.privatizer.noise_scale)
                for one in plan.estimators
                if one.privatizer is not None
            ),
            "adversary": f"interactive: reads {words.reads} and chooses later visitors by it",
            "unit": _UNIT if records == 1 else _PERSON.format(records, words.where),
        }
        return statement | worst | found
    mus = []
    for estimator in plan.estimators:
        assert estimator.privatizer is not None
        assert isinstance(estimator.privatizer.mechanism, BinaryTree)
        quietest = min(constants.noise_scale for constants in estimator.printed)
        mus.append(model.radius(plan.problem) * estimator.privatizer.mechanism.touched**0.5 / quietest)
    leak = "own-data play lets one reward change later actions and so the releases"
    if plan.determinant:
        leak = "release rounds read raw data, so that no epsilon holds; " + leak
    return (
        statement
        | worst
        | {
            "mu": max(mus),
            "adversary": f"a fixed stream only, NOT private against an interactive adversary: {leak}",
            "holds": False,
        }
    )


def describe_theory(
    plan: Plan, *, releases: Sequence[float], per_agent_regret: float
) -> dict[str, Any] | None:
    """The paper's constants and bounds beside what was measured; None outside ``paper`` mode.

    On a graph the constants are those of the first estimator of the largest clique.
    """
    largest = max(plan.teams, key=lambda team: len(team.agents))
    first = largest.estimators[0]
    if not first.printed or first.threshold is None:
        return None
    turns = len(range(len(largest.estimators), plan.horizon + 1, len(largest.estimators)))
    spread, kappa, radius = _printed_spread(plan, largest, turns)
    told = {
        "depth": first.printed[0].depth,
        "noise_scale": float(np.mean([one.noise_scale for one in first.printed])),
        "operator_bound": float(np.mean([one.operator_bound for one in first.printed])),
        **spread._asdict(),
        "kappa": kappa,
        "threshold": first.threshold,
        "syncs": float(np.mean(releases)) / len(largest.estimators),
        "radius": radius,
        "group_regret": per_agent_regret * plan.agents,
    }
    if plan.topology is not None:
        bounds = []
        for team in plan.teams:
            its_spread, _, its_radius = _printed_spread(plan, team, turns)
            ttl, size = len(team.estimators), len(team.agents)
            bounds.append(
                theory.regret_bound_decentralised(
                    plan.problem, plan.horizon, its_spread, cliques=[size], ttl=ttl, radius=its_radius
                )
            )
        return told | {"sync_bound": None, "regret_bound_theorem_2": sum(bounds)}
    # Theorem 1's last line is Theorem 2 on a complete graph.
    last_line = theory.regret_bound_decentralised(
        plan.problem, plan.horizon, spread, cliques=[plan.agents], ttl=1, radius=radius
    )
    return told | {
        # Proposition 1 is about the trigger; a public schedule synchronises when it says.
        "sync_bound": theory.sync_bound(plan.problem, plan.horizon, spread, threshold=first.threshold)
        if plan.determinant
        else None,
        "regret_bound_theorem_1": theory.regret_bound_centralised(
            plan.problem,
            plan.horizon,
            spread,
            agents=plan.agents,
            threshold=first.threshold,
            radius=radius,
        ),
        "regret_bound_theorem_1_printed": last_line,
        "regret_bound_theorem_2_complete_graph": last_line,
    }


def _printed_spread(plan: Plan, team: Team, turns: int) -> tuple[theory.Spread, float, float]:
    """ρ_min and ρ_max, κ and the radius β̄ that a team plays with."""
    first = team.estimators[0]
    spread = theory.Spread(
        rho_min=float(np.mean([one.rho_min for one in first.printed])),
        rho_max=float(np.mean([one.rho_max for one in first.printed])),
    )
    kappa = float(np.mean([one.kappa for one in first.printed]))
    radius = theory.uniform_radius(
        plan.problem,
        turns,
        spread,
        alpha=plan.federation.alpha / len(team.estimators),
        agents=len(team.agents),
        kappa=kappa,
        releases=first.privatizer.mechanism.releases if first.privatizer else None,
    )
    return spread, kappa, radius
