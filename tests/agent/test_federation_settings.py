"""What follows from everybody's budgets, from the graph and from the quorum, before anything is sent."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.agent import Agent, AgentSettings
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.models import LINEAR
from feducb.models.mixture import MixtureBound
from feducb.models.play import ReleasedPlay
from feducb.privacy.statement import statement
from feducb.protocol import messages
from feducb.protocol.federation import EVERYTHING, Federation
from feducb.protocol.graphs import Topology, parse_topology
from feducb.protocol.schedules import Periodic
from feducb.simulation.plan import Plan, make_plan
from feducb.trust import CONTROLLER, NOBODY
from feducb.worlds.synthetic import PaperEnvironment

ACTIONS = np.eye(4)
DECISIONS, RELEASES, ALPHA = 1_000, 20, 0.2
BUDGETS = {
    "a": Budget(epsilon=0.5, delta=1e-6),
    "b": Budget(epsilon=2.0, delta=1e-7),
    "c": Budget(epsilon=8.0, delta=1e-6),
}
SETTINGS = AgentSettings(
    name="a",
    problem=Problem(dim=4),
    budget=BUDGETS["a"],
    agents=3,
    decisions=DECISIONS,
    releases=RELEASES,
    schedule="periodic",
    season=3600.0,
    window=60.0,
    start=0.0,
    alpha=ALPHA,
)


def _of(name: str, **changes: object) -> AgentSettings:
    return replace(SETTINGS, name=name, budget=BUDGETS[name], budgets=BUDGETS, **changes)  # type: ignore[arg-type]


def _plan(topology: Topology | None, budgets: list[Budget], estimators: str = "paper") -> Plan:
    federation = Federation(
        problem=SETTINGS.problem,
        agents=len(budgets),
        budget=budgets,
        alpha=ALPHA,
        schedule=Periodic(releases=RELEASES),
        topology=topology,
        estimators=estimators,  # type: ignore[arg-type]
    )
    world = PaperEnvironment(problem=SETTINGS.problem, arms=5)
    return make_plan(federation, world, horizon=DECISIONS, runs=1, seed=0)


def _on(topology: Topology, agent: int, settings: AgentSettings = SETTINGS) -> AgentSettings:
    return replace(
        settings,
        agents=topology.agents,
        clique=tuple(topology.labels[member] for member in topology.members(agent)),
        cliques=len(topology.cliques),
    )


def test_with_budgets_of_their_own_agents_agree_on_everything_but_the_noise() -> None:
    everybody = [_of(name) for name in BUDGETS]
    alone = [replace(one, budgets={}).terms.quiet for one in everybody]
    assert len(set(alone)) > 1  # what each would have derived from its own budget
    (team,) = _plan(None, list(BUDGETS.values())).teams
    (estimator,) = team.estimators
    for one in everybody:
        assert estimator.privatizer is not None
        assert one.terms.quiet == estimator.privatizer.mechanism.quiet  # type: ignore[attr-defined]
        assert one.estimator.rule == estimator.rule
        assert one.terms_of_all == everybody[0].terms_of_all
        assert one.terms_of_all[one.name] == one.terms
    assert replace(SETTINGS, budgets=dict.fromkeys("abc", SETTINGS.budget)).rule == SETTINGS.rule


def test_settings_on_a_graph_are_those_of_the_simulated_plan() -> None:
    topology = parse_topology("line:5", ttl=2)
    assert [len(clique) for clique in topology.cliques] == [3, 2]
    budget = SETTINGS.budget
    generous = Budget(epsilon=1.0, delta=1e-6)
    for each in (budget, generous):
        plan = _plan(topology, [each] * 5, "one")
        for team in plan.teams:
            (estimator,) = team.estimators
            for agent in team.agents:
                told = _on(topology, agent, replace(SETTINGS, budget=each))
                assert told.estimator.rule == estimator.rule  # first release to read, radius, ρ and α
    small, large = (_on(topology, agent, replace(SETTINGS, budget=generous)).rule for agent in (4, 0))
    everybody = replace(SETTINGS, agents=5, budget=generous).rule
    assert everybody.first < large.first < small.first <= RELEASES


def test_on_a_graph_alpha_is_shared_by_all_cliques_and_estimators() -> None:
    topology = parse_topology("line:5", ttl=2)
    told = _on(topology, 0, replace(SETTINGS, groups=2)).rule
    (planned, _) = _plan(topology, [SETTINGS.budget] * 5).teams[0].estimators
    assert isinstance(planned.rule, ReleasedPlay)
    for first, bound, releases in (
        (told.first, told.bound, RELEASES),
        (planned.rule.first, planned.rule.bound, len(planned.release_rounds)),
    ):
        assert isinstance(bound, MixtureBound)
        read, share = max(1, releases - first + 1), EVERYTHING.shares[1] * ALPHA / 4
        assert bound.gram_radius == pytest.approx(LINEAR.gram_radius(4, read, share), rel=1e-12)


def test_budgets_of_their_own_on_a_graph_are_those_of_the_simulated_plan() -> None:
    topology = replace(parse_topology("line:3", ttl=1), labels=("a", "b", "c"))
    plan = _plan(topology, list(BUDGETS.values()), "one")
    for number, name in enumerate(topology.labels):
        told = _on(topology, number, _of(name))
        planned = plan.teams[topology.clique_of[number]].estimators[0]
        assert told.estimator.rule == planned.rule


def test_what_an_agent_releases_does_not_depend_on_the_graph() -> None:
    graphs = [
        parse_topology(text, ttl=ttl) for text, ttl in (("line:5", 1), ("line:5", 2), ("complete:5", 1))
    ]
    for settings in (SETTINGS, replace(SETTINGS, groups=2)):
        terms = {_on(graph, agent, settings).terms for graph in graphs for agent in range(5)}
        assert terms == {replace(settings, agents=5).terms}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"budgets": {"a": BUDGETS["a"]}}, "budgets is 'a', expected a budget for each of 3 agents"),
        ({"name": "d"}, "budgets is 'a, b, c', expected one for this agent, d, too"),
        ({"budget": BUDGETS["b"]}, r"budgets\.a is .* expected .* as in \[privacy\]"),
        ({"trust": "controller"}, "none: a trusted controller has one budget"),
        ({"clique": ("a", "z"), "cliques": 2}, "clique is 'a, z', expected agents that have a budget"),
        ({"clique": ("a", "a"), "cliques": 2}, "clique"),
        ({"clique": ("a", "b")}, "cliques is 1, expected"),
        ({"clique": ("a", "b"), "cliques": 2, "quorum": 2}, "quorum is 2, expected none on a graph"),
        ({"clique": ("a",), "cliques": 3, "trust": "controller", "budgets": {}}, "trust"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        replace(_of("a"), **changes)  # type: ignore[arg-type]


def test_budgets_and_clique_are_kept_in_the_file_and_budgets_stay_for_a_season(tmp_path: Path) -> None:
    told = _of("a", clique=("a", "b"), cliques=2)
    assert AgentSettings.from_json(told.to_json()) == told
    Agent.open(tmp_path / "agent.db", told).close()
    with Agent.open(tmp_path / "agent.db") as agent:
        assert agent.settings == told
        agent.decide(ACTIONS)
    others = {**BUDGETS, "b": Budget(epsilon=2.001, delta=1e-7)}
    with pytest.raises(ConfigurationError, match=r"budgets is .* until a new season opens"):
        Agent.open(tmp_path / "agent.db", replace(told, budgets=others))


def test_the_place_on_a_graph_stays_for_a_season_once_it_is_known(tmp_path: Path) -> None:
    """It decides how sums are read. `init` opens the file before there is a roster."""
    path, first = tmp_path / "agent.db", _of("a", clique=(), cliques=1)
    with Agent.open(path, first) as agent:
        agent.decide(ACTIONS)
    placed = replace(first, clique=("a", "b"), cliques=2)
    Agent.open(path, placed).close()
    for changes in ({"clique": ("a", "c")}, {"clique": (), "cliques": 1}):
        with pytest.raises(ConfigurationError, match=r"clique is .* until a new season opens"):
            Agent.open(path, replace(placed, **changes))
    with Agent.open(path, placed) as agent:
        assert agent.settings.clique == ("a", "b")


def test_with_budgets_of_their_own_the_statement_says_what_they_cost_together() -> None:
    """√(Σ μ_i²) over this agent and the others of largest μ; √2 times its own μ would be too little."""
    told = _of("a")
    mus = {name: terms.certificate().mu for name, terms in told.terms_of_all.items()}
    others = [budget for name, budget in told.budgets.items() if name != "a"]
    said = statement(told.terms, others=others)["several_agents"]
    most = max(mu for name, mu in mus.items() if name != "a")
    assert f"at 2 agents up to μ = {math.hypot(mus['a'], most):.6g}" in said
    assert f"at {len(mus)} agents up to μ = {math.hypot(*mus.values()):.6g}" in said


def _agents(folder: Path, count: int, settings: AgentSettings) -> list[Agent]:
    return [
        Agent.open(folder / f"{number}.db", replace(settings, name=f"n{number}", agents=count))
        for number in range(count)
    ]


GENEROUS = replace(SETTINGS, budget=Budget(epsilon=1e4, delta=1e-3), decisions=1_000_000, start=0.0)


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, {4}),
        ({"quorum": 3}, {3, 4}),
        ({"quorum": 1}, {1, 2, 3, 4}),
        ({"clique": ("n0", "n2"), "cliques": 2}, {2}),
    ],
)
def test_a_sum_below_the_quorum_is_refused_and_counted(
    tmp_path: Path, changes: dict[str, object], fits: set[int]
) -> None:
    agents = _agents(tmp_path, 4, GENEROUS)
    settings = replace(agents[0].settings, **changes)  # type: ignore[arg-type]
    releases = [[messages.decode(agent.store.release()) for agent in agents] for _ in range(4)]
    for agent in agents:
        agent.close()
    agent, refused = Agent.open(tmp_path / "reader.db", settings), 0
    for size, parts in enumerate(releases, start=1):
        before = agent.snapshot()["model"]
        total = messages.combine(parts[:size])
        if size in fits:
            assert agent.absorb(total)
            assert agent.snapshot()["agents_in_sum"] == [size]
            continue
        refused += 1
        with pytest.raises(ValueError, match=f"sum {size} is over {size} agents?, expected"):
            agent.absorb(total)
        assert agent.snapshot()["model"] == before
        assert agent.snapshot()["counts"]["refused_sums"] == refused
    agent.close()
    with Agent.open(tmp_path / "reader.db", settings) as agent:
        assert agent.snapshot()["counts"]["refused_sums"] == refused
        assert agent.snapshot()["counts"]["sums"] == len(fits)


def test_a_trusted_controllers_sum_needs_the_quorum_too(tmp_path: Path) -> None:
    """It counts as one release; how many handed records over is said beside it."""
    told = replace(GENEROUS, trust=CONTROLLER, agents=3, quorum=2, agents_per_person=1)
    total = messages.decode(_release(tmp_path, replace(told, trust=NOBODY)))
    with Agent.open(tmp_path / "agent.db", told) as agent:
        for inside in (None, 1, 4):
            with pytest.raises(ValueError, match="sum 1 "):
                agent.absorb(total, agents=inside)
        assert agent.absorb(total, agents=2)
        assert agent.snapshot()["counts"]["refused_sums"] == 3


def _release(folder: Path, settings: AgentSettings) -> bytes:
    with Agent.open(folder / "other.db", settings) as agent:
        return agent.store.release()


def test_a_place_on_a_graph_does_not_come_after_a_sum_that_was_read_without_it(tmp_path: Path) -> None:
    settings = replace(GENEROUS, agents=1)
    with Agent.open(tmp_path / "agent.db", settings) as agent:
        assert agent.absorb(messages.decode(_release(tmp_path, settings)))
    with pytest.raises(ConfigurationError, match=r"clique is .* until a new season opens"):
        Agent.open(tmp_path / "agent.db", replace(settings, clique=("a",)))


def test_a_quorum_cannot_be_lowered_to_let_a_sum_in(tmp_path: Path) -> None:
    settings = replace(GENEROUS, agents=2)
    with Agent.open(tmp_path / "agent.db", settings) as agent:
        agent.decide(ACTIONS)
    with pytest.raises(ConfigurationError, match="quorum is 1, expected None until a new season opens"):
        Agent.open(tmp_path / "agent.db", replace(settings, quorum=1))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"releases": 10**9}, "releases is 1000000000, expected at most 100000 in a season"),
        ({"problem": Problem(dim=100_000)}, "dim is 100000, expected at most 2000: a release has"),
        ({"policy": "optimistic", "exploration": 1e39}, "exploration is 1e.39, expected at most 1e.06"),
    ],
)
def test_what_no_machine_could_hold_is_refused_at_once(change: dict[str, Any], reason: str) -> None:
    plain: dict[str, Any] = {"problem": Problem(dim=2), "budget": Budget(epsilon=1.0, delta=1e-6)}
    with pytest.raises(ConfigurationError, match=reason):
        AgentSettings(**plain | change)
