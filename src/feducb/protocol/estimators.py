"""One estimator of a team: noise and confidence bound that go with its budgets and release rounds."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.interfaces import ConfidenceSet
from feducb.models.play import AlonePlay, OwnDataPlay, ReleasedPlay, Rule, Trigger
from feducb.models.theory import Spread, default_threshold
from feducb.privacy.calibration import noise_scale, to_mu
from feducb.privacy.mechanisms import BinaryTree, Dense, Mechanism, choose_mechanism
from feducb.privacy.noise_law import mixture_threshold
from feducb.privacy.printed import PrintedConstants, printed_constants
from feducb.privacy.privatizer import Privatizer
from feducb.protocol.federation import Federation
from feducb.protocol.schedules import Determinant, Geometric, Planned

__all__ = ["Estimator", "alone_estimator", "calibrated_estimator", "paper_estimator", "plan_rounds"]

_FIRST_ERROR = 1.2  # of planned releases that are spread by use, at most: up to 16 of them
_OFTEN = 1.02  # from one release to the next, without privacy
_FOR_EVER = 2**62  # rounds
_LARGEST_SPREAD = 1e6  # from the weight of the first release to that of the last


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimator:
    """One estimator of a team: how its agents play in its rounds, what leaves them, and when."""

    rule: Rule  # how agents play
    privatizer: Privatizer | None = None  # the way out; None where nothing leaves an agent
    release_rounds: tuple[int, ...] = ()  # public ones; none under the determinant trigger
    printed: tuple[PrintedConstants, ...] = ()  # the paper's, one per agent of the team (``paper`` only)
    threshold: float | None = None  # D (``paper`` only)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Noise:
    """The noise of a team's sum: √v of each part and of the whole (0 without privacy), and s."""

    scales: NDArray[np.float64]
    weight: float

    @property
    def whole(self) -> float:
        return float(np.linalg.norm(self.scales))

    @classmethod
    def of(cls, federation: Federation, team: Sequence[int], mechanism: Mechanism | None = None) -> _Noise:
        """For the budgets of a team: all records of a person are covered (`Federation.reach`)."""
        if federation.baseline is not None:
            return cls(scales=np.zeros(len(team)), weight=1.0)
        problem, model, everybody = federation.problem, federation.model, federation.budgets
        weight = model.weight(problem) if federation.tuning.weighted else 1.0
        mus = {budget: to_mu(budget) for budget in set(everybody)}
        radius = federation.reach(mechanism) * model.radius(problem, weight)
        own = np.array([noise_scale(radius, mus[everybody[agent]]) for agent in team])
        return cls(scales=federation.trust.scales(own), weight=weight)


