"""What is promised for a plan, and what the paper promises for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from feducb.models import theory
from feducb.privacy.mechanisms import BinaryTree
from feducb.protocol.estimators import Estimator
from feducb.simulation.plan import Plan, Team

__all__ = ["describe_privacy", "describe_theory"]

_UNIT = "one interaction: an action and its reward, replaced by another"
_PERSON = "one person: up to {} interactions {}{}, all replaced by others"
_REWARD = "the reward of one interaction, replaced by another; actions and contexts are public"
_REWARDS = "the rewards of one person: of up to {} interactions {}{}; actions and contexts are public"
_NOTHING_LEAVES = "nothing leaves an agent"
_CLOSED = "; NOT an agent's own visitors after the close, who see what its raw records decide"


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
    worst: dict[str, Any] = {
        "epsilon": max(budget.epsilon for budget in plan.budgets),
        "delta": max(budget.delta for budget in plan.budgets),
        "mechanism": way_out.mechanism.name,
    }
    if plan.seasons.count > 1:
        worst["seasons"] = plan.seasons.count  # each by itself: the numbers are those of one
    if plan.topology is not None:
        worst["estimators"] = len(plan.teams[0].estimators)  # over disjoint records: they cost nothing
    if len(set(plan.budgets)) > 1:
        worst["budgets"] = [{"epsilon": b.epsilon, "delta": b.delta} for b in plan.budgets]
    if plan.federation.mode == "calibrated":
        words, federation = plan.trust.words, plan.federation
        records = plan.trust.records_covered(federation.records_per_person, federation.agents_per_person)
        apart = f", {federation.spacing} or more releases apart" if federation.spacing else ""
        unit, several = (_REWARD, _REWARDS) if model.contexts == "public" else (_UNIT, _PERSON)
        # from the noise that is really added, not from the budget that asked for it
        mu = max(
            federation.reach(one.mechanism)
            * model.radius(plan.problem, one.reward_weight)
            / (np.min(one.noise_scale) * np.sqrt(plan.trust.shares(len(team.agents))))
            for team in plan.teams
            for one in (estimator.privatizer for estimator in team.estimators)
            if one is not None
        )
        closed = _CLOSED if federation.play == "own" and federation.baseline is None else ""
        worst |= {
            "mu": float(mu),
            "adversary": f"interactive: reads {words.reads} and chooses later visitors by it{closed}",
            "unit": unit if records == 1 else several.format(records, words.where, apart),
        }
        return statement | worst
    mus = []
    for estimator in plan.estimators:
        assert estimator.privatizer is not None
        assert isinstance(estimator.privatizer.mechanism, BinaryTree)
        quietest = min(constants.noise_scale for constants in estimator.printed)
        mus.append(model.radius(plan.problem) * estimator.privatizer.mechanism.touched**0.5 / quietest)
    leak = "own-data play lets one reward change later actions and so the releases"
    if plan.determinant:
        leak = "release rounds read raw data, so that no epsilon holds; " + leak
    adversary = f"a fixed stream only, NOT private against an interactive adversary: {leak}"
    return statement | worst | {"mu": max(mus), "adversary": adversary, "holds": False}


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
    problem, horizon, groups = plan.problem, plan.horizon, len(largest.estimators)
    spread, kappa, radius = _printed_spread(plan, largest)
    constants = {
        "depth": first.printed[0].depth,
        "noise_scale": _mean(first, "noise_scale"),
        "operator_bound": _mean(first, "operator_bound"),
        **spread._asdict(),
        "kappa": kappa,
        "threshold": first.threshold,
        "syncs": float(np.mean(releases)) / groups,
        "radius": radius,
        "group_regret": per_agent_regret * plan.agents,
    }
    if plan.topology is not None:
        bound = 0.0
        for team in plan.teams:
            size, (own, _, own_radius) = len(team.agents), _printed_spread(plan, team)
            bound += theory.regret_bound_decentralised(
                problem, horizon, own, cliques=[size], ttl=groups, radius=own_radius
            )
        return constants | {"sync_bound": None, "regret_bound_theorem_2": bound}
    agents, threshold = plan.agents, first.threshold
    # Theorem 1's last line is Theorem 2 on a complete graph.
    last_line = theory.regret_bound_decentralised(
        problem, horizon, spread, cliques=[agents], ttl=1, radius=radius
    )
    return constants | {
        # Proposition 1 is about the trigger; a public schedule synchronises when it says.
        "sync_bound": theory.sync_bound(problem, horizon, spread, threshold=threshold)
        if plan.determinant
        else None,
        "regret_bound_theorem_1": theory.regret_bound_centralised(
            problem, horizon, spread, agents=agents, threshold=threshold, radius=radius
        ),
        "regret_bound_theorem_1_printed": last_line,
        "regret_bound_theorem_2_complete_graph": last_line,
    }


def _mean(estimator: Estimator, constant: str) -> float:
    """Of a printed constant, over a team's agents."""
    return float(np.mean([getattr(one, constant) for one in estimator.printed]))


def _printed_spread(plan: Plan, team: Team) -> tuple[theory.Spread, float, float]:
    """ρ_min and ρ_max, κ and the radius β̄ that a team plays with."""
    first, groups = team.estimators[0], len(team.estimators)
    spread = theory.Spread(rho_min=_mean(first, "rho_min"), rho_max=_mean(first, "rho_max"))
    kappa = _mean(first, "kappa")
    radius = theory.uniform_radius(
        plan.problem,
        plan.horizon // groups,
        spread,
        alpha=plan.federation.alpha / groups,
        agents=len(team.agents),
        kappa=kappa,
        releases=first.privatizer.mechanism.releases if first.privatizer else None,
    )
    return spread, kappa, radius
