"""The deployed door: right sums, right noise, whole numbers, and nothing that it should not let through."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle

import numpy as np
import pytest
from scipy import stats

from feducb.config import Budget, Problem
from feducb.errors import (
    ConfigurationError,
    PrivacyError,
    RecordOutOfBoundsError,
    ReleasesExhaustedError,
    UnsealedReleaseError,
)
from feducb.privacy import calibration, grid
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.encoders import make_decoder, make_encoder
from feducb.privacy.mechanisms import choose_mechanism
from feducb.privacy.terms import Neighbours, Terms
from feducb.privacy.uploads import decode_upload, encode_upload
from feducb.trust import Keepers

DEPLOYABLE = [("dense", 6), ("tree", 6), ("toeplitz", 6), ("blt", 6), ("auto", 300)]


def _terms(**changes: object) -> Terms:
    settings: dict[str, object] = {
        "problem": Problem(dim=2),
        "budget": Budget(epsilon=1.0, delta=1e-6),
        "releases": 6,
    }
    return Terms(**(settings | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(("mechanism", "releases"), DEPLOYABLE)
def test_without_noise_the_decoded_rows_are_the_prefix_sums(mechanism: str, releases: int) -> None:
    chosen = choose_mechanism(mechanism, releases)
    encoder, decoder = make_encoder(chosen, 5), make_decoder(chosen, 5)
    rng = np.random.default_rng(1)
    batches = rng.integers(-(2**40), 2**40, size=(releases, 5))
    so_far = np.zeros(5)
    for batch in batches:
        so_far += batch / 2.0**grid.FINE_BITS
        told = decoder.decode(encoder.encode(batch))
        # each row is rounded by up to half a step, and decoding adds the rounding errors up
        np.testing.assert_allclose(told, so_far, atol=0.5 * releases, rtol=1e-9)


@pytest.mark.parametrize(("mechanism", "releases"), DEPLOYABLE)
def test_the_deployed_encoder_is_linear_with_columns_at_most_one(mechanism: str, releases: int) -> None:
    chosen, size = choose_mechanism(mechanism, releases), 2**30 << grid.FINE_BITS
    for place in {0, releases // 2, releases - 1}:
        encoder = make_encoder(chosen, 1)
        column = []
        for release in range(releases):
            row = encoder.encode(np.array([size if release == place else 0]))
            column.append(int(row[0]))
        assert sum(entry**2 for entry in column) <= (2**30 + 1) ** 2  # in whole numbers
        np.testing.assert_allclose(np.array(column) / 2.0**30, chosen.encoder()[:, place], atol=1e-8)


@pytest.mark.parametrize("mechanism", ["dense", "tree", "blt"])
def test_noise_has_the_stated_variance(mechanism: str) -> None:
    # 1,000 streams, the last of 4 releases, 5 coordinates: chi-square of 5,000 degrees at 1e-9 two-sided.
    terms = _terms(releases=4, mechanism=mechanism)
    privatizer = DeployedPrivatizer(terms)
    fresh, values = privatizer.dump(), []
    for _ in range(1000):
        privatizer.load(fresh)
        for _ in range(4):
            release = privatizer.release()
        values.append(release.values)
    scaled = np.array(values) * 2.0**release.exponent / math.sqrt(2.0 * release.variance)
    low, high = stats.chi2(5_000).ppf([5e-10, 1 - 5e-10])
    assert low < float((scaled**2).sum()) < high


def test_sums_are_right_to_within_their_noise() -> None:
    # A tiny noise (ε = 10⁴) shows the sums themselves; 12 standard deviations never happen.
    terms = _terms(budget=Budget(epsilon=1e4, delta=0.5), releases=3)
    privatizer = DeployedPrivatizer(terms)
    rng, gram, moment = np.random.default_rng(2), np.zeros((2, 2)), np.zeros(2)
    for _ in range(3):
        actions, rewards = rng.uniform(-0.7, 0.7, size=(50, 2)), rng.uniform(-1, 1, size=50)
        privatizer.record(actions, rewards)
        gram, moment = gram + actions.T @ actions, moment + actions.T @ rewards
        release = privatizer.release()
        values = np.ldexp(release.values.astype(np.float64), release.exponent)
        told_gram, told_moment = terms.model.read(values, dim=2, weight=release.weight)
        allowed = 12 * math.sqrt(2 * release.variance) / release.weight
        np.testing.assert_allclose(told_gram, gram, atol=allowed)
        np.testing.assert_allclose(told_moment, moment, atol=allowed)
        assert allowed < 2.0


@pytest.mark.parametrize(("mechanism", "releases"), DEPLOYABLE)
def test_a_state_written_and_read_goes_on_where_it_was(mechanism: str, releases: int) -> None:
    terms = _terms(mechanism=mechanism, releases=releases)
    first, second = DeployedPrivatizer(terms), DeployedPrivatizer(terms)
    for _ in range(3):
        first.record(np.array([[0.6, 0.8]]), np.array([0.5]))
        first.release()
    first.record(np.array([[1.0, 0.0]]), np.array([0.5]))
    second.load(first.dump())
    assert second.dump() == first.dump()
    assert (second.released, second.pending) == (3, 1)


@pytest.mark.parametrize("budget", [(1.0, 1e-6), (8.0, 1e-6), (0.1, 1e-6), (1.0, 0.1), (0.5, 1e-9)])
@pytest.mark.parametrize(("dim", "releases"), [(2, 4), (10, 64), (100, 256), (10, 1_000_000)])
def test_the_certificate_keeps_the_claim_with_hardly_more_noise(
    budget: tuple[float, float], dim: int, releases: int
) -> None:
    terms = _terms(
        problem=Problem(dim=dim), budget=Budget(epsilon=budget[0], delta=budget[1]), releases=releases
    )
    certificate = terms.certificate()
    assert calibration.to_epsilon(certificate.mu, budget[1]) <= budget[0]
    mu = calibration.to_mu(terms.budget)
    continuous = math.sqrt(2) * calibration.noise_scale(terms.radius, mu)
    assert 1.0 < certificate.scale / continuous < 1.0 + 2e-5


def test_a_certificate_that_promises_too_much_is_refused() -> None:
    good = _terms().certificate()
    weak = grid.Certificate(
        budget=good.budget,
        sensitivity=good.sensitivity,
        exponent=good.exponent,
        sigma=round(good.sigma * 0.9999),
        coordinates=good.coordinates,
        releases=good.releases,
    )
    with pytest.raises(PrivacyError, match="does not reach the claim"):
        weak.check()
    with pytest.raises(PrivacyError, match="does not reach the claim"):
        grid.GridNoise(weak)


def test_the_lemma_against_the_exact_discrete_law() -> None:
    """δ of the one-dimensional discrete Gaussian, summed exactly, never exceeds the claimed curve."""
    for sigma, shift in [(3.0, 2), (5.0, 3), (8.4, 8), (20.0, 10)]:
        support = np.arange(-400, 401)
        weights = np.exp(-(support**2) / (2 * sigma**2))
        law = weights / weights.sum()
        moved = np.roll(law, shift)
        for epsilon in (0.1, 0.5, 1.0, 2.0):
            exact = float(np.maximum(law - math.exp(epsilon) * moved, 0.0).sum())
            claimed = math.exp(grid.log_delta(epsilon, shift / math.sqrt(sigma**2 - grid.SMOOTHING**2)))
            assert exact <= claimed


def test_several_records_of_a_person_take_as_many_times_the_noise() -> None:
    one, three = _terms().certificate(), _terms(records_per_person=3).certificate()
    assert three.sigma / one.sigma == pytest.approx(3.0, rel=1e-4)


def test_a_trusted_controllers_noise_covers_a_person_at_every_agent_she_may_visit() -> None:
    one = _terms().certificate()
    pooled = _terms(trust="controller", records_per_person=2, agents_per_person=3)
    assert pooled.certificate().sigma / one.sigma == pytest.approx(6.0, rel=1e-4)
    assert pooled.mu_at(3) == pooled.certificate().mu
    assert pooled.neighbours is Neighbours.ONE_PERSON
    once = _terms(trust="controller", agents_per_person=3)
    assert once.certificate().sigma / one.sigma == pytest.approx(3.0, rel=1e-4)
    assert once.neighbours is Neighbours.ONE_PERSON
    with pytest.raises(ConfigurationError, match="agents_per_person is 0, expected a whole number"):
        _terms(agents_per_person=0)


def test_where_nobody_is_trusted_a_person_at_several_agents_pays_by_the_root() -> None:
    apart = _terms(records_per_person=2, agents_per_person=3)
    assert apart.certificate() == _terms(records_per_person=2).certificate()
    assert apart.mu_at(9) == pytest.approx(3.0 * apart.certificate().mu)


def test_opendp_is_a_version_whose_sampler_is_sound() -> None:
    # Version 0.14.1 drew a biased discrete Gaussian. Chi-square against the exact law at level 1e-7.
    certificate = grid.Certificate(
        budget=Budget(epsilon=8.0, delta=1e-6),
        sensitivity=16.0,
        exponent=0,
        sigma=16,
        coordinates=1,
        releases=1,
    )
    draws = grid.GridNoise(certificate).draw(60_000)
    support = np.arange(-40, 41)
    law = np.exp(-(support**2) / (2 * 16.0**2))
    law /= np.exp(-(np.arange(-400, 401) ** 2) / (2 * 16.0**2)).sum()
    counts = np.array([(draws == value).sum() for value in support])
    rest = len(draws) - counts.sum()
    expected = np.append(law, 1 - law.sum()) * len(draws)
    assert stats.chisquare(np.append(counts, rest), expected).pvalue > 1e-7


def test_release_n_plus_one_is_refused() -> None:
    privatizer = DeployedPrivatizer(_terms(releases=2))
    privatizer.release()
    privatizer.release()
    with pytest.raises(ReleasesExhaustedError, match=r"release 3 .* covers 2"):
        privatizer.release()


def test_what_is_not_a_record_is_refused_and_leaves_no_trace() -> None:
    privatizer = DeployedPrivatizer(_terms(excess="refuse"))
    before = privatizer.dump()
    for action, reward in (
        ([2.0, 0.0], 0.5),
        ([0.5, 0.5], 3.0),
        ([math.nan, 0.0], 0.0),
        ([0.1, 0.1, 0.1], 0.0),
    ):
        with pytest.raises(RecordOutOfBoundsError):
            privatizer.record(np.array([action]), np.array([reward]))
    assert privatizer.dump() == before


def test_raw_sums_leave_only_for_a_trusted_controller() -> None:
    agent = DeployedPrivatizer(_terms())
    with pytest.raises(UnsealedReleaseError, match="trust the controller"):
        agent.upload()
    trusting = _terms(trust="controller")
    agents, controller = [DeployedPrivatizer(trusting) for _ in range(3)], DeployedPrivatizer(trusting)
    together = DeployedPrivatizer(trusting)
    rng = np.random.default_rng(3)
    for one in agents:
        actions, rewards = rng.uniform(-0.7, 0.7, size=(20, 2)), rng.uniform(size=20)
        one.record(actions, rewards)
        together.record(actions, rewards)
        upload = one.upload()
        with pytest.raises(UnsealedReleaseError, match="only a trusted controller"):
            DeployedPrivatizer(_terms()).receive(upload)
        controller.receive(upload, records=20)
    assert (controller._batch == together._batch).all()  # the very sums, whoever carried them


def test_a_mechanism_that_cannot_be_deployed_is_named() -> None:
    with pytest.raises(ConfigurationError, match="optimal-tree"):
        DeployedPrivatizer(_terms(mechanism="optimal-tree"))


def test_clipping_decides_each_record_by_itself() -> None:
    privatizer = DeployedPrivatizer(_terms())
    good, wild = np.array([[0.6, 0.8]]), [[1e200, 0.0], [math.nan, 0.0], [0.0, -1e308], [3.0, 4.0]]
    privatizer.record(np.vstack([good, wild]), np.array([0.5, 1e300, 0.0, math.inf, -7.0]))
    expected = DeployedPrivatizer(_terms())
    expected.record(good, np.array([0.5]))
    expected.record(np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([1.0, -1.0]))  # shortened
    expected.record(np.array([[0.0, 0.0], [0.0, -1.0]]), np.zeros(2))  # what is not finite is nothing
    told, wanted = (np.array(one._batch, dtype=np.float64) for one in (privatizer, expected))
    np.testing.assert_allclose(told, wanted, rtol=1e-9)


def test_a_batch_beyond_64_bits_does_not_wrap() -> None:
    privatizer = DeployedPrivatizer(_terms(problem=Problem(dim=1), releases=1_000_000))
    half = DeployedPrivatizer(_terms(problem=Problem(dim=1), releases=1_000_000))
    half.record(np.ones((2**21, 1)), np.ones(2**21))
    privatizer.record(np.ones((2**22 + 2**21, 1)), np.ones(2**22 + 2**21))
    assert [int(value) for value in privatizer._batch] == [3 * int(value) for value in half._batch]
    assert int(privatizer._batch[0]) > 2**63


def test_an_upload_is_never_refused_for_what_others_sent() -> None:
    """A dishonest agent fills the sum up: the honest one's upload is taken whatever is in it."""
    terms = _terms(trust="controller")
    for reward in (0.9, 1.0):
        controller, honest = DeployedPrivatizer(terms), DeployedPrivatizer(terms)
        honest.record(np.array([[1.0, 0.0]]), np.array([reward]))
        upload = honest.upload()
        for _ in range(9):  # far beyond 2^63 together
            forged = np.full(5, 2**60, dtype=np.int64)
            payload = encode_upload(upload, season=1, number=1)
            payload = payload[: -8 * 5] + forged.astype("<i8").tobytes()
            controller.receive(decode_upload(payload, terms)[2])
        controller.receive(upload)
        controller.release()
    too_large = payload[: -8 * 5] + np.full(5, 2**60 + 1, dtype="<i8").tobytes()
    with pytest.raises(ConfigurationError, match=r"at most 2\^60"):
        controller.receive(decode_upload(too_large, terms)[2])


