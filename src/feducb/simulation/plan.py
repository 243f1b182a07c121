"""From settings to a plan: everything a backend needs to know, resolved and checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from feducb.config import Budget, Problem, require_finite, require_integer
from feducb.errors import ConfigurationError
from feducb.models.linear import Linear
from feducb.models.play import AlonePlay, OwnDataPlay, UniformPlay
from feducb.policies import Optimistic, Tempered
from feducb.protocol.closing import after_history, own_estimator
from feducb.protocol.estimators import (
    Estimator,
    alone_estimator,
    calibrated_estimator,
    paper_estimator,
    plan_rounds,
)
from feducb.protocol.federation import Federation
from feducb.protocol.graphs import Topology
from feducb.protocol.recall import Seasons
from feducb.protocol.schedules import Determinant, Explicit, Planned
from feducb.trust import NOBODY, Keepers, Trust
from feducb.worlds.world import Environment

__all__ = ["ONE_SEASON", "Plan", "Team", "make_plan", "rounds_of_group"]

ONE_SEASON = Seasons()


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
        federation: who plays, and how.
        environment: the world.
        horizon: rounds that are played: T, and the history before them.
        runs: independent repetitions.
        seed: of all random streams.
        teams: who works together, a partition of the agents; no team can touch another.
        absence: the chance that an agent misses a row, where rows are summed (`absences`).
        history: how many of the first rounds were before: all draw uniformly, and they cost no regret.
        seasons: how many there are in the horizon, and what is remembered; estimators are those of one.
    """

    federation: Federation
    environment: Environment
    horizon: int
    runs: int
    seed: int
    teams: tuple[Team, ...]
    absence: float = 0.0
    history: int = 0
    seasons: Seasons = ONE_SEASON

    @property
    def season_rounds(self) -> int:
        """How many rounds a season has."""
        return self.horizon // self.seasons.count

    @property
    def agents(self) -> int:
        """M, how many play."""
        return self.federation.agents

    @property
    def topology(self) -> Topology | None:
        """The graph; None with a controller."""
        return self.federation.topology

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """One per agent; empty where nothing private leaves."""
        return self.federation.budgets if self.federation.baseline is None else ()

    @property
    def trust(self) -> Trust:
        """Who adds the noise; where nothing private leaves, nobody needs to be trusted."""
        return self.federation.trust if self.federation.baseline is None else NOBODY

    @property
    def determinant(self) -> bool:
        """Whether private data decide when to synchronise."""
        rule = self.teams[0].estimators[0].rule
        return isinstance(rule, OwnDataPlay) and rule.trigger is not None

    @property
    def runs_differ(self) -> bool:
        """Whether each run has rounds of its own at which agents learn, so that it is played by itself."""
        return self.determinant or self.absence > 0.0

    @property
    def problem(self) -> Problem:
        """The public bounds on actions, rewards and θ*."""
        return self.environment.problem

    @property
    def exploration(self) -> float:
        """What compiled kernels scale the bonus by; they play `Optimistic` and `Tempered` alone."""
        policy = self.federation.policy
        assert isinstance(policy, Optimistic | Tempered)
        return policy.exploration if isinstance(policy, Optimistic) else 1.0

    @property
    def full(self) -> float:
        """With which chance compiled kernels play the whole bonus; else a coin scales it (`Tempered`)."""
        policy = self.federation.policy
        assert isinstance(policy, Optimistic | Tempered)
        return policy.full if isinstance(policy, Tempered) else 1.0

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
    federation: Federation,
    environment: Environment,
    *,
    horizon: int,
    runs: int,
    seed: int,
    absence: float = 0.0,
    history: int = 0,
    seasons: Seasons = ONE_SEASON,
) -> Plan:
    """Derive noise, bounds and release rounds of a federation in a world.

    The horizon is T, without the history.

    Raises:
        ConfigurationError: the world is another problem than the federation's, the horizon leaves no room,
            nobody can be absent, or there can be no history.
    """
    require_integer("horizon", horizon, at_least=1)
    require_integer("runs", runs, at_least=1)
    require_integer("seed", seed, at_least=0)
    if environment.problem != federation.problem:
        raise ConfigurationError("world", environment.problem, f"{federation.problem}, as in the federation")
    if federation.mode == "paper" and type(federation.model) is not Linear:
        expected = "linear in paper mode, where agents act on their own records"
        raise ConfigurationError("model", federation.model.name, expected)
    if not seasons.plain and (absence or history):
        raise ConfigurationError("seasons", seasons.count, "1, and no half-life, with absences or a history")
    federation, horizon = _after_history(federation, horizon, history), history + horizon
    _require_seasons(federation, seasons, horizon)
    teams = _plan_teams(federation, horizon // seasons.count, history)
    lasts = {"horizon": horizon, "runs": runs, "seed": seed, "history": history}
    plan = Plan(
        federation=federation, environment=environment, teams=teams, absence=absence, seasons=seasons, **lasts
    )
    _require_absence(plan)
    return plan


def _require_seasons(federation: Federation, seasons: Seasons, horizon: int) -> None:
    """Several seasons, and fading, are played with a controller, by released sums."""
    if seasons.plain:
        return
    if horizon % seasons.count:
        raise ConfigurationError("seasons", seasons.count, f"a number that divides the horizon, {horizon}")
    calibrated = federation.mode == "calibrated" and federation.play == "released"
    if federation.topology is not None or not calibrated:
        where = "on a graph, in paper mode and under own play"
        if seasons.count == 1:
            raise ConfigurationError("half_life", seasons.half_life, f"nothing {where}")
        raise ConfigurationError("seasons", seasons.count, f"1 {where}")


def _require_absence(plan: Plan) -> None:
    """Agents can miss a row only where rows are summed, and each release has one."""
    if require_finite("absence", plan.absence, at_least=0) >= 1.0:
        raise ConfigurationError("absence", plan.absence, "a number of at least 0 and below 1")
    if not plan.absence:
        return
    expected = None
    if not isinstance(plan.trust, Keepers):
        expected = "0 unless the trust is keepers: only there a sum opens without those who are away"
    elif plan.federation.play == "own":
        expected = "0 under own play: the sum at the close is everybody's"
    elif plan.topology is not None:
        expected = "0 on a graph: a clique moves only when the rows of all its members are there"
    elif (way_out := plan.estimators[0].privatizer) is not None:
        mechanism = way_out.mechanism
        if any(mechanism.rows(number) != 1 for number in range(1, mechanism.releases + 1)):
            expected = f"0 with the mechanism {mechanism.name}, which publishes several rows at once"
    if expected is not None:
        raise ConfigurationError("absence", plan.absence, expected)


def _after_history(federation: Federation, horizon: int, history: int) -> Federation:
    """The same with a schedule whose first release is not before the end of the history.

    A planned one begins there, or later where that is not worth reading yet; under own play a long history
    is one release alone. The rounds of any other are counted from there, and it has one there.
    """
    if not require_integer("history", history, at_least=0):
        return federation
    schedule, baseline, everybody = federation.schedule, federation.baseline, range(federation.agents)
    if federation.topology is not None:
        raise ConfigurationError("history", history, "0 on a graph")
    if federation.mode == "paper":
        raise ConfigurationError("history", history, "0 in paper mode, where all act from the first round on")
    if baseline in ("alone", "uniform"):  # nothing is released
        return federation
    assert not isinstance(schedule, Determinant)
    if not isinstance(schedule, Planned):
        rounds = tuple(history + at for at in (0, *schedule.rounds(horizon)))
    elif federation.play == "own" and baseline is None:
        rounds = after_history(federation, everybody, horizon, history)
        if not rounds:  # stays alone, as it would without
            return federation
    else:
        rounds = plan_rounds(federation, everybody, history + horizon, alpha=federation.alpha)
        if rounds[0] < history:
            rounds = (history, *(at for at in rounds if at > history))
    return replace(federation, schedule=Explicit(rounds))


def _plan_teams(federation: Federation, horizon: int, history: int) -> tuple[Team, ...]:
    """Everybody in one team, or a team per clique with γ estimators (or one), each at its share of α."""
    everybody = tuple(range(federation.agents))
    if federation.baseline == "uniform":
        return (Team(everybody, (Estimator(rule=UniformPlay()),)),)
    if federation.baseline == "alone":
        alone = alone_estimator(federation, horizon - history, alpha=federation.alpha)
        assert isinstance(alone.rule, AlonePlay)
        rule = replace(alone.rule, first=max(alone.rule.first, history))
        return (Team(everybody, (replace(alone, rule=rule),)),)
    if federation.play == "own" and federation.baseline is None:
        own = own_estimator(federation, horizon, everybody)
        if isinstance(own.rule, AlonePlay):  # all of the history was drawn uniformly
            own = replace(own, rule=replace(own.rule, first=max(own.rule.first, history)))
        return (Team(everybody, (own,)),)
    cliques, groups, budgets = federation.cliques, federation.groups, federation.budgets
    rounds: tuple[int, ...] = ()
    if not isinstance(federation.schedule, Determinant):
        share = federation.alpha / (groups * len(cliques))
        largest = max(cliques, key=len)
        rounds = plan_rounds(federation, largest, horizon, alpha=share, groups=groups)
    made: dict[tuple[object, ...], Estimator] = {}  # cliques that are alike share theirs

    def estimator(clique: tuple[int, ...], group: int) -> Estimator:
        own_rounds = rounds_of_group(rounds, group, groups, horizon)
        uses = len(range(group or groups, horizon + 1, groups))
        if uses == 0:
            raise ConfigurationError("horizon", horizon, f"at least the time-to-live, {groups}")
        if rounds and not own_rounds:
            expected = f"at least one release in rounds of each of {groups} estimators, up to round {horizon}"
            raise ConfigurationError("schedule", f"{len(rounds)} rounds up to {horizon}", expected)
        own_budgets = None if federation.baseline else tuple(budgets[agent] for agent in clique)
        key = (len(clique), own_budgets, uses, own_rounds)
        if key not in made and federation.mode == "paper":
            share = federation.alpha / groups  # §4.3, "Decentralized Protocol": a further log γ
            made[key] = paper_estimator(federation, own_rounds, clique, alpha=share, horizon=uses)
        elif key not in made:
            share = federation.alpha / (groups * len(cliques))
            made[key] = calibrated_estimator(federation, own_rounds, clique, alpha=share)
        return made[key]

    return tuple(
        Team(clique, tuple(estimator(clique, group) for group in range(groups))) for clique in cliques
    )
