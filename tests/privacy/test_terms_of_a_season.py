"""What is promised: every part of it counts, is checked, and is stored and read back as it was."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.privacy.mechanisms import Dense, person_reach
from feducb.privacy.terms import Neighbours, Terms
from feducb.trust import CONTROLLER, NOBODY

TERMS = Terms(
    problem=Problem(dim=3, action_bound=2.0, reward_bound=0.5, parameter_bound=1.5),
    budget=Budget(epsilon=0.7, delta=1e-7),
    releases=12,
    quiet=2,
    records_per_person=4,
)
# Every setting that noise, or what it covers, follows from.
PROMISED: dict[str, Any] = {
    "dim": replace(TERMS, problem=replace(TERMS.problem, dim=4)),
    "action_bound": replace(TERMS, problem=replace(TERMS.problem, action_bound=2.0001)),
    "reward_bound": replace(TERMS, problem=replace(TERMS.problem, reward_bound=0.4999)),
    "parameter_bound": replace(TERMS, problem=replace(TERMS.problem, parameter_bound=1.4)),
    "epsilon": replace(TERMS, budget=Budget(epsilon=0.70001, delta=1e-7)),
    "delta": replace(TERMS, budget=Budget(epsilon=0.7, delta=1.0001e-7)),
    "releases": replace(TERMS, releases=13),
    "quiet": replace(TERMS, quiet=1),
    "decay": replace(TERMS, decay=1.5),
    "another decay": replace(TERMS, decay=1.25),
    "spacing": replace(TERMS, spacing=1),
    "another spacing": replace(TERMS, spacing=2),
    "records_per_person": replace(TERMS, records_per_person=3),
    "agents_per_person": replace(TERMS, agents_per_person=2),
    "mechanism": replace(TERMS, mechanism="toeplitz", quiet=0),
    "trust": replace(TERMS, trust=CONTROLLER),
}


def test_terms_are_written_as_ever() -> None:
    """Stores and signed statements hold this very text: a change here is a change of files."""
    assert TERMS.to_json() == (
        '{"agents_per_person": 1, "delta": 1e-07, "epsilon": 0.7, "excess": "clip", "groups": 1, '
        '"mechanism": "dense", "problem": {"action_bound": 2.0, "dim": 3, "noise_scale": 0.5, '
        '"parameter_bound": 1.5, "reward_bound": 0.5}, "quiet": 2, "records_per_person": 4, "releases": 12, '
        '"trust": "nobody"}'
    )


@pytest.mark.parametrize("changed", PROMISED)
def test_another_promise_has_another_digest(changed: str) -> None:
    """A trusted controller takes an agent's sums by it: what is left out could be promised by one alone."""
    assert PROMISED[changed].digest() != TERMS.digest()
    assert len({one.digest() for one in (TERMS, *PROMISED.values())}) == len(PROMISED) + 1


def test_what_promises_nothing_moves_no_digest() -> None:
    again = replace(TERMS, budget=Budget(epsilon=0.7, delta=1e-7), excess="refuse", groups=3)
    assert again.digest() == TERMS.digest() == replace(TERMS, mechanism="dense").digest()
    counted = replace(TERMS, problem=replace(TERMS.problem, action_bound=2))
    assert counted.digest() == TERMS.digest()  # 2 is 2.0
    assert len(TERMS.digest()) == 8


@pytest.mark.parametrize("changed", [*PROMISED, "groups", "excess"])
def test_every_setting_is_read_back(changed: str) -> None:
    others = {"groups": replace(TERMS, groups=5), "excess": replace(TERMS, excess="refuse")}
    terms = (PROMISED | others)[changed]
    again = Terms.from_json(terms.to_json())
    assert again == replace(terms, mechanism=terms.factors.name)  # auto is kept as what it was then
    assert again.certificate() == terms.certificate()
    assert again.digest() == terms.digest()


def test_earlier_files_have_fewer_keys_and_others_may_have_more() -> None:
    plain = json.loads(TERMS.to_json())
    for absent in ("agents_per_person", "groups"):
        fewer = {key: value for key, value in plain.items() if key != absent}
        assert Terms.from_json(json.dumps(fewer)) == replace(TERMS, mechanism="dense")
    assert Terms.from_json(json.dumps(plain | {"colour": "blue"})) == replace(TERMS, mechanism="dense")
    for needed in ("problem", "epsilon", "delta"):
        with pytest.raises(KeyError, match=needed):
            Terms.from_json(json.dumps({key: value for key, value in plain.items() if key != needed}))
    with pytest.raises(TypeError, match="releases"):
        Terms.from_json(json.dumps({key: value for key, value in plain.items() if key != "releases"}))


