"""Noise that is shared out: its law, what it costs, and what absences do; docs/theory.md, 9."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError, PrivacyError
from feducb.models import LINEAR
from feducb.privacy.calibration import to_epsilon, to_mu
from feducb.privacy.grid import Certificate, GridNoise, certify
from feducb.privacy.mechanisms import BinaryTree, BufferedToeplitz, Dense, Mechanism, SquareRootToeplitz
from feducb.privacy.noise_law import mixture_threshold
from feducb.privacy.terms import Terms
from feducb.trust import Keepers

BUDGET = Budget(epsilon=1.0, delta=1e-6)
MECHANISMS = [
    Dense(2),
    Dense(64),
    Dense(64, 0, 1.05),
    Dense(14, 3, 1.7),
    SquareRootToeplitz(64),
    BufferedToeplitz(64),
    BinaryTree(16),
]


def _kappa(s: float) -> float:
    return 2.0 * sum(math.exp(-2.0 * (math.pi * s * m) ** 2) for m in range(1, 9))


def _discrete_gaussian(variance: float, reach: int) -> np.ndarray:
    """Probabilities of −reach … reach."""
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2.0 * variance))
    return np.asarray(weights / weights.sum())


def _factor(s: float, shares: int) -> tuple[float, float, float]:
    """Of the law: c_h, and both products over i < h."""
    kappas = [_kappa(s * math.sqrt(i / (i + 1))) for i in range(1, shares)]
    constant = (1.0 + _kappa(s * math.sqrt(shares))) / (1.0 + _kappa(s)) ** shares
    return constant, math.prod(1.0 - one for one in kappas), math.prod(1.0 + one for one in kappas)


def _against_one_noise(s: float, shares: int) -> np.ndarray:
    """A sum of shares over one discrete Gaussian of their variance, within four deviations."""
    one = _discrete_gaussian(s * s, 60)
    summed = one
    for _ in range(shares - 1):
        summed = np.convolve(summed, one)
    reach = 60 * shares
    near = np.abs(np.arange(-reach, reach + 1)) <= 4.0 * s * math.sqrt(shares)
    return np.asarray(summed[near] / _discrete_gaussian(shares * s * s, reach)[near])


@pytest.mark.parametrize("s", [0.5, 0.6, 0.8, 1.0, 1.2])
@pytest.mark.parametrize("shares", [2, 3, 5, 8])
def test_a_sum_of_shares_is_one_discrete_gaussian_but_for_the_stated_factor(s: float, shares: int) -> None:
    ratio, (constant, low, high) = _against_one_noise(s, shares), _factor(s, shares)
    assert ratio.min() >= constant * low - 1e-13
    assert ratio.max() <= constant * high + 1e-13
    assert constant <= 1.0


@pytest.mark.parametrize("s", [0.5, 0.6, 0.8, 1.0])
def test_the_factor_is_attained_by_two_shares_and_its_constant_is_needed(s: float) -> None:
    ratio, (constant, low, high) = _against_one_noise(s, 2), _factor(s, 2)
    assert ratio.max() == pytest.approx(constant * high, abs=1e-13)
    assert ratio.min() < low - 1e-9


def test_at_sixteen_steps_nothing_is_left_of_the_factor() -> None:
    assert math.log10(2.0) - 2.0 * (math.pi * 16.0) ** 2 / 2.0 / math.log(10.0) < -1096.0


def _terms(agents: int, trust: Keepers, **changes: object) -> Terms:
    plain: dict[str, object] = {
        "problem": Problem(dim=3),
        "budget": BUDGET,
        "releases": 6,
        "trust": trust,
        "agents": agents,
    }
    return Terms(**(plain | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(("agents", "away", "colluding"), [(100, 10, 20), (16, 2, 3), (4, 1, 1), (10, 0, 8)])
def test_the_shares_that_are_sure_to_be_there_make_up_one_noise(
    agents: int, away: int, colluding: int
) -> None:
    """Hs² is σ² of the claim, to a whole step each; with a share of σ/√M instead the claim is not reached."""
    made = _terms(agents, Keepers(away, colluding)).certificate()
    assert made.shares == agents - away - colluding
    needed = made.sensitivity / to_mu(BUDGET) / 2.0**made.exponent  # of one noise, in steps
    assert needed <= math.sqrt(made.shares) * made.sigma <= (needed + math.sqrt(made.shares)) * (1.0 + 1e-6)
    assert made.mu <= to_mu(BUDGET)
    with pytest.raises(PrivacyError, match="does not reach the claim"):
        replace(made, sigma=math.ceil(made.sigma * math.sqrt(made.shares / agents))).check()


def test_what_fewer_honest_shares_cost() -> None:
    """The figures of docs/theory.md, 9; the certificate's smoothing does not show in them."""

    def epsilons(made: Certificate, *counts: int) -> list[float]:
        return [to_epsilon(made.mu_with(count), BUDGET.delta) for count in counts]

    hundred, ten = (_terms(agents, Keepers()).certificate() for agents in (100, 10))
    assert (hundred.shares, ten.shares) == (70, 7)
    assert epsilons(hundred, 70, 50, 35, 17, 1) == pytest.approx([1.0, 1.199, 1.455, 2.157, 10.867], rel=5e-4)
    assert epsilons(ten, 1) == pytest.approx([2.890], rel=5e-4)
    # without a colluder counted every member, who knows its own share, would have one share fewer before it
    assert [to_epsilon(to_mu(BUDGET) * math.sqrt(h / (h - 1)), BUDGET.delta) for h in (2, 3, 70)] == (
        pytest.approx([1.455, 1.245, 1.008], rel=5e-4)
    )


