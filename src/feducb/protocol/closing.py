"""Share first, then close (``play="own"``): when all close, and how agents play on both sides of it.

The rule is public: it reads who plays, the budget and the horizon, never a record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from feducb.models.joint import JointBound, weight_of
from feducb.models.mixture import MixtureBound
from feducb.models.play import AlonePlay, JointPlay, ReleasedPlay
from feducb.privacy.mechanisms import Dense, Mechanism
from feducb.privacy.noise_law import mixture_threshold
from feducb.protocol.estimators import Estimator, alone_estimator, calibrated_estimator, plan_rounds
from feducb.protocol.federation import Federation
from feducb.protocol.schedules import Planned
from feducb.protocol.team_noise import TeamNoise

__all__ = [
    "after_history",
    "closing_estimator",
    "closing_rounds",
    "joint_rule",
    "others_worth",
    "own_estimator",
    "shares_of",
]

_ASSUMED = 0.28  # h over S where none is given
_TOLERATED = 0.2  # of S: how far from the others own records may be before they contradict them
_CLOSE = 4.5  # visits per dimension: sites that are not known to be alike close then
_LATEST, _MANY = 10, 10  # visits per dimension, of so many at most (in more, alone waits no longer): by then,
_HALF = 0.5  # and by so much of the season: what is learnt is for those who come after the close
_EARLY = 1.5  # a sum is readable early if that many times its round is no later
_TWICE = 2  # as late as the first readable sum, at least
_APART = 1.7  # of the visits at one release those at the next
_ONE = 0.85  # of what alone draws uniformly: when a single release is made
_WORTH = 0.2  # others' records over own ones, weighed by noise, that a single release must bring
_BRIEFLY, _LONG = (0.1, 0.9), (0.5, 0.5)  # of α for what is read before the close, and after it


def shares_of(federation: Federation) -> tuple[float, float]:
    """The parts of α for what is read before the close and after it.

    What an early close leaves is lost anyway, by what is proven of it; sites that are known to be alike share
    to the end.
    """
    return _LONG if federation.distance == 0.0 else _BRIEFLY


def own_estimator(federation: Federation, horizon: int, team: Sequence[int]) -> Estimator:
    """How a team plays: shares, closes and goes on alone with what it has, or stays alone from the start."""
    rounds = closing_rounds(federation, team, horizon)
    if not rounds:
        return alone_estimator(federation, horizon, alpha=federation.alpha)
    return closing_estimator(federation, rounds, team, horizon=horizon)


def closing_estimator(
    federation: Federation,
    rounds: tuple[int, ...],
    team: Sequence[int],
    *,
    horizon: int,
    promised: Mechanism | None = None,
) -> Estimator:
    """How a team plays that releases at these rounds and closes after the last of them.

    That one is acted on for ever, and not until the next as noise by use has it: all get the same noise.

    Args:
        federation: whose team it is.
        rounds: when it releases.
        team: who adds up releases, by number.
        horizon: T.
        promised: the mechanism, where a season is open under it; else it is chosen.
    """
    alpha = shares_of(federation)[0] * federation.alpha
    by_use = federation.tuning.by_use and federation.distance == 0.0
    level = replace(federation, tuning=replace(federation.tuning, by_use=by_use))
    shared = calibrated_estimator(level, rounds, team, alpha=alpha, promised=promised)
    return replace(shared, rule=joint_rule(federation, shared, team, horizon=horizon))


def after_history(federation: Federation, team: Sequence[int], horizon: int, history: int) -> tuple[int, ...]:
    """`closing_rounds`, where each agent has so many records from before; these are rounds too.

    None is released before they are in. Enough of them make one release of all.
    """
    planned = closing_rounds(federation, team, horizon)
    if not planned:
        return (history,) if others_worth(federation, team, history) >= _WORTH else ()
    return tuple(sorted({max(history, at) for at in planned}))


def closing_rounds(federation: Federation, team: Sequence[int], horizon: int) -> tuple[int, ...]:
    """When a team releases; all close after the last. None: stay alone.

    A schedule that lists its rounds is taken at its word. A planned one is chosen by public numbers:

    - sums that are worth reading early are released from that round on, a few times; where all sites are
      known to be alike, as often as if there were no close; where they are known to differ by much, not so;
    - else one sum may still bring an agent more than its own records did: it is released when an agent alone
      would begin to read, since until then all draw uniformly anyway;
    - else nothing is worth its noise.
    """
    schedule, distance = federation.schedule, federation.distance
    rounds = plan_rounds(federation, team, horizon, alpha=shares_of(federation)[0] * federation.alpha)
    if not isinstance(schedule, Planned):
        return rounds
    first, dim = rounds[0], federation.problem.dim
    latest = min(_LATEST * (dim if distance == 0.0 else min(dim, _MANY)), math.floor(_HALF * horizon))
    if _EARLY * first <= latest and (distance is None or distance <= _ASSUMED):
        if distance == 0.0:
            return rounds
        last = min(max(math.ceil(_CLOSE * dim), _TWICE * first), latest)
        steps = max(1, round(math.log(last / first, _APART)))
        return tuple(sorted({round(first * (last / first) ** (k / steps)) for k in range(steps + 1)}))
    alone = alone_estimator(federation, horizon, alpha=federation.alpha).rule
    assert isinstance(alone, AlonePlay)
    once = max(1, math.floor(_ONE * alone.first))
    return (once,) if others_worth(federation, team, once) >= _WORTH else ()


def others_worth(federation: Federation, team: Sequence[int], rounds: int) -> float:
    """What the others' records are worth beside own ones, where one release has all the budget."""
    noise, others = TeamNoise.of(federation, team, Dense(1)), len(team) - 1
    residual = float(federation.model.residual_scales(federation.problem, noise.weight)[0])
    evenly = others * rounds * federation.problem.action_bound**2 / federation.problem.dim
    return others * weight_of(federation.problem, evenly, noise.whole**2 * residual, 0.0)


