"""Before anyone deploys: what a budget costs in noise and in regret, and whether federating pays at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from feducb.config import Budget, require_integer
from feducb.errors import ConfigurationError
from feducb.models.play import ReleasedPlay
from feducb.privacy.calibration import noise_scale, to_epsilon, to_mu
from feducb.privacy.mechanisms import BufferedToeplitz, Dense, Mechanism, choose_mechanism
from feducb.privacy.stated_shares import stated_shares
from feducb.privacy.terms import Terms, require_agents_per_person
from feducb.protocol.estimators import plan_rounds
from feducb.protocol.federation import Federation
from feducb.protocol.schedules import Geometric, Planned
from feducb.simulation.paying import compare_with_alone, runs_for
from feducb.simulation.plan import make_plan
from feducb.system import counted
from feducb.trust import NOBODY, Trust, require_trust
from feducb.worlds.world import Environment

__all__ = ["Season", "plan_privacy"]

# Columns of E are measured up to here; beyond, the buffered mechanism's are 1 by construction.
_CHECKED = 2048
_DOUBLINGS = 12  # how far is looked for what would be worth reading


@dataclass(frozen=True, kw_only=True, slots=True)
class Season:
    """What is planned: who would federate, under which promise, and for how long.

    Attributes:
        world: what visitors might be like, and the public bounds.
        agents: M, two or more.
        visitors: of each agent, over the whole season.
        budget: (ε, δ) of a person.
        releases: how many, in geometric progression; None: planned, as `Planned` does.
        trust: who adds the noise; its name will do.
        records_per_person: p, how many records of one person may enter at an agent.
        agents_per_person: how many agents one person visits at most.
        spacing: by how many releases records of one person at an agent are apart at least.
    """

    world: Environment
    agents: int
    visitors: int = 2000
    budget: Budget = field(default_factory=lambda: Budget(epsilon=1.0, delta=1e-6))
    releases: int | None = None
    trust: Trust = NOBODY
    records_per_person: int = 1
    agents_per_person: int = 1
    spacing: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "trust", require_trust(self.trust))
        if require_integer("agents", self.agents, at_least=1) == 1:
            expected = "2 or more: a federation of one is an agent alone under noise, and can only lose"
            raise ConfigurationError("agents", 1, expected)
        require_integer("visitors", self.visitors, at_least=1)
        require_agents_per_person("agents_per_person", self.agents_per_person, self.agents)

    @property
    def federation(self) -> Federation:
        """Who would play."""
        schedule = Planned() if self.releases is None else Geometric(releases=self.releases)
        return Federation(
            problem=self.world.problem,
            agents=self.agents,
            budget=self.budget,
            trust=self.trust,
            records_per_person=self.records_per_person,
            agents_per_person=self.agents_per_person,
            spacing=self.spacing,
            schedule=schedule,
        )

    def terms(self, mechanism: Mechanism) -> Terms:
        """What would be promised."""
        dense = mechanism if isinstance(mechanism, Dense) else Dense(1)
        return Terms(
            problem=self.world.problem,
            budget=self.budget,
            releases=mechanism.releases,
            mechanism=mechanism.name,
            quiet=dense.quiet,
            decay=dense.decay,
            records_per_person=self.records_per_person,
            agents_per_person=self.agents_per_person,
            spacing=self.spacing,
            trust=self.trust,
            agents=self.agents,
        )


def plan_privacy(
    season: Season,
    *,
    runs: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Noise, mechanism, re-accounted ε and expected regret of a season, as plain data.

    Args:
        season: what is planned.
        runs: of the simulation, two or more; 5 to 20 if not given, so that it takes seconds.
        seed: of everything random.
        progress: called with (agent-steps done, agent-steps in all).
    """
    visitors, asked = season.visitors, season.releases
    if runs is not None:
        require_integer("runs", runs, at_least=2)
    if asked is not None and asked > visitors - 7:
        why = f"{counted(asked, 'release')} do not fit between visitor 8 and visitor {visitors:,}"
        said = {"pays_after": None, "regret": None, "verdict": f"No simulation: {why} (--visitors)."}
        return _noise(season, choose_mechanism("auto", asked)) | said
    federation, world = season.federation, season.world
    (estimator,) = make_plan(federation, world, horizon=visitors, runs=1, seed=0).estimators
    assert estimator.privatizer is not None
    assert isinstance(estimator.rule, ReleasedPlay)
    plain = _noise(season, estimator.privatizer.mechanism)
    read = [at for at in estimator.release_rounds[estimator.rule.first - 1 :] if at < visitors]
    plain |= {"release_visitors": list(estimator.release_rounds), "read_from": read[0] if read else None}
    if not read:
        return plain | {"pays_after": None, "regret": None, "verdict": _nothing_to_read(season)}
    runs = runs_for(federation, world, visitors) if runs is None else runs
    return plain | compare_with_alone(
        federation, world, visitors=visitors, runs=runs, seed=seed, progress=progress
    )


