"""Who counts how often, against a second accountant and against the worst case itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import pld

from feducb.config import Budget
from feducb.errors import ConfigurationError
from feducb.privacy import calibration
from feducb.privacy.mechanisms import Dense
from feducb.privacy.terms import require_agents_per_person
from feducb.trust import NOBODY


def _pld_epsilon(mus: list[float], delta: float) -> float:
    """The privacy-loss-distribution accountant on the composition of Gaussians (pessimistic, on a grid)."""
    whole = pld.privacy_loss_distribution.from_gaussian_mechanism(
        1 / mus[0], value_discretization_interval=1e-3
    )
    for mu in mus[1:]:
        whole = whole.compose(
            pld.privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-3)
        )
    return float(whole.get_epsilon_for_delta(delta))


@pytest.mark.parametrize("budget", [(1.0, 1e-6), (8.0, 1e-6), (0.5, 1e-3)])
def test_one_record_agrees_with_the_second_accountant(budget: tuple[float, float]) -> None:
    mu = calibration.to_mu(Budget(epsilon=budget[0], delta=budget[1]))
    assert _pld_epsilon([mu], budget[1]) == pytest.approx(budget[0], rel=2e-3)


def test_several_agents_compose_as_lengths_do() -> None:
    mus = [0.3, 0.5, 0.2]
    mu = NOBODY.spend(mus, (2, 1, 3))
    assert mu == pytest.approx(math.sqrt(0.6**2 + 0.5**2 + 0.6**2))
    # p records at one agent are one Gaussian p times as far apart; agents are independent.
    expected = _pld_epsilon([0.6, 0.5, 0.6], 1e-6)
    assert calibration.to_epsilon(mu, 1e-6) == pytest.approx(expected, rel=5e-3)


def test_p_records_in_different_batches_of_one_mechanism_cost_at_most_p_times_one() -> None:
    encoder = Dense(12).encoder()
    rng = np.random.default_rng(4)
    for _ in range(200):
        batches = rng.choice(12, size=4, replace=True)
        moves = rng.normal(size=(4, 5))
        moves /= np.linalg.norm(moves, axis=1, keepdims=True)
        moved = sum(np.outer(encoder[:, b], move) for b, move in zip(batches, moves, strict=True))
        assert np.linalg.norm(moved) <= 4.0
    together = sum(np.outer(encoder[:, 0], moves[0]) for _ in range(4))
    assert np.linalg.norm(together) == pytest.approx(4.0)  # the same batch, the same way: attained


def test_nobody_visits_more_agents_than_there_are() -> None:
    assert require_agents_per_person("agents_per_person", 3, 3) == 3
    for wrong in (0, 4, 1.5):
        with pytest.raises(ConfigurationError, match="agents_per_person is"):
            require_agents_per_person("agents_per_person", wrong, 3)  # type: ignore[arg-type]