def joint_rule(
    federation: Federation,
    shared: Estimator,
    team: Sequence[int],
    *,
    horizon: int,
    variance: float | None = None,
    records: float | None = None,
) -> JointPlay:
    """How agents play whose shared phase is ``shared``.

    What α the shared phase does not read, since its last sum is the first that is worth reading, is the own
    phase's; half of that goes to alone's set, the rest to the joint one.

    Args:
        federation: who plays.
        shared: how they play before the close.
        team: who adds up releases, by number.
        horizon: T.
        variance: of the sum at the close, if it is another than planned: no threshold is simulated then, and
            the one that is taken holds under any noise.
        records: how many records of others are in it, if it holds some from earlier seasons too.
    """
    problem, model, tuning = federation.problem, federation.model, federation.tuning
    assert shared.privatizer is not None
    assert isinstance(shared.rule, ReleasedPlay)
    rounds, mechanism = shared.release_rounds, shared.privatizer.mechanism
    left = 1.0 if shared.rule.first >= len(rounds) else shares_of(federation)[1]
    alpha = 0.5 * left * federation.alpha
    alone = alone_estimator(federation, horizon, alpha=alpha).rule
    assert isinstance(alone, AlonePlay)
    assert isinstance(alone.bound, MixtureBound)
    noise = TeamNoise.of(federation, team, mechanism)
    planned = variance is None
    if variance is None:
        variance = noise.whole**2 * mechanism.error(mechanism.releases) ** 2
    scales = (
        tuple(model.residual_scales(problem, noise.weight).tolist()) if variance else (0.0,) * problem.dim
    )
    others = (len(team) - 1) * rounds[-1] if records is None else records
    evenly = others * problem.action_bound**2 / problem.dim
    assumed = _ASSUMED if federation.distance is None else federation.distance
    distance = assumed * problem.parameter_bound
    weight = weight_of(problem, evenly, variance * scales[0], distance)
    both, gram = (share * alpha for share in tuning.shares)
    if not variance:
        log_threshold = math.log(1.0 / alpha)
    elif not planned:
        log_threshold = math.log(1.0 / both)
    else:
        scale, prior = weight * math.sqrt(variance), federation.prior * problem.noise_scale**2
        log_threshold = mixture_threshold(Dense(1), scales, both, first=1, scale=scale, prior=prior)
    bound = JointBound(
        alone=alone.bound,
        variance=variance,
        evenly=evenly,
        weight=weight,
        distance=distance,
        tolerance=min(distance, _TOLERATED * problem.parameter_bound),
        looks=min(rounds[-1] + alone.first, horizon),
        log_threshold=log_threshold,
        gram_radius=model.gram_radius(problem.dim, 1, gram) if variance else 0.0,
        residual=scales[0],
    )
    return JointPlay(shared=shared.rule, bound=bound, first=rounds[-1], last=len(rounds))
