"""What left is paid for once, in full; who comes too often is turned away."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feducb.config import Budget, Problem
from feducb.privacy.calibration import to_mu
from feducb.privacy.ledger import Account, Entered, Ledger, LedgerEntry, admit
from feducb.privacy.terms import Terms
from feducb.trust import CONTROLLER

TERMS = Terms(problem=Problem(dim=2), budget=Budget(epsilon=2.0, delta=1e-6), releases=3)
EARLIER = st.dictionaries(st.sampled_from([b"ann", b"bob"]), st.integers(0, 6))
PEOPLE = st.lists(st.sampled_from([b"ann", b"bob", b"eve", None]), max_size=30)


def _entry(number: int, *, group: int = 0, kind: str = "release") -> LedgerEntry:
    return LedgerEntry(
        kind=kind,  # type: ignore[arg-type]
        season=1,
        group=group,
        number=number,
        made_at="2026-01-01T00:00:00+00:00",
        size=10,
        sha256="0" * 64,
        sent_at=None,
    )


def _account(
    *entries: LedgerEntry, terms: Terms = TERMS, season: int = 1, elsewhere: bool = False
) -> Account:
    return Account(
        season=season,
        opened_at="2026-01-01T00:00:00+00:00",
        terms=terms,
        entries=entries,
        continued_elsewhere=elsewhere,
    )


@given(
    people=PEOPLE,
    limit=st.integers(1, 4),
    counts=st.dictionaries(st.sampled_from([b"ann", b"bob"]), st.integers(0, 6)),
)
def test_nobody_enters_more_than_the_limit_and_nobody_is_turned_away_early(
    people: list[bytes | None], limit: int, counts: dict[bytes, int]
) -> None:
    entered, moved = admit(people, {person: Entered(count, 1) for person, count in counts.items()}, limit)
    inside = Counter(person for person, let_in in zip(people, entered, strict=True) if let_in)
    for person, came in Counter(people).items():
        if person is None:
            assert inside[None] == came  # somebody who never comes again
        else:
            before = counts.get(person, 0)
            assert inside[person] == min(came, max(0, limit - before))
            assert moved.get(person, Entered(before, 1)).records == before + inside[person]
    assert set(moved) == {person for person in inside if person is not None}


@given(people=PEOPLE, cut=st.integers(0, 30), limit=st.integers(1, 4))
def test_it_does_not_matter_how_records_are_cut_into_calls(
    people: list[bytes | None], cut: int, limit: int
) -> None:
    whole, counts = admit(people, {}, limit)
    first, after_first = admit(people[:cut], {}, limit)
    second, moved = admit(people[cut:], after_first, limit)
    assert first + second == whole
    assert {**after_first, **moved} == counts


def test_the_first_come_enter_not_the_last() -> None:
    assert admit([b"ann", b"bob", b"ann", b"ann"], {}, 2)[0] == [True, True, True, False]


@given(
    visits=st.lists(st.tuples(st.integers(1, 12), st.sampled_from([b"ann", b"bob"])), max_size=40),
    limit=st.integers(2, 4),
    spacing=st.integers(1, 5),
)
def test_no_two_records_of_a_person_are_nearer_than_the_spacing(
    visits: list[tuple[int, bytes]], limit: int, spacing: int
) -> None:
    """In whatever order releases are asked for: groups of an agent need not be in step."""
    known: dict[bytes, Entered] = {}
    inside: dict[bytes, list[int]] = {b"ann": [], b"bob": []}
    for batch, person in visits:
        (enters,), moved = admit([person], known, limit, batch=batch, spacing=spacing)
        known |= moved
        far = all(batch - one >= spacing for one in inside[person])
        assert enters == (far and len(inside[person]) < limit)
        inside[person] += [batch] * enters
    assert {person: Entered(len(own), max(own)) for person, own in inside.items() if own} == known


def test_a_season_is_paid_for_with_its_first_release_and_costs_nothing_more_after() -> None:
    assert _account().mu_spent == 0.0
    spent = [_account(*map(_entry, range(1, made + 1))).mu_spent for made in (1, 2, 3)]
    assert spent == [_account().mu] * 3
    # Rounding to a grid costs a little, so noise is a little larger than needed: never smaller.
    assert 0.99 * to_mu(TERMS.budget) < spent[0] <= to_mu(TERMS.budget)


def test_an_upload_to_a_trusted_controller_and_a_restored_backup_count_as_spent() -> None:
    assert _account(_entry(1, kind="upload")).mu_spent == _account().mu
    assert _account(_entry(1, kind="upload")).releases_made == 0
    assert _account(elsewhere=True).mu_spent == _account().mu


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_releases_left_add_up_over_groups_and_none_borrows_from_another(groups: int) -> None:
    terms = Terms(problem=TERMS.problem, budget=TERMS.budget, releases=3, groups=groups)
    entries = [_entry(number, group=groups - 1) for number in (1, 2)]
    account = _account(*entries, terms=terms)
    left = [account.releases_left_in(group) for group in range(groups)]
    assert left == [3] * (groups - 1) + [1]
    assert sum(left) == account.releases_left
    assert account.mu == pytest.approx(_account().mu)  # disjoint records: groups cost nothing more


def test_a_person_pays_for_all_her_records_and_a_record_for_itself() -> None:
    terms = Terms(problem=TERMS.problem, budget=TERMS.budget, releases=3, records_per_person=4)
    assert _account(terms=terms).mu_of_a_record == pytest.approx(_account(terms=terms).mu / 4)
    assert _account(terms=terms).mu <= to_mu(TERMS.budget)  # the promise is for the person
    trusted = Terms(
        problem=TERMS.problem,
        budget=TERMS.budget,
        releases=3,
        trust=CONTROLLER,
        records_per_person=2,
        agents_per_person=3,
    )
    assert _account(terms=trusted).mu_of_a_record == pytest.approx(_account(terms=trusted).mu / 6)


def test_who_comes_back_in_every_season_pays_as_lengths_of_vectors_add() -> None:
    paid, unpaid = _account(_entry(1)), _account(season=2)
    assert Ledger((paid,)).mu_of_a_regular == paid.mu
    assert Ledger((paid, unpaid)).mu_of_a_regular == paid.mu  # nothing left in the second
    both = Ledger((paid, _account(_entry(1), season=2)))
    assert both.mu_of_a_regular == pytest.approx(math.sqrt(2.0) * paid.mu)
    assert both.current.season == 2


def test_it_reads_as_json_and_says_what_it_knows() -> None:
    account = _account(_entry(1), _entry(2))
    plain = json.loads(json.dumps(Ledger((account,)).as_dict()))
    season = plain["seasons"][0]
    assert season["releases_made"] + season["releases_left"] == season["releases"] * season["groups"]
    assert season["mu_spent"] == account.mu_spent == plain["mu_of_a_regular"]
    assert sum(season["releases_left_by_group"]) == season["releases_left"]
    assert [entry["number"] for entry in season["entries"]] == [1, 2]
    assert (season["epsilon"], season["delta"]) == (2.0, 1e-6)
