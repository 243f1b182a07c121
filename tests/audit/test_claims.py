"""Bounds and noise checks on made-up releases: no false alarm beyond their level, and no fault missed.

What leaves is drawn here by numpy, with a seed, so that hundreds of audits take a second. Each test says its
false alarm over seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from feducb.audit import claims
from feducb.audit.canary import coordinates_of, placements, residuals, worlds
from feducb.audit.claims import Evidence, check_grid, check_low_bits, check_noise, draw_evidence, judge
from feducb.audit.trials import Draws
from feducb.config import Budget, Problem
from feducb.privacy.calibration import to_mu
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.trust import CONTROLLER

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=8.0, delta=1e-6), releases=3)
HEADERS = frozenset((number, b"head") for number in (1, 2, 3))


def _as_it_is(noise: Array) -> Array:
    return noise


def _evidence(
    rng: np.random.Generator,
    terms: Terms = TERMS,
    *,
    trials: int = 200,
    change: Callable[[Array], Array] = _as_it_is,
    heavier: float = 1.0,
) -> Evidence:
    """Releases under the certified Gaussian noise, changed; the canary of world 1 may count for more."""
    certificate, evidence = terms.certificate(), {}
    for place in placements(terms.releases):
        for world in (0, 1):
            stream = worlds(replace(terms, excess="refuse"), place, world)
            sums = np.array([coordinates_of(terms, batch) for batch in stream])
            sums[place] *= heavier if world else 1.0
            noise = rng.normal(size=(trials, terms.releases, sums.shape[1])) * certificate.sigma
            rows = np.ldexp(terms.factors.encoder() @ sums, -certificate.exponent) + change(noise)
            values = np.rint(terms.factors.decoder() @ rows).astype(np.int64)
            evidence[place, world] = Draws(values, HEADERS)
    return evidence


def test_made_up_releases_look_like_drawn_ones() -> None:
    """Same mean up to five deviations of it (false alarm below 1e-4 over 90 numbers), so same units."""
    (drawn,) = draw_evidence([(DeployedPrivatizer, TERMS, 120)])
    made = _evidence(np.random.default_rng(1), trials=40)
    assert drawn.keys() == made.keys()
    errors = [float(TERMS.factors.error(number)) for number in (1, 2, 3)]
    for where, draws in drawn.items():
        assert draws.values.shape == made[where].values.shape == (40, 3, 5)
        gap = (draws.values.mean(axis=0) - made[where].values.mean(axis=0)) / TERMS.certificate().sigma
        assert (np.abs(gap) < 5.0 * np.sqrt(2.0 / 40) * np.array(errors)[:, None]).all()


def test_bounds_of_sound_releases_are_above_the_claim_no_more_often_than_their_level() -> None:
    """Seeded; over seeds a false alarm of 1e-6. The claim is the truth here, so that the level is used up."""
    rng, level, repeats = np.random.default_rng(2), 0.4, 60
    broken = sum(not judge(TERMS, _evidence(rng, trials=60), level).holds for _ in range(repeats))
    assert broken <= binom.isf(1e-6, repeats, level)


@pytest.mark.parametrize(("heavier", "holds"), [(1.0, True), (2.0, False)])
def test_a_record_that_counts_twice_is_seen_by_the_gaussian_bound(heavier: float, holds: bool) -> None:
    result = judge(TERMS, _evidence(np.random.default_rng(3), heavier=heavier), 1e-6)
    assert result.holds == holds
    assert (result.epsilon_lower_bound_gaussian > 8.0) != holds


def test_a_claim_that_is_far_too_small_is_seen_without_any_assumption() -> None:
    small = replace(TERMS, budget=Budget(epsilon=0.5, delta=1e-6))
    evidence = _evidence(np.random.default_rng(4), small, trials=600, change=lambda noise: noise / 16.0)
    result = judge(small, evidence, 1e-6)
    assert result.epsilon_lower_bound > 0.5
    assert result.epsilon_lower_bound_gaussian > 0.5


def test_without_any_noise_the_bound_has_no_limit() -> None:
    result = judge(TERMS, _evidence(np.random.default_rng(5), trials=60, change=np.zeros_like), 1e-6)
    assert result.mu_lower_bound > 1e6
    assert result.epsilon_lower_bound_gaussian > 1e12
    assert not result.holds


def test_more_trials_bring_the_bound_closer_to_the_claim() -> None:
    rng = np.random.default_rng(6)
    few, many = (judge(TERMS, _evidence(rng, trials=trials), 1e-6) for trials in (60, 3000))
    assert few.mu_lower_bound < many.mu_lower_bound < to_mu(TERMS.budget)
    assert many.epsilon_lower_bound_gaussian > 7.0
    assert few.epsilon_lower_bound < many.epsilon_lower_bound < 8.0


def test_a_result_says_what_was_claimed_and_every_score() -> None:
    terms = replace(TERMS, trust=CONTROLLER)
    result = judge(terms, _evidence(np.random.default_rng(7), terms), 1e-6)
    assert (result.epsilon_claimed, result.delta, result.trust) == (8.0, 1e-6, "controller")
    assert result.trials == 600
    assert result.mu_claimed == to_mu(TERMS.budget)
    assert len({(score.score, score.placement) for score in result.scores}) == 13  # 4 by 3, and the pooled
    assert [score.placement for score in result.scores if score.score == "all releases"] == [0, 1, 2, 3]
    assert max(score.mu for score in result.scores) == result.mu_lower_bound
    assert max(score.epsilon for score in result.scores) == result.epsilon_lower_bound


def test_the_optimal_score_sees_most() -> None:
    result = judge(TERMS, _evidence(np.random.default_rng(8), trials=3000), 1e-6)
    by_name = {(score.score, score.placement): score.mu for score in result.scores}
    assert max(by_name, key=lambda name: by_name[name]) == ("all releases", 0)
    for place in (1, 2, 3):
        others = [mu for (name, where), mu in by_name.items() if where == place and name != "all releases"]
        assert max(others) < by_name["all releases", place] + 0.25  # estimates of it, from samples


def test_one_release_alone_is_judged_too() -> None:
    terms = replace(TERMS, releases=1)
    result = judge(terms, _evidence(np.random.default_rng(9), terms), 1e-6)
    assert result.holds
    assert {score.placement for score in result.scores} == {0, 1}


def test_trials_are_spread_over_placements_and_worlds_in_jobs_of_a_second() -> None:
    jobs = claims._claim_jobs(DeployedPrivatizer, TERMS, 3502)
    assert max(job.trials for job in jobs) == 1000
    for world in (0, 1):
        by_place = [
            sum(job.trials for job in jobs if (job.placement, job.world) == (place, world))
            for place in (0, 1, 2)
        ]
        assert by_place == [1168, 1167, 1167]
    assert len(jobs) == 12


def test_jobs_of_one_world_are_put_together_and_subjects_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_AT_ONCE", 4)
    other = replace(TERMS, releases=2)
    first, second = draw_evidence([(DeployedPrivatizer, TERMS, 30), (DeployedPrivatizer, other, 7)])
    assert {where: len(draws.values) for where, draws in first.items()} == {
        (place, world): 10 for place in (0, 1, 2) for world in (0, 1)
    }
    assert {where: draws.values.shape for where, draws in second.items()} == {
        (0, 0): (4, 2, 5),
        (0, 1): (4, 2, 5),
        (1, 0): (3, 2, 5),
        (1, 1): (3, 2, 5),
    }


def test_no_subject_at_all() -> None:
    assert draw_evidence([]) == []


def test_residuals_are_noise_in_world_0_and_the_move_beside_it_in_world_1() -> None:
    """Without noise nothing is left but rounding: a grid step at most, decoded."""
    evidence = _evidence(np.random.default_rng(10), trials=60, change=np.zeros_like)
    step = 2.0 / TERMS.certificate().sigma
    for (place, world), draws in evidence.items():
        left = residuals(TERMS, place, draws.values)
        assert np.abs(left[:, :place]).max(initial=0.0) < step
        size = np.linalg.norm(left[:, place:], axis=2)
        expected = to_mu(TERMS.budget) if world else 0.0
        np.testing.assert_allclose(size, expected, atol=10.0 * step, rtol=1e-4)


def test_sound_noise_fails_no_more_often_than_its_level() -> None:
    """Seeded; over seeds a false alarm of 1e-6 for each of both checks."""
    rng, level, repeats = np.random.default_rng(11), 0.2, 60
    failed = {check_noise: 0, check_low_bits: 0}
    for _ in range(repeats):
        evidence = _evidence(rng, trials=60)
        for check in failed:
            failed[check] += not check(TERMS, evidence, level).passed
    for count in failed.values():
        assert count <= binom.isf(1e-6, repeats, level)
    assert failed[check_noise] > 0  # it is not idle at this level: expected 6 or more


def _smaller(noise: Array) -> Array:
    return noise * 0.93


def _larger(noise: Array) -> Array:
    return noise * 1.07


def _one_coordinate(noise: Array) -> Array:
    noise[:, :, 2] *= 0.7
    return noise


def _one_release(noise: Array) -> Array:
    noise[:, 1] *= 0.7
    return noise


def _used_twice(noise: Array) -> Array:
    noise[:, 2] = noise[:, 1]
    return noise


def _correlated(noise: Array) -> Array:
    noise[:, 0, 1] = 0.6 * noise[:, 0, 0] + 0.8 * noise[:, 0, 1]
    return noise


@pytest.mark.parametrize(
    "change", [_smaller, _larger, _one_coordinate, _one_release, _used_twice, _correlated]
)
def test_noise_that_is_not_as_certified_is_seen(change: Callable[[Array], Array]) -> None:
    evidence = _evidence(np.random.default_rng(12), trials=300, change=change)
    assert not check_noise(TERMS, evidence, 1e-7).passed
    assert check_noise(TERMS, _evidence(np.random.default_rng(12), trials=300), 1e-7).passed


def test_a_correlation_is_seen_in_the_directions_alone() -> None:
    check = check_noise(TERMS, _evidence(np.random.default_rng(13), trials=300, change=_correlated), 1e-7)
    deviation = float(check.detail.split()[1])
    assert deviation == pytest.approx(1.0, abs=0.02)
    assert int(check.detail.split("draws, ")[1].split()[0]) >= 1


def test_the_check_of_noise_takes_records_off_in_both_worlds() -> None:
    """Were the move of world 1 left in, it would pass for noise: μ is far above a deviation's error."""
    evidence = _evidence(np.random.default_rng(14), trials=300)
    assert check_noise(TERMS, evidence, 1e-7).passed
    exchanged = {(place, 1 - world): draws for (place, world), draws in evidence.items()}
    assert not check_noise(TERMS, exchanged, 1e-7).passed


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_noise_on_a_coarser_grid_is_seen_in_the_low_bits_of_the_first_row(bits: int) -> None:
    evidence = _evidence(
        np.random.default_rng(15), trials=600, change=lambda noise: np.rint(noise / 2**bits) * 2**bits
    )
    check = check_low_bits(TERMS, evidence, 1e-7)
    assert not check.passed
    assert "mod 16" in check.detail
    assert check_low_bits(TERMS, _evidence(np.random.default_rng(15), trials=600), 1e-7).passed


