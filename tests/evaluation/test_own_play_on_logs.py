"""Own play on logs: what an agent knows after the close, and that joining does not cost it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from logs import shop_log

from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.evaluation import Comparison, FrameLog, LogColumns, Study, compare_on_log, survey
from feducb.evaluation.crossfit import Sums
from feducb.evaluation.learning import FederatedLearner
from feducb.evaluation.sources import Rows
from feducb.evaluation.survey import Terms, parse_context
from feducb.models.play import JointPlay
from feducb.privacy.noise import SeededNoise
from feducb.protocol.federation import Federation
from feducb.protocol.synchronisation import add_up
from feducb.trust import CONTROLLER
from feducb.types import Statistics, add, zeros
from feducb.worlds.features import Category, Number, Recipe, problem_for
from feducb.worlds.streams import Purpose, Streams

COLUMNS = LogColumns(agent="shop", action="offer", reward="bought", propensity="p")


def _compare(
    rows: int, *, shops: int, contrary: bool = False, personal: Terms = (), **study: Any
) -> Comparison:
    """Where shops are contrary, every other one sells games to the old and books to the young."""
    frame = shop_log(rows, shops=shops)
    if contrary:
        odd = frame["shop"].str.removeprefix("shop ").astype(int) % 2 == 1
        swapped = frame["offer"].replace({"book": "game", "game": "book"})
        frame = frame.assign(
            offer=frame["offer"].where(~odd, swapped)
        )  # each keeps the chance it was drawn with
    log = FrameLog(frame)
    found = survey(log, COLUMNS, context=parse_context(["age:0:100"]), actions=("book", "game", "film"))
    found = replace(found, recipe=replace(found.recipe, personal=personal))
    return compare_on_log(log, found, study=Study(**study))


def test_an_agent_knows_what_one_knows_that_closed_after_the_last_record() -> None:
    # There records are taken in one by one, and released batch by batch; here all are there at once.
    rng, agents, rounds = np.random.default_rng(5), 6, (20, 50, 100)
    actions = rng.standard_normal((agents, 100, 3))
    actions /= np.maximum(np.linalg.norm(actions, axis=-1, keepdims=True), 1.0)
    rewards = np.clip(actions @ np.array([-0.4, 0.0, 0.4]), -0.5, 0.5)
    problem, budget = Problem(dim=3, reward_bound=0.5), Budget(epsilon=8.0, delta=1e-6)
    made = FederatedLearner.of(
        Federation(problem=problem, agents=agents, budget=budget, play="own"), rounds, seed=7
    )
    privatizer, rule = made.estimator.privatizer, made.estimator.rule
    assert privatizer is not None
    assert isinstance(rule, JointPlay)
    noise = SeededNoise(Streams(7).grid(range(2, 3), range(agents), Purpose.NOISE))
    state, knowledge = privatizer.start((1, agents)), rule.start((1, agents))
    for at in range(100):
        state = privatizer.record(state, actions[None, :, at : at + 1], rewards[None, :, at : at + 1])
        knowledge = rule.observe(knowledge, actions[None, :, at], rewards[None, :, at])
        if at + 1 in rounds:
            state, release = privatizer.release(state, noise)
            knowledge = rule.absorb(knowledge, add_up(release))
    gram, moment = np.einsum("mnd,mne->mde", actions, actions), np.einsum("mnd,mn->md", actions, rewards)
    squares = (rewards**2).sum(axis=1)
    found = made.learn(Statistics(gram, moment, 100 * agents, squares), 2, np.full(agents, 100))
    assert found is not None
    assert knowledge.belief is not None
    assert found.theta.shape == (agents, 3)
    for part in ("theta", "inverse", "ellipsoid_width", "guess"):
        np.testing.assert_allclose(getattr(found, part), getattr(knowledge.belief, part)[0], rtol=1e-6)


def _rows(rng: np.random.Generator, counts: Sequence[int], thetas: np.ndarray) -> Rows:
    """So many of each agent, in any order; rewards lie around 1 and scatter a little."""
    agents = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    candidates = rng.uniform(-0.5, 0.5, (len(agents), 4, thetas.shape[1]))
    actions = rng.integers(4, size=len(agents))
    chosen = candidates[np.arange(len(agents)), actions]
    scaled = np.clip((chosen * thetas[agents]).sum(axis=1) + rng.normal(0.0, 0.05, len(agents)), -0.5, 0.5)
    chances, keys = np.full(len(agents), 0.25), np.arange(len(agents), dtype=np.uint64)
    return Rows(agents, actions, 1.0 + 10.0 * scaled, scaled, chances, keys, candidates)


def test_sums_are_those_of_each_agents_records_outside_a_fold() -> None:
    rows = _rows(np.random.default_rng(3), (30, 7, 0, 55), np.full((4, 3), 0.4))
    folds = np.random.default_rng(4).integers(-1, 3, (2, len(rows.agents)))  # some teach nobody
    sums = Sums.empty(2, 3, 4, 0, 3)
    sums.add(rows, folds)
    for repeat, fold in np.ndindex(2, 3):
        found, records = sums.without(repeat, fold)
        for agent in range(4):
            some = (rows.agents == agent) & (folds[repeat] >= 0) & (folds[repeat] != fold)
            chosen = rows.candidates[some, rows.actions[some]]
            expected = add(zeros(3), chosen, rows.scaled[some])
            assert records[agent] == expected.count
            for name in ("gram", "moment", "squares"):
                np.testing.assert_allclose(
                    getattr(found, name)[agent], getattr(expected, name), rtol=1e-9, atol=1e-12
                )


def test_each_agent_is_judged_by_its_own_records_however_many_others_have() -> None:
    """Two sites are unlike the rest, one with few records; the others are alike, and hear each other."""
    counts = (60, 150, *[60, 90, 130, 200, 300] * 12)
    thetas = np.tile([0.4, 0.3, -0.3], (len(counts), 1))
    thetas[:2] *= -1.0
    rows = _rows(np.random.default_rng(6), counts, thetas)
    sums = Sums.empty(1, 2, len(counts), 0, 3)
    sums.add(rows, np.zeros((1, len(rows.agents)), dtype=np.int64))
    taught, records = sums.without(0, 1)
    problem, budget = Problem(dim=3, reward_bound=0.5), Budget(epsilon=8.0, delta=1e-6)
    federation = Federation(
        problem=problem, agents=len(counts), budget=budget, trust=CONTROLLER, play="own", distance=0.0
    )
    made = FederatedLearner.of(federation, (sum(counts) // len(counts),))
    assert isinstance(made.estimator.rule, JointPlay)
    found, alone = made.learn(taught, 0, records), made.estimator.rule.bound.unheard(taught)
    assert found is not None
    heard = np.abs(found.theta - alone.theta).max(axis=1) > 1e-9
    assert not heard[:2].any()
    assert heard[2:].mean() > 0.9


def test_where_noise_drowns_everything_released_sums_lose_and_own_play_does_not() -> None:
    setting: dict[str, Any] = {"shops": 3, "epsilons": (0.1,), "trusts": ("nobody",), "repeats": 2}
    name = "private federation, ε = 0.1, nobody trusted"
    released, own = (_compare(3000, play=play, **setting) for play in ("released", "own"))
    assert released.outcome(released.row(name, "greedy")) == "loses"
    assert own.outcome(own.row(name, "greedy")) == "ties"
    assert own.settings["releases"] == 1
    assert own.settings["play"] == "own"


def test_where_shops_differ_released_sums_lose_and_own_play_does_not() -> None:
    setting: dict[str, Any] = {"shops": 20, "epsilons": (8.0,), "trusts": ("controller",), "repeats": 2}
    name = "private federation, ε = 8, controller trusted"
    released, own = (_compare(6000, contrary=True, play=play, **setting) for play in ("released", "own"))
    assert released.outcome(released.row(name, "greedy")) == "loses"
    assert own.outcome(own.row(name, "greedy")) == "ties"


def test_where_shops_are_small_and_alike_own_play_wins_as_released_sums_do() -> None:
    found = _compare(12_000, shops=400, epsilons=(8.0,), trusts=("controller",), repeats=2, play="own")
    assert found.federate
    assert found.outcome(found.row("private federation, ε = 8, controller trusted", "greedy")) == "wins"


def test_what_is_personal_stays_at_home_and_what_is_common_is_shared() -> None:
    # Films sell nowhere, which small shops do not know; whom to offer a game differs from shop to shop.
    setting: dict[str, Any] = {"shops": 200, "epsilons": (8.0,), "trusts": ("controller",), "repeats": 2}
    name = "private federation, ε = 8, controller trusted"
    found = _compare(6000, contrary=True, play="own", personal=(("offer", "age"),), **setting)
    assert found.outcome(found.row(name, "greedy")) == "wins"
    with pytest.raises(ConfigurationError, match="play is 'released', expected own"):
        _compare(50, play="released", personal=(("offer", "age"),), **setting | {"shops": 2})


def test_nothing_personal_reaches_another_agent() -> None:
    columns: dict[str, Any] = {"context": (Number("age", 0, 1),), "action": (Category("a", ("x", "y")),)}
    recipe = Recipe(**columns, terms=(("a",), ("a", "age")), personal=(("a", "age"),))
    federation = Federation(problem=problem_for(recipe), agents=3, play="own")
    made = FederatedLearner.of(federation, (40,), recipe=recipe)
    wide = replace(federation, problem=problem_for(recipe, reward_bound=1.0))  # noise is for these rewards
    leaves = FederatedLearner.of(wide, (40,), recipe=recipe).estimator.privatizer
    assert leaves is not None
    assert leaves.problem.reward_bound == 1.0
    rng = np.random.default_rng(1)
    vectors = recipe.rows({"age": rng.random(120), "a": rng.choice(["x", "y"], 120).tolist()}).reshape(
        3, 40, 4
    )
    rewards = rng.uniform(-0.5, 0.5, (3, 40))

    def belief_of_the_first() -> tuple[np.ndarray, ...]:
        gram = np.einsum("mnd,mne->mde", vectors, vectors)
        found = made.learn(Statistics(gram, np.einsum("mnd,mn->md", vectors, rewards), 120), 0)
        assert found is not None
        return found.guess[0], found.theta[0], found.inverse[0]

    before = belief_of_the_first()
    vectors[1:, :, recipe.dim // 2 :] = 0.3  # what others have there
    for one, other in zip(before, belief_of_the_first(), strict=True):
        np.testing.assert_array_equal(one, other)
    vectors[1:, :, 0] += 0.1  # a test of the test: what is shared does reach it
    assert np.abs(before[0] - belief_of_the_first()[0]).max() > 0


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"play": "both"}, "play is 'both', expected released or own"),
        ({"distance": 0.1}, "distance is 0.1, expected own play beside it"),
    ],
)
def test_a_play_that_cannot_be_is_refused(setting: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        _compare(50, shops=2, **setting)
    assert str(raised.value).startswith(named)
