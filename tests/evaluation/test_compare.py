"""Comparisons: the code that agents run, the right value, and a verdict that follows from the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from logs import BEST_VALUE, shop_log
from scipy import stats

from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.evaluation import Comparison, Estimate, FrameLog, LogColumns, Study, compare_on_log, survey
from feducb.evaluation.learning import Alone, FederatedLearner, choices, release_rounds
from feducb.evaluation.survey import parse_context
from feducb.evaluation.verdicts import Row
from feducb.policies import Greedy, Optimistic
from feducb.privacy.noise import SeededNoise
from feducb.protocol.federation import Federation
from feducb.protocol.synchronisation import add_up
from feducb.types import Statistics
from feducb.worlds.features import Category, Number, Recipe, problem_for
from feducb.worlds.streams import Purpose, Streams

COLUMNS = LogColumns(agent="shop", action="offer", reward="bought", propensity="p")


def _compare(rows: int, *, shops: int = 20, **study: Any) -> Comparison:
    log = FrameLog(shop_log(rows, shops=shops))
    found = survey(log, COLUMNS, context=parse_context(["age:0:100"]), actions=("book", "game", "film"))
    return compare_on_log(log, found, study=Study(**study))


def _records(agents: int, count: int, dim: int) -> tuple[np.ndarray, np.ndarray, Statistics]:
    rng = np.random.default_rng(5)
    actions = rng.standard_normal((agents, count, dim))
    actions /= np.maximum(np.linalg.norm(actions, axis=-1, keepdims=True), 1.0)
    rewards = np.clip(actions @ np.linspace(-0.4, 0.4, dim), -0.5, 0.5)
    gram = np.einsum("mnd,mne->mde", actions, actions)
    return actions, rewards, Statistics(gram, np.einsum("mnd,mn->md", actions, rewards), agents * count)


def test_alone_reads_its_records_as_a_federation_of_one_without_privacy_reads_a_sum() -> None:
    # Nobody is compared with a weaker version of itself.
    federation = Federation(problem=Problem(dim=3, reward_bound=0.5), agents=4, baseline="no-privacy")
    _, _, sums = _records(4, 60, 3)
    found = Alone(federation).learn(sums, 0)
    for agent in range(4):
        own = Statistics(sums.gram[agent : agent + 1], sums.moment[agent : agent + 1], 60)
        shared = FederatedLearner.of(replace(federation, agents=1), (60,)).learn(own, 0)
        assert shared is not None
        for part in ("theta", "inverse", "ellipsoid_width", "euclidean_width"):
            np.testing.assert_allclose(getattr(found, part)[agent], getattr(shared, part)[0], rtol=1e-9)


@pytest.mark.parametrize("budget", [None, Budget(epsilon=8.0, delta=1e-6)])
def test_a_federation_knows_what_agents_know_that_released_batch_by_batch(budget: Budget | None) -> None:
    # Records come in batches between releases there, and all at once here: the last release is the same.
    problem, rounds = Problem(dim=3, reward_bound=0.5), (100, 400, 1000)
    actions, rewards, sums = _records(6, 1000, 3)
    promise = {"baseline": "no-privacy"} if budget is None else {"budget": budget}
    federation = Federation(problem=problem, agents=6, **promise)
    made = FederatedLearner.of(federation, rounds, seed=7)
    privatizer, rule = made.estimator.privatizer, made.estimator.rule
    assert privatizer is not None
    noise = SeededNoise(Streams(7).grid(range(2, 3), range(6), Purpose.NOISE))
    state, knowledge, done = privatizer.start((1, 6)), rule.start((1, 6)), 0
    for last in rounds:
        state = privatizer.record(state, actions[None, :, done:last], rewards[None, :, done:last])
        state, release = privatizer.release(state, noise)
        knowledge = rule.absorb(knowledge, add_up(release))
        done = last
    found = made.learn(sums, 2)
    assert made.reads
    assert knowledge.belief is not None
    assert found is not None
    for part in ("theta", "inverse", "ellipsoid_width"):
        np.testing.assert_allclose(getattr(found, part), getattr(knowledge.belief, part)[0], rtol=1e-7)


def test_the_value_of_the_federation_is_that_of_the_best_policy() -> None:
    # The world is linear and the log long: greedy choices are all but optimal. They lose at most 0.002 by
    # misplacing the border between book and game; beyond that z-test at 1e-6.
    found = _compare(40_000, epsilons=(8.0,), trusts=("controller",), repeats=1)
    for name in ("federation without privacy", "private federation, ε = 8, controller trusted"):
        row = found.row(name, "greedy")
        assert row.details is not None
        for one in (row.value, row.details.snips, row.details.ips, row.details.replay):
            assert abs(one.value - (BEST_VALUE - 0.001)) < 0.001 + stats.norm.isf(0.5e-6) * one.stderr
    logged = found.row("the logged policy").value
    assert abs(logged.value - (0.8 * 0.5 + 0.2 * 0.1)) < stats.norm.isf(0.5e-6) * logged.stderr


def test_many_small_shops_should_federate_and_say_so() -> None:
    found = _compare(12_000, shops=400, epsilons=(8.0,), trusts=("controller",), repeats=2)
    assert found.federate
    assert found.verdict().startswith("Federate: private federation, ε = 8, controller trusted earns more")
    private = found.row("private federation, ε = 8, controller trusted", "greedy")
    assert private.over_alone is not None
    assert private.over_alone.low > 0.05
    assert private.over_fixed is not None
    assert private.over_fixed.low > 0  # no single offer is right for everybody


def test_few_shops_under_much_noise_should_not_and_say_so() -> None:
    found = _compare(3_000, shops=3, epsilons=(0.1,), trusts=("nobody",), repeats=2)
    assert not found.federate
    assert found.verdict().startswith("Do not federate for this")
    private = found.row("private federation, ε = 0.1, nobody trusted", "greedy")
    assert not private.reads
    assert "plays at random" in found.verdict()
    assert private.value.value == pytest.approx(found.row("uniform").value.value)
    assert private.over_alone is not None
    assert private.over_alone.high < 0


def test_a_log_with_wrong_propensities_gets_no_yes() -> None:
    log = FrameLog(shop_log(4000).assign(p=1 / 3))
    found = survey(log, COLUMNS, context=parse_context(["age:0:100"]))
    compared = compare_on_log(log, found, study=Study(epsilons=(8.0,), repeats=1))
    assert any("where 1 is expected" in one for one in compared.warnings)
    assert not compared.federate
    assert compared.verdict().startswith("Cannot tell: weights do not average 1")


def test_the_same_seed_gives_the_same_comparison_and_another_one_does_not() -> None:
    study: dict[str, Any] = {"epsilons": (8.0,), "trusts": ("controller",), "repeats": 1}
    one, same, other = (_compare(2000, seed=seed, **study).to_json() for seed in (3, 3, 4))
    assert one == same
    assert one != other


def test_agents_play_by_the_policy_of_the_study() -> None:
    """Uniform agents are worth what uniform choice is; Thompson's are something between it and greed."""
    rows = {
        policy: _compare(2000, epsilons=(8.0,), trusts=("controller",), folds=2, repeats=1, policy=policy)
        for policy in ("optimistic", "uniform", "thompson:1")
    }
    evenly = rows["uniform"].row("uniform", "fixed").value.value
    assert rows["uniform"].row("each agent alone", "played").value.value == pytest.approx(evenly)
    greedy = [one.row("each agent alone", "greedy").value.value for one in rows.values()]
    assert greedy[0] == greedy[1] == greedy[2]
    assert evenly < rows["thompson:1"].row("each agent alone", "played").value.value < greedy[0]
    assert rows["optimistic"].settings["policy"] == "Optimistic(exploration=1.0)"
    assert rows["thompson:1"].settings["policy"].startswith("Thompson(")
    with pytest.raises(ConfigurationError, match="policy"):
        Study(policy="boldest")


