"""Before anyone deploys: what a budget costs in noise and in regret, and whether federating pays at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from feducb.config import require_integer
from feducb.privacy.calibration import noise_scale, to_epsilon, to_mu
from feducb.privacy.mechanisms import BufferedToeplitz, Mechanism
from feducb.privacy.terms import Terms, require_agents_per_person
from feducb.protocol.federation import Federation
from feducb.protocol.schedules import Geometric
from feducb.simulation.runner import simulate
from feducb.simulation.shortcuts import Lasting, paper_world

__all__ = ["plan_privacy", "verdict"]

# Columns of E are measured up to here; beyond, the buffered mechanism's are 1 by construction.
_CHECKED = 2048


def plan_privacy(
    terms: Terms,
    agents: int,
    *,
    arms: int | None = None,
    horizon: int = 2000,
    runs: int = 2,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Noise, mechanism, re-accounted ε and expected regret of M agents under these terms, as plain data.

    All else is of the simulation, as for `simulate`.
    """
    require_integer("agents", agents, at_least=1)
    require_integer("horizon", horizon, at_least=1)
    require_agents_per_person("agents_per_person", terms.agents_per_person, agents)
    problem, budget, trust, delta = terms.problem, terms.budget, terms.trust, terms.budget.delta
    mechanism, certificate = terms.factors, terms.certificate()
    mu = to_mu(budget)
    record_mu = mu / terms.records_covered
    sigma = noise_scale(terms.radius, record_mu)
    # Back from the noise to ε, by what a record really moves and a person really has: at an agent, or at all
    # agents that she visits where one noise has to cover them.
    longest = 1.0 if mechanism.releases > _CHECKED else np.linalg.norm(mechanism.encoder(), axis=0).max()
    moved = terms.radius * float(longest) / sigma
    visited = trust.records_covered(1, terms.agents_per_person)
    person_mu = trust.spend([moved] * visited, [terms.records_per_person] * visited)
    entry = certificate.scale / math.sqrt(2.0)
    plain: dict[str, Any] = {
        "epsilon": budget.epsilon,
        "delta": delta,
        "releases": terms.releases,
        "dim": problem.dim,
        "agents": agents,
        "trust": trust.name,
        "per_person": terms.records_per_person,
        "agents_per_person": terms.agents_per_person,
        "epsilon_at_several_agents": to_epsilon(terms.mu_at(terms.agents_per_person), delta),
        "mu": mu,
        "sigma": sigma,
        "mechanism": mechanism.name,
        "worst_error": mechanism.worst_error(),
        "epsilon_reaccounted": to_epsilon(person_mu, delta),
        "state_bytes": _state_bytes(mechanism, certificate.coordinates),
        "grid": {
            "step": 2.0**certificate.exponent,
            "sigma": entry,
            "noise_over_gaussian": entry / sigma,
            "epsilon_certified": to_epsilon(certificate.mu, delta),
            "epsilon_by_opendp_map": _opendp_epsilon(certificate.sensitivity / certificate.scale, delta),
        },
        "regret": None,
    }
    if terms.releases > horizon - 7:
        plain["verdict"] = (
            f"No simulation: {terms.releases} releases do not fit between round 8 and round {horizon} "
            "(--horizon)."
        )
        return plain
    federation = Federation(
        problem=problem,
        agents=agents,
        budget=budget,
        trust=trust,
        records_per_person=terms.records_covered,
        schedule=Geometric(releases=terms.releases),
    )
    lasting: Lasting = {"horizon": horizon, "runs": runs, "seed": seed, "progress": progress}
    world = paper_world(problem, arms)
    private = simulate(federation, world, **lasting)
    alone = simulate(replace(federation, baseline="alone"), world, **lasting)
    plain["regret"] = {
        "horizon": horizon,
        "arms": private.config["arms"],
        "runs": runs,
        "federated": private.mean,
        "alone": alone.mean,
        "uniform": float(alone.config["horizon"]) * 0.2 * (1 - 1 / private.config["arms"]),
    }
    plain["verdict"] = verdict(plain)
    return plain


def verdict(planned: dict[str, Any]) -> str:
    """A plain sentence on whether federating pays at these numbers."""
    regret = planned["regret"]
    federated, alone = regret["federated"], regret["alone"]
    pays = federated < alone
    agents = f"{planned['agents']} agent{'' if planned['agents'] == 1 else 's'}"
    head = "Federating pays" if pays else "Stay alone"
    return (
        f"{head}: over {regret['horizon']} rounds with {agents} at ε = {planned['epsilon']:g} "
        f"the average agent loses {federated:,.1f} in a federation and {alone:,.1f} by itself."
    )


def _state_bytes(mechanism: Mechanism, coordinates: int) -> int:
    """What a deployed agent keeps between releases: sums and rows, or buffers of both directions."""
    if isinstance(mechanism, BufferedToeplitz):
        return (2 * len(mechanism.rates.poles) + 2) * coordinates * 16
    return 2 * mechanism.releases * coordinates * 8


def _opendp_epsilon(ratio: float, delta: float) -> float | None:
    """What OpenDP's own map from zero-concentrated privacy says of the same noise.

    None without OpenDP, and where its curve overflows: at an ε of many thousands, which is no privacy.
    """
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    measure = dp.m.make_gaussian(
        dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64"), scale=1.0 / ratio
    )
    curve: Any = dp.c.make_zCDP_to_approxDP(measure)
    try:
        return float(curve.map(1.0).epsilon(delta))
    except dp.OpenDPException as error:
        if "Overflow" not in str(error):
            raise
        return None