def test_a_privatizer_is_not_copied() -> None:
    privatizer = DeployedPrivatizer(_terms())
    for clone in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(PrivacyError, match="not copied"):
            clone(privatizer)


def test_the_price_of_the_grid_is_in_mu() -> None:
    rough = grid.Certificate(
        budget=Budget(epsilon=8.0, delta=1e-6),
        sensitivity=8.0,
        exponent=0,
        sigma=16,
        coordinates=1,
        releases=1,
    )
    assert rough.mu == pytest.approx(8.0 / math.sqrt(16.0**2 - 4.0))


def test_quiet_releases_are_loud_and_the_others_quieter() -> None:
    plain, quiet = _terms(releases=16), _terms(releases=16, quiet=6)
    assert quiet.factors.worst_error() < plain.factors.worst_error()
    assert quiet.factors.error(3) > 10 * plain.factors.error(3)
    assert quiet.certificate() == plain.certificate()
    with pytest.raises(ConfigurationError, match="quiet is 2, expected 0"):
        _terms(mechanism="tree", quiet=2)


def test_terms_survive_writing() -> None:
    for settings in ({"trust": "controller", "agents_per_person": 5}, {"groups": 3}):
        terms = _terms(records_per_person=2, excess="clip", quiet=2, **settings)
        again = Terms.from_json(terms.to_json())
        assert again.to_json() == terms.to_json()
        assert again.certificate() == terms.certificate()
        assert again.agents_per_person == terms.agents_per_person


