"""Checks that know no chance see each mistake by itself; sound code passes in every setting."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from feducb.audit.doors import measure_encoder
from feducb.audit.exact import (
    check_clipping,
    check_encoder,
    check_horizon,
    check_presence,
    check_sensitivity,
    check_tally,
)
from feducb.audit.findings import Check
from feducb.config import Budget, Problem
from feducb.privacy.deployed import DeployedPrivatizer, GridRelease
from feducb.privacy.encoders import Encoder
from feducb.privacy.grid import FINE_BITS
from feducb.privacy.terms import Terms

Ints = NDArray[np.int64]
TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=4.0, delta=1e-6), releases=5)


class _Bent:
    """An encoder with one mistake in it: ``bend`` gets the row, its number and all batches so far."""

    def __init__(self, inner: Encoder, bend: Callable[[Ints, int, list[Ints]], Ints]) -> None:
        self._inner, self._bend, self._seen = inner, bend, list[Ints]()
        self._straight: Ints = np.zeros(0, dtype=np.int64)

    def encode(self, batch: Any) -> Ints:
        self._seen.append(np.asarray(batch).astype(np.int64))
        self._straight = self._inner.encode(batch)
        return self._bend(self._straight, len(self._seen), self._seen)

    def as_summed(self, row: Ints) -> Ints:
        """Sums look right, unless what is wrong is the sums: each mistake is seen by its own condition."""
        return row if self._bend is _lossy else self._straight

    def dump(self) -> bytes:
        return self._inner.dump()

    def load(self, data: bytes) -> None:
        self._seen.clear()
        self._inner.load(data)


def _bent(bend: Callable[[Ints, int, list[Ints]], Ints]) -> Callable[[Terms], DeployedPrivatizer]:
    def make(terms: Terms) -> DeployedPrivatizer:
        door = DeployedPrivatizer(terms)
        bent, decode = _Bent(door._encoder, bend), door._decoder.decode
        door._encoder = bent
        vars(door._decoder).update(decode=lambda row: decode(bent.as_summed(row)))
        return door

    return make


def _longer(row: Ints, number: int, seen: list[Ints]) -> Ints:
    """A record moves the second row by a millionth more than it may."""
    return row + (np.abs(row) // 1_000_000 if number == 2 else 0)


def _negative(row: Ints, number: int, seen: list[Ints]) -> Ints:
    """The first batch counts against later rows: columns stay as long, but p records may cost more than p."""
    if number == 1:
        return row
    share = float(TERMS.factors.encoder()[number - 1, 0]) * np.ldexp(seen[0].astype(np.float64), -FINE_BITS)
    return row - np.rint(2.0 * share).astype(np.int64)


def _lossy(row: Ints, number: int, seen: list[Ints]) -> Ints:
    """Half of the fourth row is gone: private, but sums are wrong."""
    return row // 2 if number == 4 else row


@pytest.mark.parametrize("bend", [_longer, _negative, _lossy])
def test_an_encoder_with_one_mistake_is_seen(bend: Callable[[Ints, int, list[Ints]], Ints]) -> None:
    assert check_encoder(_bent(lambda row, number, seen: row), TERMS).passed
    assert not check_encoder(_bent(bend), TERMS).passed


def test_an_encoder_that_says_something_before_its_time_is_seen() -> None:
    """What a batch adds to rows before its own is on the upper side of the measured matrix."""
    rows, _ = measure_encoder(DeployedPrivatizer(TERMS))
    assert not np.triu(rows, 1).any()
    assert (np.diagonal(rows) > 0).all()


@pytest.mark.parametrize("mechanism", ["dense", "toeplitz", "tree"])
@pytest.mark.parametrize("trust", ["nobody", "controller"])
@pytest.mark.parametrize(
    "problem",
    [
        Problem(dim=1),
        Problem(dim=2, action_bound=3.0, reward_bound=0.2),
        Problem(dim=4, action_bound=0.5, reward_bound=7.0),
    ],
)
def test_what_is_shipped_passes_whatever_the_bounds(mechanism: str, trust: Any, problem: Problem) -> None:
    terms = replace(TERMS, mechanism=mechanism, trust=trust, problem=problem)
    for check in (check_sensitivity, check_presence, check_clipping, check_horizon):
        assert check(DeployedPrivatizer, terms).passed, check


def _weaker(factor: float) -> Callable[[Terms], DeployedPrivatizer]:
    """A privatizer whose records count for more than its certificate says."""

    class Heavy(DeployedPrivatizer):
        def record(self, actions: Any, rewards: Any) -> None:
            before = self._batch.copy()
            super().record(actions, rewards)
            self._batch = before + np.rint((self._batch - before).astype(np.float64) * factor).astype(
                np.int64
            )

    return Heavy


def test_records_that_count_for_a_little_more_are_seen_by_sensitivity_and_presence() -> None:
    for check in (check_sensitivity, check_presence):
        assert check(_weaker(1.0), TERMS).passed
        assert not check(_weaker(1.01), TERMS).passed


def test_records_that_count_for_less_make_the_check_idle_and_that_is_seen_too() -> None:
    assert not check_sensitivity(_weaker(0.99), TERMS).passed


@pytest.mark.parametrize("records", [2, 5])
def test_noise_for_several_records_of_a_person_is_so_many_times_as_large(records: int) -> None:
    several = replace(TERMS, records_per_person=records)
    assert check_sensitivity(DeployedPrivatizer, several).passed
    ratio = several.certificate().scale / TERMS.certificate().scale
    assert ratio == pytest.approx(records, rel=1e-3)
    assert not check_sensitivity(_weaker(1.01), several).passed


class _Endless(DeployedPrivatizer):
    """Counts its releases in memory only: a restart starts anew."""

    def load(self, data: bytes) -> None:
        super().load(self._begun)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._begun = self.dump()


def test_a_budget_that_a_restart_fills_up_again_is_seen() -> None:
    check = check_horizon(_Endless, TERMS)
    assert not check.passed
    assert "refused 1 times of 2" in check.detail


class _Obedient(DeployedPrivatizer):
    """Clips where it should refuse."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(replace(terms, excess="clip"))


def test_a_door_that_clips_where_it_should_refuse_is_seen() -> None:
    check = check_clipping(_Obedient, TERMS)
    assert not check.passed
    assert "(2.0, 0.0)" in check.detail


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_tally_is_paid_for_out_of_what_releases_leave(factor: float) -> None:
    from feducb.privacy.tally import tally_scale

    def scale_of(terms: Terms, default: float) -> int | None:
        scale = tally_scale(terms, default)
        return None if scale is None else max(1, math.floor(scale * factor))

    assert check_tally(scale_of, TERMS).passed == (factor == 1.0)


def test_checks_leave_no_release_behind() -> None:
    """They measure a door that goes on to be used: its state is as before."""
    door = DeployedPrivatizer(TERMS)
    before = door._encoder.dump()
    measure_encoder(door)
    assert door._encoder.dump() == before
    release: GridRelease = door.release()
    assert release.values.shape == (5,)


def test_a_check_says_what_it_saw() -> None:
    check: Check = check_sensitivity(DeployedPrivatizer, TERMS)
    assert "epsilon accounted anew" in check.detail
    accounted = float(check.detail.split("accounted anew ")[1].split()[0])
    assert 0.95 * TERMS.budget.epsilon < accounted <= TERMS.budget.epsilon  # close: no noise is wasted
