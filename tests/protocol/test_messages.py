"""What travels reads back unchanged, adds up in any order, and nothing else travels."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from feducb.config import Budget, Problem
from feducb.errors import UnsealedReleaseError
from feducb.models import LINEAR
from feducb.privacy.deployed import DeployedPrivatizer, GridRelease
from feducb.privacy.terms import Terms
from feducb.privacy.uploads import RawUpload
from feducb.protocol import messages


def _terms(epsilon: float = 1.0) -> Terms:
    return Terms(problem=Problem(dim=3), budget=Budget(epsilon=epsilon, delta=1e-6), releases=4)


def _release(epsilon: float = 1.0) -> GridRelease:
    privatizer = DeployedPrivatizer(_terms(epsilon))
    privatizer.record(np.eye(3), np.array([0.1, 0.2, 0.3]))
    return privatizer.release()


def test_a_release_reads_back_bit_for_bit() -> None:
    release = _release()
    data = messages.encode(release, season=7, group=5)
    assert len(data) == messages.message_size(3) == 40 + 8 * 9
    back = messages.decode(data)
    np.testing.assert_array_equal(back.values, release.values)
    assert (back.season, back.group, back.number, back.agents) == (7, 5, 1, 1)
    assert (back.variance, back.exponent, back.dim) == (release.variance, release.exponent, 3)
    assert messages.encode(back) == data


def test_sums_do_not_depend_on_the_order_and_carry_all_variances() -> None:
    # Agents of different budgets share the grid, so that their whole numbers add.
    parts = [messages.decode(messages.encode(_release(epsilon))) for epsilon in (0.5, 1.0, 1.0, 4.0)]
    sums = {messages.encode(messages.combine(order)) for order in itertools.permutations(parts)}
    assert len(sums) == 1
    total = messages.decode(sums.pop())
    assert total.agents == 4
    assert total.variance == pytest.approx(sum(part.variance for part in parts))
    np.testing.assert_array_equal(total.values, sum(part.values for part in parts))


def test_a_sum_of_sums_is_the_sum_of_all() -> None:
    parts = [messages.decode(messages.encode(_release())) for _ in range(3)]
    nested = messages.combine([messages.combine(parts[:2]), parts[2]])
    np.testing.assert_array_equal(nested.values, messages.combine(parts).values)


def test_releases_of_different_numbers_do_not_add_up() -> None:
    privatizer = DeployedPrivatizer(_terms())
    first, second = privatizer.release(), privatizer.release()
    with pytest.raises(ValueError, match="expected one kind"):
        messages.combine([messages.decode(messages.encode(one)) for one in (first, second)])


def test_releases_of_different_groups_do_not_add_up() -> None:
    parts = [messages.decode(messages.encode(_release(), group=group)) for group in (0, 1)]
    with pytest.raises(ValueError, match="expected one kind"):
        messages.combine(parts)
    assert messages.combine([parts[1], parts[1]]).group == 1


def test_a_message_from_before_groups_reads_as_group_0() -> None:
    data = messages.encode(_release(), season=2)
    old = b"\x02" + data[1:]
    np.testing.assert_array_equal(messages.decode(old).values, messages.decode(data).values)
    assert (messages.decode(old).group, messages.decode(old).number) == (0, 1)
    with pytest.raises(ValueError, match="message has group 1, expected none in format 2"):
        messages.decode(b"\x02" + messages.encode(_release(), group=1)[1:])


def test_nobody_else_can_build_what_travels() -> None:
    with pytest.raises(UnsealedReleaseError):
        GridRelease(
            number=1,
            dim=1,
            exponent=0,
            weight=1.0,
            values=np.zeros(2, np.int64),
            variance=1.0,
            seal=object(),
        )
    with pytest.raises(UnsealedReleaseError, match="raw sums do not travel"):
        messages.GridSum(
            season=0,
            number=1,
            group=0,
            dim=1,
            model=LINEAR,
            exponent=0,
            weight=1.0,
            values=np.zeros(2, np.int64),
            variance=1.0,
            agents=1,
        )
    with pytest.raises(UnsealedReleaseError, match="expected a release or a sum"):
        messages.encode({"values": "raw"})  # type: ignore[arg-type]
    with pytest.raises(UnsealedReleaseError):
        RawUpload(dim=1, exponent=0, values=np.zeros(2, np.int64), promise=None, seal=object())


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:10],
        lambda data: data[:-8],
        lambda data: b"\x09" + data[1:],
        lambda data: data[:4] + b"\xff\xff\xff\x7f" + data[8:],
        lambda data: data[:32] + b"\x00" * 7 + b"\xfc" + data[40:],
    ],
    ids=["too short", "cut", "format", "dimension", "variance"],
)
def test_damaged_messages_are_refused(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="message has"):
        messages.decode(damage(messages.encode(_release())))
