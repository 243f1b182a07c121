"""From settings to a plan: everything a backend needs to know, resolved and checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

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
from feducb.protocol.graphs import Topology
from feducb.protocol.schedules import Determinant, PublicSchedule, require_public

__all__ = [
    "EVERYTHING",
    "Baseline",
    "Estimator",
    "Estimators",
    "Plan",
    "Team",
    "Tuning",
    "first_useful",
    "make_plan",
    "rounds_of_group",
]

Baseline = Literal["no-privacy", "alone", "uniform"]
Estimators = Literal["paper", "one"]


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
class Estimator:
    """One estimator of a team: how its agents play in its rounds, what leaves them, and when.

    Attributes:
        rule: how agents play.
        privatizer: the way out; None where nothing leaves an agent.
        release_rounds: the public rounds; empty under the determinant trigger and where nothing leaves.
        printed: the paper's constants, one an agent of the team (``paper`` only).
        threshold: D (``paper`` only).
    """

    rule: Rule
    privatizer: Privatizer | None = None
    release_rounds: tuple[int, ...] = ()
    printed: tuple[PrintedConstants, ...] = ()
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Team:
    """Agents that add up their releases: all there are, or a clique.

    Attributes:
        agents: by number, rising.
        estimators: round t is for estimator t mod their number.
    """

    agents: tuple[int, ...]
    estimators: tuple[Estimator, ...]


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
        teams: who works together, a partition of the agents; no team can touch another.
        topology: the graph; None with a controller.
        trust: who adds the noise.
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
    teams: tuple[Team, ...]
    topology: Topology | None = None
    trust: Trust = "nobody"

    @property
    def determinant(self) -> bool:
        """Whether private data decide when to synchronise."""
        rule = self.teams[0].estimators[0].rule
        return isinstance(rule, OwnDataPlay) and rule.trigger is not None

    @property
    def problem(self) -> Problem:
        """The public bounds."""
        return self.environment.problem

    @property
    def lag(self) -> int:
        """Rounds from a release to the first decision that may use it: γ, or 1 with a controller."""
        return 1 if self.topology is None else self.topology.ttl

    @property
    def estimators(self) -> tuple[Estimator, ...]:
        """All of all teams."""
        return tuple(one for team in self.teams for one in team.estimators)


def rounds_of_group(rounds: Sequence[int], group: int, groups: int, horizon: int) -> tuple[int, ...]:
    """The public rounds of one of several estimators: each round moves on to the next one that is its own."""
    own = {at + (group - at) % groups for at in rounds}
    return tuple(sorted(at for at in own if at <= horizon))


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
    topology: Topology | None = None,
    estimators: Estimators = "paper",
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
    _require_graph_settings(topology, estimators, agents=agents, mode=mode, trust=trust)
    plan_teams = _plan_teams(
        environment.problem,
        horizon,
        agents=agents,
        mode=mode,
        baseline=baseline,
        budgets=budgets,
        alpha=alpha,
        regularizer=regularizer,
        schedule=schedule,
        mechanism=mechanism,
        trust=trust,
        topology=topology,
        estimators=estimators,
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
        teams=plan_teams,
        topology=topology,
        trust=trust if baseline is None else "nobody",
    )


def _require_graph_settings(
    topology: Topology | None, estimators: Estimators, *, agents: int, mode: Mode, trust: Trust
) -> None:
    if estimators not in get_args(Estimators):
        raise ConfigurationError("estimators", estimators, "paper or one")
    if topology is None:
        if estimators == "one":
            raise ConfigurationError("estimators", estimators, "a topology beside it")
        return
    if topology.agents != agents:
        raise ConfigurationError(
            "agents", agents, f"nothing, or {topology.agents} as in the topology {topology.name}"
        )
    if trust == "controller":
        raise ConfigurationError("trust", trust, "nobody on a topology: there is no controller")
    if estimators == "one" and mode == "paper":
        raise ConfigurationError("estimators", estimators, "paper in paper mode: one is for calibrated mode")


def _plan_teams(
    problem: Problem,
    horizon: int,
    *,
    agents: int,
    mode: Mode,
    baseline: Baseline | None,
    budgets: Sequence[Budget],
    alpha: float,
    regularizer: float,
    schedule: PublicSchedule | Determinant,
    mechanism: str,
    trust: Trust,
    topology: Topology | None,
    estimators: Estimators,
    tuning: Tuning,
) -> tuple[Team, ...]:
    """Everybody in one team, or a team a clique with γ estimators (or one), each at its share of α."""
    everybody = tuple(range(agents))
    if baseline == "uniform":
        return (Team(everybody, (Estimator(rule=UniformPlay()),)),)
    if baseline == "alone":
        own = OwnDataBound(problem=problem, alpha=alpha, regularizer=regularizer)
        return (Team(everybody, (Estimator(rule=OwnDataPlay(bound=own, prior=regularizer)),)),)
    cliques = (everybody,) if topology is None else topology.cliques
    groups = 1 if topology is None or estimators == "one" else topology.ttl
    paper = mode == "paper" and baseline is None
    rounds: tuple[int, ...] = ()
    if not (paper and isinstance(schedule, Determinant)):
        rounds = (schedule if paper else require_public(schedule)).rounds(horizon)  # type: ignore[union-attr]
    made: dict[tuple[object, ...], Estimator] = {}  # cliques that are alike share theirs

    def estimator(clique: tuple[int, ...], group: int) -> Estimator:
        own_rounds = rounds_of_group(rounds, group, groups, horizon)
        uses = len(range(group or groups, horizon + 1, groups))
        if uses == 0 or (rounds and not own_rounds):
            expected = f"at least one release in rounds of each of {groups} estimators, up to round {horizon}"
            raise ConfigurationError("schedule", f"{len(rounds)} rounds up to {horizon}", expected)
        own_budgets = None if baseline else tuple(budgets[agent] for agent in clique)
        key = (len(clique), own_budgets, uses, own_rounds)
        if key not in made and paper:
            assert own_budgets is not None
            made[key] = _paper_estimator(
                problem,
                uses,
                schedule,
                own_rounds,
                budgets=own_budgets,
                alpha=alpha / groups,  # §4.3, "Decentralized Protocol": a further log γ
                decentralised=topology is not None,
            )
        elif key not in made:
            made[key] = _calibrated(
                problem,
                own_rounds,
                budgets=own_budgets,
                everybody=budgets,
                agents=len(clique),
                alpha=alpha / (groups * len(cliques)),
                regularizer=regularizer,
                mechanism=mechanism,
                trust=trust,
                tuning=tuning,
            )
        return made[key]

    return tuple(
        Team(clique, tuple(estimator(clique, group) for group in range(groups))) for clique in cliques
    )


def _calibrated(
    problem: Problem,
    rounds: tuple[int, ...],
    *,
    budgets: Sequence[Budget] | None,
    everybody: Sequence[Budget],
    agents: int,
    alpha: float,
    regularizer: float,
    mechanism: str,
    trust: Trust,
    tuning: Tuning,
) -> Estimator:
    """Noise for the budgets (none: no privacy), and the bound that goes with it.

    Guarantees:
        The mechanism follows from the rounds and ``everybody``'s budgets, never from who is in the team: an
        agent's releases do not depend on the graph around it.
    """
    if budgets is None:
        plain = CalibratedBound(
            problem=problem, alpha=alpha, releases=len(rounds), regularizer=regularizer, private=False
        )
        any_mechanism = BinaryTree(len(rounds))  # it spreads no noise
        raw = Privatizer(problem=problem, mechanism=any_mechanism, noise_scale=np.zeros(agents))
        return Estimator(rule=ReleasedPlay(plain), privatizer=raw, release_rounds=rounds)
    mus = {budget: to_mu(budget) for budget in {*budgets, *everybody}}
    weight = reward_weight(problem) if tuning.direct and tuning.weighted else 1.0

    def first_read(some: Sequence[Budget]) -> tuple[NDArray[np.float64], int]:
        scales = np.array([noise_scale(problem, mus[budget], weight) for budget in some])
        if trust == "controller":  # one mechanism for all, at the least of the budgets
            scales = scales.max(keepdims=True)
        if not tuning.patience:
            return scales, 1
        length = float(np.linalg.norm(scales))
        return scales, first_useful(
            problem, rounds, agents=len(some), scale=length, weight=weight, patience=tuning.patience
        )

    scales, first = first_read(budgets)
    chosen = choose_mechanism(mechanism, len(rounds))
    if tuning.quiet and isinstance(chosen, Dense):
        quiet = min(first_read(everybody)[1], len(rounds)) - 1
        chosen, first = Dense(len(rounds), quiet), max(first, quiet + 1)
    bound: CalibratedBound | ReleasedSetBound
    if tuning.direct:
        length = float(np.linalg.norm(scales))
        bound = _set_bound(problem, chosen, alpha, regularizer, tuning, length, weight, first)
    else:
        bound = CalibratedBound(problem=problem, alpha=alpha, releases=len(rounds), regularizer=regularizer)
    privatizer = Privatizer(problem=problem, mechanism=chosen, noise_scale=scales, reward_weight=weight)
    return Estimator(rule=ReleasedPlay(bound, first), privatizer=privatizer, release_rounds=rounds)


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


def _paper_estimator(
    problem: Problem,
    horizon: int,
    schedule: PublicSchedule | Determinant,
    rounds: tuple[int, ...],
    *,
    budgets: Sequence[Budget],
    alpha: float,
    decentralised: bool,
) -> Estimator:
    """Printed noise and radius, prior Mρ_min and, if the schedule is the printed one, the trigger.

    Args:
        problem: the public bounds.
        horizon: how many rounds the estimator has: T, or T/γ.
        schedule: as asked for.
        rounds: its public rounds, if it is public.
        budgets: one an agent of the team; their number is M, or |C|.
        alpha: α of this estimator.
        decentralised: the trigger asks at D/((Δt + 1)(1 + L²)) (Alg. 3, l. 6).
    """
    agents = len(budgets)
    # §4.3, "Strategyproof Analysis": under the trigger any round may ask for a synchronisation
    releases = horizon if isinstance(schedule, Determinant) else len(rounds)
    printed = tuple(
        printed_constants(problem, budget, agents=agents, releases=releases, alpha=alpha)
        for budget in budgets
    )
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
        scaled = threshold / (1.0 + problem.action_bound**2) if decentralised else threshold
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
        ),
        release_rounds=rounds,
        printed=printed,
        threshold=threshold,
    )
