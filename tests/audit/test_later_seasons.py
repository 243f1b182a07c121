"""A later season that remembers an earlier one tells nothing more of it; together they keep their claim."""

from __future__ import annotations

from typing import Any

import numpy as np

from feducb.agent import Agent
from feducb.audit.bounds import gaussian_epsilon, least_distance
from feducb.audit.broken import BrokenMemory
from feducb.audit.canary import SCORES, canary_move, residuals, score_weights
from feducb.audit.later_seasons import check_seasons
from feducb.audit.trials import Job, draw
from feducb.config import Budget, Problem
from feducb.privacy.calibration import to_epsilon, to_mu
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms

TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=16.0, delta=1e-6), releases=3)


def test_what_is_remembered_tells_nothing_of_a_record_beyond_its_own_season() -> None:
    found = check_seasons(Agent, TERMS)
    assert found.passed, found.detail


def test_raw_sums_that_are_remembered_are_caught() -> None:
    found = check_seasons(BrokenMemory, TERMS)
    assert not found.passed
    assert "expected 0" in found.detail


def test_a_person_in_two_seasons_is_covered_by_the_claim_over_both_and_by_no_less() -> None:
    """A canary in each season, by the likelihood ratio of all that left in both.

    The lower bound passes √2·μ with a chance of at most 1e-6; that it is above what one season claims says
    that the attack sees both seasons (μ is 2.7, or 3.8 in both, and has an error of 0.09).
    """
    place, trials = 1, 250
    move, delta = canary_move(TERMS), TERMS.budget.delta
    distance = float(np.linalg.norm(move))
    weights = score_weights(TERMS, place)[SCORES[0]]

    def season() -> list[np.ndarray]:
        how: dict[str, Any] = {
            "make": DeployedPrivatizer,
            "terms": TERMS,
            "placement": place,
            "trials": trials,
        }
        drawn = [draw(Job(**how, world=world)).values for world in (0, 1)]
        return [residuals(TERMS, place, values) @ (move / distance) @ weights for values in drawn]

    first, second = season(), season()
    zeros, ones = ((a + b) / np.sqrt(2.0) for a, b in zip(first, second, strict=True))
    seen = gaussian_epsilon(least_distance(zeros, ones, 1e-6), delta)
    once, both = TERMS.budget.epsilon, to_epsilon(np.sqrt(2.0) * to_mu(TERMS.budget), delta)
    assert once < seen <= both
