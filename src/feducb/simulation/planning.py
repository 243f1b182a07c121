"""Before anyone deploys: what a budget costs in noise and in regret, and whether federating pays at all."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from feducb.config import require_integer
from feducb.models.play import JointPlay, ReleasedPlay
from feducb.privacy.calibration import noise_scale, to_epsilon, to_mu
from feducb.privacy.mechanisms import BufferedToeplitz, Dense, Mechanism, choose_mechanism
from feducb.privacy.stated_shares import stated_shares
from feducb.privacy.terms import Terms
from feducb.protocol.estimators import Estimator, plan_rounds
from feducb.protocol.schedules import Planned
from feducb.protocol.team_noise import TeamNoise, worth_reading
from feducb.simulation.paying import compare_with_alone, runs_for
from feducb.simulation.plan import make_plan
from feducb.simulation.planned_season import Season
from feducb.simulation.predicting import predict
from feducb.system import counted

__all__ = ["plan_privacy"]

# Columns of E are measured up to here; beyond, the buffered mechanism's are 1 by construction.
_CHECKED = 2048
_DOUBLINGS = 12  # how far is looked for what would be worth reading
_RECORDS = 10_000_000  # of history: as far is looked for those that would


def plan_privacy(
    season: Season,
    *,
    runs: int | None = None,
    seed: int = 0,
    simulated: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Noise, mechanism, re-accounted ε and expected regret of a season, as plain data.

    Noise and releases are those of the better play, or of released play where nothing is worth reading. What
    the table predicts (`predict`) is in it too, under ``predicted``; None outside of what that was made for.

    Args:
        season: what is planned.
        runs: of the simulation, two or more; 5 to 20 if not given, so that it takes seconds.
        seed: of everything random.
        simulated: False: go by what is predicted; where nothing is, the season is simulated all the same.
        progress: called with (agent-steps done, agent-steps in all).
    """
    visitors, asked = season.visitors, season.releases
    if runs is not None:
        require_integer("runs", runs, at_least=2)
    predicted = predict(season)
    said: dict[str, Any] = {"play": None, "pays_after": None, "regret": None}
    said["predicted"] = None if predicted is None else asdict(predicted)
    if asked is not None and asked > visitors - 7:
        why = f"{counted(asked, 'release')} do not fit between visitor 8 and visitor {visitors:,}"
        said["verdict"] = f"No simulation: {why} (--visitors)."
        return _noise(season, choose_mechanism("auto", asked)) | said
    world, plays = season.world, season.plays
    lasts: dict[str, Any] = {"horizon": visitors, "history": season.history}
    made = {
        play: make_plan(one, world, **lasts, runs=1, seed=0).estimators[0]
        for play, one in (replace(season, play="released", distance=None).plays | plays).items()
    }
    worth = {play: one for play, one in plays.items() if _read_from(season, made[play]) is not None}
    enough = _enough_history(season)
    if worth and predicted is not None and not simulated:
        said |= {"play": predicted.play, "pays_after": predicted.pays_after, "verdict": predicted.verdict}
    elif worth:
        runs = runs_for(worth, world, visitors) if runs is None else runs
        said |= compare_with_alone(worth, world, lasts | {"runs": runs, "seed": seed}, progress)
        if "own" in plays and "own" not in worth:
            said["verdict"] += " Own play would stay alone: no sum is worth its noise to it."
    else:
        said["verdict"] = _nothing_to_read(season)
    if enough is not None and enough > season.history:
        said["verdict"] += (
            f" About {enough:,} records of history per site (feducb agent warm-start) would make the first "
            "sum readable at once; whether that pays, ask again with --history."
        )
    estimator = made[said["play"] or "released"]
    assert estimator.privatizer is not None
    released = [at - season.history for at in estimator.release_rounds]
    return (
        _noise(season, estimator.privatizer.mechanism)
        | {"release_visitors": released, "read_from": _read_from(season, estimator)}
        | {"closes_after": released[-1] if said["play"] == "own" else None, "enough_history": enough}
        | said
    )


def _read_from(season: Season, estimator: Estimator) -> int | None:
    """After how many visitors a released sum is first acted on; None if none ever is."""
    rule, rounds = estimator.rule, estimator.release_rounds
    first = len(rounds) + 1
    if isinstance(rule, ReleasedPlay):
        first = rule.first
    elif isinstance(rule, JointPlay):
        first = min(rule.shared.first, len(rounds))  # the last one is read after the close
    read = [at - season.history for at in rounds[first - 1 :]]
    return read[0] if read and read[0] < season.visitors else None


def _enough_history(season: Season) -> int | None:
    """How many records of each agent make one release of them all worth reading, by public numbers.

    None if more than anybody has would not.
    """
    federation, agents = season.federation, season.agents
    noise = TeamNoise.of(federation, range(agents), Dense(1))

    def worth(records: int) -> bool:
        alpha = federation.alpha
        return worth_reading(federation, agents, noise, alpha=alpha, rounds=records, releases=1)

    found = bisect_left(range(1, _RECORDS + 1), True, key=worth) + 1
    return found if found <= _RECORDS else None


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
    lasts = season.visitors + season.history
    rounds = plan_rounds(federation, range(season.agents), lasts, alpha=federation.alpha)
    return rounds[0] < lasts


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
