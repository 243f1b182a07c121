"""One conformance suite that every factorisation passes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from feducb.errors import ConfigurationError
from feducb.privacy import mechanisms

SIZES = [1, 2, 3, 8, 19, 64, 100]
ALL = pytest.mark.parametrize("make", list(mechanisms.MECHANISMS.values()), ids=list(mechanisms.MECHANISMS))
Make = Callable[[int], mechanisms.Mechanism]


@ALL
@pytest.mark.parametrize("releases", SIZES)
def test_it_factors_the_prefix_sums_and_is_safe_for_adaptive_streams(make: Make, releases: int) -> None:
    mechanism = make(releases)
    encoder, decoder = mechanism.encoder(), mechanism.decoder()
    np.testing.assert_allclose(decoder @ encoder, np.tri(releases), atol=1e-12)
    np.testing.assert_array_equal(encoder, np.tril(encoder))
    np.testing.assert_array_equal(decoder, np.tril(decoder))
    assert np.linalg.norm(encoder, axis=0).max() == pytest.approx(1.0)
    assert (encoder.T @ encoder).min() >= 0.0


@ALL
@pytest.mark.parametrize("releases", SIZES)
def test_streamed_noise_is_the_decoder_times_the_draws(
    make: Make, releases: int, rng: np.random.Generator
) -> None:
    mechanism, fresh = make(releases), rng.normal(size=(releases, 2, 3))
    memory: mechanisms.Memory = ()
    for release in range(1, releases + 1):
        memory, noise = mechanism.correlate(memory, release, fresh[release - 1])
        row = mechanism.decoder()[release - 1]
        np.testing.assert_allclose(noise, np.tensordot(row, fresh, axes=1), atol=1e-10)
        assert mechanism.error(release) == pytest.approx(float(np.linalg.norm(row)))


def test_release_19_of_the_tree_carries_popcount_of_19_noises() -> None:
    tree = mechanisms.BinaryTree(32)
    memory: mechanisms.Memory = ()
    carried = []
    for release in range(1, 33):
        memory, noise = tree.correlate(memory, release, np.ones(1))
        carried.append(float(noise[0]) / math.sqrt(tree.touched))
    assert carried[18] == pytest.approx(3.0)
    assert carried == pytest.approx([release.bit_count() for release in range(1, 33)])
    assert len(memory) == tree.touched == 6  # a record touches bit_length(n) nodes; so many are kept


# "Worst-release error in units of R²/μ", the specification's table.
@pytest.mark.parametrize(
    ("make", "releases", "expected"),
    [
        (mechanisms.BinaryTree, 8, 3.46),
        (mechanisms.BinaryTree, 128, 7.48),
        (mechanisms.BinaryTree, 1024, 10.5),
        (mechanisms.SquareRootToeplitz, 8, 1.72),
        (mechanisms.SquareRootToeplitz, 128, 2.61),
        (mechanisms.SquareRootToeplitz, 1024, 3.27),
    ],
)
def test_worst_release_error_is_the_published_one(make: Make, releases: int, expected: float) -> None:
    mechanism = make(releases)
    worst = max(mechanism.error(release) for release in range(1, releases + 1))
    assert worst == pytest.approx(expected, rel=0.005)


def test_auto_takes_less_noise_where_it_is_cheap_and_flat_memory_where_it_is_not() -> None:
    assert mechanisms.choose_mechanism("auto", 64).name == "toeplitz"
    assert mechanisms.choose_mechanism("auto", 10_000).name == "tree"
    with pytest.raises(ConfigurationError, match="'bush'"):
        mechanisms.choose_mechanism("bush", 4)