def test_what_is_not_known_is_drawn_uniformly_and_greedy_follows_the_estimate() -> None:
    candidates = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    np.testing.assert_array_equal(choices(None, candidates, np.array([0]), Greedy()), [[0.5, 0.5]])
    sums = Statistics(np.array([np.diag([400.0, 1.0])]), np.array([[40.0, 0.0]]), 401)
    alone = Alone(Federation(problem=Problem(dim=2), agents=1)).learn(sums, 0)
    np.testing.assert_array_equal(choices(alone, candidates, np.array([0]), Greedy()), [[1.0, 0.0]])
    np.testing.assert_array_equal(choices(alone, candidates, np.array([0]), Optimistic()), [[0.0, 1.0]])


def test_many_rows_an_agent_and_few_are_chosen_for_alike() -> None:
    # Loops over agents where an agent has many rows, over rows where it has few: the same choices.
    _, _, sums = _records(5, 40, 3)
    learnt = Alone(Federation(problem=Problem(dim=3), agents=5)).learn(sums, 0)
    rng = np.random.default_rng(2)
    candidates, agents = rng.standard_normal((400, 4, 3)) / 4, rng.integers(0, 5, 400)
    for policy in (Greedy(), Optimistic()):
        at_once = choices(learnt, candidates, agents, policy)
        one_by_one = [
            choices(learnt, candidates[row : row + 1], agents[row : row + 1], policy)[0] for row in range(400)
        ]
        np.testing.assert_array_equal(at_once, one_by_one)