def test_terms_from_before_groups_have_one() -> None:
    plain = json.loads(_terms().to_json())
    del plain["groups"]
    assert Terms.from_json(json.dumps(plain)) == Terms.from_json(_terms().to_json())


def test_terms_from_before_several_agents_promise_what_they_did() -> None:
    """Their noise was for p records: that of people who do not visit several agents."""
    plain = json.loads(_terms(trust="controller", records_per_person=2).to_json())
    del plain["agents_per_person"]
    told = Terms.from_json(json.dumps(plain))
    assert told.agents_per_person == 1
    assert told.certificate() == _terms(records_per_person=2).certificate()


def test_groups_change_no_noise_and_are_not_for_a_trusted_controller() -> None:
    assert _terms(groups=7).certificate() == _terms().certificate()
    with pytest.raises(ConfigurationError, match="groups is 2, expected 1 where the controller is trusted"):
        _terms(groups=2, trust="controller")
    with pytest.raises(ConfigurationError, match="groups is 0, expected a whole number of at least 1"):
        _terms(groups=0)


@pytest.mark.parametrize("releases", [1, 2, 7, 300, 5000])
def test_no_column_of_the_buffered_encoder_is_longer_than_one_whatever_floats_say(
    monkeypatch: pytest.MonkeyPatch, releases: int
) -> None:
    """Columns as they run, squared and added up in whole numbers; lengths in floats are made 1 % short."""
    chosen = choose_mechanism("blt", releases)
    honest = type(chosen).column_norms  # type: ignore[attr-defined]
    monkeypatch.setattr(type(chosen), "column_norms", lambda *these: 0.99 * honest(*these))
    unit = 2**40
    for column in {0, releases // 2, releases - 1}:
        encoder = make_encoder(chosen, 1)
        encoder._done = column  # type: ignore[attr-defined]  # earlier batches were empty
        rows = [encoder.encode(np.array([unit << grid.FINE_BITS]))[0]]
        rows += [encoder.encode(np.array([0]))[0] for _ in range(releases - 1 - column)]
        longest = sum(int(row) ** 2 for row in rows)
        # each row is rounded by up to half a step, and to no less than the exact one less its drift
        rounding = sum(2 * int(row) + 1 for row in rows)
        assert longest <= unit**2 + rounding
        assert longest >= 0.999999 * unit**2  # and hardly shorter


def test_a_buffered_encoder_that_hardly_forgets_or_subtracts_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = choose_mechanism("blt", 300)
    rates = chosen.rates  # type: ignore[attr-defined]
    monkeypatch.setattr(rates, "poles", rates.poles * np.array([1e-9] + [1.0] * (len(rates.poles) - 1)))
    with pytest.raises(PrivacyError, match="forgets too slowly"):
        make_encoder(chosen, 1)
    monkeypatch.setattr(rates, "weights", -rates.weights)
    with pytest.raises(PrivacyError, match="negative"):
        make_encoder(chosen, 1)


def _gaps(terms: Terms, agents: int, records: int) -> dict[str, float]:
    """By how much deployed noise may exceed its Gaussian radii, relative: the parts of docs/theory.md, 3.

    Of a sum of so many agents and records. Radii are compared with the least that they can be.
    """
    certificate, bound, weight = terms.certificate(), terms.problem.parameter_bound, terms.weight
    dim, sigma, root_q = terms.problem.dim, certificate.sigma, math.sqrt(certificate.coordinates)
    across = 1.0 / weight**2 + bound**2
    residual, gram = math.sqrt(dim * across + bound**2), 2.0 * math.sqrt(dim)
    # What one step in each coordinate does to the residual and to the Gram, in units of √w/σ.
    step = max(math.sqrt(0.5 / weight**2 + bound**2) / residual, 1.0 / gram) * root_q * math.sqrt(2.0)
    # Gaussian concentration of ‖h − Hθ*‖, and a union over releases.
    farther = math.sqrt(2.0 * (across + bound**2) * math.log(terms.releases / 1e-12))
    rare = max(
        (residual + farther) / residual,
        terms.model.gram_radius(dim, terms.releases, 1e-12) / gram,
    )
    mechanism = terms.factors
    rows = mechanism.decoder() if terms.releases <= 256 else None
    first = 1.0 if rows is None else min(np.linalg.norm(rows, axis=1))
    spread = (
        math.sqrt(terms.releases)
        if rows is None
        else max(np.abs(rows).sum(axis=1) / np.linalg.norm(rows, axis=1))
    )
    root_agents = math.sqrt(agents)
    # Shares of one noise have the law of one, and what is decoded of them is rounded once (theory, 9).
    shared = certificate.shares > 1
    together = sigma * root_agents if shared else sigma
    nu = 2.0 * sigma / math.hypot(sigma, 2.0)
    return {
        "kappa": agents * certificate.coordinates * terms.releases * 2 * math.exp(-2 * (math.pi * nu) ** 2),
        "wider": math.hypot(1.0, 2.0 / together) - 1.0,
        "W": 2.0 / together * rare,
        "rows": root_agents * spread * (0.5 + 2.0**-16) * step / sigma,
        "published": (1.0 / root_agents if shared else root_agents) * 0.5 * step / (sigma * first),
        "records": records * 2.0**-17 * step / (sigma * first * root_agents),
    }


@pytest.mark.parametrize("dim", [1, 2, 5, 10, 100])
@pytest.mark.parametrize("releases", [1, 16, 64, 256, 4000])
def test_the_slack_on_variances_covers_what_the_grid_adds(dim: int, releases: int) -> None:
    """For μ ≤ 4, μ√M ≤ 25 and N ≤ 5·10⁶ √M/μ records: the claim at the end of docs/theory.md, 3.

    Bounds from 1 to √2 take the grid through a whole power of two.
    """
    for epsilon, bound in itertools.product((0.1, 1.0, 25.0), (1.0, 1.155, 1.189, 1.3)):
        problem = Problem(dim=dim, action_bound=bound, reward_bound=bound)
        terms = _terms(problem=problem, budget=Budget(epsilon=epsilon, delta=1e-6), releases=releases)
        mu = terms.certificate().mu
        assert mu <= 4.0
        for agents in (1, math.floor((25.0 / mu) ** 2)):
            gaps = _gaps(terms, agents, records=int(5e6 * math.sqrt(agents) / mu))
            assert gaps.pop("kappa") < 1e-15
            assert (1.0 + sum(gaps.values())) ** 2 <= grid._SLACK


@pytest.mark.parametrize("dim", [1, 10, 100])
@pytest.mark.parametrize("releases", [1, 64, 256, 4000])
def test_the_slack_covers_noise_that_is_shared_out(dim: int, releases: int) -> None:
    """For μ ≤ 4, μ√(MH) ≤ 40 and N ≤ 5·10⁶ √(M/H)/μ records: the claim of docs/theory.md, 9."""
    for epsilon, bound in itertools.product((0.1, 1.0, 25.0), (1.0, 1.155, 1.189)):
        changes = {
            "problem": Problem(dim=dim, action_bound=bound, reward_bound=bound),
            "budget": Budget(epsilon=epsilon, delta=1e-6),
            "releases": releases,
        }
        mu = _terms(**changes).certificate().mu
        assert mu <= 4.0
        for agents in {4, max(4, math.floor(40.0 / mu / math.sqrt(0.7)))}:
            terms = _terms(**changes, trust=Keepers(), agents=agents)
            shares = terms.certificate().shares
            assert mu * math.sqrt(agents * shares) <= 41.0
            gaps = _gaps(terms, agents, records=int(5e6 * math.sqrt(agents / shares) / mu))
            assert gaps.pop("kappa") < 1e-15
            assert (1.0 + sum(gaps.values())) ** 2 <= grid._SLACK


@pytest.mark.parametrize("dim", [1, 2, 10, 100])
def test_the_slack_covers_a_thousand_agents_that_share_noise_but_for_one_dimension(dim: int) -> None:
    """At ε = 1, 5·10⁷ records; d = 1 is short by 0.05 % of a radius."""
    worst = 0.0
    for releases, bound in itertools.product((1, 64, 4000), (1.0, 1.155, 1.189, 1.3)):
        problem = Problem(dim=dim, action_bound=bound, reward_bound=bound)
        terms = _terms(problem=problem, releases=releases, trust=Keepers(), agents=1000)
        gaps = _gaps(terms, 1000, records=5 * 10**7)
        gaps.pop("kappa")
        worst = max(worst, 1.0 + sum(gaps.values()) - math.sqrt(grid._SLACK))
    assert (worst > 0.0) == (dim == 1)
    assert worst < 5e-4