def test_a_share_of_fewer_than_sixteen_steps_is_refused_however_many_there_are() -> None:
    narrow = Certificate(
        budget=BUDGET, sensitivity=100.0, exponent=0, sigma=15, coordinates=5, releases=6, shares=1000
    )
    with pytest.raises(ConfigurationError, match="noise is between 16 and"):
        narrow.check()
    replace(narrow, sigma=16).check()


def test_the_certificate_covers_a_record_that_is_at_another_agent_in_the_other_world() -> None:
    """Both agents' rows are then rounded otherwise."""
    made = certify(BUDGET, sensitivity=2.0, coordinates=9, releases=16, shares=7)
    step = 2.0**made.exponent
    assert made.sensitivity >= 2.0 + step * 3.0 * (1.0 + 2.0 * 4.0)
    assert made.sensitivity <= 2.0 * (1.0 + 2.0**-15)


def test_a_person_costs_what_she_has_at_all_agents_together() -> None:
    one, several = (
        _terms(20, Keepers(), records_per_person=p, agents_per_person=k).certificate()
        for p, k in ((1, 1), (2, 3))
    )
    assert several.sigma == pytest.approx(6 * one.sigma, rel=1e-5)
    assert Keepers().spend([0.2] * 3, [1, 2, 4]) == pytest.approx(0.2 * 7)


def test_drawn_shares_add_up_to_their_variance() -> None:
    """54,000 sums of 3 shares, M = 4, D = C = 1: within 3 % is 4.9 deviations, false alarms 2e-6.

    A share off by 3 % in deviation, 6 % in variance, is missed with a chance of 1e-6. Without the colluder's
    share the sum has still σ² of one noise, by the same 3 %.
    """
    sums, made = 54_000, _terms(4, Keepers(1, 1)).certificate()
    shares = GridNoise(made).draw(3 * sums).reshape(3, sums) / float(made.sigma)
    squares = float((shares.sum(axis=0) ** 2).mean())
    assert squares == pytest.approx(3.0, rel=0.03)
    one_noise = (made.sensitivity / to_mu(BUDGET) / made.scale) ** 2
    assert float((shares[:2].sum(axis=0) ** 2).mean()) >= 0.97 * one_noise


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_whoever_misses_rows_has_weights_from_0_to_1_and_shorter_columns(mechanism: Mechanism) -> None:
    encoder, decoder = np.asarray(mechanism.encoder()), np.asarray(mechanism.decoder())
    assert min(encoder.min(), decoder.min()) >= 0.0
    whole = encoder.T @ encoder
    rng = np.random.default_rng(5)
    for missing in (0.05, 0.2, 0.7):
        sent = rng.random(encoder.shape[0]) >= missing
        weights = decoder[:, sent] @ encoder[sent]
        assert -1e-12 <= weights.min() <= weights.max() <= 1.0 + 1e-12
        products = encoder[sent].T @ encoder[sent]
        assert products.min() >= 0.0
        assert (products <= whole + 1e-12).all()


