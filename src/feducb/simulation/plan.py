"""From settings to a plan: everything a backend needs to know, resolved and checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from feducb.config import (
    Budget,
    Mode,
    Problem,
    require_finite,
    require_integer,
    require_probability,
)
from feducb.errors import ConfigurationError
from feducb.models.confidence import OwnDataBound
from feducb.models.play import OwnDataPlay, UniformPlay
from feducb.policies import Optimistic, Policy, parse_policy
from feducb.protocol.estimators import (
    EVERYTHING,
    Estimator,
    Tuning,
    calibrated_estimator,
    paper_estimator,
)
from feducb.protocol.graphs import Topology
from feducb.protocol.schedules import Determinant, PublicSchedule, require_public
from feducb.trust import NOBODY, Trust
from feducb.worlds.world import Environment

__all__ = ["Baseline", "EstimatorsKept", "Plan", "Team", "make_plan", "rounds_of_group"]

Baseline = Literal["no-privacy", "alone", "uniform"]
EstimatorsKept = Literal["paper", "one"]


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
        policy: how agents choose.
        budgets: one an agent; empty where nothing private leaves.
        teams: who works together, a partition of the agents; no team can touch another.
        topology: the graph; None with a controller.
        trust: who adds the noise.
        records_per_person: how many records of one person the noise covers.
    """

    environment: Environment
    agents: int
    horizon: int
    runs: int
    seed: int
    mode: Mode
    baseline: Baseline | None
    alpha: float
    policy: Policy
    budgets: tuple[Budget, ...]
    teams: tuple[Team, ...]
    topology: Topology | None = None
    trust: Trust = NOBODY
    records_per_person: int = 1

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
    def exploration(self) -> float:
        """What compiled kernels scale the bonus by; they play the optimistic policy alone."""
        assert isinstance(self.policy, Optimistic)
        return self.policy.exploration

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
    trust: Trust = NOBODY,
    topology: Topology | None = None,
    estimators: EstimatorsKept = "paper",
    tuning: Tuning = EVERYTHING,
    records_per_person: int = 1,
    policy: str | Policy = "optimistic",
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
    if mode == "paper":
        trust.refuse("paper mode", "trust", trust.name)
    if require_integer("records_per_person", records_per_person, at_least=1) > 1 and mode == "paper":
        raise ConfigurationError(
            "records_per_person", records_per_person, "1 in paper mode: its noise is printed for one record"
        )
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
        records_per_person=records_per_person,
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
        policy=parse_policy(policy, exploration=exploration),
        budgets=tuple(budgets) if baseline is None else (),
        teams=plan_teams,
        topology=topology,
        trust=trust if baseline is None else NOBODY,
        records_per_person=records_per_person,
    )


def _require_graph_settings(
    topology: Topology | None, estimators: EstimatorsKept, *, agents: int, mode: Mode, trust: Trust
) -> None:
    if estimators not in get_args(EstimatorsKept):
        raise ConfigurationError("estimators", estimators, "paper or one")
    if topology is None:
        if estimators == "one":
            raise ConfigurationError("estimators", estimators, "a topology beside it")
        return
    if topology.agents != agents:
        raise ConfigurationError(
            "agents", agents, f"nothing, or {topology.agents} as in the topology {topology.name}"
        )
    trust.refuse("topology", "trust", trust.name)
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
    estimators: EstimatorsKept,
    tuning: Tuning,
    records_per_person: int,
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
        if uses == 0:
            raise ConfigurationError("horizon", horizon, f"at least the time-to-live, {groups}")
        if rounds and not own_rounds:
            expected = f"at least one release in rounds of each of {groups} estimators, up to round {horizon}"
            raise ConfigurationError("schedule", f"{len(rounds)} rounds up to {horizon}", expected)
        own_budgets = None if baseline else tuple(budgets[agent] for agent in clique)
        key = (len(clique), own_budgets, uses, own_rounds)
        if key not in made and paper:
            assert own_budgets is not None
            made[key] = paper_estimator(
                problem,
                uses,
                schedule,
                own_rounds,
                budgets=own_budgets,
                alpha=alpha / groups,  # §4.3, "Decentralized Protocol": a further log γ
                decentralised=topology is not None,
            )
        elif key not in made:
            made[key] = calibrated_estimator(
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
                records=records_per_person,
            )
        return made[key]

    return tuple(
        Team(clique, tuple(estimator(clique, group) for group in range(groups))) for clique in cliques
    )