def _made(*rows: Row) -> Comparison:
    fixed = Row(name="constant", play="fixed", value=Estimate(0.4, 0.01))
    return Comparison(
        source="x",
        measure="m",
        rows=(fixed, *rows),
        fixed="constant",
        primary="greedy",
        notes=(),
        warnings=(),
        settings={},
    )


def _private(over_alone: float, over_fixed: float, *, reads: bool = True) -> Row:
    return Row(
        name="private federation",
        play="greedy",
        value=Estimate(0.5, 0.01),
        over_alone=Estimate(over_alone, 0.01),
        over_fixed=Estimate(over_fixed, 0.01),
        private=True,
        reads=reads,
    )


def test_a_yes_needs_a_sure_win_over_alone_that_no_constant_surely_beats() -> None:
    assert _made(_private(0.05, 0.05)).federate
    assert _made(_private(0.05, 0.0)).federate
    assert "It does not surely earn more than constant" in _made(_private(0.05, 0.0)).verdict()
    assert not _made(_private(0.05, -0.05)).federate
    assert not _made(_private(0.015, 0.05)).federate
    assert not _made(_private(0.05, 0.05, reads=False)).federate


def test_whatever_is_picked_was_tested_with_all_that_might_have_been() -> None:
    # Against alone and against the constant: each must be sure at 97.5 %, or chance would get two tickets.
    assert _made(_private(0.023, 0.05)).federate
    assert not _made(_private(0.021, 0.05)).federate
    # A play that the yes is not about adds a ticket too: it might have been the highest. 1 − 0.05/3.
    other = Row(name="alone", play="played", value=Estimate(0.51, 0.01), over_fixed=Estimate(0.023, 0.01))
    both = _made(_private(0.023, 0.05), other)
    assert both.sayable == 3
    assert not both.federate
    assert "not surely more than constant" in both.verdict()
    # Federations that read nothing are one and the same, uniform.
    blind = _private(-0.1, -0.1, reads=False)
    assert _made(_private(0.05, 0.05), blind, blind).sayable == 3


def test_bounds_follow_from_the_recipe() -> None:
    recipe = Recipe(
        context=(Number("age", 0, 1),),
        action=(Category("a", ("x", "y")),),
        terms=((), ("a",), ("a", "age"), ("age",)),
    )
    problem = problem_for(recipe)
    assert (problem.dim, problem.reward_bound, problem.parameter_bound) == (6, 0.5, 1.0)
    assert release_rounds(100, 1) == (100,)
    assert release_rounds(100, 8)[-1] == 100
    assert release_rounds(3, 3) == (1, 2, 3)


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"folds": 1}, "folds is 1"),
        ({"repeats": 0}, "repeats is 0"),
        ({"releases": 0}, "releases is 0"),
        ({"level": 1.0}, "level is 1.0"),
        ({"spread": "rows"}, "spread is 'rows'"),
        ({"folds": 40}, "folds is 40, expected at most half of the 50 rows"),
    ],
)
def test_a_study_that_cannot_be_is_refused(setting: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        _compare(50, **setting)
    assert str(raised.value).startswith(named)
