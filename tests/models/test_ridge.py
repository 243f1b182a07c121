"""Rank-one updates must stay equal to solving from scratch, however long they run."""

from __future__ import annotations

import numpy as np
import pytest

from feducb.models import ridge


@pytest.mark.parametrize("dim", [1, 5])
@pytest.mark.parametrize("regularizer", [0.01, 1.0, 7.0])
def test_updates_equal_a_fresh_factorisation_beyond_the_refactorisation(
    rng: np.random.Generator, dim: int, regularizer: float
) -> None:
    steps = 2 * ridge.REFACTORISE_EVERY + 37
    actions, rewards = rng.normal(size=(steps, 3, dim)), rng.normal(size=(steps, 3))
    start = np.broadcast_to(regularizer * np.eye(dim), (3, dim, dim))
    state = ridge.factorise(start, np.zeros((3, dim)))
    for action, reward in zip(actions, rewards, strict=True):
        state = ridge.update(state, action, reward)
    gram = start + np.einsum("nad,nae->ade", actions, actions)
    moment = np.einsum("na,nad->ad", rewards, actions)
    np.testing.assert_allclose(state.theta, np.linalg.solve(gram, moment[..., None])[..., 0], rtol=1e-9)
    np.testing.assert_allclose(state.log_det, np.linalg.slogdet(gram)[1], rtol=1e-12)
    np.testing.assert_allclose(state.inverse, np.linalg.inv(gram), rtol=1e-9, atol=1e-15)
    assert state.updates < ridge.REFACTORISE_EVERY


def test_a_matrix_that_is_not_positive_definite_is_refused() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        ridge.factorise(-np.eye(2), np.zeros(2))
