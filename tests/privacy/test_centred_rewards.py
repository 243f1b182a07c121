"""Rewards less a public centre: less noise, the same learning, and the bounds still hold."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import feducb
from feducb.audit.checks import CENTRED
from feducb.audit.exact import check_clipping, check_presence, check_sensitivity, check_tally
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError, RecordOutOfBoundsError, RefusedError
from feducb.models import LINEAR
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.privatizer import within_bounds
from feducb.privacy.statement import statement, to_markdown
from feducb.privacy.tally import tally_scale
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.admission import check_release
from feducb.types import Array

HALF = Problem(dim=2, reward_bound=0.5, reward_centre=0.5)  # rewards from 0 to 1
SHIFTED = replace(HALF, reward_centre=0.0)  # the same rewards, shifted by whoever hands them in
TERMS = Terms(problem=HALF, budget=Budget(epsilon=1.0, delta=1e-6), releases=6)


def _records(rng: np.random.Generator) -> tuple[Array, Array]:
    return 0.7 * rng.uniform(-1, 1, (30, 2)), rng.uniform(0, 1, 30)


def test_centred_rewards_carry_two_thirds_of_the_noise() -> None:
    """One entry of h − Hθ*, which the confidence set pays for, at L = S = 1: B = ½ in place of 1."""
    entries = {}
    for problem in (Problem(dim=10), replace(HALF, dim=10)):
        terms = replace(TERMS, problem=problem)
        spread = 1.0 / terms.weight**2 + problem.parameter_bound**2
        entries[problem.reward_bound] = terms.certificate().scale * math.sqrt(spread)
    assert entries[0.5] / entries[1.0] == pytest.approx(0.678, abs=0.001)


def test_they_are_the_sums_of_rewards_shifted_by_hand(rng: np.random.Generator) -> None:
    actions, rewards = _records(rng)
    centred, shifted = DeployedPrivatizer(TERMS), DeployedPrivatizer(replace(TERMS, problem=SHIFTED))
    centred.record(actions, rewards)
    shifted.record(actions, rewards - 0.5)
    sums = [np.array(json.loads(one.dump_batch())["batch"], dtype=float) for one in (centred, shifted)]
    np.testing.assert_allclose(
        sums[0], sums[1], rtol=2.0**-33, atol=30
    )  # their weights differ by less than 2^-34
    assert centred.certificate.scale == pytest.approx(shifted.certificate.scale, rel=1e-6)


def test_a_reward_is_centred_before_it_is_clipped() -> None:
    actions, rewards = np.zeros((4, 2)), np.array([-3.0, 0.0, 1.0, 7.0])
    assert within_bounds(HALF, "clip", actions, rewards)[1].tolist() == [-0.5, -0.5, 0.5, 0.5]
    with pytest.raises(RecordOutOfBoundsError, match="a reward is 7, expected 0 to 1"):
        within_bounds(HALF, "refuse", actions[1:], rewards[1:])


@pytest.mark.parametrize("baseline", [None, "no-privacy", "alone"])
def test_agents_choose_as_if_rewards_had_been_shifted_by_hand(baseline: Any) -> None:
    def world(problem: Problem, less: float) -> feducb.OwnEnvironment:
        return feducb.OwnEnvironment(
            problem=problem,
            arms=4,
            theta=np.array([0.4, 0.3 - less / 0.6]),
            draw=lambda rng, _, rounds: np.dstack(
                [rng.uniform(-0.7, 0.7, (rounds, 4)), np.full((rounds, 4), 0.6)]
            ),
            pay=lambda rng, _, means: (rng.random(len(means)) < means + less).astype(float) - less,
        )

    played = []
    for problem, less in ((HALF, 0.0), (SHIFTED, 0.5)):
        federation = feducb.Federation(
            problem=problem, agents=3, budget=Budget(epsilon=8.0, delta=1e-6), baseline=baseline
        )
        result = feducb.simulate(federation, world(problem, less), horizon=300, runs=2, backend="reference")
        played.append(result.mean)
    assert played[0] == pytest.approx(played[1], rel=1e-9)


def test_compiled_backends_leave_it_to_the_reference() -> None:
    world = feducb.PaperEnvironment(problem=Problem(dim=2, reward_centre=0.5), arms=4)
    federation = feducb.Federation(problem=world.problem, agents=2)
    with pytest.raises(ConfigurationError, match="reward_centre other than 0 is not compiled"):
        feducb.simulate(federation, world, horizon=20, runs=1, backend="cpu")


def test_terms_and_digests_of_rewards_that_are_not_centred_stay_as_they_were() -> None:
    plain = replace(TERMS, problem=Problem(dim=2))
    assert plain.digest().hex() == "6a15f50b70f10874"  # of files from before there were centres
    assert "reward_centre" not in plain.to_json()
    assert json.loads(TERMS.to_json())["problem"]["reward_centre"] == 0.5
    assert Terms.from_json(TERMS.to_json()).problem == HALF
    assert TERMS.digest() != replace(TERMS, problem=SHIFTED).digest()  # their sums do not add up


def test_the_statement_says_what_is_taken_off() -> None:
    assert "rewards at most 0.5 from 0.5, which is taken off each before" in to_markdown(statement(TERMS))
    assert "taken off" not in to_markdown(statement(replace(TERMS, problem=SHIFTED)))


def test_the_tally_measures_the_default_reward_from_the_centre() -> None:
    uncentred = replace(TERMS, problem=SHIFTED)
    for default in (0.5, 0.7, 0.1):
        assert tally_scale(TERMS, default) == tally_scale(uncentred, default - 0.5) is not None
    assert tally_scale(TERMS, 0.0) is None  # at the end of the range nothing is left to count with


def test_the_audit_finds_nothing_beyond_the_claim() -> None:
    terms = replace(TERMS, **CENTRED)
    for check in (check_sensitivity, check_presence, check_clipping):
        assert check(DeployedPrivatizer, terms).passed
    assert check_tally(tally_scale, terms).passed


def test_a_centre_that_cannot_be_is_refused() -> None:
    for wrong in (math.nan, 1e7, "half"):
        with pytest.raises(ConfigurationError, match="reward_centre is"):
            Problem(dim=2, reward_centre=wrong)  # type: ignore[arg-type]
    assert LINEAR.radius(HALF) == LINEAR.radius(SHIFTED)


def test_releases_around_different_centres_are_not_added_and_the_noise_is_for_the_weight_they_carry() -> None:
    """Centres as people write them all have marks of their own; any two share one with a chance of 2^-16.

    Nothing else in a message tells them apart, where nobody is trusted.
    """
    centres = [0.0, -0.5, 0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 2.5, 5.0, 10.0, 50.0, 100.0]
    every = [replace(TERMS, problem=replace(HALF, reward_centre=one)) for one in centres]
    assert len({terms.weight for terms in every}) == len(every)
    plain = LINEAR.weight(HALF)
    for terms in every:
        assert plain * (1.0 - 2.0**-33) < terms.weight <= plain
        assert terms.radius == LINEAR.radius(terms.problem, terms.weight)
    message = messages.encode(DeployedPrivatizer(TERMS).release())
    other = replace(TERMS, problem=replace(HALF, reward_centre=0.25))
    check_release(message, TERMS, agents=2)
    with pytest.raises(RefusedError, match="reward_centre"):
        check_release(message, other, agents=2)
    theirs = messages.decode(messages.encode(DeployedPrivatizer(other).release()))
    with pytest.raises(ValueError, match="weight"):
        messages.combine([messages.decode(message), theirs])
