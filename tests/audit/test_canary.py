"""The two worlds are as far apart as two worlds can be, and scores are what they claim."""

from __future__ import annotations

import math

import numpy as np
import pytest

from feducb import Budget, Problem
from feducb.audit.canary import (
    SCORES,
    canary_move,
    canary_pair,
    coordinates_of,
    placements,
    score_weights,
    worlds,
)
from feducb.privacy.calibration import to_mu
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.grid import FINE_BITS
from feducb.privacy.terms import Terms


def _terms(**changes: object) -> Terms:
    plain = {"problem": Problem(dim=2), "budget": Budget(epsilon=8.0, delta=1e-6), "releases": 4}
    return Terms(**{**plain, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("dim", [2, 3, 6])
@pytest.mark.parametrize(("length", "reward"), [(1.0, 1.0), (2.0, 1.0), (1.0, 3.0), (0.5, 0.1)])
def test_the_canaries_are_as_far_apart_as_the_proof_allows(dim: int, length: float, reward: float) -> None:
    problem = Problem(dim=dim, action_bound=length, reward_bound=reward)
    terms = _terms(problem=problem)
    first, second = (coordinates_of(terms, one) for one in canary_pair(terms))
    bound = math.sqrt(2.0) * terms.radius
    assert np.linalg.norm(first - second) == pytest.approx(bound)


def test_the_auditors_coordinates_are_the_privatizers() -> None:
    terms = _terms(problem=Problem(dim=5), excess="refuse")
    door = DeployedPrivatizer(terms)
    for batch in worlds(terms, 1, 1):
        before = door._batch
        door.record(batch.actions, batch.rewards)
        entered = np.ldexp((door._batch - before).astype(np.float64), door.certificate.exponent - FINE_BITS)
        np.testing.assert_allclose(entered, coordinates_of(terms, batch), atol=1e-8)


def test_worlds_differ_in_one_record_and_hostile_ones_only_in_size() -> None:
    for excess in ("clip", "refuse"):
        terms = _terms(excess=excess)
        for place in placements(4):
            zero, one = worlds(terms, place, 0), worlds(terms, place, 1)
            for batch, (a, b) in enumerate(zip(zero, one, strict=True)):
                same = np.array_equal(a.actions, b.actions) and np.array_equal(a.rewards, b.rewards)
                assert same == (batch != place)


@pytest.mark.parametrize("mechanism", ["dense", "tree", "toeplitz"])
def test_scores_have_unit_noise_and_the_optimal_one_the_whole_distance(mechanism: str) -> None:
    terms = _terms(mechanism=mechanism)
    decoder, encoder = terms.factors.decoder(), terms.factors.encoder()
    for place in placements(4):
        weights = score_weights(terms, place)
        assert set(weights) == set(SCORES)
        shifts = {name: float(one[place:].sum()) for name, one in weights.items()}
        for one in weights.values():
            assert np.linalg.norm(decoder.T @ one) == pytest.approx(1.0)
        assert shifts["all releases"] == pytest.approx(float(np.linalg.norm(encoder[:, place])))
        assert max(shifts.values()) <= shifts["all releases"] + 1e-12  # Neyman–Pearson


def test_the_distance_is_the_claimed_one_up_to_rounding() -> None:
    distance = np.linalg.norm(canary_move(_terms()))
    assert to_mu(Budget(epsilon=8.0, delta=1e-6)) * (1.0 - 2e-5) < distance
    assert distance < to_mu(Budget(epsilon=8.0, delta=1e-6))
