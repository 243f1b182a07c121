"""Noise on a grid: how fine it is, how much is enough, what is refused; nothing wraps or saturates."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from feducb.config import Budget
from feducb.errors import ConfigurationError, PrivacyError
from feducb.privacy import grid
from feducb.privacy.calibration import to_epsilon, to_mu
from feducb.privacy.grid import Certificate, GridNoise, certify, choose_grid, entry_variance, total
from feducb.privacy.mechanisms import BinaryTree, Dense

BUDGET = Budget(epsilon=1.0, delta=1e-6)
SIZES = list(itertools.product((0.1, 2.0, 300.0), (2, 65, 5150), (1, 64, 4096)))


def _certificate(**changes: object) -> Certificate:
    plain: dict[str, object] = {
        "budget": BUDGET,
        "sensitivity": 1000.0,
        "exponent": 0,
        "sigma": 4300,
        "coordinates": 5,
        "releases": 6,
    }
    return Certificate(**(plain | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(("sensitivity", "coordinates", "releases"), SIZES)
def test_the_grid_is_the_coarsest_whose_rounding_hardly_counts(
    sensitivity: float, coordinates: int, releases: int
) -> None:
    exponent = choose_grid(sensitivity, coordinates=coordinates, releases=releases)

    def added(step: float) -> float:
        """What rounding a record once and n rows once each may add to a move."""
        return step * math.sqrt(coordinates) * (1.0 + math.sqrt(releases))

    assert added(2.0**exponent) <= 2.0**-16 * sensitivity
    assert added(2.0 ** (exponent + 1)) > 2.0**-16 * sensitivity * (1.0 - 1e-8)


@pytest.mark.parametrize(("sensitivity", "coordinates", "releases"), SIZES[::4])
def test_a_certificate_covers_rounding_and_every_record_of_a_person(
    sensitivity: float, coordinates: int, releases: int
) -> None:
    for records in (1, 3):
        made = certify(
            BUDGET, sensitivity=sensitivity, coordinates=coordinates, releases=releases, reach=records
        )
        step = 2.0**made.exponent
        rounding = step * math.sqrt(coordinates) * (1.0 + math.sqrt(releases))
        assert made.sensitivity >= records * (sensitivity + rounding)
        assert made.sensitivity <= records * sensitivity * (1.0 + 2.0**-15)
        # the price of the grid is in μ, and the noise still reaches the budget, with next to nothing wasted
        smoothed = step * math.sqrt(made.sigma**2 - grid.SMOOTHING**2)
        assert made.mu == pytest.approx(made.sensitivity / smoothed, rel=1e-12)
        assert 0.999999 * to_mu(BUDGET) < made.mu <= to_mu(BUDGET)
        assert to_epsilon(made.mu, BUDGET.delta) <= BUDGET.epsilon
        assert made.scale == made.sigma * step


def test_agents_of_different_budgets_share_a_grid_so_that_their_integers_add() -> None:
    budgets = [Budget(epsilon=e, delta=d) for e in (0.05, 1.0, 9.0) for d in (1e-9, 1e-3)]
    made = [certify(one, sensitivity=2.0, coordinates=9, releases=16) for one in budgets]
    assert len({one.exponent for one in made}) == 1
    assert len({one.sigma for one in made}) == len(made)


def test_noise_falls_with_the_budget_and_grows_with_what_it_must_cover() -> None:
    def sigma(epsilon: float = 1.0, delta: float = 1e-6, records: int = 1) -> float:
        budget = Budget(epsilon=epsilon, delta=delta)
        return certify(budget, sensitivity=2.0, coordinates=9, releases=16, reach=records).scale

    assert sigma(epsilon=2.0) < sigma() < sigma(epsilon=0.5)
    assert sigma(delta=1e-3) < sigma() < sigma(delta=1e-9)
    assert sigma(records=4) == pytest.approx(4.0 * sigma(), rel=1e-6)


def test_where_noise_is_only_a_few_steps_wide_the_grid_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a coarse grid the theorem's smoothing is not lost in rounding up to a whole number of steps."""
    monkeypatch.setattr(grid, "choose_grid", lambda *_, **__: -4)
    widths = []
    for epsilon in np.linspace(1.0, 9.0, 200):
        made = certify(Budget(epsilon=epsilon, delta=1e-6), sensitivity=2.0, coordinates=1, releases=1)
        widths.append(made.sigma)
        assert made.mu <= to_mu(made.budget)
    assert min(widths) < 32


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"coordinates": 10**9, "releases": 10**6 + 1}, "releases is 1000001, expected at most 1000000 at"),
        ({"sigma": 15}, "noise is between 16 and"),
        ({"sigma": 2**50 + 1}, "noise is between 16 and"),
        (
            {"budget": Budget(epsilon=1e-8, delta=1e-12), "sigma": 2**49, "sensitivity": 2.0**10},
            "large enough to certify to nine digits",
        ),
    ],
)
def test_what_cannot_be_certified_is_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        _certificate(**changes).check()