def test_what_missing_a_row_and_moving_a_spent_batch_would_do() -> None:
    """The figures of docs/theory.md, 9, for 64 releases."""
    mechanism = Dense(64)
    encoder, decoder = np.asarray(mechanism.encoder()), np.asarray(mechanism.decoder())
    sent = np.arange(64) != 30
    weights = decoder[:, sent] @ encoder[sent]
    assert weights[[30, 31, 63], :30].mean(axis=1) == pytest.approx([0.815, 0.907, 0.978], abs=1e-3)
    own = weights[[30, 31, 32, 33, 63], 30]
    assert own == pytest.approx([0.0, 0.5, 0.625, 0.688, 0.881], abs=1e-3)
    diagonal, lengths = np.diag(encoder) ** 2, (encoder**2).sum(axis=0)
    assert math.sqrt((diagonal[:-1] + lengths[1:]).max()) == pytest.approx(1.353, abs=1e-3)
    assert math.sqrt(diagonal.sum()) == pytest.approx(5.596, abs=1e-3)


def _mean_start(scale: float, shares: np.ndarray, threshold: float, rng: np.random.Generator) -> float:
    """E min(1, Σ_k M_k(0)/x) over 20,000 draws: d = 3, S = 1, weight 0.7, prior 1, at planned variances.

    ``shares`` (8,) says what part of the planned variance the noise of each row really has.
    """
    decoder = np.asarray(Dense(8).decoder())
    scales = LINEAR.residual_scales(Problem(dim=3), 0.7)
    fresh = rng.normal(size=(20_000, 8, 3)) * np.sqrt(scales * shares[:, None]) * scale
    squared = (np.einsum("kr,nrd->nkd", decoder, fresh) ** 2).sum(axis=-1)
    noise = (scale * np.linalg.norm(decoder, axis=1)) ** 2 * scales[0]
    priors = 0.5 * noise + 1.0
    starts = (1.0 + noise / priors) ** -1.5 * np.exp(0.5 * squared / (noise + priors))
    return float(np.minimum(1.0, starts.sum(axis=1) / math.exp(threshold)).mean())


@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_read_at_the_planned_variance_fewer_shares_never_break_the_threshold(scale: float) -> None:
    """Anderson's inequality on attendance drawn at random, some rows nearly empty.

    Draws lie in [0, 1] with mean at most α = 0.1: Chernoff's bound, false alarms 1e-6 a case.
    """
    scales = tuple(LINEAR.residual_scales(Problem(dim=3), 0.7).tolist())
    threshold = mixture_threshold(Dense(8), scales, 0.1, first=1, scale=scale, prior=1.0)
    rng = np.random.default_rng(11)
    margin = 1.1 * math.sqrt(2.0 * math.log(1e6) * 0.1 / 20_000)
    planned = _mean_start(scale, np.ones(8), threshold, rng)
    assert 0.075 - margin <= planned <= 0.1 + margin
    for least in (0.9, 0.5, 0.0):
        shares = rng.uniform(least, 1.0, 8)
        assert _mean_start(scale, shares, threshold, rng) <= planned + margin
