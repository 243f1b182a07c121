"""The door out of an agent: what it lets through, what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from feducb.config import Problem
from feducb.errors import RecordOutOfBoundsError, ReleasesExhaustedError, UnsealedReleaseError
from feducb.privacy.mechanisms import BinaryTree, SquareRootToeplitz
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import Privatizer, Release, within_bounds

PROBLEM = Problem(dim=2)


class Ones:
    """Noise that is one everywhere."""

    def draw(self, rows: int, count: int) -> np.ndarray:
        return np.ones((rows, count))


def test_with_noise_one_release_19_carries_three() -> None:
    tree = BinaryTree(20)
    privatizer = Privatizer(problem=PROBLEM, mechanism=tree, noise_scale=1 / math.sqrt(tree.touched))
    state = privatizer.start()
    for _ in range(19):
        state = privatizer.record(state, np.array([[1.0, 0.0]]), np.array([0.5]))
        state, release = privatizer.release(state, Ones())
    assert release.number == 19
    assert release.gram[0, 1] == pytest.approx(3.0)  # off the diagonal: noise alone
    assert release.gram[0, 0] == pytest.approx(19 + 3 * math.sqrt(2))
    assert release.moment == pytest.approx([0.5 * 19 + 3, 3])
    assert release.variance == pytest.approx(3.0)


def test_release_n_plus_one_is_refused() -> None:
    privatizer = Privatizer(problem=PROBLEM, mechanism=SquareRootToeplitz(2), noise_scale=1.0)
    state = privatizer.start()
    for _ in range(2):
        state, _ = privatizer.release(state, Ones())
    with pytest.raises(ReleasesExhaustedError, match=r"release 3 .* covers 2"):
        privatizer.release(state, Ones())


@pytest.mark.parametrize(
    ("action", "reward", "complaint"),
    [([1.2, 0.0], 0.5, "length 1.2"), ([1.0, 0.0], -1.5, "reward is -1.5"), ([math.nan, 0.0], 0.5, "finite")],
)
def test_records_beyond_the_bounds_are_refused(action: list[float], reward: float, complaint: str) -> None:
    privatizer = Privatizer(problem=PROBLEM, mechanism=BinaryTree(1), noise_scale=1.0)
    with pytest.raises(RecordOutOfBoundsError, match=complaint):
        privatizer.record(privatizer.start(), np.array([action]), np.array([reward]))


def test_records_beyond_the_bounds_are_clipped_if_asked() -> None:
    privatizer = Privatizer(problem=PROBLEM, mechanism=BinaryTree(1), noise_scale=1.0, excess="clip")
    actions, rewards = np.array([[3.0, 4.0], [0.3, 0.4]]), np.array([-7.0, 0.5])
    total = privatizer.record(privatizer.start(), actions, rewards).total
    clipped, kept = np.array([0.6, 0.8]), np.array([0.3, 0.4])
    np.testing.assert_allclose(total.gram, np.outer(clipped, clipped) + np.outer(kept, kept))
    np.testing.assert_allclose(total.moment, -clipped + 0.5 * kept)
    nothing = privatizer.record(privatizer.start(), np.array([[math.inf, 0.0]]), np.array([0.0])).total
    assert not nothing.gram.any()


def test_the_excess_of_one_record_moves_no_other_by_a_single_bit() -> None:
    """Unit vectors in floating point, some of which one formula finds longer than 1 and another does not."""
    rng = np.random.default_rng(3)
    actions = rng.normal(size=(2000, 3))
    actions /= np.linalg.norm(actions, axis=1, keepdims=True)
    rewards = rng.uniform(-1, 1, 2000)
    problem = Problem(dim=3)
    alone = [within_bounds(problem, "clip", actions[[k]], rewards[[k]]) for k in range(2000)]
    beside, kept = within_bounds(
        problem, "clip", np.vstack([actions, [[7.0, 0.0, 0.0]]]), np.append(rewards, 9.0)
    )
    np.testing.assert_array_equal(beside[:-1], np.concatenate([one for one, _ in alone]))
    np.testing.assert_array_equal(kept[:-1], np.concatenate([one for _, one in alone]))


def test_nobody_else_can_build_a_release() -> None:
    with pytest.raises(UnsealedReleaseError, match="raw sums must not leave"):
        Release(number=1, gram=np.eye(2), moment=np.zeros(2), variance=np.ones(()), seal=object())


def test_noise_has_the_printed_law_and_the_claimed_variance() -> None:
    # 20,000 agents; each variance is estimated to 1 %, so a deviation of 6 % is a false alarm < 1e-8.
    agents, mechanism = 20_000, SquareRootToeplitz(3)
    privatizer = Privatizer(problem=PROBLEM, mechanism=mechanism, noise_scale=2.0)
    noise = SeededNoise([[np.random.default_rng([7, agent]) for agent in range(agents)]])
    state = privatizer.start((1, agents))
    for _ in range(3):
        state, release = privatizer.release(state, noise)
    claimed = 4.0 * mechanism.error(3) ** 2
    np.testing.assert_allclose(release.variance, claimed)
    np.testing.assert_allclose(release.gram[..., 0, 1].var(), claimed, rtol=0.06)
    np.testing.assert_allclose(release.gram[..., 0, 0].var(), 2 * claimed, rtol=0.06)
    np.testing.assert_allclose(release.moment[..., 1].var(), claimed, rtol=0.06)
    np.testing.assert_array_equal(release.gram, np.swapaxes(release.gram, -1, -2))
