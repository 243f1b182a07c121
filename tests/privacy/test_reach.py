"""How far spaced records of a person move a stream: never understated, and exact wherever it can be tried."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.privacy.encoders import make_decoder, make_encoder
from feducb.privacy.mechanisms import MECHANISMS, BufferedToeplitz, Dense, Mechanism, person_reach
from feducb.privacy.mechanisms.reach import largest_sum
from feducb.privacy.terms import Terms
from feducb.types import Array


def _tried(products: Array, records: int, spacing: int) -> float:
    """The largest sum, by trying all sets."""
    sets = (
        list(places)
        for size in range(1, records + 1)
        for places in combinations(range(len(products)), size)
        if all(later - one >= spacing for one, later in pairwise(places))
    )
    return max(float(products[np.ix_(places, places)].sum()) for places in sets)


@given(
    count=st.integers(1, 8),
    records=st.integers(1, 5),
    spacing=st.integers(1, 4),
    skew=st.sampled_from([0.5, 1.0, 6.0]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=80, deadline=None)
def test_the_largest_sum_is_that_of_trying_all_sets(
    count: int, records: int, spacing: int, skew: float, seed: int
) -> None:
    """On matrices without any order too; cut short, the search says more, never less."""
    half = np.random.default_rng(seed).random((count, count)) ** skew
    products = half + half.T
    best = _tried(products, records, spacing)
    assert largest_sum(products, records, spacing) == pytest.approx(best, rel=1e-12)
    assert largest_sum(products, records, spacing, nodes=0) >= best * (1.0 - 1e-12)


@pytest.mark.parametrize("spacing", [1, 2, 5])
@pytest.mark.parametrize("records", [2, 3, 4])
@pytest.mark.parametrize(
    "mechanism",
    [Dense(10), Dense(10, 3), Dense(10, 0, 1.7), Dense(10, 2, 1.5)]
    + [MECHANISMS[name](10) for name in ("tree", "optimal-tree", "toeplitz", "blt")],
    ids=repr,
)
def test_a_person_s_worst_records_are_covered_and_nothing_beyond(
    mechanism: Mechanism, records: int, spacing: int
) -> None:
    encoder = mechanism.encoder()
    products = np.abs(encoder.T @ encoder)
    np.fill_diagonal(products, 1.0)  # shorter columns count as 1 long
    reach = person_reach(mechanism, records, spacing)
    assert 1.0 <= math.sqrt(_tried(products, records, spacing)) <= reach <= records
    assert reach <= math.sqrt(_tried(products, records, spacing)) * (1.0 + 2e-9)


def test_products_below_zero_count_by_their_size() -> None:
    """Moves may point any way: where columns point apart, opposite moves add up."""

    class Signed(Dense):
        def encoder(self) -> Array:
            return Dense.encoder(self) * (-1.0) ** np.arange(self.releases)

    assert person_reach(Signed(6), 3, 1) == pytest.approx(person_reach(Dense(6), 3, 1), rel=1e-12)


def test_where_records_are_anywhere_or_releases_too_many_p_of_them_count_p_times() -> None:
    assert person_reach(Dense(12), 3, 0) == 3.0
    assert person_reach(Dense(12), 1, 4) == 1.0
    assert person_reach(BufferedToeplitz(5000), 3, 10) == 3.0
    assert person_reach(Dense(12), 3, 12) == pytest.approx(1.0, rel=1e-8)  # one fits


@pytest.mark.parametrize("mechanism", [Dense(256), Dense(256, 200), Dense(256, 0, 1.05)], ids=repr)
def test_many_releases_are_no_hindrance(mechanism: Mechanism) -> None:
    """What is said is the sum of a real set, so that nothing is given away; it takes well under a second."""
    reach = person_reach(mechanism, 6, 2)
    encoder = mechanism.encoder()
    first = np.sum(encoder[:, 0:12:2], axis=1)
    last = np.sum(encoder[:, -11::2], axis=1)
    assert max(np.linalg.norm(first), np.linalg.norm(last)) <= reach < 6.0


@pytest.mark.parametrize(
    "mechanism", [Dense(12, 0, 4.3), Dense(64, 0, 1.29), Dense(64, 40, 1.9), Dense(256, 0, 1.065)], ids=repr
)
def test_a_decayed_mechanism_is_deployed_as_it_is_planned(mechanism: Dense) -> None:
    """At the largest decays there are: in whole numbers E is invertible, and errors are as stated."""
    encoder = make_encoder(mechanism, 1)
    decoder = make_decoder(mechanism, 1)._decoder  # type: ignore[attr-defined]
    errors = [mechanism.error(release) for release in range(1, mechanism.releases + 1)]
    np.testing.assert_allclose(np.linalg.norm(decoder, axis=1), errors, rtol=1e-8)
    fixed = encoder._fixed / 2.0**40  # type: ignore[attr-defined]
    assert np.abs(decoder @ fixed - np.tri(mechanism.releases)).max() < 1e-9
    assert (np.diff(errors[mechanism.quiet :]) > 0.0).all()  # what is read soon has less noise


def test_spaced_one_hots_are_refused_since_moving_them_costs_more_than_replacing_them() -> None:
    """Their R² is less than L² + s²B², and an encoder (docs/theory.md, 2) moves by 330.8 > 2ΓR⁴ = 328."""
    encoder, unit = np.zeros((12, 48)), np.eye(12)
    near, other, far = 9, 2 * np.arange(10), 30 + 2 * np.arange(9)
    encoder[:, near], encoder[:, far] = unit[0], unit[11][:, None]
    encoder[:, other] = math.sqrt(0.8) * unit[0][:, None] + math.sqrt(0.2) * unit[1:11].T
    products = encoder.T @ encoder
    np.fill_diagonal(products, 1.0)
    gamma = largest_sum(products, 10, 2)
    assert gamma == pytest.approx(82.0)
    flat = {x: np.array([x * x, x]) for x in (0.5, 1.0, -1.0)}  # x², √2·s·y·x at s²B² = ½
    one = np.outer(encoder[:, near], flat[0.5]) - np.outer(encoder[:, other].sum(axis=1), flat[-1.0])
    another = np.outer(encoder[:, far].sum(axis=1), flat[1.0])
    assert np.sum(one**2) + np.sum(another**2) > 2.0 * gamma * 2.0  # R⁴ = L⁴ + 2s²B²L² = 2
    asked = {"problem": Problem(dim=6), "budget": Budget(epsilon=1.0, delta=1e-6), "releases": 8}
    with pytest.raises(ConfigurationError, match="spacing is 1, expected 0 with the model blocks:6"):
        Terms(**asked, records_per_person=3, spacing=1, model="blocks:6")  # type: ignore[arg-type]
    for model in ("linear", "blocks:2", "public:blocks:6"):  # at the linear radius, or with J public
        assert Terms(**asked, records_per_person=3, spacing=1, model=model).reach < 3  # type: ignore[arg-type]
