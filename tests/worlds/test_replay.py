"""Data as a world: every record once, rewards as they are, and the same code as any simulation."""

from __future__ import annotations

import numpy as np
import pytest

import feducb
from feducb.evaluation import Online, Study, compare_online
from feducb.trust import CONTROLLER
from feducb.worlds.data import Known
from feducb.worlds.features import Number, Recipe
from feducb.worlds.replay import KnownRewards
from feducb.worlds.streams import Streams

N, K, D = 3000, 3, 3
RNG = np.random.default_rng(8)
VECTORS = RNG.dirichlet(np.ones(D), size=(N, K)) * 0.9
REWARDS = (RNG.random((N, K)) < VECTORS @ np.array([0.05, 0.4, 0.95])).astype(float)


def _world(agents: int = 30, offset: float = 0.0) -> KnownRewards:
    return KnownRewards(
        problem=feducb.Problem(dim=D),
        vectors=lambda numbers: VECTORS[numbers],
        rewards=REWARDS,
        records=tuple(np.arange(one, N, agents) for one in range(agents)),
        offset=offset,
    )


def test_every_agent_meets_its_own_records_once_each_in_an_order_of_each_run() -> None:
    world, streams = _world(), Streams(1)
    visits = world.open(streams, range(2), range(30))
    parts = [visits.arrive(40), visits.arrive(60)]
    actions = np.concatenate([part.actions for part in parts], axis=2)
    assert world.horizon == 100
    for agent in (0, 17):
        own = np.sort(VECTORS[agent::30].reshape(100, -1), axis=0)
        for run in range(2):
            np.testing.assert_array_equal(np.sort(actions[run, agent].reshape(100, -1), axis=0), own)
    assert (actions[0] != actions[1]).any()
    with pytest.raises(feducb.ConfigurationError, match="horizon is 101, expected at most 100"):
        visits.arrive(1)


def test_agents_learn_from_rewards_less_the_offset_and_regret_does_not_see_it() -> None:
    world = _world(offset=0.5)
    visits = world.open(Streams(1), range(1), range(2))
    chosen = visits.arrive(10).chosen(np.zeros((1, 2, 10), dtype=np.int64))
    np.testing.assert_array_equal(visits.reward(chosen), chosen.means - 0.5)
    assert set(np.unique(chosen.means)) <= {0.0, 1.0}


def test_value_is_best_possible_less_regret() -> None:
    # One agent that always takes candidate 0 would earn the mean of column 0; uniform play earns the mean.
    world = _world()
    recipe = Recipe(context=(), action=(Number("x", 0, 1),), terms=(("x",),))
    found = compare_online(
        Known(world=world, fixed=("first", REWARDS[:, 0]), recipe=recipe),
        source="x",
        study=Study(epsilons=(1.0,), trusts=(CONTROLLER,)),
        online=Online(runs=3),
    )
    assert found.row("first").value.value == pytest.approx(REWARDS[:, 0].mean())
    uniform = found.row("uniform").value
    # A run's 3000 coins have standard error ≤ 0.5/√3000: 5 of them over √3 runs, false alarm 6e-7.
    assert abs(uniform.value - REWARDS.mean()) < 5 * 0.5 / np.sqrt(3 * N)
    assert found.settings["best_possible"] == pytest.approx(REWARDS.max(axis=1).mean())
    learnt = found.row("federation without privacy", "practical")
    assert learnt.over_alone is not None
    assert uniform.high < learnt.value.value < found.settings["best_possible"]


def test_a_federation_that_reads_nothing_plays_the_uniform_coins() -> None:
    # What `compare_online` takes for granted: simulated, such a federation earns what uniform play earns.
    setting = {"environment": _world(), "agents": 30, "horizon": 60, "runs": 2, "seed": 4}
    blind = feducb.simulate(**setting, epsilon=0.001)  # type: ignore[arg-type]
    uniform = feducb.simulate(**setting, baseline="uniform")  # type: ignore[arg-type]
    np.testing.assert_array_equal(blind.regret, uniform.regret)


def test_a_federation_for_which_nothing_is_worth_its_noise_is_agents_alone() -> None:
    setting = {"environment": _world(), "agents": 30, "horizon": 60, "runs": 2, "seed": 4}
    apart = feducb.simulate(**setting, epsilon=0.001, play="own")  # type: ignore[arg-type]
    alone = feducb.simulate(**setting, baseline="alone")  # type: ignore[arg-type]
    np.testing.assert_array_equal(apart.regret, alone.regret)
    recipe = Recipe(context=(), action=(Number("x", 0, 1),), terms=(("x",),))
    found = compare_online(
        Known(world=_world(), fixed=("first", REWARDS[:, 0]), recipe=recipe),
        source="x",
        study=Study(epsilons=(0.001, 8.0), trusts=(CONTROLLER,), play="own"),
        online=Online(runs=2, horizon=60),
    )
    row = found.row("private federation, ε = 0.001, controller trusted", "practical")
    assert row.over_alone is not None
    assert not row.shares
    assert row.over_alone.value == row.over_alone.margin == 0.0
    assert "so each agent stays alone" in found.verdict()
    assert found.row("private federation, ε = 8, controller trusted", "practical").shares


def test_a_world_that_cannot_be_is_refused() -> None:
    world = _world()
    with pytest.raises(feducb.ConfigurationError, match="rewards is 'up to 3'"):
        KnownRewards(problem=world.problem, vectors=world.vectors, rewards=3 * REWARDS, records=world.records)
    with pytest.raises(feducb.ConfigurationError, match="at least one per agent"):
        KnownRewards(problem=world.problem, vectors=world.vectors, rewards=REWARDS, records=(np.arange(0),))
    with pytest.raises(feducb.ConfigurationError, match="agents is 31, expected at most 30"):
        feducb.simulate(environment=world, agents=31, horizon=10, runs=1)
