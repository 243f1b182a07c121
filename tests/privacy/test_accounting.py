"""Who counts how often, against a second accountant and against the worst case itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import pld

from feducb.config import Budget
from feducb.errors import ConfigurationError
from feducb.privacy import calibration
from feducb.privacy.accounting import (
    Contribution,
    Guarantee,
    Neighbours,
    records_covered,
    require_agents_per_person,
    spend,
)
from feducb.privacy.mechanisms import Dense


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
    mu = spend(mus, Contribution((2, 1, 3)))
    assert mu == pytest.approx(math.sqrt(0.6**2 + 0.5**2 + 0.6**2))
    # p records at one agent are one Gaussian p times as far apart; agents are independent.
    expected = _pld_epsilon([0.6, 0.5, 0.6], 1e-6)
    assert Guarantee(mu=mu, delta=1e-6).epsilon == pytest.approx(expected, rel=5e-3)


def test_a_trusted_controller_runs_one_mechanism_at_the_least_budget() -> None:
    assert spend([0.3, 0.5], Contribution((2, 1)), "controller") == pytest.approx(0.3 * 3)


def test_a_visitor_who_comes_once_costs_one_record() -> None:
    assert spend([0.4], Contribution()) == 0.4
    assert Contribution().neighbours is Neighbours.ONE_RECORD
    assert Contribution((1, 1)).neighbours is Neighbours.ONE_PERSON


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


def test_bad_contributions_are_refused() -> None:
    for records in ((), (0,), (1, -1)):
        with pytest.raises(ConfigurationError, match="records per person"):
            Contribution(records)
    with pytest.raises(ConfigurationError, match="trust is 'everyone'"):
        spend([1.0], Contribution(), "everyone")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="mus"):
        spend([1.0, 2.0], Contribution())


def test_a_person_costs_no_less_than_any_part_of_her() -> None:
    rng = np.random.default_rng(6)
    for _ in range(300):
        count = int(rng.integers(1, 5))
        mus, records = rng.uniform(0.01, 2.0, count), tuple(int(one) for one in rng.integers(1, 6, count))
        order = rng.permutation(count)
        for trust in ("nobody", "controller"):
            whole = spend(mus.tolist(), Contribution(records), trust)
            shuffled = Contribution(tuple(records[i] for i in order))
            assert whole == pytest.approx(spend(mus[order].tolist(), shuffled, trust))
            more = Contribution((records[0] + 1, *records[1:]))
            assert spend(mus.tolist(), more, trust) > whole
            assert spend((2.0 * mus).tolist(), Contribution(records), trust) == pytest.approx(2.0 * whole)
        nobody = spend(mus.tolist(), Contribution(records))
        worst = max(mu * p for mu, p in zip(mus, records, strict=True))
        assert worst * (1 - 1e-12) <= nobody <= float(np.dot(mus, records)) * (1 + 1e-12)
        # One mechanism sees all her records: never cheaper than independent ones at the same, least, budget.
        least = [float(mus.min())] * count
        assert (
            spend(least, Contribution(records), "controller") >= spend(least, Contribution(records)) - 1e-12
        )


def test_noise_covers_what_one_mechanism_sees_of_a_person() -> None:
    assert records_covered(3, 5, "nobody") == 3
    assert records_covered(3, 5, "controller") == 15
    for trust in ("nobody", "controller"):
        assert records_covered(1, 1, trust) == 1
    # The two ways to count agree: what is covered, times μ of a record, is what she spends at k agents.
    assert spend([0.2] * 5, Contribution((3,) * 5), "controller") == pytest.approx(
        0.2 * records_covered(3, 5, "controller")
    )
    assert require_agents_per_person("agents_per_person", 4, 4) == 4
    for wrong in (0, 5):
        with pytest.raises(ConfigurationError, match="agents_per_person"):
            require_agents_per_person("agents_per_person", wrong, 4)
