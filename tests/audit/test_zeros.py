"""Models that leave known zeros out go through the audit; zeros that are read off the data do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from feducb.audit.broken import FAULTS
from feducb.audit.canary import canary_pair
from feducb.audit.checks import BLOCKS, MIXED, ONE_HOTS, ZEROS, exact_checks, variant_checks
from feducb.audit.doors import entries
from feducb.audit.exact import check_tally
from feducb.config import Budget, Problem
from feducb.models import require_model
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.tally import tally_scale
from feducb.privacy.terms import Terms

TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=8.0, delta=1e-6), releases=3)


@pytest.mark.parametrize("changes", [BLOCKS, ZEROS, MIXED, ONE_HOTS], ids=lambda one: str(one["model"]))
def test_no_exact_move_exceeds_what_the_noise_is_for(changes: dict[str, Any]) -> None:
    found = list(variant_checks(DeployedPrivatizer, replace(TERMS, **changes)))
    assert len(found) == 4
    assert [check for check in found if not check.passed] == []


@pytest.mark.parametrize("name", ["zeros:2(a2)", "zeros:1+a2+1", "zeros:a2*b2"])
def test_what_hostile_records_add_is_never_longer_than_the_same_records_in_the_dense_model(
    name: str, rng: np.random.Generator
) -> None:
    """Actions with all levels at once, far beyond the bounds: clipped, then cut to one level."""
    terms = replace(TERMS, problem=Problem(dim=4), model=require_model(name))
    door = DeployedPrivatizer(terms)
    actions = rng.normal(size=(60, 1, 4)) * 10.0 ** rng.uniform(-3, 6, size=(60, 1, 1))
    one, other = canary_pair(terms)
    tried = [replace(one, actions=some, rewards=rng.normal(size=1) * 5.0) for some in actions]
    points = entries(door, [one, other, *tried])
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    assert apart.max() <= np.sqrt(2.0) * terms.radius * (1.0 + 1e-6)


@pytest.mark.parametrize("changes", [BLOCKS, ZEROS, MIXED], ids=lambda one: str(one["model"]))
def test_the_tally_of_rewards_out_of_range_costs_nothing_more(changes: dict[str, Any]) -> None:
    terms = replace(TERMS, **changes)
    assert tally_scale(terms, 0.0) is not None
    assert check_tally(tally_scale, terms).passed
    assert tally_scale(replace(TERMS, **ONE_HOTS), 0.0) is None  # their noise is less, and nothing is left


def test_zeros_read_off_the_data_are_caught() -> None:
    code = FAULTS["zeros read off the data"]
    failed = {check.kind for check in exact_checks(code, code.terms(TERMS)) if not check.passed}
    assert failed == {"noise on what moves"}
