"""From settings to a plan: everything a backend needs to know, resolved and checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from feducb.agent import OwnDataPlay, ReleasedPlay, Rule, Trigger, UniformPlay
from feducb.config import (
    Budget,
    Mode,
    Problem,
    require_finite,
    require_integer,
    require_probability,
)
from feducb.core.confidence import CalibratedBound, OwnDataBound, PaperBound, ReleasedSetBound
from feducb.core.theory import default_threshold
from feducb.environments.base import Environment
from feducb.errors import ConfigurationError
from feducb.privacy.accounting import Trust, require_trust
from feducb.privacy.calibration import noise_scale, reward_weight, to_mu
from feducb.privacy.mechanisms import BinaryTree, Dense, Mechanism, choose_mechanism
from feducb.privacy.noise_law import closed_residual_radius, gram_radius, residual_radius
from feducb.privacy.printed import PrintedConstants, printed_constants
from feducb.privacy.privatizer import Privatizer
from feducb.protocol.schedules import Determinant, PublicSchedule, require_public

__all__ = ["EVERYTHING", "Baseline", "Plan", "Tuning", "first_useful", "make_plan"]

Baseline = Literal["no-privacy", "alone", "uniform"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """Which improvements are on, to measure each (the defaults are all).

    Attributes:
        direct: the confidence set of `ReleasedSetBound`; else the two-width closed form.
        simulated: radii from the simulated joint law; else the closed form.
        weighted: noise split by `reward_weight`; else equal.
        patience: read no release before the noise of the estimate in one direction would be below
            S/patience under an even design; 0 reads all.
        quiet: give the releases that nobody reads next to no budget (`Dense.quiet`).
        shares: of α for residual, Gram and rewards.
    """

    direct: bool = True
    simulated: bool = True
    weighted: bool = True
    patience: float = 9.0
    quiet: bool = True
    shares: tuple[float, float, float] = (0.5, 0.05, 0.45)


EVERYTHING = Tuning()


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
class Plan:
    """One simulation, resolved.

    Attributes:
        environment: the world.
        agents: M.
        horizon: T.
        runs: independent repetitions.
        seed: of all random streams.
        mode: ``calibrated`` or ``paper``.
        baseline: what is run instead of the private federation, if anything.
        alpha: α.
        exploration: scales the bonus.
        budgets: one an agent; empty where nothing private leaves.
        rule: how agents play.
        privatizer: the way out; None where nothing leaves an agent.
        release_rounds: the public rounds; empty under the determinant trigger and where nothing leaves.
        trust: who adds the noise.
        printed: the paper's constants, one an agent (``paper`` only).
        threshold: D (``paper`` only).
    """

    environment: Environment
    agents: int
    horizon: int
    runs: int
    seed: int
    mode: Mode
    baseline: Baseline | None
    alpha: float
    exploration: float
    budgets: tuple[Budget, ...]
    rule: Rule
    privatizer: Privatizer | None
    release_rounds: tuple[int, ...]
    trust: Trust = "nobody"
    printed: tuple[PrintedConstants, ...] = ()
    threshold: float | None = None

    @property
    def determinant(self) -> bool:
        """Whether private data decide when to synchronise."""
        return isinstance(self.rule, OwnDataPlay) and self.rule.trigger is not None

    @property
    def problem(self) -> Problem:
        """The public bounds."""
        return self.environment.problem


def make_plan(
    environment: Environment,
    *,
    agents: int,
    horizon: int,
    runs: int,
    seed: int,
    mode: Mode,
    baseline: Baseline | None,
    budgets: Sequence[Budget],
    alpha: float,
    exploration: float,
    regularizer: float,
    schedule: PublicSchedule | Determinant,
    mechanism: str,
    trust: Trust = "nobody",
    tuning: Tuning = EVERYTHING,
) -> Plan:
    """Check the settings against each other and derive noise, bounds and release rounds."""
    require_integer("agents", agents, at_least=1)
    require_integer("horizon", horizon, at_least=1)
    require_integer("runs", runs, at_least=1)
    require_integer("seed", seed, at_least=0)
    require_probability("alpha", alpha)
    require_finite("exploration", exploration, at_least=0)
    require_finite("regularizer", regularizer, above=0)
    if mode not in get_args(Mode):
        raise ConfigurationError("mode", mode, "calibrated or paper")
    if baseline is not None and baseline not in get_args(Baseline):
        raise ConfigurationError("baseline", baseline, "no-privacy, alone, uniform or nothing")
    if len(budgets) != agents:
        raise ConfigurationError("budgets", f"{len(budgets)} budgets", f"one for each of {agents} agents")
    if require_trust(trust) == "controller" and mode == "paper":
        raise ConfigurationError("trust", trust, "nobody in paper mode: there every agent privatises")
    problem = environment.problem
    rounds: tuple[int, ...] = ()
    privatizer: Privatizer | None = None
    printed: tuple[PrintedConstants, ...] = ()
    threshold: float | None = None
    rule: Rule

    if baseline == "uniform":
        rule = UniformPlay()
    elif baseline == "alone":
        own = OwnDataBound(problem=problem, alpha=alpha, regularizer=regularizer)
        rule = OwnDataPlay(bound=own, prior=regularizer)
    elif baseline is None and mode == "paper":
        if isinstance(schedule, Determinant):
            releases = horizon  # §4.3, "Strategyproof Analysis": any round may ask for a synchronisation
        else:
            rounds = schedule.rounds(horizon)
            releases = len(rounds)
        printed = tuple(
            printed_constants(problem, budget, agents=agents, releases=releases, alpha=alpha)
            for budget in budgets
        )
        rule, threshold = _paper_rule(
            problem, horizon, schedule, printed, agents=agents, releases=releases, alpha=alpha
        )
        tree = BinaryTree(releases)
        privatizer = Privatizer(
            problem=problem,
            mechanism=tree,
            # σ_N at every node: the tree's own scaling is taken out again
            noise_scale=np.array([one.noise_scale for one in printed]) / np.sqrt(tree.touched),
            shift=np.array([one.shift for one in printed]),
        )
    else:
        rounds = require_public(schedule).rounds(horizon)
        rule, privatizer = _calibrated(
            problem,
            rounds,
            budgets=budgets if baseline is None else None,
            agents=agents,
            alpha=alpha,
            regularizer=regularizer,
            mechanism=mechanism,
            trust=trust,
            tuning=tuning,
        )
    return Plan(
        environment=environment,
        agents=agents,
        horizon=horizon,
        runs=runs,
        seed=seed,
        mode=mode,
        baseline=baseline,
        alpha=alpha,
        exploration=exploration,
        budgets=tuple(budgets) if baseline is None else (),
        rule=rule,
        privatizer=privatizer,
        release_rounds=rounds,
        trust=trust if baseline is None else "nobody",
        printed=printed,
        threshold=threshold,
    )


def _calibrated(
    problem: Problem,
    rounds: tuple[int, ...],
    *,
    budgets: Sequence[Budget] | None,
    agents: int,
    alpha: float,
    regularizer: float,
    mechanism: str,
    trust: Trust,
    tuning: Tuning,
) -> tuple[ReleasedPlay, Privatizer]:
    """Noise for the budgets (none: no privacy), and the bound that goes with it."""
    if budgets is None:
        plain = CalibratedBound(
            problem=problem, alpha=alpha, releases=len(rounds), regularizer=regularizer, private=False
        )
        chosen = choose_mechanism(mechanism, len(rounds))
        return ReleasedPlay(plain), Privatizer(
            problem=problem, mechanism=chosen, noise_scale=np.zeros(agents)
        )
    mus = {budget: to_mu(budget) for budget in set(budgets)}
    weight = reward_weight(problem) if tuning.direct and tuning.weighted else 1.0
    scales = np.array([noise_scale(problem, mus[budget], weight) for budget in budgets])
    if trust == "controller":  # one mechanism for all, at the least of the budgets
        scales = scales.max(keepdims=True)
    total = float(np.sqrt((scales**2).sum()))
    first = 1
    if tuning.patience:
        first = first_useful(
            problem, rounds, agents=agents, scale=total, weight=weight, patience=tuning.patience
        )
    chosen = choose_mechanism(mechanism, len(rounds))
    if tuning.quiet and isinstance(chosen, Dense):
        chosen = Dense(len(rounds), min(first, len(rounds)) - 1)
    bound: CalibratedBound | ReleasedSetBound
    if tuning.direct:
        bound = _set_bound(problem, chosen, alpha, regularizer, tuning, total, weight, first)
    else:
        bound = CalibratedBound(problem=problem, alpha=alpha, releases=len(rounds), regularizer=regularizer)
    privatizer = Privatizer(problem=problem, mechanism=chosen, noise_scale=scales, reward_weight=weight)
    return ReleasedPlay(bound, first), privatizer


def _set_bound(
    problem: Problem,
    mechanism: Mechanism,
    alpha: float,
    regularizer: float,
    tuning: Tuning,
    scale: float,
    weight: float,
    first: int,
) -> ReleasedSetBound:
    """Radii over the releases that are read, and ρ at the size of the residual of the first of them."""
    first = min(first, mechanism.releases)
    active = mechanism.releases - first + 1
    residual, gram, rewards = (share * alpha for share in tuning.shares)
    bound = problem.parameter_bound
    if tuning.simulated:
        radius = residual_radius(mechanism, problem.dim, residual, first=first, bound=bound, weight=weight)
    else:
        radius = closed_residual_radius(problem.dim, active, residual, bound=bound, weight=weight)
    return ReleasedSetBound(
        problem=problem,
        reward_alpha=rewards,
        residual_radius=radius,
        gram_radius=gram_radius(problem.dim, active, gram),
        regularizer=max(regularizer, radius * scale * mechanism.error(first)),
    )


def _paper_rule(
    problem: Problem,
    horizon: int,
    schedule: PublicSchedule | Determinant,
    printed: Sequence[PrintedConstants],
    *,
    agents: int,
    releases: int,
    alpha: float,
) -> tuple[OwnDataPlay, float]:
    """The printed radius, prior Mρ_min and, if the schedule is the printed one, the trigger."""
    rho_min = np.array([one.rho_min for one in printed])
    rho_max = np.array([one.rho_max for one in printed])
    bound = PaperBound(
        problem=problem,
        alpha=alpha,
        agents=agents,
        releases=releases,
        rho_min=float(rho_min.sum()),
        root_rho_max=float(np.sqrt(rho_max).sum()),
        kappa=sum(one.kappa for one in printed),
    )
    threshold = default_threshold(
        problem, horizon, rho_min=float(rho_min.mean()), rho_max=float(rho_max.mean())
    )
    trigger = None
    if isinstance(schedule, Determinant):
        threshold = schedule.threshold or threshold
        trigger = Trigger(threshold=threshold, offset=float((rho_max - rho_min).sum()))
    return OwnDataPlay(bound=bound, prior=float(rho_min.sum()), trigger=trigger), threshold
