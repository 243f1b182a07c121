"""The confidence bound covers θ*, for every x at every release of adaptive play; shrunk, it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import feducb
from feducb.models.confidence import error_ratio
from feducb.protocol.federation import Tuning
from feducb.simulation.reference import Step

ALPHA, RUNS = 0.1, 240


def _worst_ratios(**setting: Any) -> np.ndarray:
    """For each run, the largest part of the bound that the true error used up at any release."""
    blocks: list[np.ndarray] = []

    def look(step: Step) -> None:
        if step.first_round == 1:
            blocks.append(np.zeros(len(step.theta)))
        if step.total is not None and step.knowledge.belief is not None:
            ratio = error_ratio(step.knowledge.belief, step.theta[:, None, :])
            blocks[-1] = np.maximum(blocks[-1], ratio.max(axis=-1))

    feducb.simulate(runs=RUNS, alpha=ALPHA, observer=look, **setting)
    return np.concatenate(blocks)


EVERY_RELEASE = Tuning(patience=0.0)
TWO_WIDTHS = Tuning(patience=0.0, direct=False)


@pytest.mark.parametrize(
    "setting",
    [
        {"agents": 4, "dim": 5, "arms": 10, "epsilon": 1.0, "seed": 1, "tuning": EVERY_RELEASE},
        {"agents": 4, "dim": 5, "arms": 10, "epsilon": 100.0, "delta": 0.1, "seed": 2},
        {"agents": 2, "dim": 1, "arms": 3, "epsilon": 5.0, "seed": 3, "tuning": EVERY_RELEASE},
        {"agents": 9, "dim": 3, "arms": 6, "epsilon": 2.0, "seed": 5, "trust": "controller"},
        {"agents": 4, "dim": 5, "arms": 10, "epsilon": 1.0, "seed": 1, "tuning": TWO_WIDTHS},
    ],
    ids=["noise rules", "data rule", "one dimension", "controller", "two widths, closed form"],
)
def test_the_bound_covers_and_a_smaller_one_does_not(setting: dict[str, Any]) -> None:
    ratios = _worst_ratios(horizon=200, **setting)
    assert len(ratios) == RUNS
    # Seeded. Were the true chance of a violation α, a share under α would be even odds; it is far smaller.
    assert np.mean(ratios > 1.0) < ALPHA
    assert np.mean(ratios > 0.4) > ALPHA  # the same test fails for the same bound scaled by 0.4


def test_without_noise_the_bound_covers_too() -> None:
    ratios = _worst_ratios(agents=3, dim=3, arms=6, horizon=150, baseline="no-privacy", seed=4)
    assert np.mean(ratios > 1.0) < ALPHA


def test_with_noise_alone_the_bound_covers_and_one_for_less_noise_does_not(
    noise_alone: feducb.OwnEnvironment, understate_noise: Callable[[], None]
) -> None:
    # In the paper's world ‖θ*‖ = S, so that the ball alone can hold the bound; here only the noise counts.
    setting: dict[str, Any] = {"agents": 3, "horizon": 300, "releases": 12, "epsilon": 40.0, "delta": 0.01}
    assert np.mean(_worst_ratios(environment=noise_alone, seed=6, **setting) > 1.0) < ALPHA
    understate_noise()
    assert np.mean(_worst_ratios(environment=noise_alone, seed=6, **setting) > 1.0) > ALPHA
