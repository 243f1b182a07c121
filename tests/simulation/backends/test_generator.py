"""The random numbers of the compiled loops have the laws they claim.

Seeded, so that each test passes always or never. A false-alarm rate is the chance that a perfect generator
would have failed under the seed that was chosen.
"""

from __future__ import annotations

import numba
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from feducb.simulation.backends import generator

Words = NDArray[np.uint32]

RARE = 1e-7  # the false-alarm rate of one look; no test takes more than 200


@numba.njit(error_model="numpy")
def _words(counters: Words, out: Words) -> None:
    for i in range(len(counters)):
        c = counters[i]
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = generator.philox(c[0], c[1], c[2], c[3], c[4], c[5])


@numba.njit(error_model="numpy")
def _numbers(words: Words, means: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    for i in range(len(words)):
        w = words[i]
        out[0, i] = generator.uniform(w[0])
        out[1, i] = generator.exponential(w[0])
        out[2, i], out[3, i] = generator.normal_pair(w[0], w[1])
        out[4, i] = generator.beta_attempt(means[i], w[2], w[3])


@numba.njit(error_model="numpy")
def _powers(bases: NDArray[np.float32], exponents: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    for i in range(len(bases)):
        out[i] = generator.power(bases[i], exponents[i])


def words(count: int, axis: int, *, start: int = 0) -> Words:
    """Random words (count, 4), along one axis of (number, block, round, agent, seed, run)."""
    counters = np.tile(np.array([1, 2, 3, 4, 5, 6], np.uint32), (count, 1))
    counters[:, axis] = np.arange(start, start + count)
    out = np.empty((count, 4), np.uint32)
    _words(counters, out)
    return out


def numbers(count: int, mean: float = 0.5) -> NDArray[np.float64]:
    out = np.empty((5, count), np.float32)
    _numbers(words(count, 2), np.full(count, mean, np.float32), out)
    return out.astype(np.float64)


def test_it_is_philox_as_published() -> None:
    # Random123's known answers for philox4x32 with 7 rounds.
    known = {
        (0,) * 6: (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48),
        (0xFFFFFFFF,) * 6: (0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0): (
            0x4DFCCABA,
            0x190A87F0,
            0xC47362BA,
            0xB6B5242A,
        ),
    }
    assert generator.ROUNDS == 7
    out = np.empty((len(known), 4), np.uint32)
    _words(np.array(list(known), np.uint32), out)
    np.testing.assert_array_equal(out, np.array(list(known.values()), np.uint32))


@pytest.mark.parametrize("axis", range(6))
def test_words_are_uniform_and_independent_along_every_axis(axis: int) -> None:
    # 6 axes × 4 words × 7 looks: false-alarm rate below 2e-5.
    count = 2**17
    drawn = words(count, axis)
    for column in range(4):
        word = drawn[:, column]
        for shift in (0, 12, 24):
            cells = np.bincount((word >> np.uint32(shift)) & np.uint32(255), minlength=256)
            assert stats.chisquare(cells).pvalue > RARE
        ones = ((word[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).sum(axis=0)
        assert stats.binomtest(int(ones.max()), count).pvalue > RARE / 32
        assert stats.binomtest(int(ones.min()), count).pvalue > RARE / 32
        unit = word / 2.0**32 - 0.5
        pairs = np.bincount((word[:-1] >> 27) * 32 + (word[1:] >> 27), minlength=1024)[None]
        assert stats.chisquare(pairs[0]).pvalue > RARE
        lags = np.array([unit[:-lag] @ unit[lag:] for lag in (1, 2, 3, 16, 100, 128, 1000)])
        assert np.abs(lags).max() * 12.0 / np.sqrt(count) < stats.norm.isf(RARE / 14)


def test_words_of_one_block_and_of_neighbouring_keys_are_independent() -> None:
    # 10 + 30 looks: false-alarm rate 4e-6.
    count = 2**17
    base = words(count, 2) / 2.0**32 - 0.5
    limit = stats.norm.isf(RARE / 2) / 12.0 * np.sqrt(count)
    across = base.T @ base
    assert np.abs(across[np.triu_indices(4, 1)]).max() < limit
    for axis in (0, 1, 3, 4, 5):
        counters = np.tile(np.array([1, 2, 3, 4, 5, 6], np.uint32), (count, 1))
        counters[:, 2] = np.arange(count)
        counters[:, axis] += np.uint32(1)
        other = np.empty((count, 4), np.uint32)
        _words(counters, other)
        assert np.abs(base.T @ (other / 2.0**32 - 0.5)).max() < limit


def test_one_bit_of_the_counter_turns_half_of_the_word() -> None:
    # 192 input bits × 128 output bits, 4096 trials each: |z| < 6.5 at a rate of 2e-6 over all.
    trials = 4096
    rng = np.random.default_rng(1)
    counters = rng.integers(0, 2**32, (trials, 6), dtype=np.uint32)
    base, flipped = np.empty((trials, 4), np.uint32), np.empty((trials, 4), np.uint32)
    _words(counters, base)
    for axis in range(6):
        for bit in range(32):
            changed = counters.copy()
            changed[:, axis] ^= np.uint32(1 << bit)
            _words(changed, flipped)
            turned = ((base ^ flipped)[:, :, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
            z = (turned.sum(axis=0) - trials / 2) / np.sqrt(trials / 4)
            assert np.abs(z).max() < 6.5


def test_uniform_exponential_and_normal_numbers() -> None:
    # Kolmogorov–Smirnov and tails; 12 looks: false-alarm rate 1.2e-6.
    count = 400_000
    uniform, exponential, first, second, _ = numbers(count)
    assert 0.0 < uniform.min() <= uniform.max() <= 1.0
    assert stats.kstest(uniform, "uniform").pvalue > RARE
    assert stats.kstest(exponential, "expon").pvalue > RARE
    for normal in (first, second):
        assert stats.kstest(normal, "norm").pvalue > RARE
        for tail in (3.0, 4.0):
            beyond = int((np.abs(normal) > tail).sum())
            assert stats.binomtest(beyond, count, 2 * stats.norm.sf(tail)).pvalue > RARE
    for one, other in ((first, second), (first**2 - 1, second**2 - 1), (first[1:], first[:-1])):
        z = (one * other).mean() / (one * other).std() * np.sqrt(len(one))
        assert abs(z) < stats.norm.isf(RARE / 2)
    angle = np.arctan2(second, first) / (2 * np.pi) + 0.5
    assert stats.kstest(angle, "uniform").pvalue > RARE


@pytest.mark.parametrize("mean", [0.02, 0.3, 0.5, 0.55, 0.75, 0.8, 0.97])
def test_beta_numbers(mean: float) -> None:
    # 2 looks at each of 7 means: false-alarm rate 1.4e-6.
    count = 300_000
    beta = numbers(count, mean)[4]
    accepted = beta[beta >= 0.0]
    chance = mean * (1 - mean) * np.pi / np.sin(np.pi * mean)  # Γ(1 + p) Γ(2 − p)
    assert stats.binomtest(len(accepted), count, chance).pvalue > RARE
    # Kolmogorov–Smirnov where single precision can tell a number from 0 and 1.
    rising = np.sort(accepted)
    gap = np.abs(stats.beta(mean, 1 - mean).cdf(rising) - np.arange(1, len(rising) + 1) / len(rising))
    inside = (rising > 1e-28) & (rising < 1.0 - 1e-6)
    assert stats.kstwo.sf(gap[inside].max() - 1.0 / len(rising), len(rising)) > RARE


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_a_certain_reward_is_certain(mean: float) -> None:
    beta = numbers(10_000, mean)[4]
    np.testing.assert_allclose(beta[beta >= 0.0], mean, atol=1e-30)
    assert (beta >= 0.0).mean() > 0.99


def test_polynomials_are_as_exact_as_single_precision() -> None:
    word = np.concatenate([np.arange(2000), 2**32 - 1 - np.arange(2000), np.arange(0, 2**32, 2**20)])
    drawn = np.stack([word, word, word, word], axis=1).astype(np.uint32)
    out = np.empty((5, len(word)), np.float32)
    _numbers(drawn, np.full(len(word), 0.5, np.float32), out)
    uniform, exponential, first, second, _ = out.astype(np.float64)
    np.testing.assert_allclose(exponential, -np.log(uniform), rtol=4e-7, atol=1e-12)
    np.testing.assert_allclose(first**2 + second**2, 2 * exponential, rtol=1e-6, atol=1e-12)
    # The angle's word, read as a turn: two bits say which quarter, the others where in it.
    quarter = (word >> 30).astype(int)
    rest = (word & (2**30 - 1)).astype(np.int64)
    x = np.where(rest >= 2**29, rest - 2**30, rest) * (np.pi / 2 / 2**30)
    side = np.where(quarter >= 2, -1.0, 1.0) * np.cos(x)
    swap = quarter % 2 == 1
    radius = np.sqrt(2 * exponential)
    np.testing.assert_allclose(first, radius * np.where(swap, np.sin(x), side), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(second, radius * np.where(swap, side, np.sin(x)), rtol=2e-6, atol=1e-6)

    rng = np.random.default_rng(2)
    base, exponent = rng.random(10_000).astype(np.float32), rng.uniform(0.5, 4.0, 10_000).astype(np.float32)
    power = np.empty(10_000, np.float32)
    _powers(base, exponent, power)
    np.testing.assert_allclose(power, base.astype(float) ** exponent.astype(float), rtol=4e-6)
