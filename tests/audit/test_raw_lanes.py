"""Decisions that raw records drive beside a stream of releases: checks pass, and each fault fails its own."""

from __future__ import annotations

import pytest

from feducb.agent import Agent
from feducb.audit.broken_lanes import LANE_FAULTS
from feducb.audit.checks import exact_checks
from feducb.audit.raw_lanes import check_held_out, check_joining
from feducb.config import Budget, Problem
from feducb.privacy.terms import Terms

TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=1.0, delta=1e-6), releases=3)


@pytest.mark.parametrize("check", [check_held_out, check_joining])
def test_what_is_shipped_passes_and_is_not_idle(check: type) -> None:
    made = check(Agent, TERMS)
    assert made.passed, made.detail
    assert "change, as they may" in made.detail


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("a release with records of who was held out", "who is held out"),
        ("decisions by records of who was held out", "who is held out"),
        ("decisions by what was learnt alone, in the shared phase", "joining after being alone"),
    ],
)
def test_each_fault_is_caught_by_a_check_of_its_own(name: str, by: str) -> None:
    failed = [check.name for check in exact_checks(LANE_FAULTS[name], TERMS) if not check.passed]
    assert failed == [by]
