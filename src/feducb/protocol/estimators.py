"""One estimator of a team: noise and confidence bound that go with its budgets and release rounds."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feducb.models.play import AlonePlay, OwnDataPlay, ReleasedPlay, Rule, Trigger
from feducb.models.theory import Spread, default_threshold
from feducb.privacy.mechanisms import BinaryTree, Dense, Mechanism, choose_mechanism
from feducb.privacy.noise_law import mixture_threshold
from feducb.privacy.printed import PrintedConstants, printed_constants
from feducb.privacy.privatizer import Privatizer
from feducb.protocol.federation import Federation
from feducb.protocol.schedules import Determinant, Geometric, Planned
from feducb.protocol.team_noise import TeamNoise, bound_for, worth_reading

__all__ = ["Estimator", "alone_estimator", "calibrated_estimator", "paper_estimator", "plan_rounds"]

_ALONE_WAITS = 10  # an agent alone draws uniformly in one of so many rounds at most,
_MANY = 10  # and in more dimensions than these about as long as in so many:
_GROWTH = 1.5  # what `worth_reading` asks for grows as d to this power, what it is worth does not
_OFTEN = 1.02  # from one release to the next, without privacy
_LARGEST_SPREAD = 1e6  # from the weight of the first release to that of the last
_LARGEST_DECAY = 16.0  # of one release to the next, where few are far apart: what `Dense` allows


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimator:
    """One estimator of a team: how its agents play in its rounds, what leaves them, and when."""

    rule: Rule  # how agents play
    privatizer: Privatizer | None = None  # the way out; None where nothing leaves an agent
    release_rounds: tuple[int, ...] = ()  # public ones; none under the determinant trigger
    printed: tuple[PrintedConstants, ...] = ()  # the paper's, one per agent of the team (``paper`` only)
    threshold: float | None = None  # D (``paper`` only)


def plan_rounds(
    federation: Federation, team: Sequence[int], horizon: int, *, alpha: float, groups: int = 1
) -> tuple[int, ...]:
    """When a team releases under its schedule, which is public: its rounds, or those that are planned.

    Args:
        federation: whose team it is.
        team: the largest one, where there are several.
        horizon: T.
        alpha: its share of α.
        groups: how many estimators take turns: each has a round in so many.
    """
    schedule = federation.schedule
    assert not isinstance(schedule, Determinant)
    if not isinstance(schedule, Planned):
        return schedule.rounds(horizon)
    last = max(1, horizon - groups + 1)  # such that every estimator has a round of its own after it

    def first_worth(noise: TeamNoise) -> int:
        def worth(rounds: int) -> bool:
            releases = schedule.releases(rounds, horizon)
            own = max(1, rounds // groups)
            return worth_reading(federation, len(team), noise, alpha=alpha, rounds=own, releases=releases)

        return min(last, bisect_left(range(1, horizon), True, key=worth) + 1)

    noise = TeamNoise.of(federation, team)
    first = first_worth(noise)
    if not noise.whole:  # more releases cost messages, and nothing else
        return Geometric(first=first, growth=_OFTEN).rounds(horizon)
    for _ in range(2 if federation.spacing else 0):  # noise follows from the releases, and these from it
        rounds = schedule.rounds(first, horizon)
        first = first_worth(TeamNoise.of(federation, team, _all_read(federation, rounds)))
    return schedule.rounds(first, horizon)


def alone_estimator(federation: Federation, horizon: int, *, alpha: float) -> Estimator:
    """An agent on its own records: the bound that federations play with, without noise or union.

    Reading costs it nothing, so where records are few or dimensions many it does not wait for the set to tell
    much: at most a tenth of its rounds are drawn uniformly, and in forty dimensions hardly more than in ten.
    """
    noise, most = TeamNoise(scales=np.zeros(1), weight=1.0), max(1, horizon // _ALONE_WAITS)
    few = min(1.0, _MANY / federation.problem.dim) ** _GROWTH

    def worth(rounds: int) -> bool:
        return worth_reading(federation, 1, noise, alpha=alpha, rounds=rounds, releases=1)

    longest = math.ceil(most / few)
    first = min(most, math.ceil(few * (bisect_left(range(1, longest + 1), True, key=worth) + 1)))
    return Estimator(rule=AlonePlay(bound_for(federation, noise, alpha=alpha, releases=1), first))


def calibrated_estimator(
    federation: Federation,
    rounds: tuple[int, ...],
    team: Sequence[int],
    *,
    alpha: float,
    promised: Mechanism | None = None,
) -> Estimator:
    """Noise for the budgets of a team (none in the baseline without privacy), and the bound for it.

    Args:
        federation: whose team it is.
        rounds: when it releases, in rounds of this estimator.
        team: who adds up releases, by number.
        alpha: this estimator's share of α.
        promised: the mechanism, where a season is open under it; else it is chosen.

    Guarantees:
        The mechanism follows from the rounds and everybody's budgets, never from who is in the team: an
        agent's releases do not depend on the graph around it.
    """
    tuning, model = federation.tuning, federation.model

    def first_read(agents: int, sums: TeamNoise, alpha: float) -> int:
        """The number of the first release worth reading; n + 1 if there is none."""
        if not tuning.patience:
            return 1

        def worth(number: int) -> bool:
            at = {"rounds": rounds[number - 1], "releases": len(rounds) - number + 1}
            return worth_reading(federation, agents, sums, alpha=alpha, **at)

        return bisect_left(range(1, len(rounds) + 1), True, key=worth) + 1

    mechanism = promised or _all_read(federation, rounds)
    noise = TeamNoise.of(federation, team, mechanism)
    first = first_read(len(team), noise, alpha)
    if not promised and isinstance(mechanism, Dense) and (tuning.quiet or tuning.by_use):
        # A team of everybody, at the whole of α, would read first. What not even that could read may be
        # noisy; a smaller team starts later still, so it loses nothing by it.
        everybody = TeamNoise.of(federation, range(federation.agents), mechanism)
        unread = min(first_read(federation.agents, everybody, federation.alpha), len(rounds)) - 1
        quiet = unread if tuning.quiet else 0
        decay = _decay(rounds[unread:]) if tuning.by_use else None
        mechanism = _less_noisy(federation, [Dense(len(rounds), one, decay) for one in {quiet, 0}], unread)
        noise = TeamNoise.of(federation, team, mechanism)
        first = first_read(len(team), noise, alpha)
    if isinstance(mechanism, Dense):
        first = max(first, mechanism.quiet + 1)
    log_threshold = None
    if tuning.simulated and noise.whole:
        log_threshold = _threshold(federation, mechanism, noise, alpha, first)
    read = max(1, len(rounds) - first + 1)
    bound = bound_for(federation, noise, alpha=alpha, releases=read, log_threshold=log_threshold)
    privatizer = Privatizer(
        problem=federation.problem,
        mechanism=mechanism,
        noise_scale=noise.scales,
        reward_weight=noise.weight,
        model=model,
    )
    return Estimator(rule=ReleasedPlay(bound, first), privatizer=privatizer, release_rounds=rounds)


def _threshold(
    federation: Federation, mechanism: Mechanism, noise: TeamNoise, alpha: float, first: int
) -> float:
    """The threshold from the simulated joint law of the noise of all releases that are read."""
    problem = federation.problem
    return mixture_threshold(
        mechanism,
        tuple(federation.model.residual_scales(problem, noise.weight).tolist()),
        federation.tuning.shares[0] * alpha,
        first=min(first, mechanism.releases),
        scale=noise.whole,
        prior=federation.prior * problem.noise_scale**2,
    )


def _all_read(federation: Federation, rounds: Sequence[int]) -> Mechanism:
    """The mechanism for releases at these rounds, if all of them are read."""
    chosen = choose_mechanism(federation.mechanism, len(rounds))
    by_use = isinstance(chosen, Dense) and federation.tuning.by_use
    return Dense(len(rounds), 0, _decay(rounds)) if by_use else chosen


def _less_noisy(federation: Federation, mechanisms: Sequence[Dense], unread: int) -> Dense:
    """The one with the least noise in what is read: a quiet start, unless it brings spaced records together.

    Batches before the first read release all enter that one, so that a person's records there move it as if
    they were in one batch. Where records are not spaced that costs nothing more, and the quiet start wins.
    """

    def noise(one: Dense) -> float:
        squares = np.sum(one.decoder()[unread:] ** 2, axis=1)
        return federation.reach(one) ** 2 * float(squares @ (one.decay or 1.0) ** -np.arange(len(squares)))

    return min(mechanisms, key=noise if federation.spacing else lambda one: -one.quiet)


def _decay(rounds: Sequence[int]) -> float | None:
    """r of `Dense` for releases that are read at these rounds: their mean ratio; None if there is one."""
    if len(rounds) < 2:
        return None
    steps = len(rounds) - 1
    ratio = float(rounds[-1] / rounds[0]) ** (1.0 / steps)
    return float(round(min(ratio, _LARGEST_SPREAD ** (1.0 / steps), _LARGEST_DECAY), 3))


def paper_estimator(
    federation: Federation, rounds: tuple[int, ...], team: Sequence[int], *, alpha: float, horizon: int
) -> Estimator:
    """Printed noise and radius, prior Mρ_min and, if the schedule is the printed one, the trigger.

    On a graph the trigger asks at D/((Δt + 1)(1 + L²)) (Alg. 3, l. 6).

    As for `calibrated_estimator`, where rounds are public; the team's size is M, or |C|, and the horizon, how
    many rounds this estimator has, T or T/γ.
    """
    problem, schedule, agents = federation.problem, federation.schedule, len(team)
    everybody = federation.budgets
    # §4.3, "Strategyproof Analysis": under the trigger any round may ask for a synchronisation
    releases = horizon if isinstance(schedule, Determinant) else len(rounds)
    printed = tuple(
        printed_constants(problem, budget, agents=agents, releases=releases, alpha=alpha)
        for budget in (everybody[agent] for agent in team)
    )
    rho_min = np.array([one.rho_min for one in printed])
    rho_max = np.array([one.rho_max for one in printed])
    bound = federation.model.printed(
        problem=problem,
        alpha=alpha,
        agents=agents,
        releases=releases,
        rho_min=float(rho_min.sum()),
        root_rho_max=float(np.sqrt(rho_max).sum()),
        kappa=sum(one.kappa for one in printed),
    )
    threshold = default_threshold(problem, horizon, Spread(float(rho_min.mean()), float(rho_max.mean())))
    trigger = None
    if isinstance(schedule, Determinant):
        threshold = schedule.threshold or threshold
        scaled = threshold / (1.0 + problem.action_bound**2) if federation.topology else threshold
        trigger = Trigger(threshold=scaled, offset=float((rho_max - rho_min).sum()))
    tree = BinaryTree(releases)
    return Estimator(
        rule=OwnDataPlay(bound=bound, prior=float(rho_min.sum()), trigger=trigger),
        privatizer=Privatizer(
            problem=problem,
            mechanism=tree,
            # σ_N at every node: the tree's own scaling is taken out again
            noise_scale=np.array([one.noise_scale for one in printed]) / np.sqrt(tree.touched),
            shift=np.array([one.shift for one in printed]),
            model=federation.model,
        ),
        release_rounds=rounds,
        printed=printed,
        threshold=threshold,
    )
