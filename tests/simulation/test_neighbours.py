"""What one person's record can change, and what it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import feducb
from feducb.audit.invariance import ReplacedRecord
from feducb.simulation.reference import Step
from feducb.worlds.world import Environment


def _trace(environment: Environment, **setting: Any) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """All decisions (agents, T) of one run, and the released sums by their rounds."""
    steps: list[np.ndarray] = []
    sums: dict[int, np.ndarray] = {}

    def look(step: Step) -> None:
        steps.append(step.chosen.index[0])
        if step.total is not None:
            sums[step.first_round + step.chosen.index.shape[2] - 1] = step.total.gram[0]

    result = feducb.simulate(environment=environment, runs=1, observer=look, **setting)
    assert tuple(sums) == result.release_rounds[0]
    return np.concatenate(steps, axis=1), sums


@pytest.mark.parametrize("agent", [0, 2])
@pytest.mark.parametrize("at", [1, 8, 9, 30, 57, 100])
def test_calibrated_a_record_moves_no_release_and_no_decision_before_the_next_release(
    agent: int, at: int
) -> None:
    world = feducb.PaperEnvironment(problem=feducb.Problem(dim=3), arms=9)
    setting: dict[str, Any] = {"agents": 3, "horizon": 120, "epsilon": 20.0, "releases": 12}
    before, sums = _trace(world, **setting)
    other = ReplacedRecord(world, agent, at, action=np.array([0.0, 0.0, -1.0]), reward=-1.0)
    after, other_sums = _trace(other, **setting)
    assert tuple(sums) == tuple(other_sums)
    next_release = next(release for release in sums if release >= at)
    same = before[:, :next_release] == after[:, :next_release]
    same[agent, at - 1] = True  # the replaced visitor's own decision is hers
    assert same.all()
    for release in sums:
        unmoved = np.array_equal(sums[release], other_sums[release])
        assert unmoved == (release < at)  # the record counts, from its own release on


def _fixed_world(actions: np.ndarray) -> feducb.OwnEnvironment:
    """The same candidates for every visitor, and a reward that is always its mean."""
    return feducb.OwnEnvironment(
        problem=feducb.Problem(dim=2),
        arms=len(actions),
        theta=np.array([0.5, 0.5]),
        draw=lambda generator, agent, rounds: np.tile(actions, (rounds, 1, 1)),
        pay=lambda generator, actions, means: means,
    )


def test_paper_own_data_play_lets_a_record_change_decisions_before_any_release() -> None:
    world = _fixed_world(np.array([[0.8, 0.6], [0.6, 0.8]]))
    # A huge ε, so that the printed regulariser does not drown everything: the leak is in the structure.
    setting: dict[str, Any] = {
        "agents": 2,
        "horizon": 40,
        "mode": "paper",
        "schedule": "explicit:40",
        "epsilon": 1e6,
    }
    before, _ = _trace(world, **setting)
    after, _ = _trace(ReplacedRecord(world, 0, 3, np.array([0.8, 0.6]), reward=-1.0), **setting)
    assert (before[0, 3:39] != after[0, 3:39]).any()
    np.testing.assert_array_equal(before[1], after[1])


def test_paper_determinant_trigger_lets_a_record_move_the_release_round() -> None:
    world = _fixed_world(np.array([[0.8, 0.6]]))
    setting: dict[str, Any] = {
        "agents": 2,
        "horizon": 60,
        "mode": "paper",
        "schedule": "determinant:100",
        "epsilon": 1e6,
    }
    _, sums = _trace(world, **setting)
    _, other_sums = _trace(ReplacedRecord(world, 0, 3, np.array([-0.6, 0.8]), reward=0.5), **setting)
    assert min(sums) != min(other_sums)  # with certainty, whatever the noise: ε = ∞