@pytest.mark.parametrize(
    "setting", ["releases", "records_per_person", "agents_per_person", "groups", "quiet", "spacing"]
)
def test_counts_are_whole_numbers(setting: str) -> None:
    least = 0 if setting in ("quiet", "spacing") else 1
    changes: dict[str, Any]
    for wrong in (least - 1, 1.5, "two", True, 2**31):
        changes = {setting: wrong}
        with pytest.raises(ConfigurationError, match=f"{setting} is "):
            replace(TERMS, **changes)
    changes = {"quiet": 0, setting: np.int64(3)}
    assert json.loads(replace(TERMS, **changes).to_json())[setting] == 3  # a plain number again


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"excess": "ignore"}, "excess is 'ignore', expected clip or refuse"),
        ({"trust": "everybody"}, "trust is 'everybody', expected nobody, controller or keepers"),
        ({"model": "cubic"}, "model is 'cubic', expected linear"),
        ({"mechanism": "bush"}, "mechanism is 'bush', expected one of auto, "),
        ({"mechanism": "blt"}, "quiet is 2, expected 0 with the mechanism blt"),
        ({"quiet": 12}, "quiet is 12, expected below the 12 releases"),
        (
            {"mechanism": "toeplitz", "quiet": 0, "decay": 2},
            "decay is 2.0, expected none with the mechanism to",
        ),
        ({"decay": 0.9}, "decay is 0.9, expected a finite number of at least 1"),
        ({"decay": 7.0}, r"decay is 7.0, expected at most 5\.995 at so many releases"),
        ({"spacing": 1, "records_per_person": 1}, "spacing is 1, expected 0 where a person has one record"),
        ({"trust": "controller", "groups": 2}, "groups is 2, expected 1 where the controller is trusted"),
    ],
)
def test_what_cannot_be_promised_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        replace(TERMS, **changes)


def test_the_mechanism_is_for_so_many_releases_and_so_many_quiet_ones() -> None:
    assert TERMS.factors == Dense(12, 2)
    assert replace(TERMS, quiet=0).factors == Dense(12)
    assert replace(TERMS, decay=1.5).factors == Dense(12, 2, 1.5)
    assert replace(TERMS, quiet=0, releases=257).factors.name == "blt"
    assert replace(TERMS, quiet=0, mechanism="tree").factors.name == "tree"


@pytest.mark.parametrize("changes", [{"decay": 1.5}, {"spacing": 3}, {"decay": 2, "spacing": 1, "quiet": 0}])
def test_decay_and_spacing_are_stored_where_there_are_any(changes: dict[str, Any]) -> None:
    terms = replace(TERMS, mechanism="dense", **changes)
    assert Terms.from_json(terms.to_json()) == terms
    more = json.loads(terms.to_json()).keys() - json.loads(TERMS.to_json()).keys()
    assert more == changes.keys() - {"quiet"}


def test_spaced_records_need_less_noise_and_several_agents_as_many_times_more() -> None:
    apart = replace(TERMS, quiet=0, spacing=2)
    assert 1.0 < apart.reach < replace(apart, spacing=1).reach < 4.0 == TERMS.reach
    assert apart.reach == person_reach(Dense(12), 4, 2)
    pooled = replace(apart, trust=CONTROLLER, agents_per_person=3)
    assert pooled.reach == 3 * apart.reach
    for terms in (apart, pooled):
        sensitivity = terms.reach * math.sqrt(2.0) * terms.radius
        assert terms.certificate().sensitivity == pytest.approx(sensitivity, rel=1e-4)
    assert replace(apart, agents_per_person=3).certificate() == apart.certificate()


def test_the_certificate_is_for_the_model_s_radius_and_all_that_is_covered() -> None:
    certificate = TERMS.certificate()
    assert (certificate.coordinates, certificate.releases) == (9, 12)
    assert certificate.budget == TERMS.budget
    reward = TERMS.weight * 0.5  # L = 2 is larger, so R² = L² + s²B²
    assert TERMS.radius == pytest.approx(4.0 + reward**2, rel=1e-12)
    assert certificate.sensitivity == pytest.approx(4.0 * math.sqrt(2.0) * TERMS.radius, rel=1e-4)
    pooled = replace(TERMS, trust=CONTROLLER, agents_per_person=3)
    assert pooled.records_covered == 12
    assert pooled.certificate().sensitivity == pytest.approx(3.0 * certificate.sensitivity, rel=1e-9)
    # Where nobody is trusted, an agent's noise is for what she has there, however many she visits.
    assert replace(TERMS, agents_per_person=3).certificate() == certificate


def test_who_is_protected_follows_from_what_is_covered() -> None:
    one = replace(TERMS, records_per_person=1)
    assert one.neighbours is Neighbours.ONE_RECORD
    assert TERMS.neighbours is Neighbours.ONE_PERSON
    assert replace(one, agents_per_person=3).neighbours is Neighbours.ONE_RECORD
    assert replace(one, agents_per_person=3, trust=CONTROLLER).neighbours is Neighbours.ONE_PERSON


@pytest.mark.parametrize("trust", [NOBODY, CONTROLLER])
def test_a_person_at_more_agents_pays_more(trust: Any) -> None:
    terms = replace(TERMS, trust=trust, agents_per_person=2)
    paid = [terms.mu_at(agents) for agents in (1, 2, 3, 8)]
    assert paid == sorted(paid)
    assert len(set(paid)) == 4
    at_one = terms.mu_at(1)
    growth = [1.0, 2.0, 3.0, 8.0] if trust.pooled else [1.0, math.sqrt(2.0), math.sqrt(3.0), math.sqrt(8.0)]
    assert paid == pytest.approx([at_one * factor for factor in growth])
    assert terms.mu_at(2 if trust.pooled else 1) == pytest.approx(terms.certificate().mu)
