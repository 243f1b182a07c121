"""One conformance suite that every factorisation passes, and the skeleton in docs/extending/mechanism.md."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from feducb.errors import ConfigurationError
from feducb.privacy import mechanisms
from feducb.privacy.encoders import make_decoder, make_encoder
from feducb.privacy.grid import FINE_BITS
from feducb.privacy.mechanisms import buffered
from feducb.privacy.mechanisms.matrix import Factors, _frozen, optimal_factors
from page_code import run_page

SIZES = [1, 2, 3, 8, 19, 64, 100]
SKELETON = run_page("extending/mechanism.md")["FreshEachTime"]
EVERY = {**mechanisms.MECHANISMS, "the page's skeleton": SKELETON}
ALL = pytest.mark.parametrize("make", list(EVERY.values()), ids=list(EVERY))
Make = Callable[[int], mechanisms.Mechanism]


@ALL
@pytest.mark.parametrize("releases", SIZES)
def test_it_factors_the_prefix_sums_and_is_safe_for_adaptive_streams(make: Make, releases: int) -> None:
    mechanism = make(releases)
    encoder, decoder = mechanism.encoder(), mechanism.decoder()
    np.testing.assert_allclose(decoder @ encoder, np.tri(releases), atol=1e-12)
    published = np.cumsum([mechanism.rows(release) for release in range(1, releases + 1)])
    for release, rows in enumerate(published, start=1):  # causal: nothing reads ahead
        assert not encoder[:rows, release:].any()
        assert not decoder[release - 1, rows:].any()
    assert np.linalg.norm(encoder, axis=0).max() <= 1.0
    assert np.linalg.norm(encoder, axis=0).max() == pytest.approx(1.0)
    assert (encoder.T @ encoder).min() >= 0.0


@ALL
def test_it_is_a_value_and_counts_its_releases(make: Make) -> None:
    assert make(5) == make(5) != make(6)
    assert hash(make(5)) == hash(make(5))
    assert make(5).releases == 5
    for wrong in (0, -1, 2.5):
        with pytest.raises(ConfigurationError, match="releases"):
            make(wrong)  # type: ignore[arg-type]


def test_the_page_s_skeleton_can_be_deployed_as_it_is(rng: np.random.Generator) -> None:
    encoder, decoder = make_encoder(SKELETON(6), 3), make_decoder(SKELETON(6), 3)
    batches = rng.integers(-1000, 1000, (6, 3)) << FINE_BITS
    for release, batch in enumerate(batches, start=1):
        read = decoder.decode(encoder.encode(batch))
        # The encoder is shrunk by 2^-32 and rows are rounded to whole steps: k of them are added up.
        np.testing.assert_allclose(
            read, batches[:release].sum(axis=0) / 2.0**FINE_BITS, atol=0.5 * release + 0.01
        )


@ALL
@pytest.mark.parametrize("releases", SIZES)
def test_streamed_noise_is_the_decoder_times_the_draws(
    make: Make, releases: int, rng: np.random.Generator
) -> None:
    mechanism = make(releases)
    decoder, memory, first = mechanism.decoder(), (), 0
    fresh = rng.normal(size=(decoder.shape[1], 2, 3))
    state: mechanisms.Memory = memory
    errors = []
    for release in range(1, releases + 1):
        rows = mechanism.rows(release)
        state, noise = mechanism.correlate(state, release, fresh[first : first + rows])
        first += rows
        np.testing.assert_allclose(noise, np.tensordot(decoder[release - 1], fresh, axes=1), atol=1e-10)
        errors.append(mechanism.error(release))
        assert errors[-1] == pytest.approx(float(np.linalg.norm(decoder[release - 1])))
    assert mechanism.worst_error() == pytest.approx(max(errors))


def test_release_19_of_the_tree_carries_popcount_of_19_noises() -> None:
    tree = mechanisms.BinaryTree(32)
    memory: mechanisms.Memory = ()
    carried = []
    for release in range(1, 33):
        memory, noise = tree.correlate(memory, release, np.ones((1, 1)))
        carried.append(float(noise[0]) / math.sqrt(tree.touched))
    assert carried[18] == pytest.approx(3.0)
    assert carried == pytest.approx([release.bit_count() for release in range(1, 33)])
    assert len(memory) == tree.touched == 6  # a record touches bit_length(n) nodes; so many are kept


# Worst-release error in units of R²/μ; the figures are the specification's, and 1 % above them fails.
@pytest.mark.parametrize(
    ("make", "releases", "expected"),
    [
        (mechanisms.BinaryTree, 8, 3.46),
        (mechanisms.BinaryTree, 128, 7.48),
        (mechanisms.BinaryTree, 1024, 10.5),
        (mechanisms.SquareRootToeplitz, 8, 1.72),
        (mechanisms.SquareRootToeplitz, 128, 2.61),
        (mechanisms.SquareRootToeplitz, 1024, 3.27),
        (mechanisms.Dense, 8, 1.51),
        (mechanisms.Dense, 16, 1.70),
        (mechanisms.Dense, 32, 1.91),
        (mechanisms.Dense, 128, 2.32),
        (mechanisms.BufferedToeplitz, 1024, 3.28),
        (mechanisms.BufferedToeplitz, 16_384, 4.16),
        (mechanisms.BufferedToeplitz, 1_000_000, 5.50),
    ],
)
def test_worst_release_error_is_the_published_one(make: Make, releases: int, expected: float) -> None:
    mechanism = make(releases)
    assert mechanism.worst_error() <= 1.01 * expected


@pytest.mark.parametrize("releases", [1, 2, 16, 64, 128])
def test_no_factorisation_at_all_is_better_than_the_dense_one(releases: int) -> None:
    factors = optimal_factors(releases)
    worst = float(np.linalg.norm(factors.decoder, axis=1).max())
    assert worst <= factors.lower_bound * (1 + 1e-5)  # the certificate: a dual solution of equal value


def test_a_million_releases_need_little_noise_and_little_state() -> None:
    blt = mechanisms.BufferedToeplitz(1_000_000)
    assert blt.worst_error() < 6.0
    memory, _ = blt.correlate((), 1, np.ones((1, 65)))
    assert sum(part.nbytes for part in memory if part is not None) < 1_000_000


def test_stretched_columns_beat_the_plain_square_root_at_every_release() -> None:
    plain, stretched = mechanisms.SquareRootToeplitz(64), mechanisms.BufferedToeplitz(64)
    for release in range(1, 65):
        assert stretched.error(release) <= 1.01 * plain.error(release)  # three poles, not the exact root


def test_auto_takes_the_least_noise_for_the_number_of_releases() -> None:
    assert mechanisms.choose_mechanism("auto", 64).name == "dense"
    assert mechanisms.choose_mechanism("auto", 10_000).name == "blt"
    with pytest.raises(ConfigurationError, match="'bush'"):
        mechanisms.choose_mechanism("bush", 4)


@pytest.mark.parametrize("quiet", [1, 3, 7])
def test_a_quiet_start_is_paid_by_releases_that_nobody_reads(quiet: int) -> None:
    """It is safe like any other, and later releases have the noise of a stream that is so much shorter."""
    mechanism = mechanisms.Dense(8, quiet)
    encoder, decoder = mechanism.encoder(), mechanism.decoder()
    np.testing.assert_allclose(decoder @ encoder, np.tri(8), atol=1e-10)
    assert np.linalg.norm(encoder, axis=0).max() <= 1.0
    assert (encoder.T @ encoder).min() >= 0.0
    assert encoder.min() >= 0.0
    shorter = mechanisms.Dense(8 - quiet)
    assert mechanism.worst_error() == pytest.approx(shorter.worst_error(), rel=5e-3)
    for release in range(quiet + 1, 9):
        assert mechanism.error(release) == pytest.approx(shorter.error(release - quiet), rel=5e-3)
    for release in range(1, quiet + 1):
        assert mechanism.error(release) >= 20.0  # and so nobody reads it


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: mechanisms.Dense(257), "releases is 257, expected at most 256"),
        (lambda: mechanisms.Dense(8, 8), "quiet is 8, expected below the 8 releases"),
        (lambda: mechanisms.Dense(8, -1), "quiet is -1, expected a whole number"),
        (lambda: mechanisms.BufferedToeplitz(2**24 + 1), "releases is 16777217, expected at most 16777216"),
    ],
)
def test_what_a_mechanism_was_not_made_for_is_refused(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        make()


def test_factors_that_are_shared_cannot_be_written_into() -> None:
    """All streams of a process read the same arrays: who wrote into one would change all noise."""
    for mechanism in (mechanisms.Dense(5), mechanisms.Dense(5, 2), mechanisms.SquareRootToeplitz(5)):
        for matrix in (mechanism.encoder(), mechanism.decoder()):
            with pytest.raises(ValueError, match="read-only"):
                matrix[0, 0] = 0.0


@pytest.mark.parametrize("spoilt", [1.0 + 1e-9, -0.1])
def test_a_factorisation_without_privacy_is_never_handed_out(spoilt: float) -> None:
    """Columns longer than 1, or that point apart, are caught where factors are made."""
    encoder = np.eye(2)
    encoder[1, 0 if spoilt < 0 else 1] = spoilt
    with pytest.raises(ArithmeticError, match="no privacy"):
        _frozen(Factors(encoder, np.eye(2), 0.0))


def test_errors_of_long_streams_do_not_depend_on_how_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row norms of blt come in chunks that hand variances on."""
    blt = mechanisms.BufferedToeplitz(90)
    whole = [blt.error(release) for release in range(1, 91)]
    monkeypatch.setattr(buffered, "_CHUNK", 16)
    buffered._row_norm_chunk.cache_clear()
    assert [blt.error(release) for release in range(1, 91)] == pytest.approx(whole, rel=1e-12)
    assert blt.worst_error() == pytest.approx(max(whole), rel=1e-12)
    buffered._row_norm_chunk.cache_clear()


