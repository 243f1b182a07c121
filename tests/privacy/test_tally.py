"""Rewards out of range are counted under noise, and the count fits into the price of the releases."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.privacy import grid, tally
from feducb.privacy.terms import Terms
from feducb.trust import CONTROLLER

DEFAULTS = (0.0, 0.5, -0.9)  # of the reward bound


def _terms(rng: np.random.Generator, records_per_person: int = 1) -> Terms:
    length, reward, bound = 10.0 ** rng.uniform(-1, 1, 3)
    return Terms(
        problem=Problem(dim=3, action_bound=length, reward_bound=reward, parameter_bound=bound),
        budget=Budget(epsilon=float(10.0 ** rng.uniform(-1, 1)), delta=1e-6),
        releases=6,
        records_per_person=records_per_person,
    )


def _records(terms: Terms, default: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Statistics of records as far apart as they can be: with the default reward, and with ±B."""
    length, bound = terms.problem.action_bound, terms.problem.reward_bound
    drawn = rng.standard_normal((60, 3))
    drawn *= length / np.linalg.norm(drawn, axis=1, keepdims=True)
    # At this angle two records are farthest apart.
    angle = min(1.0, abs(default) * bound * terms.weight**2 / length**2)
    drawn[0], drawn[1] = [length, 0, 0], [length * angle, length * math.sqrt(1 - angle**2), 0]
    drawn[2] = -drawn[1]
    drawn[3:20] *= rng.random((17, 1))
    signs = np.where(np.arange(60) % 2, 1.0, -1.0) * bound
    flagged = terms.model.flatten(drawn, np.full(60, default), terms.weight)
    other = np.vstack([terms.model.flatten(drawn, sign * signs, terms.weight) for sign in (1.0, -1.0)])
    return flagged, other


def _closest(terms: Terms) -> float:
    products = terms.factors.encoder().T @ terms.factors.encoder()
    return float((products - np.diag(products.diagonal())).max())


def _price(terms: Terms, default: float, scale: float, rng: np.random.Generator) -> float:
    """The dearest change of one record, releases and tally together, over that of the releases alone."""
    certificate, one_in = terms.certificate(), tally.ONE_IN
    tau = math.ldexp(math.sqrt(certificate.sigma**2 - 4), certificate.exponent)
    step = math.sqrt(scale**2 - 4)
    flagged, other = _records(terms, default, rng)
    apart = np.linalg.norm(flagged[:, None] - other[None], axis=2)
    far, long, longest = apart.max(), *(np.linalg.norm(some, axis=1).max() for some in (flagged, other))
    least = float((other @ other.T).min())
    changes = [
        (far / tau) ** 2 + (one_in / step) ** 2,  # replaced by one within the range
        (long / tau) ** 2 + ((one_in - 1) / step) ** 2,  # added or removed
        (longest / tau) ** 2 + (1 / step) ** 2,
        2 * (long / tau) ** 2 + 2 * ((one_in - 1) / step) ** 2,  # in another batch: columns at no acute angle
        2 * (longest / tau) ** 2 + 2 * (1 / step) ** 2,
        # in another batch, and there another one: neither was refused, and they point away from each other
        2 * (longest / tau) ** 2 - 2 * _closest(terms) * least / tau**2 + 2 * (1 / step) ** 2,
    ]
    return math.sqrt(max(changes)) / (certificate.mu / terms.records_per_person)


@pytest.mark.parametrize("default", DEFAULTS)
@pytest.mark.parametrize("records_per_person", [1, 3])
def test_the_tally_costs_nothing_beyond_the_releases(default: float, records_per_person: int) -> None:
    """Over a range of bounds and budgets; with two thirds of the noise it would cost more."""
    rng, dearest = np.random.default_rng(5), 0.0
    for _ in range(40):
        terms = _terms(rng, records_per_person)
        reward = default * terms.problem.reward_bound
        scale = tally.tally_scale(terms, reward)
        assert scale is not None
        assert _price(terms, reward, scale, rng) <= 1.0
        dearest = max(dearest, _price(terms, reward, max(2 * scale / 3, 2.01), rng))
    assert dearest > 1.0


def test_another_record_in_another_batch_costs_nothing_beyond_the_releases_after_a_quiet_start() -> None:
    """There columns are all but parallel: (EᵀE)_ij is 0.9987, and next to nothing is left for the tally."""
    terms = Terms(
        problem=Problem(dim=3),
        budget=Budget(epsilon=1.0, delta=1e-6),
        releases=16,
        mechanism="dense",
        quiet=6,
    )
    assert _closest(terms) > 0.99
    scale = tally.tally_scale(terms, 0.0)
    assert scale is not None
    assert _price(terms, 0.0, scale, np.random.default_rng(3)) <= 1.0
    loud = tally.tally_scale(replace(terms, quiet=0), 0.0)
    assert loud is not None
    assert _price(terms, 0.0, loud, np.random.default_rng(3)) > 1.0


def test_nothing_is_counted_under_one_noise_for_all_agents() -> None:
    terms = Terms(
        problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6), releases=6, trust=CONTROLLER
    )
    assert tally.tally_scale(terms, 0.0) is None


def test_nothing_is_counted_where_the_default_reward_is_the_bound() -> None:
    terms = Terms(problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6), releases=6)
    assert tally.tally_scale(terms, 1.0) is None
    assert tally.tally_scale(terms, -1.0) is None
    scale = tally.tally_scale(terms, 0.0)
    assert scale is not None
    assert 8 < scale / tally.ONE_IN < 11  # records: about 2.45/μ


def test_the_tally_is_above_zero_if_more_than_one_in_twenty_are_out_of_range() -> None:
    assert tally.exact_tally([True] * 5 + [False] * 95) == 0
    assert tally.exact_tally([True] * 6 + [False] * 94) == 20
    assert tally.exact_tally([]) == 0


def test_many_is_said_rarely_without_reason_and_soon_with_one() -> None:
    """Exactly one in twenty, the worst case, in 2,000 seasons of 64 batches: at most 0.1 % of them are wrong.

    9 or more wrong ones have a chance below 3e-4 if that holds. Twice as many as one in twenty, at 1,500
    records a batch and ε = 1, is seen in three batches but for a chance below 1e-9.
    """
    scale, rng = 190, np.random.default_rng(11)
    noise = np.cumsum(np.rint(scale * rng.standard_normal((2000, 64))), axis=1)
    wrong = sum(any(tally.surely_many(int(x), k + 1, scale) for k, x in enumerate(one)) for one in noise)
    assert wrong <= 8
    excess = tally.exact_tally([True] * 150 + [False] * 1350)
    assert np.mean([tally.surely_many(3 * excess + int(x), 3, scale) for x in noise[:, 2]]) == 1.0
    assert not tally.surely_many(0, 0, scale)


def test_the_noise_has_its_scale() -> None:
    """400 draws: the sum of squares is within 4.5 deviations, 1 false alarm in 100,000; misses 1.1 times."""
    drawn = [tally.noisy_tally(7, 50) - 7 for _ in range(400)]
    assert abs(sum(one**2 for one in drawn) / 2500 - 400) < 4.5 * math.sqrt(800)
    assert isinstance(grid.draw_whole(3), int)
