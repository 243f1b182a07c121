"""One estimator of a team: noise and confidence bound that go with its budgets and release rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.config import Budget, Problem
from feducb.interfaces import Bound
from feducb.models.play import OwnDataPlay, ReleasedPlay, Rule, Trigger
from feducb.models.theory import Spread, default_threshold
from feducb.privacy.calibration import noise_scale, to_mu
from feducb.privacy.mechanisms import BinaryTree, Dense, Mechanism, choose_mechanism
from feducb.privacy.noise_law import mixture_threshold
from feducb.privacy.printed import PrintedConstants, printed_constants
from feducb.privacy.privatizer import Privatizer
from feducb.protocol.federation import Federation
from feducb.protocol.schedules import Determinant

_LARGEST_SPREAD = 1e6  # from the weight of the first release to that of the last

__all__ = ["Estimator", "calibrated_estimator", "first_useful", "paper_estimator"]


def first_useful(
    problem: Problem, rounds: Sequence[int], *, agents: int, scale: float, weight: float, patience: float
) -> int:
    """The number of the first release worth reading, from public quantities only; n + 1 if there is none.

    M t records of length L, spread evenly over d directions, give G = (M t L²/d) I. One entry of h − Hθ* has
    standard deviation √v_total √(1/s² + S²) even at the least noise a mechanism can have. Their quotient must
    not exceed S/patience.
    """
    bound = problem.parameter_bound
    noise = scale * np.sqrt(1.0 / weight**2 + bound**2)
    for number, last in enumerate(rounds, start=1):
        if agents * last * problem.action_bound**2 * bound >= patience * noise * problem.dim:
            return number
    return len(rounds) + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimator:
    """One estimator of a team: how its agents play in its rounds, what leaves them, and when."""

    rule: Rule  # how agents play
    privatizer: Privatizer | None = None  # the way out; None where nothing leaves an agent
    release_rounds: tuple[int, ...] = ()  # public ones; none under the determinant trigger
    printed: tuple[PrintedConstants, ...] = ()  # the paper's, one per agent of the team (``paper`` only)
    threshold: float | None = None  # D (``paper`` only)


def calibrated_estimator(
    federation: Federation, rounds: tuple[int, ...], team: Sequence[int], *, alpha: float
) -> Estimator:
    """Noise for the budgets of a team (none in the baseline without privacy), and the bound for it.

    The federation's ``records_per_person`` are covered (`Trust.records_covered`): noise is so many times
    that of one record, and so are the first release worth reading, the quiet start and ρ planned.

    Args:
        federation: whose team it is.
        rounds: when it releases, in rounds of this estimator.
        team: who adds up releases, by number.
        alpha: this estimator's share of α.

    Guarantees:
        The mechanism follows from the rounds and everybody's budgets, never from who is in the team: an
        agent's releases do not depend on the graph around it.
    """
    problem, tuning, model = federation.problem, federation.tuning, federation.model
    if federation.baseline is not None:
        plain = model.released_set(
            problem=problem, log_threshold=math.log(1.0 / alpha), regularizer=federation.prior
        )
        any_mechanism = BinaryTree(len(rounds))  # it spreads no noise
        raw = Privatizer(
            problem=problem, mechanism=any_mechanism, noise_scale=np.zeros(len(team)), model=model
        )
        return Estimator(rule=ReleasedPlay(plain), privatizer=raw, release_rounds=rounds)
    everybody = federation.budgets
    budgets = [everybody[agent] for agent in team]
    mus = {budget: to_mu(budget) for budget in set(everybody)}
    weight = model.weight(problem) if tuning.direct and tuning.weighted else 1.0

    def first_read(some: Sequence[Budget]) -> tuple[NDArray[np.float64], int]:
        records = federation.records_per_person
        own = np.array([records * noise_scale(model.radius(problem, weight), mus[budget]) for budget in some])
        scales = federation.trust.scales(own)
        if not tuning.patience:
            return scales, 1
        length = float(np.linalg.norm(scales))
        return scales, first_useful(
            problem, rounds, agents=len(some), scale=length, weight=weight, patience=tuning.patience
        )

    scales, first = first_read(budgets)
    chosen = choose_mechanism(federation.mechanism, len(rounds))
    if isinstance(chosen, Dense) and (tuning.quiet or tuning.by_use):
        # A team of everybody would read first. What not even that could read may be noisy; a smaller team
        # starts later still, so it loses nothing by it.
        unread = min(first_read(everybody)[1], len(rounds)) - 1
        quiet = unread if tuning.quiet else 0
        decay = _decay(rounds[unread:]) if tuning.by_use else None
        chosen, first = Dense(len(rounds), quiet, decay), max(first, quiet + 1)
    if tuning.direct:
        length = float(np.linalg.norm(scales))
        bound = _set_bound(federation, chosen, alpha=alpha, scale=length, weight=weight, first=first)
    else:
        bound = model.two_widths(problem=problem, alpha=alpha, releases=len(rounds))
    privatizer = Privatizer(
        problem=problem, mechanism=chosen, noise_scale=scales, reward_weight=weight, model=model
    )
    return Estimator(rule=ReleasedPlay(bound, first), privatizer=privatizer, release_rounds=rounds)


def _set_bound(
    federation: Federation, mechanism: Mechanism, *, alpha: float, scale: float, weight: float, first: int
) -> Bound:
    """The mixture set over the releases that are read."""
    problem, tuning, prior = federation.problem, federation.tuning, federation.prior
    first = min(first, mechanism.releases)
    active = mechanism.releases - first + 1
    residual, gram = (share * alpha for share in tuning.shares)
    scales = tuple(federation.model.residual_scales(problem, weight).tolist())
    threshold = math.log(active / residual)
    if tuning.simulated:
        noise = {"scale": scale, "prior": prior * problem.noise_scale**2}
        threshold = mixture_threshold(mechanism, scales, residual, first=first, **noise)
    return federation.model.released_set(
        problem=problem,
        log_threshold=threshold,
        gram_radius=federation.model.gram_radius(problem.dim, active, gram),
        residual=scales[0],
        regularizer=prior,
    )


def _decay(rounds: Sequence[int]) -> float | None:
    """r of `Dense` for releases that are read at these rounds: their mean ratio; None if there is one."""
    if len(rounds) < 2:
        return None
    steps = len(rounds) - 1
    ratio = (rounds[-1] / rounds[0]) ** (1.0 / steps)
    return round(min(ratio, _LARGEST_SPREAD ** (1.0 / steps)), 3)


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