@pytest.mark.parametrize("rates", [[0.1], [0.2, 0.1], [0.0, 0.5], [0.1, 1.1], [0.3, 0.3]])
def test_rates_that_do_not_interlace_are_refused(rates: list[float]) -> None:
    with pytest.raises(ValueError, match="rising rates"):
        buffered.Rates(rates)


def test_the_shipped_rates_have_positive_weights_and_stay_near_the_square_root() -> None:
    """Positive weights make every entry of E positive; the table promises two thousandths of excess."""
    for size, rates in buffered._table().items():
        assert (rates.weights > 0.0).all()
        assert (rates.falls > 0.0).all()
        if size <= 1024:
            blt = mechanisms.BufferedToeplitz(size)
            assert blt.error(size) <= 1.01 * mechanisms.SquareRootToeplitz(size).error(size)


def test_a_decoder_that_is_streamed_is_the_one_that_trees_are_read_with() -> None:
    """Release k of the plain tree sums the nodes of its set bits, each scaled by √bit_length(n)."""
    tree = mechanisms.BinaryTree(13)
    expected = np.zeros((13, 13))
    for release in range(1, 14):
        end = release
        while end:
            expected[release - 1, end - 1] = math.sqrt(4.0)
            end &= end - 1
    np.testing.assert_array_equal(tree.decoder(), expected)
