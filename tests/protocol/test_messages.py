"""What travels reads back unchanged, and what must not travel does not."""

from __future__ import annotations

import numpy as np
import pytest

from feducb.config import Problem
from feducb.errors import PrivacyError
from feducb.privacy.mechanisms import BinaryTree
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import Privatizer, Release
from feducb.protocol import controller, messages


class _One:
    """A seeded source for one agent."""

    def __init__(self, seed: int) -> None:
        self._grid = SeededNoise([[np.random.default_rng(seed)]])

    def draw(self, count: int) -> np.ndarray:
        return np.asarray(self._grid.draw(count)[0, 0])


def _release(seed: int, *, scale: float = 1.0) -> Release:
    privatizer = Privatizer(problem=Problem(dim=3), mechanism=BinaryTree(4), noise_scale=scale)
    state = privatizer.record(privatizer.start(), np.eye(3), np.array([0.1, 0.2, 0.3]))
    return privatizer.release(state, _One(seed))[1]


def test_a_release_reads_back_bit_for_bit() -> None:
    release = _release(1)
    data = messages.encode(release)
    assert len(data) == messages.message_size(3) == 24 + 8 * 9
    back = messages.decode(data)
    np.testing.assert_array_equal(back.gram, release.gram)
    np.testing.assert_array_equal(back.moment, release.moment)
    assert (back.number, back.agents, float(back.variance)) == (1, 1, float(release.variance))


def test_a_sum_reads_back_and_says_how_many_are_in_it() -> None:
    total = controller.combine([_release(1), _release(2), _release(3)])
    back = messages.decode(messages.encode(total))
    np.testing.assert_array_equal(back.gram, total.gram)
    assert back.agents == 3
    assert float(back.variance) == pytest.approx(3 * float(_release(1).variance))


def test_one_by_one_and_all_at_once_add_up_to_the_same() -> None:
    privatizer = Privatizer(problem=Problem(dim=3), mechanism=BinaryTree(4), noise_scale=np.array([1.0, 2.0]))
    noise = SeededNoise([[np.random.default_rng(5), np.random.default_rng(6)]])
    _, both = privatizer.release(privatizer.start((1, 2)), noise)
    singles = []
    for agent, scale in enumerate((1.0, 2.0)):
        single = Privatizer(problem=Problem(dim=3), mechanism=BinaryTree(4), noise_scale=scale)
        singles.append(single.release(single.start(), _One(5 + agent))[1])
    one_way, other_way = controller.add_up(both), controller.combine(singles)
    np.testing.assert_allclose(one_way.gram[0], other_way.gram)
    np.testing.assert_allclose(one_way.variance[0], other_way.variance)  # w = Σ v_i ‖row‖²


def test_releases_of_different_numbers_do_not_add_up() -> None:
    privatizer = Privatizer(problem=Problem(dim=3), mechanism=BinaryTree(4), noise_scale=1.0)
    state, first = privatizer.release(privatizer.start(), _One(1))
    _, second = privatizer.release(state, _One(2))
    with pytest.raises(ValueError, match=r"numbers \[1, 2\]"):
        controller.combine([first, second])


def test_a_release_without_noise_never_becomes_a_message() -> None:
    with pytest.raises(PrivacyError, match="without noise"):
        messages.encode(_release(1, scale=0.0))


@pytest.mark.parametrize("damage", [lambda d: d[:10], lambda d: d[:-8], lambda d: b"\x09" + d[1:]])
def test_damaged_messages_are_refused(damage) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="message has"):
        messages.decode(damage(messages.encode(_release(1))))
