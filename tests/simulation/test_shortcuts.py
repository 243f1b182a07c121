"""`simulate(federation, world)` and its keywords are two ways to say one thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import feducb
from feducb import Budget, Determinant, Federation, Geometric, Planned, Problem
from feducb.policies import Greedy, Optimistic
from feducb.protocol.graphs import parse_topology
from feducb.trust import CONTROLLER
from feducb.worlds.synthetic import paper_world

PROBLEM, LASTING = Problem(dim=3), {"horizon": 120, "runs": 2, "seed": 4}
BUDGETS = tuple(Budget(epsilon=epsilon, delta=1e-6) for epsilon in (20.0, 30.0, 40.0, 50.0))
RING = parse_topology("ring:4", ttl=1, seed=4)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ({}, {}),
        ({"epsilon": 30.0, "trust": "controller"},
         {"budget": Budget(epsilon=30.0, delta=1e-6), "trust": CONTROLLER}),
        ({"budgets": BUDGETS, "releases": 12}, {"budget": BUDGETS, "schedule": Geometric(releases=12)}),
        ({"topology": "ring:4", "ttl": 1, "exploration": 0.5}, {"topology": RING, "policy": Optimistic(0.5)}),
        ({"policy": "greedy", "epsilon": 50.0}, {"policy": Greedy(), "budget": BUDGETS[-1]}),
        ({"baseline": "no-privacy"}, {"baseline": "no-privacy"}),
        ({"baseline": "alone"}, {"baseline": "alone"}),
        ({"baseline": "uniform"}, {"baseline": "uniform"}),
        ({"mode": "paper"}, {"mode": "paper", "schedule": Determinant()}),
    ],
)  # fmt: skip
def test_keywords_and_a_federation_give_the_same_result(words: dict[str, Any], parts: dict[str, Any]) -> None:
    by_words = feducb.simulate(agents=4, dim=3, arms=5, **LASTING, **words)  # type: ignore[arg-type]
    federation = Federation(problem=PROBLEM, agents=4, **parts)
    by_parts = feducb.simulate(federation, paper_world(PROBLEM, 5), **LASTING)  # type: ignore[arg-type]
    np.testing.assert_array_equal(by_words.regret, by_parts.regret)
    ours, theirs = by_words.as_dict(), by_parts.as_dict()
    for plain in (ours, theirs):
        for timed in ("seconds", "agent_steps_per_second"):
            del plain[timed]
        for as_written in ("schedule", "releases", "first_release"):
            del plain["config"][as_written]
    assert ours == theirs


def test_a_federation_alone_plays_in_the_papers_world() -> None:
    federation = Federation(problem=PROBLEM, agents=2)
    result = feducb.simulate(federation, horizon=40, runs=1)
    assert (result.config["arms"], result.config["gap"]) == (9, 0.1)
    assert result.config["schedule"] == repr(Planned())


def test_what_is_described_twice_or_nowhere_is_refused() -> None:
    federation = Federation(problem=PROBLEM, agents=2)
    with pytest.raises(TypeError, match="takes no 'epsilon' beside a federation"):
        feducb.simulate(federation, epsilon=1.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'epsilons'"):
        feducb.simulate(epsilons=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="a world after a federation"):
        feducb.simulate(None, paper_world(PROBLEM))
    other = replace(PROBLEM, parameter_bound=2.0)
    with pytest.raises(feducb.ConfigurationError, match=r"world is Problem.*as in the federation"):
        feducb.simulate(federation, paper_world(other))
