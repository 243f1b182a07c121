"""Lower bounds are below the truth as often as they say, and not idle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, nct, norm

from feducb.audit.bounds import (
    epsilon_from_counts,
    gaussian_epsilon,
    least_distance,
    least_share,
    most_share,
)
from feducb.config import Budget
from feducb.privacy.calibration import to_mu


def test_clopper_pearson_by_hand() -> None:
    # None of n: P(X = 0) = (1 − p)^n = level. All of n: the mirror image. 5 of 10: any textbook.
    assert most_share(0, 100, 1e-6) == pytest.approx(1.0 - 1e-6 ** (1 / 100))
    assert least_share(100, 100, 1e-6) == pytest.approx(1e-6 ** (1 / 100))
    assert least_share(0, 100, 1e-6) == 0.0
    assert most_share(100, 100, 1e-6) == 1.0
    assert least_share(5, 10, 0.025) == pytest.approx(0.18709, abs=1e-5)
    assert most_share(5, 10, 0.025) == pytest.approx(0.81291, abs=1e-5)


@pytest.mark.parametrize(("count", "trials"), [(1, 50), (7, 1000), (999, 1000), (5000, 10000)])
def test_clopper_pearson_at_its_own_bound_the_tail_is_the_level(count: int, trials: int) -> None:
    level = 1e-8
    assert binom.sf(count - 1, trials, least_share(count, trials, level)) == pytest.approx(level, rel=1e-6)
    assert binom.cdf(count, trials, most_share(count, trials, level)) == pytest.approx(level, rel=1e-6)


def test_epsilon_from_counts_by_hand() -> None:
    low, high = 0.01 ** (1 / 50), 1.0 - 0.01 ** (1 / 50)
    bound = epsilon_from_counts(50, 50, 0, 50, delta=1e-3, level=0.02)
    assert bound == pytest.approx(math.log((low - 1e-3) / high))
    assert epsilon_from_counts(0, 50, 0, 50, delta=1e-3, level=0.02) == 0.0
    assert epsilon_from_counts(10, 50, 40, 50, delta=1e-3, level=0.02) == 0.0


@pytest.mark.parametrize("distance", [0.1, 1.5, 6.0])
def test_the_distance_bound_is_above_the_truth_as_often_as_its_level(
    distance: float, rng: np.random.Generator
) -> None:
    level, repeats = 0.1, 1000
    above = sum(
        least_distance(rng.normal(3.0, 2.0, 80), rng.normal(3.0 + 2.0 * distance, 2.0, 60), level) > distance
        for _ in range(repeats)
    )
    # Seeded; over seeds, false alarm 1e-6. The bound is exact, so it must not be too rare either.
    assert binom.ppf(5e-7, repeats, level) <= above <= binom.isf(5e-7, repeats, level)


@pytest.mark.parametrize("level", [1e-2, 1e-8])
def test_the_distance_bound_inverts_the_noncentral_t(level: float, rng: np.random.Generator) -> None:
    zeros, ones = rng.normal(0.0, 1.0, 150), rng.normal(1.2, 1.0, 100)
    bound, spread = least_distance(zeros, ones, level), math.sqrt(1 / 150 + 1 / 100)
    pooled = math.sqrt((zeros.var() * 150 + ones.var() * 100) / 248)
    seen = (ones.mean() - zeros.mean()) / (pooled * spread)
    assert nct.sf(seen, 248, bound / spread) == pytest.approx(level, rel=1e-4)


def test_the_distance_bound_at_the_edges(rng: np.random.Generator) -> None:
    same = rng.normal(size=200)
    assert least_distance(same, same, 1e-6) == 0.0
    assert least_distance(same + 1.0, same, 1e-6) == 0.0
    assert least_distance(np.zeros(60), np.ones(60), 1e-6) == math.inf
    assert least_distance(np.zeros(60), np.zeros(60), 1e-6) == 0.0
    with pytest.raises(ValueError, match="50 and 50 samples"):
        least_distance(same[:50], same[:50], 1e-6)


def test_epsilon_of_a_distance() -> None:
    for epsilon in (0.1, 1.0, 8.0):
        mu = to_mu(Budget(epsilon=epsilon, delta=1e-6))
        assert gaussian_epsilon(mu, 1e-6) == pytest.approx(epsilon, rel=1e-5)
    assert gaussian_epsilon(0.0, 1e-6) == 0.0
    assert gaussian_epsilon(math.inf, 1e-6) == math.inf
    assert gaussian_epsilon(40.0, 1e-6) > 800.0


@pytest.mark.parametrize("trials", [1, 7, 50])
@pytest.mark.parametrize("level", [0.2, 1e-3])
def test_shares_are_wrong_exactly_as_seldom_as_they_say(trials: int, level: float) -> None:
    """Over all outcomes, for probabilities all over: no simulation, the binomial itself."""
    for chance in np.linspace(0.01, 0.99, 25):
        seen = np.arange(trials + 1)
        weights = binom.pmf(seen, trials, chance)
        above = [least_share(int(hits), trials, level) > chance for hits in seen]
        below = [most_share(int(hits), trials, level) < chance for hits in seen]
        assert float(weights[above].sum()) <= level * (1 + 1e-9)
        assert float(weights[below].sum()) <= level * (1 + 1e-9)
    shares = [least_share(int(hits), trials, level) for hits in range(trials + 1)]
    assert shares == sorted(shares)
    mirrored = [1.0 - most_share(trials - hits, trials, level) for hits in range(trials + 1)]
    assert shares == pytest.approx(mirrored)


def test_counts_of_randomised_response_give_a_bound_below_its_epsilon() -> None:
    """P₁(yes) = e^ε/(1 + e^ε) = e^ε P₀(yes): over all pairs of counts, it errs within its level."""
    epsilon, trials, level = 1.0, 30, 0.1
    yes = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    wrong = 0.0
    for hits in range(trials + 1):
        for false_hits in range(trials + 1):
            if epsilon_from_counts(hits, trials, false_hits, trials, delta=0.0, level=level) > epsilon:
                wrong += binom.pmf(hits, trials, yes) * binom.pmf(false_hits, trials, 1.0 - yes)
    assert 0.0 < wrong <= level


def test_a_bound_from_counts_moves_the_right_way() -> None:
    def bound(**changes: float) -> float:
        plain = {"hits": 900, "trials": 1000, "false_hits": 100, "false_trials": 1000}
        return epsilon_from_counts(**(plain | changes), delta=1e-6, level=1e-3)  # type: ignore[arg-type]

    assert bound(hits=950) > bound() > bound(hits=850)
    assert bound(false_hits=50) > bound() > bound(false_hits=150)
    assert bound() < math.log(9.0)  # never above what was seen
    assert bound(hits=0) == 0.0
    assert bound(hits=100, false_hits=900) == 0.0
    assert epsilon_from_counts(900, 1000, 100, 1000, delta=0.95, level=1e-3) == 0.0  # δ alone explains it


def test_a_distance_beyond_all_measure_still_has_an_epsilon_below_the_true_one() -> None:
    """ε(δ) of μ is at least μ²/2 for δ below one half; where numbers end, that is what is said."""
    for mu in (9e3, 1.1e4, 1e10, 1e150):
        assert mu * mu / 2.0 <= gaussian_epsilon(mu, 1e-6) <= mu * mu / 2.0 + 6.0 * mu
    assert gaussian_epsilon(1e-7, 1e-6) == 0.0


def test_the_free_bound_is_below_the_gaussian_truth_as_often_as_its_level(rng: np.random.Generator) -> None:
    """Thresholds on two normal worlds, μ = 1: the true ε of each event is known. Over seeds, 1e-6."""
    level, repeats, trials, delta = 0.2, 2000, 200, 1e-3
    likely, unlikely = float(norm.sf(-0.5)), float(norm.sf(0.5))
    truth = math.log((likely - delta) / unlikely)
    hits, false_hits = rng.binomial(trials, likely, repeats), rng.binomial(trials, unlikely, repeats)
    above = sum(
        epsilon_from_counts(int(one), trials, int(other), trials, delta=delta, level=level) > truth
        for one, other in zip(hits, false_hits, strict=True)
    )
    assert above <= binom.isf(1e-6, repeats, level)