def test_noise_is_enough_from_one_whole_number_on() -> None:
    """A step less than certified by one part in a million fails: the check is not idle."""
    good = certify(BUDGET, sensitivity=2.0, coordinates=9, releases=16)
    good.check()
    with pytest.raises(PrivacyError, match="does not reach the claim"):
        replace(good, sigma=math.floor(good.sigma * (1.0 - 1e-6))).check()
    with pytest.raises(PrivacyError, match="does not reach the claim"):
        replace(good, sensitivity=good.sensitivity * (1.0 + 1e-6)).check()
    with pytest.raises(PrivacyError, match="does not reach the claim"):
        GridNoise(replace(good, sigma=math.floor(good.sigma * (1.0 - 1e-6))))
    replace(good, budget=Budget(epsilon=1.0 + 1e-6, delta=1e-6)).check()


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
def test_the_curve_is_the_area_by_which_one_world_exceeds_the_other(mu: float, epsilon: float) -> None:
    """δ(ε) = ∫ max(p − e^ε q, 0) for unit Gaussians μ apart, integrated numerically."""
    upper = -epsilon / mu - mu / 2.0  # where p = e^ε q

    def excess(x: float) -> float:
        return float(stats.norm.pdf(x, loc=-mu) - math.exp(epsilon) * stats.norm.pdf(x))

    area, _ = integrate.quad(excess, upper - 9.0, upper, epsabs=0.0, limit=200)
    if area > 1e-12:
        assert math.exp(grid.log_delta(epsilon, mu)) == pytest.approx(area, rel=1e-6)


def test_the_curve_says_where_it_loses_its_digits() -> None:
    with pytest.raises(PrivacyError, match="nine digits at epsilon 1e-09, mu 1e-05"):
        grid.log_delta(1e-9, 1e-5)


def test_totals_are_exact_in_any_order_and_refuse_to_wrap() -> None:
    rng = np.random.default_rng(6)
    parts = [rng.integers(-(2**58), 2**58, 7) for _ in range(9)]
    exact = [sum(int(part[place]) for part in parts) for place in range(7)]
    for order in ([0, 1, 2, 3, 4, 5, 6, 7, 8], [8, 3, 1, 0, 2, 7, 6, 5, 4]):
        assert total(parts[place] for place in order).tolist() == exact
    largest = np.array([2**62], dtype=np.int64)
    assert total([largest, largest - 1]).tolist() == [2**63 - 1]
    for sign in (1, -1):  # -2^63 would fit, but 2^63 would not: nobody goes there
        with pytest.raises(OverflowError, match="may not fit 64 bits"):
            total([sign * largest, sign * largest])
    # refused by size, not by what the sum happens to be: that would tell of the data
    with pytest.raises(OverflowError, match="may not fit 64 bits"):
        total([largest, -largest])


def test_noise_has_no_bound_at_32_bits() -> None:
    """OpenDP saturates silently: at σ = 2^40 all but 0.2 % of draws are beyond 2^31; 64 fit with 1e-170."""
    wide = _certificate(sigma=2**40, sensitivity=2.0**37)
    draws = GridNoise(wide).draw(64)
    assert draws.dtype == np.int64
    assert np.abs(draws).max() > 2**33
    assert max(abs(grid.draw_whole(2**40)) for _ in range(20)) > 2**33


def test_draws_are_fresh_whole_numbers_with_the_stated_deviation() -> None:
    """2,000 draws at σ = 4300: chi-square of 2,000 degrees, 1e-9 two-sided; sees σ off by 10 %.

    Neighbours are uncorrelated: their products sum to within 6 deviations, false alarm 2e-9.
    """
    noise = GridNoise(_certificate())
    draws = noise.draw(2000) / 4300.0
    low, high = stats.chi2(2000).ppf([5e-10, 1 - 5e-10])
    assert low < float(draws @ draws) < high
    assert abs(float(draws[:-1] @ draws[1:])) < 6.0 * math.sqrt(2000)
    assert noise.draw(8).tolist() != noise.draw(8).tolist()  # equal with a chance of 1e-30
    assert noise.draw(0).tolist() == []


@pytest.mark.parametrize("mechanism", [BinaryTree(6), Dense(6)])
def test_the_stated_variance_is_that_of_an_off_diagonal_entry_and_a_little_more(
    mechanism: BinaryTree | Dense,
) -> None:
    made = certify(BUDGET, sensitivity=2.0, coordinates=9, releases=6)
    for number in range(1, 7):
        gaussian = 0.5 * (made.scale * mechanism.error(number)) ** 2
        assert entry_variance(made, mechanism, number) == pytest.approx(gaussian * (1.0 + 2.0**-9), rel=1e-12)