def _noise(season: Season, mechanism: Mechanism) -> dict[str, Any]:
    """What the promise costs in noise, and back from the noise to ε."""
    terms, budget = season.terms(mechanism), season.budget
    mu, delta, certificate = to_mu(budget), budget.delta, terms.certificate()
    sigma = noise_scale(terms.radius, mu / terms.reach)
    # Back from the noise to ε, by what a record really moves and a person really has: at an agent, or at all
    # agents that she visits where one noise has to cover them.
    longest = 1.0 if mechanism.releases > _CHECKED else np.linalg.norm(mechanism.encoder(), axis=0).max()
    moved = terms.radius * float(longest) / sigma
    person_mu = terms.reach * moved
    # What is sure to be there: the noise of one agent, or of all shares that are certified.
    whole = certificate.scale * math.sqrt(certificate.shares)
    entry = whole / math.sqrt(2.0)
    return {
        "epsilon": budget.epsilon,
        "delta": delta,
        "releases": terms.releases,
        "dim": terms.problem.dim,
        "agents": season.agents,
        "visitors": season.visitors,
        "trust": terms.trust.name,
        **_shared_noise(terms),
        "per_person": terms.records_per_person,
        "spacing": terms.spacing,
        "reach": terms.reach,
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
            "epsilon_by_opendp_map": _opendp_epsilon(certificate.sensitivity / whole, delta),
        },
    }


def _shared_noise(terms: Terms) -> dict[str, Any]:
    """Who may be away and collude, and what that costs, where one noise is divided; else nothing.

    A sum of all M shares has √(M/H) times the deviation that a trusted controller would add. H = M − D − C:
    what D and C cost is seen beside nobody away, and beside one who colludes, the least there can be.
    """
    stated = stated_shares(terms, ())
    if stated is None:
        return {}
    agents, away, colluding, shares = (stated[name] for name in ("agents", "away", "colluding", "shares"))
    shared = {
        "away": away,
        "colluding": colluding,
        "shares": shares,
        "noise_over_controller": math.sqrt(agents / shares),
        "noise_if_none_away": math.sqrt(agents / (agents - colluding)),
        "noise_if_one_colludes": math.sqrt(agents / (agents - away - 1)),
        "by_honest_shares": stated["by_honest_shares"],
    }
    return {"shared_noise": shared}


def _nothing_to_read(season: Season) -> str:
    """Why to stay alone where noise drowns every release, and what it would take to read one.

    By public numbers alone; to be worth reading is necessary for federating to pay, not sufficient.
    """
    enough = []
    for much, words in (("visitors", "{:,} visitors"), ("agents", "{:,} agents"), ("epsilon", "ε = {:g}")):
        for power in range(1, _DOUBLINGS + 1):
            more, value = _more(season, much, 2**power)
            if _readable(more):
                enough.append(words.format(value))
                break
    would = f" It takes about {', or '.join(enough)} to read anything, and more to pay." if enough else ""
    stated = f"{season.agents:,} agents at ε = {season.budget.epsilon:g}"
    drowned = f"With {stated}, {counted(season.visitors, 'visitor')} each, noise drowns it."
    return f"Stay alone: nothing released is worth reading. {drowned}{would}"


def _more(season: Season, much: str, times: int) -> tuple[Season, float]:
    """A season with so many times the visitors, agents or ε, and how much that is."""
    if much == "visitors":
        return replace(season, visitors=times * season.visitors), times * season.visitors
    if much == "epsilon":
        epsilon = times * season.budget.epsilon
        return replace(season, budget=replace(season.budget, epsilon=epsilon)), epsilon
    agents, visited = times * season.agents, season.agents_per_person
    if visited == season.agents:  # a person may visit all, however many
        visited = agents
    return replace(season, agents=agents, agents_per_person=visited), agents


def _readable(season: Season) -> bool:
    """Whether some release of a planned schedule would be worth reading before the last visitor."""
    federation = replace(season.federation, schedule=Planned())
    rounds = plan_rounds(federation, range(season.agents), season.visitors, alpha=federation.alpha)
    return rounds[0] < season.visitors


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
