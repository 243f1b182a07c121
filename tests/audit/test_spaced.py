"""Checks of spaced records: they see noise that is a little short, and files that let in a little more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from sqlite3 import Connection
from typing import Any

import numpy as np
import pytest

from feducb.audit.doors import UNIT_BITS, measure_encoder
from feducb.audit.exact import check_sensitivity
from feducb.audit.spaced import admissible, check_spaced, check_spaced_tally, check_spacing, tried_reach
from feducb.config import Budget, Problem
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.grid import GridNoise
from feducb.privacy.ledger import Entered
from feducb.privacy.tally import tally_scale
from feducb.privacy.terms import Terms
from feducb.storage import AgentStore
from feducb.trust import CONTROLLER

TERMS = Terms(
    problem=Problem(dim=2),
    budget=Budget(epsilon=2.0, delta=1e-6),
    releases=4,
    records_per_person=2,
    spacing=1,
)
VARIANTS: list[dict[str, Any]] = [
    {},
    {"spacing": 2, "quiet": 1},
    {"spacing": 2, "decay": 1.7},
    {"releases": 5, "records_per_person": 3, "spacing": 2, "quiet": 2, "decay": 1.5},
    {"mechanism": "toeplitz"},
    {"mechanism": "tree", "spacing": 2},
    {"mechanism": "blt"},
    {"problem": Problem(dim=2, action_bound=2.0, reward_bound=0.3)},
    {"problem": Problem(dim=2, reward_bound=3.0, parameter_bound=0.2)},
]


class _Short(DeployedPrivatizer):
    """Noise for a person who reaches 1 % less far than she does."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        certificate = self.certificate
        self.certificate = replace(certificate, sigma=math.floor(0.99 * certificate.sigma))


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_the_noise_of_spaced_records_is_enough_and_a_hundredth_less_is_not(changes: dict[str, Any]) -> None:
    """Where columns are 1 long: others count as if they were, so that their noise has something to spare."""
    terms = replace(TERMS, **changes)
    for check in (check_spaced, check_sensitivity):
        assert check(DeployedPrivatizer, terms).passed
        assert terms.factors.name not in ("dense", "blt") or not check(_Short, terms).passed
    assert terms.certificate().scale < replace(terms, spacing=0).certificate().scale


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_tally_beside_spaced_records_costs_nothing(changes: dict[str, Any]) -> None:
    """It takes what the proof leaves of the budget: at a twentieth of its noise the claim is broken."""
    terms = replace(TERMS, **changes)
    assert tally_scale(terms, 0.0) is not None
    assert check_spaced_tally(tally_scale, terms).passed

    def lower(terms: Terms, default: float) -> int | None:
        scale = tally_scale(terms, default)
        return None if scale is None else max(1, scale // 20)

    assert not check_spaced_tally(lower, terms).passed


def test_several_agents_reach_as_many_times_as_far() -> None:
    one, several = TERMS, replace(TERMS, trust=CONTROLLER, agents_per_person=3)
    rows, _ = measure_encoder(DeployedPrivatizer(TERMS))
    assert tried_reach(rows, several) == pytest.approx(3.0 * tried_reach(rows, one))
    assert check_sensitivity(DeployedPrivatizer, several).passed


def test_sets_of_releases_are_those_that_are_far_enough_apart() -> None:
    assert list(admissible(replace(TERMS, spacing=2))) == [
        *((), (0,), (1,), (2,), (3,)),
        *((0, 2), (0, 3), (1, 3)),
    ]
    assert len(list(admissible(TERMS))) == 1 + 4 + 6


def test_columns_that_point_apart_do_not_make_records_cancel() -> None:
    """Moves may have any sign: what E's signs take away, those of the moves give back."""
    rows, _ = measure_encoder(DeployedPrivatizer(TERMS))
    signed = rows * (-1) ** np.arange(TERMS.releases)
    assert tried_reach(signed, TERMS) == pytest.approx(tried_reach(rows, TERMS), rel=1e-12)
    cancelling = np.linalg.norm(signed[:, :2].sum(axis=1)) / 2.0**UNIT_BITS
    assert cancelling < 0.7 * tried_reach(rows, TERMS)


class _NearMiss(AgentStore):
    """Counts releases from one too early."""

    def _entered(self, db: Connection, hashes: Sequence[bytes | None]) -> dict[bytes, Entered]:
        return {one: had._replace(last=had.last - 1) for one, had in super()._entered(db, hashes).items()}


class _Closed(AgentStore):
    """Lets nobody in twice."""

    def _entered(self, db: Connection, hashes: Sequence[bytes | None]) -> dict[bytes, Entered]:
        return {one: had._replace(records=99) for one, had in super()._entered(db, hashes).items()}


@pytest.mark.parametrize(("kind", "passes"), [(AgentStore, True), (_NearMiss, False), (_Closed, False)])
def test_a_file_that_is_one_release_off_is_seen_and_an_idle_check_too(
    kind: type[AgentStore], passes: bool
) -> None:
    assert check_spacing(kind, replace(TERMS, releases=3, spacing=2)).passed is passes


def test_a_certificate_with_less_noise_is_what_is_drawn() -> None:
    """What the broken ones above rest on: noise is drawn by the certificate that the privatizer shows."""
    door = _Short(TERMS)
    assert door.certificate.scale < DeployedPrivatizer(TERMS).certificate.scale
    with pytest.raises(Exception, match="does not reach the claim"):
        GridNoise(door.certificate)
