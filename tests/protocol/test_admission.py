"""Which releases are taken in: honest ones always, what no honest agent could have made never."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feducb.config import Budget, Problem
from feducb.errors import RefusedError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.terms import Terms
from feducb.protocol import messages, sums
from feducb.protocol.admission import (
    FALSE_REFUSAL,
    REASONS,
    RefusalCount,
    largest_value,
    least_eigenvalue,
    read_release,
)

TERMS = Terms(problem=Problem(dim=3), budget=Budget(epsilon=1.0, delta=1e-6), releases=8)
EVERYBODY = {"a": TERMS, "b": TERMS}
HEADER = struct.Struct("<HHIIIIidd")
FIELDS = ("format", "agents", "dim", "season", "number", "group", "exponent", "weight", "variance")


def _release(number: int = 1, records: int = 2, terms: Terms = TERMS) -> bytes:
    privatizer = DeployedPrivatizer(terms)
    for _ in range(number - 1):
        privatizer.release()
    privatizer.record(np.full((records, terms.problem.dim), 0.5), np.full(records, 0.5))
    return messages.encode(privatizer.release(), season=1)


def _changed(payload: bytes, **fields: float) -> bytes:
    header = dict(zip(FIELDS, HEADER.unpack_from(payload), strict=True)) | fields
    return HEADER.pack(*header.values()) + payload[HEADER.size :]


def _with_values(payload: bytes, values: list[int]) -> bytes:
    return payload[: HEADER.size] + np.array(values, dtype="<i8").tobytes()


def test_honest_releases_are_taken_in_with_and_without_records() -> None:
    """Of 8 × 3 releases one is refused with probability at most 24 × 1e-12."""
    for records in (1, 2, 1000):
        for number in range(1, 9):
            told = read_release(_release(number, records), EVERYBODY, agent="a")
            assert (told.number, told.agents) == (number, 1)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"format": 9}, "malformed"),
        ({"weight": math.nan}, "malformed"),
        ({"variance": math.nan}, "malformed"),
        ({"variance": math.inf}, "malformed"),
        ({"variance": -1.0}, "malformed"),
        ({"agents": 2}, "agents"),
        ({"agents": 0}, "agents"),
        ({"dim": 2}, "malformed"),
        ({"exponent": -3}, "grid"),
        ({"weight": 3.5}, "weight"),
        ({"weight": math.nextafter(TERMS.weight, 2.0)}, "weight"),  # it could not be added to the others
        ({"variance": 1e-9}, "variance"),
        ({"number": 0}, "number"),
        ({"number": 9}, "number"),
        ({"number": 2**32 - 1}, "number"),
        ({"group": 1}, "group"),
    ],
)
def test_a_wrong_header_is_refused_and_says_why(fields: dict[str, float], reason: str) -> None:
    with pytest.raises(RefusedError) as found:
        read_release(_changed(_release(), **fields), EVERYBODY, agent="a")
    assert found.value.reason == reason
    assert reason in REASONS


def test_size_sender_and_values_that_could_overflow_a_sum_are_refused() -> None:
    usual = _release()
    huge = [2**62, 2**62, 2**62, *[0] * 6]  # positive definite, and one more agent like it would wrap
    least = [-(2**63), *[0] * 8]
    cases = [
        (usual + b"x", "a", "size"),
        (usual[:-8], "a", "size"),
        (b"", "a", "size"),
        (usual, "nobody", "sender"),
        (_with_values(usual, huge), "a", "magnitude"),
        (_with_values(usual, least), "a", "magnitude"),
    ]
    for payload, agent, reason in cases:
        with pytest.raises(RefusedError) as found:
            read_release(payload, EVERYBODY, agent=agent)
        assert found.value.reason == reason


def test_sums_of_the_largest_admitted_releases_do_not_overflow() -> None:
    usual = _release()
    largest = largest_value(len(EVERYBODY))
    extreme = _with_values(usual, [0, 0, 0, 0, 0, 0, largest, largest, -largest])
    part = read_release(extreme, EVERYBODY, agent="a")
    assert messages.combine([part, part]).values[6] == 2 * largest


def test_a_gram_below_its_noise_is_refused_and_one_within_it_is_not() -> None:
    usual = _release()
    told = messages.decode(usual)
    floor = math.ldexp(1.0, -told.exponent) * least_eigenvalue(3, told.variance)
    rows, columns = np.triu_indices(3)
    for factor, refused in ((0.99, False), (1.01, True)):
        diagonal = [
            int(factor * floor) if row == column else 0 for row, column in zip(rows, columns, strict=True)
        ]
        payload = _with_values(usual, [*diagonal, 0, 0, 0])
        if refused:
            with pytest.raises(RefusedError, match="definite"):
                read_release(payload, EVERYBODY, agent="a")
        else:
            read_release(payload, EVERYBODY, agent="a")


def test_the_false_refusal_bound_holds_where_it_can_be_seen() -> None:
    """At a level of 1e-2 instead of 1e-12 at most 1 % of noise alone is below; 4,000 draws, fails < 1e-9."""
    assert FALSE_REFUSAL == 1e-12
    draws, dim = np.random.default_rng(5), 6
    half = draws.standard_normal((4000, dim, dim))
    noise = (half + half.swapaxes(1, 2)) / math.sqrt(2.0)  # variance 1 beside and 2 on the diagonal
    least = np.linalg.eigvalsh(noise)[:, 0]
    deviations = math.sqrt(4.0 * math.log(1.0 / 1e-2))
    assert (least < -2.0 * math.sqrt(dim) - deviations).mean() <= 0.01
    ours = -least_eigenvalue(dim, 1.0)
    assert ours == pytest.approx(2.0 * math.sqrt(dim) + math.sqrt(4.0 * math.log(1e12)))


def test_agents_may_have_budgets_of_their_own() -> None:
    careful = replace(TERMS, budget=Budget(epsilon=0.5, delta=1e-6))
    both = {"a": TERMS, "c": careful}
    payload = _release(terms=careful)
    read_release(payload, both, agent="c")
    with pytest.raises(RefusedError, match="variance"):
        read_release(payload, both, agent="a")


@given(st.binary(max_size=300))
def test_garbage_never_does_more_than_be_refused(data: bytes) -> None:
    with pytest.raises(RefusedError):
        read_release(data, EVERYBODY, agent="a")
    with pytest.raises(ValueError, match=r".+"):
        sums.decode(data)


@given(st.integers(0, 111), st.binary(min_size=1, max_size=8))
def test_a_damaged_release_is_refused_or_read_as_one_that_could_be(at: int, change: bytes) -> None:
    usual = SAVED
    damaged = (usual[:at] + change + usual[at + len(change) :])[: len(usual)]
    try:
        told = read_release(damaged, EVERYBODY, agent="a")
    except RefusedError:
        return
    assert np.isfinite(told.read().gram).all()
    assert np.abs(told.values).max() <= largest_value(len(EVERYBODY))


SAVED = _release()


@given(st.lists(st.text("abcxyz-_09", min_size=1, max_size=9), min_size=1, unique=True, max_size=9))
def test_named_sums_read_back_and_there_is_one_way_to_write_them(names: list[str]) -> None:
    total = messages.encode(messages.combine([messages.decode(SAVED)] * len(names)))
    named = sums.name_sum(reversed(names), total)
    data = sums.encode(named)
    assert sums.decode(data) == named
    assert sums.encode(sums.name_sum(names, total)) == data
    done = sums.name_sum(names, total, sealed=len(names))
    assert sums.decode(sums.encode(done)) == done != named
    with pytest.raises(ValueError, match="that are done"):
        sums.name_sum(names, total, sealed=len(names) + 1)


@given(st.binary(min_size=1, max_size=4), st.integers(0, 30), st.integers(0, 2))
def test_a_damaged_named_sum_is_refused_or_reads_as_written(change: bytes, at: int, sealed: int) -> None:
    total = messages.encode(messages.combine([messages.decode(SAVED)] * 2))
    usual = sums.encode(sums.name_sum(["ann", "bob"], total, sealed=sealed))
    damaged = usual[:at] + change + usual[at + len(change) :]
    try:
        named = sums.decode(damaged)
    except ValueError:
        return
    assert sums.encode(named) == damaged


def test_counters_of_refusals_do_not_grow_with_what_arrives() -> None:
    counted = RefusalCount(["a", "b"])
    for index in range(10_000):
        counted.add(f"stranger {index}", f"reason {index}")
    assert counted.add("a", "replay") == 1
    assert counted.as_dict() == {"(unknown)": {"malformed": 10_000}, "a": {"replay": 1}}


def test_a_refusal_says_what_differs() -> None:
    def said(**changes: object) -> str:
        theirs = replace(TERMS, **changes)  # type: ignore[arg-type]
        with pytest.raises(RefusedError) as found:
            read_release(_release(terms=theirs), EVERYBODY, agent="a")
        return found.value.text

    sizes = [messages.message_size(dim) for dim in (2, 3)]
    text = f"a release of {sizes[0]} bytes (dimension 2), expected {sizes[1]} (dimension 3)"
    assert said(problem=Problem(dim=2)) == text
    assert "differ from those known here in epsilon, delta," in said(budget=Budget(epsilon=8.0, delta=1e-6))
    assert "differ from those known here in bounds" in said(problem=Problem(dim=3, reward_bound=7.0))
    for junk in (0, 1, sizes[1] - 1, sizes[1] + 1, 2**20):
        with pytest.raises(
            RefusedError, match=rf"a release of {junk} bytes, expected {sizes[1]} \(dimension 3\)"
        ):
            read_release(bytes(junk), EVERYBODY, agent="a")
