"""A federation is checked when it is made, compares by value, and is the same by words and by objects."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from feducb import (
    Budget,
    ConfigurationError,
    Determinant,
    Federation,
    Geometric,
    Periodic,
    Problem,
)
from feducb.models.mixture import MixtureBound
from feducb.models.play import AlonePlay
from feducb.policies import Greedy, Optimistic, Tempered
from feducb.protocol.estimators import alone_estimator
from feducb.protocol.graphs import parse_topology
from feducb.trust import CONTROLLER

PROBLEM, ONE, TWO = Problem(dim=3), Budget(epsilon=1.0, delta=1e-6), Budget(epsilon=2.0, delta=1e-6)
RING = parse_topology("ring:4", ttl=2)


def _made(**changes: Any) -> Federation:
    settings: dict[str, Any] = {"problem": PROBLEM, "agents": 4}
    return Federation(**(settings | changes))


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"problem": 3}, "problem is 3"),
        ({"agents": 0}, "agents is 0"),
        ({"agents": 2.5}, "agents is 2.5"),
        ({"budget": [ONE]}, "budgets is '1 budgets', expected one for each of 4 agents"),
        ({"budget": [ONE, ONE, ONE, 1.0]}, "budgets is 1.0"),
        ({"records_per_person": 0}, "records_per_person is 0"),
        ({"trust": "everybody"}, "trust is 'everybody'"),
        ({"mechanism": "bush"}, "mechanism is 'bush'"),
        ({"mode": "papper"}, "mode is 'papper'"),
        ({"baseline": "lonely"}, "baseline is 'lonely'"),
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"policy": "bold"}, "policy is 'bold'"),
        ({"regularizer": 0.0}, "regularizer is 0.0"),
        ({"schedule": Determinant()}, "schedule is 'determinant'"),
        ({"schedule": Determinant(), "baseline": "no-privacy"}, "schedule is 'determinant'"),
        ({"estimators": "two"}, "estimators is 'two'"),
        ({"estimators": "one"}, "estimators is 'one', expected a topology"),
        ({"topology": RING, "agents": 5}, "agents is 5, expected nothing, or 4"),
        ({"topology": RING, "trust": "controller"}, "trust is 'controller', expected nobody on a topology"),
        ({"mode": "paper", "trust": "controller"}, "trust is 'controller', expected nobody in paper mode"),
        ({"mode": "paper", "records_per_person": 2}, "records_per_person is 2, expected 1 in paper mode"),
        ({"mode": "paper", "mechanism": "dense"}, "mechanism is 'dense', expected tree"),
        ({"mode": "paper", "baseline": "alone"}, "mode is 'paper', expected calibrated"),
        ({"mode": "paper", "topology": RING, "estimators": "one"}, "estimators is 'one', expected paper"),
    ],
)
def test_what_cannot_be_is_named_with_its_value(setting: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        _made(**setting)
    assert str(raised.value).startswith(named)


def test_equal_descriptions_are_equal_hash_alike_and_cannot_be_changed() -> None:
    assert _made() == _made() != _made(alpha=0.2)
    assert len({_made(topology=RING), _made(topology=RING), _made(budget=TWO)}) == 2
    assert replace(_made(alpha=0.2), alpha=0.1) == _made()
    with pytest.raises(FrozenInstanceError):
        _made().agents = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    "federation",
    [
        _made(),
        _made(topology=RING, estimators="one"),
        _made(budget=[ONE, TWO, ONE, TWO], schedule=Periodic(releases=8)),
    ],
)
def test_a_description_survives_pickling(federation: Federation) -> None:
    assert pickle.loads(pickle.dumps(federation)) == federation


def test_equal_budgets_are_one_budget_and_others_are_kept_by_agent() -> None:
    assert _made(budget=[ONE] * 4) == _made(budget=ONE)
    assert _made(budget=[ONE] * 4).budgets == (ONE,) * 4
    mixed = _made(budget=[ONE, TWO, ONE, TWO])
    assert mixed.budgets == (ONE, TWO, ONE, TWO)
    assert mixed.as_dict()["epsilon"] == [1.0, 2.0, 1.0, 2.0]
    assert _made().as_dict()["epsilon"] == 1.0


def test_a_trust_and_a_policy_may_be_given_by_name_and_are_written_as_before_there_were_objects() -> None:
    named = _made(trust="controller", policy="greedy")
    assert named == _made(trust=CONTROLLER, policy=Greedy())
    plain = named.as_dict()
    assert (plain["trust"], plain["policy"], plain["exploration"]) == ("controller", "Greedy()", None)
    plain = _made(policy=Optimistic(0.5)).as_dict()
    assert "policy" not in plain
    assert (plain["exploration"], plain["proven_bound"]) == (0.5, False)


def test_play_is_tempered_but_as_printed_in_paper_mode() -> None:
    assert _made().policy == Tempered()
    assert _made().as_dict()["proven_bound"] is True  # in expectation
    assert _made(mode="paper", schedule=Determinant()).policy == Optimistic()


def test_teams_and_estimators_follow_from_the_graph() -> None:
    assert (_made().cliques, _made().groups) == (((0, 1, 2, 3),), 1)
    graph = _made(topology=RING)
    assert (graph.cliques, graph.groups) == (RING.cliques, 2)
    assert replace(graph, estimators="one").groups == 1


def test_the_printed_trigger_is_for_paper_mode_and_for_those_who_never_release() -> None:
    assert _made(mode="paper", schedule=Determinant()).as_dict()["proven_bound"] is False
    assert _made(baseline="alone", schedule=Determinant()).schedule == Determinant()
    assert _made(schedule=Geometric(releases=9)).as_dict()["releases"] == 9


def test_how_long_an_agent_alone_waits_is_found_at_once_however_long_it_is() -> None:
    """The first round at which its records are worth reading, not one earlier, or a tenth of its season."""
    alone = _made(problem=Problem(dim=4, noise_scale=0.5, parameter_bound=0.5), baseline="alone")
    rule = alone_estimator(alone, 10**6, alpha=0.1).rule
    assert isinstance(rule, AlonePlay)
    assert isinstance(rule.bound, MixtureBound)
    axes = [rule.bound.half_axis(rounds / 4) * 1.2 for rounds in range(1, 2 * rule.first)]
    assert [axis <= 0.5 for axis in axes].index(True) + 1 == rule.first
    for noisy, season in ((1e3, 10**9), (1e6, 200)):
        problem = Problem(dim=4, noise_scale=noisy, parameter_bound=1e-6, action_bound=1e-3)
        rule = alone_estimator(replace(alone, problem=problem), season, alpha=0.1).rule
        assert isinstance(rule, AlonePlay)
        assert rule.first == season // 10


def test_an_agent_alone_waits_hardly_longer_in_many_dimensions_than_in_ten() -> None:
    waits = {}
    for dim in (5, 8, 10, 11, 15, 20, 40):
        rule = alone_estimator(_made(problem=Problem(dim=dim), baseline="alone"), 10**6, alpha=0.1).rule
        assert isinstance(rule, AlonePlay)
        waits[dim] = rule.first
    assert waits[5] < waits[8] < waits[10]  # all of what the rule asks for
    assert all(0.9 * waits[10] < waits[dim] < 1.3 * waits[10] for dim in waits if dim > 10)