def _worth_reading(
    federation: Federation, agents: int, noise: _Noise, *, alpha: float, rounds: int, releases: int
) -> bool:
    """Whether a sum after so many rounds is worth reading, by public numbers: a computation, not a look.

    M t records of length L, spread evenly over d directions, give G = (M t L²/d) I. Acting on the set that
    such a sum leaves costs up to twice its width per visitor; drawing uniformly costs what ‖θ*‖ ≤ S allows.
    So half an axis of it must be S/patience or less, at the noise of the first release that is read.
    """
    problem, patience = federation.problem, federation.tuning.patience
    bound = _bound(federation, noise, alpha=alpha, releases=releases)
    evenly = agents * rounds * problem.action_bound**2 / problem.dim
    return bound.half_axis(evenly, (_FIRST_ERROR * noise.whole) ** 2) * patience <= problem.parameter_bound


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

    def first_worth(noise: _Noise) -> int:
        def worth(rounds: int) -> bool:
            releases = schedule.releases(rounds, horizon)
            own = max(1, rounds // groups)
            return _worth_reading(federation, len(team), noise, alpha=alpha, rounds=own, releases=releases)

        return min(last, bisect_left(range(1, horizon), True, key=worth) + 1)

    noise = _Noise.of(federation, team)
    first = first_worth(noise)
    if not noise.whole:  # more releases cost messages, and nothing else
        return Geometric(first=first, growth=_OFTEN).rounds(horizon)
    for _ in range(2 if federation.spacing else 0):  # noise follows from the releases, and these from it
        rounds = schedule.rounds(first, horizon)
        first = first_worth(_Noise.of(federation, team, _all_read(federation, rounds)))
    return schedule.rounds(first, horizon)


def alone_estimator(federation: Federation, *, alpha: float) -> Estimator:
    """An agent on its own records: the bound that federations play with, without noise or union."""
    noise = _Noise(scales=np.zeros(1), weight=1.0)

    def worth(rounds: int) -> bool:
        return _worth_reading(federation, 1, noise, alpha=alpha, rounds=rounds, releases=1)

    most = 1
    while most < _FOR_EVER and not worth(most):  # by steps of one it could take for ever
        most *= 2
    first = bisect_left(range(1, most), True, key=worth) + 1  # what more records leave is never larger
    return Estimator(rule=AlonePlay(_bound(federation, noise, alpha=alpha, releases=1), first))


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

    def first_read(agents: int, sums: _Noise, alpha: float) -> int:
        """The number of the first release worth reading; n + 1 if there is none."""
        if not tuning.patience:
            return 1

        def worth(number: int) -> bool:
            at = {"rounds": rounds[number - 1], "releases": len(rounds) - number + 1}
            return _worth_reading(federation, agents, sums, alpha=alpha, **at)

        return bisect_left(range(1, len(rounds) + 1), True, key=worth) + 1

    mechanism = promised or _all_read(federation, rounds)
    noise = _Noise.of(federation, team, mechanism)
    first = first_read(len(team), noise, alpha)
    if not promised and isinstance(mechanism, Dense) and (tuning.quiet or tuning.by_use):
        # A team of everybody, at the whole of α, would read first. What not even that could read may be
        # noisy; a smaller team starts later still, so it loses nothing by it.
        everybody = _Noise.of(federation, range(federation.agents), mechanism)
        unread = min(first_read(federation.agents, everybody, federation.alpha), len(rounds)) - 1
        quiet = unread if tuning.quiet else 0
        decay = _decay(rounds[unread:]) if tuning.by_use else None
        mechanism = _less_noisy(federation, [Dense(len(rounds), one, decay) for one in {quiet, 0}], unread)
        noise = _Noise.of(federation, team, mechanism)
        first = first_read(len(team), noise, alpha)
    if isinstance(mechanism, Dense):
        first = max(first, mechanism.quiet + 1)
    log_threshold = None
    if tuning.simulated and noise.whole:
        log_threshold = _threshold(federation, mechanism, noise, alpha, first)
    read = max(1, len(rounds) - first + 1)
    bound = _bound(federation, noise, alpha=alpha, releases=read, log_threshold=log_threshold)
    privatizer = Privatizer(
        problem=federation.problem,
        mechanism=mechanism,
        noise_scale=noise.scales,
        reward_weight=noise.weight,
        model=model,
    )
    return Estimator(rule=ReleasedPlay(bound, first), privatizer=privatizer, release_rounds=rounds)


def _bound(
    federation: Federation, noise: _Noise, *, alpha: float, releases: int, log_threshold: float | None = None
) -> ConfidenceSet:
    """The mixture set over so many releases that are read: a union over them unless a threshold is given.

    Without noise there is nothing to unite: it holds for all looks at the same records.
    """
    problem, model, private = federation.problem, federation.model, noise.whole > 0
    both, gram = (share * alpha for share in federation.tuning.shares) if private else (alpha, alpha)
    if log_threshold is None:
        log_threshold = math.log((releases if private else 1) / both)
    return model.released_set(
        problem=problem,
        log_threshold=log_threshold,
        gram_radius=model.gram_radius(problem.dim, releases, gram) if private else 0.0,
        residual=float(model.residual_scales(problem, noise.weight)[0]) if private else 0.0,
        regularizer=federation.prior,
    )


def _threshold(
    federation: Federation, mechanism: Mechanism, noise: _Noise, alpha: float, first: int
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
    return float(round(min(ratio, _LARGEST_SPREAD ** (1.0 / steps)), 3))


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