def test_a_single_residue_that_is_too_rare_or_too_frequent_is_seen() -> None:
    for never in (True, False):
        evidence = dict(_evidence(np.random.default_rng(16), trials=1000))
        values = evidence[0, 1].values.copy()
        odd = values[:, 1, 3] % 16 == 5
        values[odd if never else values[:, 1, 3] % 16 == 6, 1, 3] += 1 if never else -1
        evidence[0, 1] = Draws(values, HEADERS)
        assert not check_low_bits(TERMS, evidence, 1e-7).passed


def test_p_values_are_two_sided_and_at_most_one() -> None:
    seen = np.arange(11)
    p_values = claims._two_sided(binom.sf(seen - 1, 10, 0.5), binom.cdf(seen, 10, 0.5))
    assert p_values.max() == p_values[5] == 1.0
    assert p_values[0] == pytest.approx(2.0 / 1024)
    np.testing.assert_allclose(p_values, p_values[::-1])
    rejected = binom.pmf(seen, 10, 0.5)[p_values < 0.1].sum()
    assert rejected <= 0.1


def test_headers_are_the_same_in_every_world() -> None:
    evidence = dict(_evidence(np.random.default_rng(17), trials=60))
    check = check_grid(TERMS, evidence)
    assert check.passed
    assert check.detail.startswith("3 distinct headers for 3 releases; grid 2^")
    for number, header in ((1, b"tale"), (4, b"head")):
        more = replace(evidence[2, 1], headers=HEADERS | {(number, header)})
        assert not check_grid(TERMS, {**evidence, (2, 1): more}).passed


