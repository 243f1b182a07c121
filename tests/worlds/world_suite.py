"""What every world must keep; `docs/extending/world.md` says how to add one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import feducb
from feducb.worlds.streams import Streams
from feducb.worlds.world import Environment

_SLACK = 1e-9


def check_world(world: Environment) -> None:
    """Shapes and bounds hold, visitors depend neither on company nor on blocks, a federation can play it."""
    problem = world.problem
    visits = world.open(Streams(7), range(2), range(3))
    contexts = visits.arrive(12)
    assert contexts.actions.shape == (2, 3, 12, world.arms, problem.dim)
    assert contexts.means.shape == (2, 3, 12, world.arms)
    assert np.linalg.norm(contexts.actions, axis=-1).max() <= problem.action_bound + _SLACK
    assert visits.theta.shape == (2, problem.dim)
    assert np.linalg.norm(visits.theta, axis=-1).max() <= problem.parameter_bound + _SLACK
    chosen = contexts.chosen(np.zeros((2, 3, 12), dtype=np.int64))
    rewards = visits.reward(chosen)
    assert rewards.shape == (2, 3, 12)
    assert np.abs(rewards).max() <= problem.reward_bound + _SLACK

    apart = world.open(Streams(7), range(1, 2), [2])
    blocks = [apart.arrive(5), apart.arrive(7)]
    same = np.concatenate([block.actions for block in blocks], axis=2)
    np.testing.assert_array_equal(same[0, 0], contexts.actions[1, 2])
    paid = [apart.reward(block.chosen(np.zeros(block.means.shape[:3], dtype=np.int64))) for block in blocks]
    np.testing.assert_array_equal(np.concatenate(paid, axis=2)[0, 0], rewards[1, 2])

    federation = feducb.Federation(problem=problem, agents=3, budget=feducb.Budget(epsilon=50.0, delta=1e-6))
    lasting: Any = {"horizon": 40, "runs": 2, "seed": 1}
    played = feducb.simulate(federation, world, **lasting)
    again = feducb.simulate(federation, world, **lasting, threads=1)
    np.testing.assert_array_equal(played.regret, again.regret)
    assert (np.diff(played.regret, axis=1) >= -_SLACK).all()
    uniform = feducb.simulate(replace(federation, baseline="uniform"), world, **lasting)
    assert np.isfinite(uniform.regret).all()
