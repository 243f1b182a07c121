"""The report: what it calls a failure, what it puts on top, and how it is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from feducb.audit.findings import AuditReport, Broken, Check, ClaimResult


def _claim(**changes: Any) -> ClaimResult:
    plain: dict[str, Any] = {
        "epsilon_claimed": 2.0,
        "delta": 1e-6,
        "trust": "nobody",
        "trials": 10,
        "mu_claimed": 0.5,
        "mu_lower_bound": 0.4,
        "epsilon_lower_bound_gaussian": 1.5,
        "epsilon_lower_bound": 1.0,
        "scores": (),
    }
    return ClaimResult(**(plain | changes))


def test_a_claim_holds_up_to_and_with_its_epsilon() -> None:
    assert _claim(epsilon_lower_bound=2.0, epsilon_lower_bound_gaussian=2.0).holds
    for name in ("epsilon_lower_bound", "epsilon_lower_bound_gaussian"):
        assert not _claim(**{name: np.nextafter(2.0, 3.0)}).holds
        assert not _claim(**{name: float("inf")}).holds


def test_the_headline_is_the_largest_claim_under_no_trust() -> None:
    claims = (_claim(), _claim(epsilon_claimed=8.0, trust="controller"), _claim(epsilon_claimed=4.0))
    report = AuditReport(claims=claims, checks=(), broken=(), false_alarm=1e-6)
    assert report.headline.epsilon_claimed == 4.0
    assert report.passed
    assert report.as_dict()["claims"][1]["trust"] == "controller"


def test_one_thing_wrong_is_enough() -> None:
    sound = AuditReport(
        claims=(_claim(),),
        checks=(Check("a", passed=True, detail=""), Check("b", passed=True, detail="")),
        broken=(Broken("c", caught=True, by=("a",)),),
        false_alarm=1e-6,
    )
    assert sound.passed
    assert not replace(sound, checks=(*sound.checks, Check("d", passed=False, detail=""))).passed
    assert not replace(sound, broken=(*sound.broken, Broken("e", caught=False, by=()))).passed
    assert not replace(sound, claims=(*sound.claims, _claim(epsilon_lower_bound=3.0))).passed
    assert sound.as_dict()["passed"] is True
