"""Encoders in whole numbers: exact rows, states that survive any size, and refusals that leave no trace."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from feducb.errors import ConfigurationError, PrivacyError
from feducb.privacy import encoders
from feducb.privacy.encoders import make_encoder
from feducb.privacy.grid import FINE_BITS, MAX_VALUE, ROUNDING_STEPS
from feducb.privacy.mechanisms import BufferedToeplitz, Mechanism, OptimalTree, choose_mechanism

SEVERAL = pytest.mark.parametrize(
    ("mechanism", "releases"), [("dense", 8), ("tree", 8), ("toeplitz", 8), ("blt", 8), ("blt", 40)]
)


@dataclass(frozen=True, slots=True)
class Given(Mechanism):
    """A mechanism with any encoder."""

    name: ClassVar[str] = "given"
    first: float = 1.0
    second: float = 0.0

    def encoder(self) -> np.ndarray:
        return np.array([[self.first, 0.0], [self.second, 1.0]])

    def decoder(self) -> np.ndarray:
        return np.asarray(np.tri(2) @ np.linalg.inv(self.encoder()))


def _rows(
    mechanism: str, releases: int, batches: np.ndarray, restart_at: int | None = None
) -> list[list[int]]:
    """All rows of a stream; written to bytes and read back before one of them if asked."""
    encoder, rows = make_encoder(choose_mechanism(mechanism, releases), batches.shape[1]), []
    for number, batch in enumerate(batches):
        if number == restart_at:
            state, encoder = (
                encoder.dump(),
                make_encoder(choose_mechanism(mechanism, releases), batches.shape[1]),
            )
            encoder.load(state)
        rows.append(encoder.encode(batch).tolist())
    return rows


@SEVERAL
def test_rows_move_no_further_than_the_exact_ones_and_the_rounding_that_was_counted(
    mechanism: str, releases: int
) -> None:
    """The sensitivity allows each row `ROUNDING_STEPS` more between two worlds: half of that in each."""
    rng = np.random.default_rng(2)
    batches = rng.integers(-(2**44), 2**44, size=(releases, 3))
    exact = choose_mechanism(mechanism, releases).encoder() @ (batches / 2.0**FINE_BITS)
    rows = np.array(_rows(mechanism, releases, batches))
    # E is shrunk by 2^-32 at most, and floats carry 53 bits; rows here are up to 2^31
    np.testing.assert_allclose(rows, exact, atol=ROUNDING_STEPS / 2.0 + 2.0, rtol=0.0)


@SEVERAL
def test_a_stream_is_linear_up_to_rounding(mechanism: str, releases: int) -> None:
    """A record's move does not depend on what else is in the sums: the heart of the sensitivity."""
    rng = np.random.default_rng(3)
    others = rng.integers(-(2**50), 2**50, size=(releases, 3))
    record = np.zeros_like(others)
    record[releases // 3] = rng.integers(-(2**40), 2**40, 3)
    moved = np.subtract(_rows(mechanism, releases, others + record), _rows(mechanism, releases, others))
    alone = np.array(_rows(mechanism, releases, record))
    assert np.abs(moved - alone).max() <= 1


@SEVERAL
def test_a_restart_before_any_release_changes_no_row(mechanism: str, releases: int) -> None:
    rng = np.random.default_rng(4)
    batches = rng.integers(-(2**40), 2**40, size=(releases, 3))
    straight = _rows(mechanism, releases, batches)
    for restart_at in range(releases if releases < 10 else 3):
        assert _rows(mechanism, releases, batches, restart_at) == straight


@pytest.mark.parametrize("mechanism", ["dense", "blt"])
@pytest.mark.parametrize("size", [2**61, 2**62, 2**70])
def test_a_state_with_sums_beyond_64_bits_is_written_in_full(mechanism: str, size: int) -> None:
    """Uploads of many agents may add up beyond 64 bits: both widths of the state, and signs, come back."""
    first, second = (make_encoder(choose_mechanism(mechanism, 4), 2) for _ in range(2))
    first.encode(np.array([size, -size + 1], dtype=object))
    second.load(first.dump())
    assert second.dump() == first.dump()
    later = np.array([5 << FINE_BITS, -(7 << FINE_BITS)], dtype=object)
    ahead, behind = first.encode(later), second.encode(later)
    assert ahead.tolist() == behind.tolist()


@pytest.mark.parametrize("mechanism", ["dense", "tree", "blt"])
def test_a_sum_that_does_not_fit_is_refused_and_leaves_no_trace(mechanism: str) -> None:
    encoder = make_encoder(choose_mechanism(mechanism, 4), 2)
    encoder.encode(np.array([1 << 40, 3], dtype=object))
    before = encoder.dump()
    with pytest.raises(OverflowError, match="does not fit the grid"):
        encoder.encode(np.array([0, MAX_VALUE << (FINE_BITS + 4)], dtype=object))
    assert encoder.dump() == before


def test_rounding_goes_to_the_nearest_and_the_largest_value_still_fits() -> None:
    values = np.array([0, 7, 8, 9, -7, -8, -9, 24, 40], dtype=object)
    assert encoders._round(values, 4).tolist() == [0, 0, 1, 1, 0, 0, -1, 2, 3]
    for sign in (1, -1):
        assert encoders._round(np.array([sign * MAX_VALUE << 4], dtype=object), 4).tolist() == [
            sign * MAX_VALUE
        ]
        with pytest.raises(OverflowError, match="does not fit"):
            encoders._round(np.array([sign * (MAX_VALUE + 1) << 4], dtype=object), 4)


@pytest.mark.parametrize("times", [0, 1, 2, 3, 17, 1000, 2**20])
def test_powers_are_rounded_down_and_by_little(times: int) -> None:
    """Rounded up, columns would be taken for shorter than they are."""
    for decay in (2**50 - 1, 2**49 + 12345, 3):
        rounded = encoders._power(decay, times)
        if times <= 1000:
            exact = Fraction(decay, 2**50) ** times * 2**128
            assert 0 <= exact - rounded < max(1, 4 * times)
        assert 0 <= rounded <= 2**128


def test_an_encoder_whose_columns_are_too_long_or_point_apart_is_refused() -> None:
    make_encoder(Given(2, 0.8, 0.6), 1)  # exactly 1 long
    with pytest.raises(PrivacyError, match="longer than 1"):
        make_encoder(Given(2, 0.8, 0.601), 1)
    with pytest.raises(PrivacyError, match="negative entry"):
        make_encoder(Given(2, 0.8, -0.1), 1)


def test_what_publishes_several_rows_is_refused_however_late_it_does() -> None:
    with pytest.raises(ConfigurationError, match="mechanism is 'optimal-tree', expected one that"):
        make_encoder(OptimalTree(2), 1)
    make_encoder(OptimalTree(1), 1)  # one release, one node


def test_fixed_point_only_shortens() -> None:
    """Every entry rounded towards zero: a column in whole numbers is never longer than the exact one."""
    for name in ("dense", "tree", "toeplitz"):
        mechanism = choose_mechanism(name, 24)
        fixed = make_encoder(mechanism, 1)._fixed / 2.0**40  # type: ignore[attr-defined]
        exact = mechanism.encoder()
        assert (fixed <= exact).all()
        np.testing.assert_allclose(fixed, exact, atol=2.0**-31)


def test_a_buffer_forgets_at_its_pole_and_carries_the_weights() -> None:
    """Column j of E as the mechanism says it in floats, and as buffers run it in whole numbers."""
    mechanism = BufferedToeplitz(30)
    exact, unit = mechanism.encoder(), 2**36
    for column in (0, 7, 29):
        batches = np.zeros((30, 1), dtype=object)
        batches[column] = unit << FINE_BITS
        rows = np.array(_rows("blt", 30, batches), dtype=np.float64)[:, 0] / unit
        np.testing.assert_allclose(rows, exact[:, column], atol=1e-10)
