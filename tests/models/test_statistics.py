"""Sums are sums: in any order, in any parts, and back again."""

from __future__ import annotations

import numpy as np
import pytest

from feducb import types as statistics


@pytest.mark.parametrize("dim", [1, 4])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_gram_and_moment_are_the_sums_over_records(
    rng: np.random.Generator, dim: int, shape: tuple[int, ...]
) -> None:
    actions, rewards = rng.normal(size=(*shape, 7, dim)), rng.normal(size=(*shape, 7))
    found = statistics.add(statistics.zeros(dim, shape), actions, rewards)
    gram, moment = np.zeros((*shape, dim, dim)), np.zeros((*shape, dim))
    for place in np.ndindex(*shape):
        for x, y in zip(actions[place], rewards[place], strict=True):
            gram[place] += np.outer(x, x)
            moment[place] += y * x
    np.testing.assert_allclose(found.gram, gram, atol=1e-12)
    np.testing.assert_allclose(found.moment, moment, atol=1e-12)
    assert found.count == 7


def test_merging_parts_gives_the_whole(rng: np.random.Generator) -> None:
    actions, rewards = rng.normal(size=(9, 3)), rng.normal(size=9)
    empty = statistics.zeros(3)
    first = statistics.add(empty, actions[:4], rewards[:4])
    second = statistics.add(empty, actions[4:], rewards[4:])
    both = statistics.merge(first, second)
    np.testing.assert_allclose(both.gram, statistics.add(empty, actions, rewards).gram)
    np.testing.assert_allclose(both.moment, actions.T @ rewards)
    assert both.count == 9
