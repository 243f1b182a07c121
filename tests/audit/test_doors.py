"""What the audit reads off a privatizer is what the privatizer goes on to publish."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from feducb.audit.canary import Batch, background, canary_pair, coordinates_of
from feducb.audit.doors import UNIT_BITS, Seen, entries, length, measure_encoder, row_to_come
from feducb.config import Budget, Problem
from feducb.errors import RecordOutOfBoundsError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms

TERMS = Terms(problem=Problem(dim=3), budget=Budget(epsilon=4.0, delta=1e-6), releases=4)
MECHANISMS = ["dense", "toeplitz", "tree", "blt"]


def test_entries_are_the_records_coordinates() -> None:
    door, batches = DeployedPrivatizer(TERMS), background(TERMS.problem, 4)
    expected = [coordinates_of(TERMS, batch) for batch in batches]
    np.testing.assert_allclose(entries(door, batches), expected, atol=1e-9)


def test_entries_leave_the_door_as_it_was_also_between_releases() -> None:
    door = DeployedPrivatizer(TERMS)
    one, other = canary_pair(TERMS)
    door.record(one.actions, one.rewards)
    door.release()
    door.record(other.actions, other.rewards)
    before = door.dump()
    entries(door, [one, other])
    assert door.dump() == before
    assert (door.released, door.pending) == (1, 1)


def test_entries_of_a_batch_that_is_not_empty_count_what_waits_too() -> None:
    door = DeployedPrivatizer(TERMS)
    one, other = canary_pair(TERMS)
    alone = entries(door, [one, other])
    door.record(one.actions, one.rewards)
    np.testing.assert_allclose(entries(door, [one, other]), alone + alone[0], atol=1e-9)


def test_entries_of_no_record_at_all() -> None:
    assert entries(DeployedPrivatizer(TERMS), []).shape == (0,)


def test_what_the_door_refuses_is_refused_here() -> None:
    door = DeployedPrivatizer(replace(TERMS, excess="refuse"))
    far = Batch(np.full((1, 3), 9.0), np.zeros(1))
    with pytest.raises(RecordOutOfBoundsError):
        entries(door, [far])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_row_to_come_is_the_row_that_comes(mechanism: str) -> None:
    door, seen = DeployedPrivatizer(replace(TERMS, mechanism=mechanism)), Seen()
    seen.watch([door])
    for number, batch in enumerate(background(TERMS.problem, 4)):
        door.record(batch.actions, batch.rewards)
        row = row_to_come(door)
        again = row_to_come(door)  # looking changes nothing
        seen.rows[0].clear()
        door.release()
        np.testing.assert_array_equal(row, again)
        np.testing.assert_array_equal(row, seen.rows[0][-1])
        assert door.released == number + 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("releases", [1, 5, 13])
def test_the_measured_encoder_is_the_mechanisms(mechanism: str, releases: int) -> None:
    """13 releases and 9 lanes: measured in two passes."""
    terms = replace(TERMS, mechanism=mechanism, releases=releases)
    rows, decoded = measure_encoder(DeployedPrivatizer(terms))
    np.testing.assert_allclose(rows / 2.0**UNIT_BITS, terms.factors.encoder(), atol=1e-9)
    np.testing.assert_allclose(decoded, np.tri(releases), atol=1e-9)


def test_measuring_leaves_the_encoder_as_it_was() -> None:
    door = DeployedPrivatizer(TERMS)
    batch = background(TERMS.problem, 1)[0]
    before = door.dump()
    measure_encoder(door)
    assert door.dump() == before
    door.record(batch.actions, batch.rewards)
    np.testing.assert_array_equal(row_to_come(door), row_to_come(_with(batch)))


def _with(batch: Batch) -> DeployedPrivatizer:
    door = DeployedPrivatizer(TERMS)
    door.record(batch.actions, batch.rewards)
    return door


def test_watched_releases_are_made_of_what_was_noted() -> None:
    """Row and noise, decoded by the mechanism's own factors, are the published integers."""
    terms = replace(TERMS, mechanism="dense")
    door, seen = DeployedPrivatizer(terms), Seen()
    seen.watch([door])
    published = []
    for batch in background(terms.problem, 4):
        door.record(batch.actions, batch.rewards)
        published.append(door.release().values)
    made = np.array(seen.rows[0]) + np.array(seen.noise[0])
    np.testing.assert_allclose(terms.factors.decoder() @ made, published, rtol=1e-8, atol=1.0)


def test_a_watched_door_can_be_written_and_read_and_goes_on_noting() -> None:
    door, seen = DeployedPrivatizer(TERMS), Seen()
    seen.watch([door])
    fresh = door.dump()
    door.release()
    door.load(fresh)
    door.release()
    assert len(seen.rows[0]) == len(seen.noise[0]) == 2
    np.testing.assert_array_equal(seen.rows[0][0], seen.rows[0][1])
    assert not np.array_equal(seen.noise[0][0], seen.noise[0][1])


def test_only_the_watched_door_is_noted() -> None:
    door, other, seen = DeployedPrivatizer(TERMS), DeployedPrivatizer(TERMS), Seen()
    seen.watch([door])
    other.release()
    assert seen.rows[0] == []


def test_groups_are_noted_apart_and_moves_are_by_group() -> None:
    one, other = Seen(), Seen()
    batch = background(TERMS.problem, 1)[0]
    for seen, group in ((one, 0), (other, 1)):
        doors = [DeployedPrivatizer(TERMS) for _ in range(3)]
        seen.watch(doors)
        doors[group].record(batch.actions, batch.rewards)
        for door in doors:
            door.release()
    moves = one.moves(other)
    assert [bool(move.any()) for move in moves] == [True, True, False]
    np.testing.assert_array_equal(moves[0], -moves[1])


def test_the_length_of_moves_is_euclidean_and_in_real_units() -> None:
    step = math.ldexp(1.0, TERMS.certificate().exponent)
    moves = [np.array([[3, 0]]), np.array([[0, 4]]), np.array([[12, 0], [0, 0]])]
    assert length(moves, TERMS) == pytest.approx(13.0 * step)
    assert length([np.zeros((2, 2), dtype=np.int64)], TERMS) == 0.0
    assert length([], TERMS) == 0.0


def test_one_record_moves_the_rows_by_its_own_length() -> None:
    """A single release with E = 1: the row is the record, to a step of the grid in each coordinate."""
    terms = replace(TERMS, releases=1)
    one, other = canary_pair(terms)
    rows = []
    for record in (one, other):
        door = DeployedPrivatizer(terms)
        door.record(record.actions, record.rewards)
        rows.append(row_to_come(door))
    apart = float(np.linalg.norm(coordinates_of(terms, one) - coordinates_of(terms, other)))
    step = math.ldexp(1.0, terms.certificate().exponent)
    assert abs(length([rows[0] - rows[1]], terms) - apart) <= 3.0 * step * math.sqrt(9)
