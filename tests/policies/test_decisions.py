"""A decider chooses what `Optimistic` or `Tempered` does: every shape and layout, close calls included."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from feducb.errors import ConfigurationError
from feducb.policies import decider as decisions
from feducb.policies.decider import Decider
from feducb.policies.optimistic import Optimistic, upper_confidence_bounds
from feducb.policies.tempered import Tempered
from feducb.types import Belief

Array = NDArray[np.float64]
Generator = np.random.Generator


def some_belief(rng: Generator, dim: int, *, euclidean: float = 0.5, records: int = 30) -> Belief:
    actions = rng.normal(size=(records, dim))
    return Belief(
        theta=rng.normal(size=dim),
        inverse=np.asarray(np.linalg.inv(actions.T @ actions + np.eye(dim)), dtype=np.float64),
        ellipsoid_width=np.array(rng.uniform(0.0, 3.0)),
        euclidean_width=np.array(euclidean),
    )


def reference(belief: Belief, actions: Any, exploration: float = 1.0) -> int:
    return int(Optimistic(exploration).decide(belief, actions[None])[0][0])


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "feducb.policies.best_action", raising=False)
    decisions._kernels.cache_clear()
    yield
    decisions._kernels.cache_clear()


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 10, 33, 64, 128])
@pytest.mark.parametrize("arms", [1, 2, 5, 100, 257, 10_000])
def test_chooses_as_the_agent_does(rng: Generator, dim: int, arms: int) -> None:
    for euclidean in (0.0, 2.0):
        belief = some_belief(rng, dim, euclidean=euclidean)
        for exploration in (0.0, 0.3, 1.0):
            actions = rng.normal(size=(arms, dim)) * rng.choice([1e-3, 1.0, 1e3])
            chosen = Decider(belief, exploration).decide(actions)
            assert type(chosen) is int
            assert chosen == reference(belief, actions, exploration)


@pytest.mark.parametrize("dim", [1, 3, 10, 50])
@pytest.mark.parametrize("arms", [2, 9, 100, 300])
def test_close_calls_are_the_agents_to_make(rng: Generator, dim: int, arms: int) -> None:
    for trial in range(60):
        belief = some_belief(rng, dim, euclidean=trial % 2, records=int(rng.integers(0, 3 * dim + 1)))
        actions = np.tile(rng.normal(size=dim), (arms, 1))
        actions *= 1.0 + rng.integers(-3, 4, size=(arms, 1 + (dim - 1) * (trial % 3 > 0))) * 2.0**-52
        assert Decider(belief).decide(actions) == reference(belief, actions)


@pytest.mark.parametrize("dim", [24, 51])
@pytest.mark.parametrize("spread", [0.0, 2.0, 6.0])
def test_what_single_precision_cannot_tell_apart_is_told_apart(
    rng: Generator, dim: int, spread: float
) -> None:
    """Actions alike but for 1e-7 of their length, beside others; V⁻¹ from round to very long."""
    for trial in range(100):
        turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
        stretch = 10.0 ** rng.uniform(-spread, 0.0, size=dim)
        belief = Belief(
            theta=rng.normal(size=dim) * (trial % 3),
            inverse=np.asarray((turn * stretch) @ turn.T, dtype=np.float64),
            ellipsoid_width=np.array(rng.uniform(0.0, 8.0)),
            euclidean_width=np.array(trial % 2 * 3.0),
        )
        actions = rng.normal(size=(40, dim))
        twins = actions[rng.integers(40, size=60)] * (1.0 + 1e-7 * rng.normal(size=(60, dim)))
        actions = np.concatenate([actions, twins]) * 10.0 ** rng.uniform(-3.0, 3.0)
        decider = Decider(belief)
        assert decider.decide(actions) == reference(belief, actions)
        assert decider._kernels.best(actions, decider._state) in (-1, reference(belief, actions))


def test_few_calls_are_close(rng: Generator) -> None:
    for dim in (1, 10, 128):
        decider = Decider(some_belief(rng, dim))
        undecided = sum(
            decider._kernels.best(rng.normal(size=(100, dim)), decider._state) < 0 for _ in range(1000)
        )
        assert undecided <= 5  # the two best lie within 1e-5 of each other about once in 10⁴


@pytest.mark.parametrize("scale", [1e-320, 1e-170, 1e-90, 1e90, 1e140])
def test_so_are_numbers_at_the_edge(rng: Generator, scale: float) -> None:
    belief = some_belief(rng, 4)
    for _ in range(50):
        actions = rng.normal(size=(20, 4)) * scale
        assert Decider(belief).decide(actions) == reference(belief, actions)


def test_an_inverse_with_almost_no_width_in_a_direction(rng: Generator) -> None:
    for _ in range(300):
        turned = np.linalg.qr(rng.normal(size=(5, 5)))[0]
        inverse = turned @ np.diag([1.0, 1e-3, 1e-8, 1e-13, 0.0]) @ turned.T
        belief = Belief(np.zeros(5), inverse, np.array(1.0), np.array(0.0))
        narrow = rng.choice(turned.T[3:], size=100) * rng.uniform(0.5, 1.0, size=(100, 1))
        actions = narrow + 1e-9 * rng.normal(size=(100, 5)) * rng.integers(0, 2, size=(100, 1))
        assert Decider(belief).decide(actions) == reference(belief, actions)


@pytest.mark.parametrize("arms", [1, 2, 7, 100, 1000])
def test_of_equals_the_first(rng: Generator, arms: int) -> None:
    belief = Belief(np.array([1.0, 2.0]), np.diag([0.25, 4.0]), np.array(2.0), np.array(0.0))
    best, worse = np.array([4.0, 0.0]), np.array([2.0, 0.0])  # 4 + 2·2 and 2 + 2·1, exact in any order
    assert Decider(belief).decide(np.tile(best, (arms, 1))) == 0
    assert Decider(belief).decide(np.zeros((arms, 2))) == 0
    assert Decider(belief).decide(np.array([worse, worse, *[best] * arms, worse])) == 2


@pytest.mark.parametrize(
    "dress",
    [
        lambda x: x.astype(np.float32),
        np.asfortranarray,
        lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
        lambda x: x[::-1],
        lambda x: (10 * x).astype(np.int64),
        lambda x: x.astype(">f8"),
        lambda x: np.frombuffer(b"?" + x.tobytes(), np.uint8)[1:].view(np.float64).reshape(x.shape),
        lambda x: x.tolist(),
    ],
    ids=["float32", "columns first", "every second", "backwards", "whole", "big-endian", "unaligned", "list"],
)
def test_whatever_holds_the_numbers(rng: Generator, dress: Any) -> None:
    belief = some_belief(rng, 6)
    decider = Decider(belief)
    for _ in range(20):
        actions = dress(rng.normal(size=(40, 6)))
        assert decider.decide(actions) == reference(belief, np.asarray(actions))
        many = dress(rng.normal(size=(3, 40, 6)))
        np.testing.assert_array_equal(
            decider.decide_many(many), Optimistic().decide(belief, np.asarray(many))[0], strict=True
        )


def test_read_only_actions_stay_where_they_are(rng: Generator) -> None:
    belief, actions = some_belief(rng, 6), rng.normal(size=(40, 6))
    actions.flags.writeable = False
    assert Decider(belief).decide(actions) == reference(belief, actions)


@pytest.mark.parametrize("shape", [(0, 5, 3), (1, 1, 3), (50, 1, 3), (7, 100, 10), (3, 600, 2)])
def test_many_visitors_at_once(rng: Generator, shape: tuple[int, int, int]) -> None:
    belief = some_belief(rng, shape[-1])
    actions = rng.normal(size=shape)
    chosen = Decider(belief, 0.5).decide_many(actions)
    np.testing.assert_array_equal(chosen, Optimistic(0.5).decide(belief, actions)[0], strict=True)
    actions[:] = actions[:, :1]  # all candidates of a visitor alike
    np.testing.assert_array_equal(
        Decider(belief).decide_many(actions), Optimistic().decide(belief, actions)[0]
    )


def test_scores_are_the_bounds(rng: Generator) -> None:
    belief = some_belief(rng, 4)
    actions = rng.normal(size=(3, 8, 4))
    scores = Decider(belief, 0.7).score(actions)
    np.testing.assert_allclose(
        scores, upper_confidence_bounds(belief, actions, exploration=0.7), rtol=1e-12, strict=True
    )
    assert Decider(belief, 0.7).score(actions[0].tolist()).shape == (8,)
    assert Decider(belief, 0.7).decide(actions[1]) == scores[1].argmax()


@pytest.mark.usefixtures("without_numba")
def test_without_numba_the_same(rng: Generator) -> None:
    belief, actions = some_belief(rng, 5), rng.normal(size=(4, 30, 5))
    decider = Decider(belief)
    assert decider._kernels.best is decisions._undecided_one
    assert decider.decide(actions[0]) == reference(belief, actions[0])
    np.testing.assert_array_equal(decider.decide_many(actions), Optimistic().decide(belief, actions)[0])
    alone = decider.judge(actions[0, 0])[1]  # one product with a matrix rounds as the processor likes
    assert alone == pytest.approx(decider.score(actions[0])[0], rel=1e-12)
    with pytest.raises(ConfigurationError, match="of shape"):
        decider.decide(actions)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.ones((4, 2)), r"actions is 'of shape \(4, 2\)', expected \(K, 3\) with K ≥ 1"),
        (np.ones((0, 3)), r"of shape \(0, 3\)"),
        (np.ones(3), r"of shape \(3,\)"),
        (np.ones((2, 4, 3)), r"of shape \(2, 4, 3\)"),
        ([[1.0, 2.0, 3.0], [1.0]], "ragged"),
        ([[1.0, float("nan"), 3.0]], r"nan at \(0, 1\)"),
        (np.array([[1.0, 2.0, 3.0], [0.0, 0.0, -np.inf]]), r"-inf at \(1, 2\)"),
        (np.array([[1, 2, np.inf]], dtype=np.float32), r"inf at \(0, 2\)"),
        (np.ones((4, 3)) * 1j, "of type complex128"),
        ([["1", "2", "3"]], "of type <U1"),
        (None, "of type object"),
    ],
)
def test_what_cannot_be_chosen_from(rng: Generator, actions: Any, message: str) -> None:
    decider = Decider(some_belief(rng, 3))
    with pytest.raises(ConfigurationError, match=message):
        decider.decide(actions)
    with pytest.raises(ConfigurationError):
        decider.decide_many(np.ones((4, 3)))
    with pytest.raises(ConfigurationError, match=r"expected \(R, K, 3\)"):
        decider.decide_many(np.ones((2, 4, 2)))


def test_one_agents_belief_and_no_other(rng: Generator) -> None:
    belief = some_belief(rng, 3)
    actions = rng.normal(size=(20, 3))
    shared = Belief(
        belief.theta[None, None],
        belief.inverse[None, None],
        belief.ellipsoid_width[None, None],
        belief.euclidean_width[None, None],
    )
    assert Decider(shared).decide(actions) == reference(belief, actions)
    two = Belief(np.ones((2, 3)), np.ones((2, 3, 3)), np.ones(2), np.ones(2))
    with pytest.raises(ConfigurationError, match=r"belief.theta is 'of shape \(2, 3\)'"):
        Decider(two)
    with pytest.raises(ConfigurationError, match=r"belief.inverse is 'of shape \(2, 2\)'"):
        Decider(Belief(np.ones(3), np.eye(2), np.array(1.0), np.array(0.0)))
    with pytest.raises(ConfigurationError, match=r"belief\.theta"):
        Decider(Belief(np.array([np.nan]), np.eye(1), np.array(1.0), np.array(0.0)))
    with pytest.raises(ConfigurationError, match="exploration"):
        Decider(belief, float("inf"))


def test_keeps_what_it_was_made_from(rng: Generator) -> None:
    belief = some_belief(rng, 3)
    actions = rng.normal(size=(200, 20, 3))
    decider = Decider(belief)
    before = decider.decide_many(actions)
    belief.theta[:] = -belief.theta
    np.testing.assert_array_equal(decider.decide_many(actions), before)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(decider)).decide_many(actions), before)


@pytest.mark.parametrize("full", [0.1, 0.6, 1.0])
@pytest.mark.parametrize(("arms", "dim"), [(1, 1), (2, 3), (10, 10), (100, 4), (300, 10)])
def test_tempers_as_the_policy_does(rng: Generator, arms: int, dim: int, full: float) -> None:
    policy = Tempered(full)
    for euclidean in (0.0, 2.0):
        belief = some_belief(rng, dim, euclidean=euclidean)
        actions = rng.normal(size=(arms, dim)) * rng.choice([1e-3, 1.0, 1e3])
        decider, chances = Decider(belief), policy.propensities(belief, actions[None])[0]
        np.testing.assert_allclose(decider.tempered_chances(actions, policy), chances, rtol=0, atol=1e-9)
        for coin in (0.0, *rng.random(20), np.nextafter(1.0, 0.0)):
            index, chance = decider.temper(actions, coin, policy)
            expected, _ = policy.decide(belief, actions[None], np.array([coin]))
            assert (type(index), type(chance)) == (int, float)
            assert index == expected[0]
            assert chance == pytest.approx(chances[index], rel=0, abs=1e-9)


def test_equal_candidates_share_nothing_but_the_first_is_played(rng: Generator) -> None:
    belief, policy = some_belief(rng, 3), Tempered()
    actions = np.repeat(rng.normal(size=(2, 3)), 2, axis=0)
    chances = Decider(belief).tempered_chances(actions, policy)
    assert chances[[1, 3]].tolist() == [0.0, 0.0]
    assert chances.sum() == pytest.approx(1.0, rel=0, abs=1e-12)
    for coin in rng.random(20):
        index, _ = Decider(belief).temper(actions, coin, policy)
        assert index == policy.decide(belief, actions[None], np.array([coin]))[0][0]


@pytest.mark.parametrize("actions", [np.zeros((0, 3)), np.ones((2, 4)), np.ones(3), [[np.nan, 0.0, 1.0]]])
def test_tempering_says_what_is_wrong(rng: Generator, actions: Any) -> None:
    decider = Decider(some_belief(rng, 3))
    with pytest.raises(ConfigurationError, match="actions"):
        decider.temper(actions, 0.5, Tempered())
    with pytest.raises(ConfigurationError, match="actions"):
        decider.tempered_chances(actions, Tempered())


def test_what_is_tempered_is_the_proven_bound(rng: Generator) -> None:
    with pytest.raises(ConfigurationError, match="exploration"):
        Decider(some_belief(rng, 3), 0.5).temper(np.eye(3), 0.5, Tempered())


@pytest.mark.usefixtures("without_numba")
def test_tempers_without_numba(rng: Generator) -> None:
    belief, actions, policy = some_belief(rng, 3), rng.normal(size=(6, 3)), Tempered()
    index, chance = Decider(belief).temper(actions, 0.4, policy)
    expected, propensity = policy.decide(belief, actions[None], np.array([0.4]))
    assert (index, chance) == (expected[0], propensity[0])
    chances = policy.propensities(belief, actions[None])[0]
    np.testing.assert_array_equal(Decider(belief).tempered_chances(actions, policy), chances)


@pytest.mark.parametrize("dim", [24, 51])
@pytest.mark.parametrize("records", [0, 3, 100, 5000])
def test_sieved_tempering_is_the_policys(rng: Generator, dim: int, records: int) -> None:
    """Whatever is known, also next to nothing, with twins that single precision cannot tell apart."""
    policy = Tempered()
    for trial in range(20):
        belief = some_belief(rng, dim, euclidean=0.0, records=records)
        arms = int(rng.integers(2, 300))
        actions = rng.normal(size=(arms, dim))
        twins = rng.integers(arms, size=arms // 3)
        actions[twins] = actions[0] * (1.0 + 1e-7 * (trial % 2) * rng.normal(size=(len(twins), dim)))
        actions *= 10.0 ** rng.uniform(-3.0, 3.0)
        decider, chances = Decider(belief), policy.propensities(belief, actions[None])[0]
        np.testing.assert_allclose(decider.tempered_chances(actions, policy), chances, rtol=0, atol=1e-9)
        for coin in (0.0, *rng.random(10), np.nextafter(1.0, 0.0)):
            index, chance = decider.temper(actions, coin, policy)
            assert index == policy.decide(belief, actions[None], np.array([coin]))[0][0]
            assert chance == pytest.approx(chances[index], rel=0, abs=1e-9)


def test_sieves_keep_all_that_may_be_best_and_few_more(rng: Generator) -> None:
    """Every candidate that some coin would choose is left, and of a hundred few others are."""
    sieves, policy = pytest.importorskip("feducb.policies.sieves"), Tempered()
    for records in (5, 100, 3000):
        belief, left = some_belief(rng, 50, euclidean=0.0, records=records), 0
        for _ in range(50):
            actions = rng.normal(size=(100, 50))
            chances = policy.propensities(belief, actions[None])[0]
            some = set(sieves.survivors(actions, Decider(belief)._state, True).tolist())
            assert set(np.flatnonzero(chances).tolist()) <= some
            boldest = set(sieves.survivors(actions, Decider(belief)._state, False).tolist())
            assert reference(belief, actions) in boldest <= some
            left += len(some)
        assert left < 50 * 10


@pytest.mark.parametrize("euclidean", [0.0, 1.5])
@pytest.mark.parametrize("dim", [24, 65, 170])
def test_actions_that_are_mostly_zero(rng: Generator, dim: int, euclidean: float) -> None:
    """Blocks, shared entries beside blocks, and a full row among them: all as the policies have it."""
    policy = Tempered()
    for trial in range(20):
        belief = some_belief(rng, dim, euclidean=euclidean)
        block, arms = dim // 8, 8
        actions = np.zeros((arms, dim))
        for k in range(arms):
            actions[k, k * block : (k + 1) * block] = rng.normal(size=block)
        actions[:, -1] = trial % 2  # shared by all
        if trial % 5 == 4:
            actions[rng.integers(arms)] = rng.normal(size=dim)
        decider, chances = Decider(belief), policy.propensities(belief, actions[None])[0]
        assert decider.decide(actions) == reference(belief, actions)
        np.testing.assert_allclose(decider.tempered_chances(actions, policy), chances, rtol=0, atol=1e-9)
        for coin in rng.random(5):
            index, _ = decider.temper(actions, coin, policy)
            assert index == policy.decide(belief, actions[None], np.array([coin]))[0][0]
        for action in (actions[0], rng.normal(size=dim)):
            estimate, bound = decider.judge(action)
            assert estimate == pytest.approx(action @ belief.guess, rel=1e-9, abs=1e-12)
            assert bound == pytest.approx(decider.score(action[None])[0], rel=1e-9)
    with pytest.raises(ConfigurationError, match="nan"):
        decider.decide(np.full((2, dim), np.nan))
