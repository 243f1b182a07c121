"""Agents on a graph: as if every message were sent, private at the source, and covered by the bound."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import feducb
from feducb.audit.invariance import GRAPH, check_graph
from feducb.errors import ConfigurationError
from feducb.models.confidence import PaperBound, error_ratio
from feducb.models.play import OwnDataPlay
from feducb.models.theory import Spread, default_threshold
from feducb.privacy.printed import printed_constants
from feducb.protocol.federation import Federation
from feducb.protocol.graphs import parse_topology
from feducb.protocol.peers import envelope_size
from feducb.protocol.schedules import Determinant, EveryRound, parse_schedule
from feducb.simulation.peer_to_peer import play
from feducb.simulation.plan import Plan, make_plan, rounds_of_group
from feducb.simulation.reference import Step
from feducb.simulation.runner import run_plan
from feducb.simulation.shortcuts import RunOptions

SMALL: dict[str, Any] = {"dim": 3, "arms": 9, "horizon": 160, "runs": 1, "seed": 5}


def _plan(topology: str | None, ttl: int = 1, *, agents: int | None = None, **changes: Any) -> Plan:
    graph = None if topology is None else parse_topology(topology, ttl=ttl)
    agents = agents or (graph.agents if graph else 1)
    world = feducb.PaperEnvironment(problem=feducb.Problem(dim=3), arms=changes.pop("arms", 9))
    budget = feducb.Budget(epsilon=changes.pop("epsilon", 30.0), delta=1e-6)
    lasts = {name: changes.pop(name, usual) for name, usual in (("horizon", 160), ("runs", 1), ("seed", 5))}
    changes = {"schedule": parse_schedule("geometric", releases=24, first_release=6)} | changes
    federation = Federation(problem=world.problem, agents=agents, budget=budget, topology=graph, **changes)
    return make_plan(federation, world, **lasts)


def _decisions(plan: Plan) -> tuple[np.ndarray, feducb.SimulationResult]:
    """(agents, T), as the reference plays."""
    steps: dict[int, list[np.ndarray]] = {}

    def look(step: Step) -> None:
        for position, agent in enumerate(step.team.agents):
            steps.setdefault(agent, []).append(step.chosen.index[0, position])

    result = run_plan(plan, {}, RunOptions(observer=look))
    return np.array([np.concatenate(steps[agent]) for agent in range(plan.agents)]), result


@pytest.mark.parametrize("changes", [{}, {"baseline": "no-privacy"}], ids=["same noise", "no noise"])
def test_a_complete_graph_decides_as_a_controller_whose_sums_arrive_a_round_later(
    changes: dict[str, Any],
) -> None:
    # A sum released after acting in round t is used from round t + 1 on, with a controller as without one.
    central, _ = _decisions(_plan(None, agents=6, **changes))
    graph = _plan("complete:6", **changes)
    sent = play(graph)
    np.testing.assert_array_equal(sent.index, central)
    np.testing.assert_array_equal(_decisions(graph)[0], central)
    assert len(np.unique(central[:, 10:])) > 1
    assert sent.versions[:, -1].tolist() == [23] * 6  # the last release, at the horizon, is never used


PAPER: dict[str, Any] = {"mode": "paper", "epsilon": 1e4, "schedule": Determinant(20.0)}


@pytest.mark.parametrize(
    ("topology", "ttl", "changes"),
    [
        ("ring:8", 2, {}),
        ("grid:3x3", 3, {"epsilon": 100.0}),
        ("line:7", 3, {"baseline": "no-privacy"}),
        ("star:6", 2, {"estimators": "one", "epsilon": 50.0}),
        ("ring:9", 4, {"estimators": "one", "baseline": "no-privacy"}),
        ("ring:18", 9, {"estimators": "one", "baseline": "no-privacy", "schedule": EveryRound()}),
        ("ring:8", 2, PAPER),
        ("line:5", 1, PAPER),
        ("tree:2:2", 3, PAPER | {"schedule": Determinant(8.0)}),
        ("ring:7", 3, {"mode": "paper", "epsilon": 1e4}),
    ],
)
def test_the_simulation_decides_as_if_every_message_were_sent(
    topology: str, ttl: int, changes: dict[str, Any]
) -> None:
    plan = _plan(topology, ttl, **changes)
    sent = play(plan)
    decided, result = _decisions(plan)
    np.testing.assert_array_equal(decided, sent.index)
    made = [len(sent.releases[agent]) for agent in range(plan.agents)]
    assert result.releases == pytest.approx(np.mean(made))
    # What starts to travel at the very end arrives after the horizon; the count has all of it.
    late = max((at for some in sent.releases.values() for at, _ in some), default=0) + ttl > plan.horizon
    assert result.messages == sent.messages or (late and result.messages > sent.messages)
    assert result.bytes == result.messages * envelope_size() + (result.messages - sent.requests) * (40 + 72)


def test_lost_repeated_and_late_messages_leave_decisions_to_older_whole_versions() -> None:
    plan = _plan("ring:8", 2, horizon=400, schedule=parse_schedule("periodic:10"))
    draws = np.random.default_rng(3)

    def bad_link(now: int, sender: int, receiver: int) -> tuple[int, ...]:
        if now > 300:
            return (1,)
        return tuple(int(draws.integers(1, 4)) for _ in range(2 if draws.random() < 0.2 else 1)) * bool(
            draws.random() >= 0.2
        )

    good, bad = play(plan), play(plan, link=bad_link)
    assert (bad.versions <= good.versions).all()
    for agent in range(plan.agents):
        for group in range(2):
            used = bad.versions[agent, (np.arange(1, 401) % 2) == group]
            assert (np.diff(used) >= 0).all()  # never back to an older one
    assert (bad.versions[:, :300] < good.versions[:, :300]).mean() > 0.02  # the links were bad indeed
    np.testing.assert_array_equal(bad.versions[:, 330:], good.versions[:, 330:])  # … and it healed


GRAPHS = ["ring:8", "line:8", "star:8", "grid:2x4", "erdos:8:0.4"]


def _published(topology: str, **changes: Any) -> tuple[dict[tuple[int, int], bytes], int]:
    """What every agent released, by agent and round, and the first round at which any sum was read."""
    left: dict[tuple[int, int], bytes] = {}
    read = [10**9]

    def look(step: Step) -> None:
        last = step.first_round + step.rewards.shape[2] - 1
        if step.knowledge.belief is not None:
            read[0] = min(read[0], last)
        if step.release is not None:
            for position, agent in enumerate(step.team.agents):
                parts = step.release.gram[0, position], step.release.moment[0, position]
                left[agent, last] = b"".join(part.tobytes() for part in parts)

    run_plan(_plan(topology, 2, **changes), {}, RunOptions(observer=look))
    return left, read[0]


def test_releases_are_byte_for_byte_the_same_whatever_the_graph() -> None:
    # With a single candidate records do not depend on what others tell, so that whole streams must agree.
    # Long enough that visitors do not arrive all at once.
    streams = [_published(topology, arms=1, horizon=5000)[0] for topology in GRAPHS]
    assert len(streams[0]) == 8 * len({at for _, at in streams[0]})
    assert all(stream == streams[0] for stream in streams[1:])


def test_with_a_choice_releases_agree_until_a_sum_is_read() -> None:
    found = [_published(topology, epsilon=4.0) for topology in GRAPHS]
    until = min(read for _, read in found)
    early = [{key: data for key, data in left.items() if key[1] <= until} for left, _ in found]
    assert len(early[0]) > 16
    assert all(one == early[0] for one in early[1:])
    assert found[0][0] != found[2][0]  # afterwards other cliques learn other things, and act on them


def _worst_ratios(runs: int, **setting: Any) -> np.ndarray:
    """For each run, the largest part of the bound that the error used up, in any clique at any time."""
    seen, blocks = list[Any]([None]), dict[tuple[int, ...], list[np.ndarray]]()

    def look(step: Step) -> None:
        of_team = blocks.setdefault(step.team.agents, [])
        if step.first_round == 1:
            of_team.append(np.zeros(len(step.theta)))
        if step.knowledge.belief is not None and step.knowledge.belief is not seen[-1]:
            seen.append(step.knowledge.belief)
            ratio = error_ratio(step.knowledge.belief, step.theta[:, None, :]).max(axis=-1)
            of_team[-1] = np.maximum(of_team[-1], ratio)

    feducb.simulate(topology="ring:8", ttl=2, runs=runs, alpha=0.1, seed=9, observer=look, **setting)
    over_all = np.max([np.concatenate(parts) for parts in blocks.values()], axis=0)
    assert len(over_all) == runs
    return np.asarray(over_all)


@pytest.mark.parametrize("estimators", ["paper", "one"])
def test_without_noise_the_bound_covers_all_cliques_and_estimators_at_once(estimators: Any) -> None:
    setting: dict[str, Any] = {"dim": 2, "arms": 6, "horizon": 100, "releases": 12, "baseline": "no-privacy"}
    ratios = _worst_ratios(160, estimators=estimators, **setting)
    assert np.mean(ratios > 1.0) < 0.1  # seeded; at a true chance of α this would be even odds
    assert np.mean(ratios > 0.4) > 0.1  # the bound scaled by 0.4 fails


@pytest.mark.parametrize("estimators", ["paper", "one"])
def test_with_noise_the_bound_covers_and_one_for_less_noise_does_not(
    estimators: Any, noise_alone: feducb.OwnEnvironment, understate_noise: Callable[[], None]
) -> None:
    setting: dict[str, Any] = {"horizon": 300, "releases": 12, "epsilon": 60.0, "delta": 0.01}
    setting |= {"environment": noise_alone, "estimators": estimators}
    assert np.mean(_worst_ratios(100, **setting) > 1.0) < 0.1
    understate_noise()
    assert np.mean(_worst_ratios(100, **setting) > 1.0) > 0.1


def test_a_record_shows_in_its_own_clique_and_estimator_alone_and_no_sooner_than_it_may() -> None:
    assert check_graph(GRAPH).passed
    assert check_graph(GRAPH | {"estimators": "one"}).passed
    assert not check_graph(
        GRAPH
        | {"mode": "paper", "epsilon": 1e6, "schedule": "determinant:30"}
        | {"releases": None, "first_release": None}
    ).passed


def test_paper_mode_has_the_clique_for_all_agents_and_a_scaled_trigger() -> None:
    plan = _plan("ring:8", 2, **(PAPER | {"schedule": Determinant()}))
    sizes = [len(team.agents) for team in plan.teams]
    assert sizes == [3, 3, 2] or sorted(sizes) == [2, 3, 3]
    for team in plan.teams:
        for estimator in team.estimators:
            size = len(team.agents)
            budget = feducb.Budget(epsilon=1e4, delta=1e-6)
            # n = T/γ = 80 releases, α/γ, |C| agents
            by_hand = printed_constants(plan.problem, budget, agents=size, releases=80, alpha=0.05)
            assert estimator.printed == (by_hand,) * size
            rule = estimator.rule
            assert isinstance(rule, OwnDataPlay)
            assert isinstance(rule.bound, PaperBound)
            assert rule.trigger is not None
            threshold = default_threshold(plan.problem, 80, Spread(by_hand.rho_min, by_hand.rho_max))
            assert rule.trigger.threshold == pytest.approx(threshold / (1 + 1.0**2))
            assert rule.trigger.offset == pytest.approx(size * (by_hand.rho_max - by_hand.rho_min))
            assert rule.prior == pytest.approx(size * by_hand.rho_min)
            assert (rule.bound.agents, rule.bound.releases) == (size, 80)


def test_paper_mode_over_bad_links_drops_own_records_only_with_their_release() -> None:
    plan = _plan("ring:8", 2, **(PAPER | {"horizon": 300}))
    draws = np.random.default_rng(7)
    # 15 % of messages are lost: decisions go on, and nobody asks for more releases than rounds allow.
    bad = play(plan, link=lambda now, sender, receiver: (1,) if draws.random() > 0.15 else ())
    assert (bad.index >= 0).all()
    assert all(len(made) <= 300 // 2 + 1 for made in bad.releases.values())
    for made in bad.releases.values():
        rounds = [at for at, _ in made]
        assert rounds == sorted(set(rounds))


def test_each_estimator_releases_in_its_own_rounds_as_soon_as_the_schedule_says() -> None:
    assert rounds_of_group((8, 9, 10, 20, 31, 40), 0, 3, 40) == (9, 12, 21, 33)
    assert rounds_of_group((8, 9, 10, 20, 31, 40), 1, 3, 40) == (10, 22, 31, 40)
    assert rounds_of_group((8, 9, 10, 20, 31, 40), 0, 1, 40) == (8, 9, 10, 20, 31, 40)
    with pytest.raises(ConfigurationError, match="at least one release in rounds of each of 3 estimators"):
        feducb.simulate(topology="ring:6", ttl=3, horizon=20, schedule="explicit:20", runs=1)


def test_the_json_describes_graph_cliques_and_their_regret() -> None:
    result = feducb.simulate(topology="ring:16", ttl=2, **(SMALL | {"runs": 3}))
    data = json.loads(result.to_json())
    graph = data["topology"]
    assert {key: graph[key] for key in ("agents", "diameter", "ttl", "cliques")} == {
        "agents": 16,
        "diameter": 8,
        "ttl": 2,
        "cliques": 6,
    }
    sizes = graph["clique_sizes"]
    assert sum(sizes) == 16
    mean = sum(size * one["mean"] for size, one in zip(sizes, graph["clique_regret"], strict=True)) / 16
    assert mean == pytest.approx(data["per_agent_regret"]["mean"])
    assert all(one["stderr"] > 0 for one in graph["clique_regret"])
    assert data["privacy"]["estimators"] == 2
    # two neighbours hear a release first, and each passes it on to one more
    assert data["messages"] == 16 * 4 * data["releases"]
    assert data["bytes"] == data["messages"] * (envelope_size() + 40 + 8 * 9)
    assert "topology" not in json.loads(feducb.simulate(agents=2, **SMALL).to_json())


def test_paper_mode_on_a_graph_sets_theorem_2_beside_the_measurement() -> None:
    result = feducb.simulate(topology="ring:8", ttl=2, mode="paper", **SMALL)
    assert result.theory is not None
    assert result.theory["group_regret"] == pytest.approx(8 * result.mean)
    assert result.theory["group_regret"] <= result.theory["regret_bound_theorem_2"]
    assert math.isfinite(result.theory["radius"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"topology": "ring:6", "ttl": 4}, "at most 3"),
        ({"ttl": 2}, "a topology beside it"),
        ({"topology": "ring:6", "agents": 5}, "nothing, or 6"),
        ({"topology": "ring:6", "trust": "controller"}, "there is no controller"),
        ({"estimators": "one"}, "a topology beside it"),
        ({"topology": "ring:6", "estimators": "many"}, "paper or one"),
        ({"topology": "ring:6", "estimators": "one", "mode": "paper"}, "calibrated"),
        ({"topology": "ring:6", "schedule": "determinant"}, "reads no private data"),
    ],
)
def test_settings_that_do_not_go_together_say_so(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        feducb.simulate(**(SMALL | setting))
