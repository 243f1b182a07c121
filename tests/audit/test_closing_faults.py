"""Under own play nothing that leaves depends on raw records but by their release: sound and leaking closes.

That each planted fault is seen by its own check alone is in `test_audit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from feducb.audit import own_play
from feducb.audit.broken_close import CLOSE_FAULTS
from feducb.audit.findings import Check
from feducb.audit.own_play import Closing, check_after_close, check_close, check_shared_phase
from feducb.config import Budget, Problem
from feducb.models.play import JointPlay
from feducb.privacy.terms import Terms
from feducb.protocol.closing import own_estimator
from feducb.protocol.estimators import Estimator
from feducb.protocol.federation import Federation

TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=8.0, delta=1e-6), releases=3)


def test_what_is_shipped_closes_at_a_public_round_and_is_not_idle() -> None:
    plain, changed, close = own_play._traces(own_estimator, 1e-6)
    assert plain.rounds == (10, 20, 30)
    assert close == 30
    assert len(changed) == 20
    for check in (check_close, check_shared_phase, check_after_close):
        assert check(own_estimator, TERMS).passed


def test_what_left_differs_only_from_a_record_s_release_on() -> None:
    plain, changed, _ = own_play._traces(own_estimator, 1e-6)
    for (agent, at), other in changed.items():
        moved = {who for who in plain.left if plain.left[who] != other.left[who]}
        assert ((agent, at) in moved) == (at in plain.rounds)
        assert all(when >= at for _, when in moved)
        assert bool(moved) == (at <= 30)


@pytest.mark.parametrize(
    ("name", "check", "told"),
    [
        (
            "raw records in the shared phase",
            check_shared_phase,
            "8 of 20 replaced records changed a decision",
        ),
        ("a release after the close", check_after_close, "4 of 10 replaced records left their agent"),
        ("a close by what records say", check_close, "2 of 20 replaced records moved a release round"),
    ],
)
def test_a_planted_fault_is_told_by_its_records(
    name: str, check: Callable[[Closing, Terms], Check], told: str
) -> None:
    closing = CLOSE_FAULTS[name].closing
    assert closing is not None
    found = check(closing, TERMS)
    assert not found.passed
    assert found.detail.startswith(told)


def _released_to_the_end(federation: Federation, horizon: int, team: Sequence[int]) -> Estimator:
    """Never opens its own phase, so that nothing is tested after the close."""
    shared = own_estimator(federation, horizon, team)
    assert isinstance(shared.rule, JointPlay)
    return replace(shared, rule=replace(shared.rule, last=len(shared.release_rounds) + 1))


def test_a_close_after_which_nobody_looks_at_own_records_makes_the_check_idle() -> None:
    found = check_after_close(_released_to_the_end, TERMS)
    assert not found.passed
    assert found.detail.startswith("0 of 6")
    assert "; 0 changed" in found.detail


def test_the_close_by_data_is_one_that_a_record_moves() -> None:
    closing: Closing | None = CLOSE_FAULTS["a close by what records say"].closing
    assert closing is not None
    plain, changed, _ = own_play._traces(closing, 1e-6)
    assert len(plain.rounds) == 3
    assert plain.rounds[:2] == (10, 20)
    assert {other.rounds[-1] for other in changed.values()} > {plain.rounds[-1]}