def test_integers_that_a_float_cannot_hold_are_seen() -> None:
    evidence = dict(_evidence(np.random.default_rng(18), trials=60))
    values = evidence[0, 0].values.copy()
    values[0, 0, 0] = 2**53
    check = check_grid(TERMS, {**evidence, (0, 0): Draws(values, HEADERS)})
    assert not check.passed
    assert "up to 2^53.0" in check.detail


def test_checks_are_named_by_their_claim() -> None:
    terms = replace(TERMS, trust=CONTROLLER)
    evidence = _evidence(np.random.default_rng(19), terms, trials=60)
    names = [
        check_noise(terms, evidence, 1e-7).name,
        check_low_bits(terms, evidence, 1e-7).name,
        check_grid(terms, evidence).name,
    ]
    assert names == [f"{kind} epsilon=8 trust=controller" for kind in ("noise", "low bits", "grid")]


def test_noise_a_little_too_small_is_seen() -> None:
    """Claimed ε = 8 at the noise of ε = 9, drawn by the shipped code: judged by the terms of each."""
    weaker = replace(TERMS, budget=Budget(epsilon=9.0, delta=1e-6))
    (evidence,) = draw_evidence([(DeployedPrivatizer, weaker, 600)])
    assert judge(weaker, evidence, 1e-7).holds
    assert check_noise(weaker, evidence, 1e-7).passed
    assert not check_noise(TERMS, evidence, 1e-7).passed
    assert check_low_bits(TERMS, evidence, 1e-7).passed
