"""Off-policy estimators: as by hand, unbiased, with intervals that cover, and warnings where they are due."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

from feducb.errors import ConfigurationError
from feducb.evaluation import (
    Estimate,
    PolicyValue,
    Tally,
    effective_sample_size,
    evaluate_arrays,
    evaluate_frame,
    overlap_warnings,
)

Array = NDArray[np.float64]

# Two contexts, three actions. The log knows its propensities; the policy and its value are written down.
MEANS = np.array([[0.2, 0.5, 0.9], [0.7, 0.4, 0.1]])
LOGGING = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
POLICY = np.array([[0.1, 0.1, 0.8], [0.5, 0.5, 0.0]])
VALUE = float((POLICY * MEANS).sum(axis=1).mean())  # contexts are equally likely
WRONG_MODEL = np.array([[0.6, 0.1, 0.3], [0.0, 0.9, 0.5]])


def _log(rng: np.random.Generator, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    context = rng.integers(0, 2, rows)
    action = (rng.random(rows)[:, None] > LOGGING[context].cumsum(axis=1)).sum(axis=1).clip(max=2)
    return context, action, (rng.random(rows) < MEANS[context, action]).astype(float)


def _valued(rng: np.random.Generator, rows: int, *, seed: int = 0) -> PolicyValue:
    context, action, reward = _log(rng, rows)
    return evaluate_arrays(
        reward,
        LOGGING[context, action],
        POLICY[context, action],
        expected=(POLICY * WRONG_MODEL).sum(axis=1)[context],
        fitted=WRONG_MODEL[context, action],
        seed=seed,
    )


def test_estimates_equal_those_computed_by_hand() -> None:
    reward, propensity, target = [1.0, 0.0, 1.0, 0.0], [0.5, 0.25, 0.5, 1.0], [1.0, 0.0, 0.5, 1.0]
    expected, fitted = [0.6, 0.6, 0.6, 0.2], [0.5, 0.25, 0.75, 0.5]
    # w = 2, 0, 1, 1; w r = 2, 0, 1, 0; DR: 0.6 + 2·0.5, 0.6, 0.6 + 0.25, 0.2 − 0.5
    found = evaluate_arrays(reward, propensity, target, expected=expected, fitted=fitted)
    assert found.ips.value == pytest.approx(3 / 4)
    assert found.ips.stderr == pytest.approx(np.std([2, 0, 1, 0], ddof=1) / 2)
    assert found.snips.value == pytest.approx(3 / 4)
    assert found.snips.stderr == pytest.approx(
        math.sqrt(4 / 3 * ((2 * 0.25) ** 2 + 0.25**2 + 0.75**2) / 4**2)
    )
    assert found.doubly_robust.value == pytest.approx((1.6 + 0.6 + 0.85 - 0.3) / 4)
    assert found.doubly_robust.stderr == pytest.approx(np.std([1.6, 0.6, 0.85, -0.3], ddof=1) / 2)
    assert found.effective == pytest.approx(16 / 6) == effective_sample_size([2, 0, 1, 1])
    assert found.mean_weight.value == 1.0
    assert found.largest_weight == 2.0
    assert found.doubly_robust.high - found.doubly_robust.low == pytest.approx(
        2 * 1.959964 * found.doubly_robust.stderr, rel=1e-6
    )


def test_replay_of_a_deterministic_policy_on_a_uniform_log_is_the_mean_over_matches() -> None:
    # π/p is 4 or 0, its largest value is 4: exactly the matching records are accepted.
    found = evaluate_arrays([1.0, 0.0, 1.0, 1.0], [0.25] * 4, [1.0, 1.0, 0.0, 1.0])
    assert found.accepted == 3
    assert found.replay.value == pytest.approx(2 / 3)
    assert found.replay.stderr == pytest.approx(np.std([1, 0, 1], ddof=1) / math.sqrt(3))
    assert found.doubly_robust == found.ips  # there is no model


def test_estimates_are_unbiased_on_a_log_with_a_known_value(rng: np.random.Generator) -> None:
    # z-tests over 400 logs; SNIPS has bias 1/n and is tested on one long log. False alarm 4·1e-6 in all.
    found = [_valued(rng, 100, seed=seed) for seed in range(400)]
    for name in ("ips", "doubly_robust", "replay"):
        values = np.array([getattr(one, name).value for one in found])
        z = (values.mean() - VALUE) / (values.std(ddof=1) / math.sqrt(len(values)))
        assert abs(z) < stats.norm.isf(0.5e-6), name
    snips = _valued(rng, 400_000).snips
    assert abs(snips.value - VALUE) / snips.stderr < stats.norm.isf(0.5e-6)


def test_a_biased_estimator_would_be_caught(rng: np.random.Generator) -> None:
    # The same z-test on logs whose propensities are ignored: it must fail, or it tests nothing.
    values = []
    for _ in range(400):
        context, action, reward = _log(rng, 100)
        values.append(evaluate_arrays(reward, np.full(100, 1 / 3), POLICY[context, action]).ips.value)
    z = (np.mean(values) - VALUE) / (np.std(values, ddof=1) / math.sqrt(len(values)))
    assert abs(z) > stats.norm.isf(0.5e-6)


def test_intervals_cover_as_often_as_they_say(rng: np.random.Generator) -> None:
    # 95 % intervals on 1000 logs of 1000 rows: fewer than 917 or more than 979 hits of true 95 %
    # coverage has a chance below 1e-5 each; 3 estimators: false alarm 6e-5.
    found = [_valued(rng, 1000, seed=seed) for seed in range(1000)]
    for name in ("ips", "snips", "doubly_robust"):
        hits = sum(getattr(one, name).low <= VALUE <= getattr(one, name).high for one in found)
        assert 917 <= hits <= 979, (name, hits)


def test_a_log_in_pieces_says_the_same_as_a_whole_one(rng: np.random.Generator) -> None:
    rewards, weights = rng.random(1000), rng.random((1000, 3)) * 3
    robust, accepted = rng.random((1000, 3)) + 1e6, rng.random((1000, 3)) < 0.4  # 1e6: digits must survive
    agents = rng.integers(0, 7, 1000)
    for clusters in (None, 7):
        whole, pieces = Tally(3, clusters=clusters), Tally(3, clusters=clusters)
        whole.add(rewards, weights, doubly_robust=robust, accepted=accepted, agents=agents)
        for start in range(0, 1000, 37):
            part = slice(start, start + 37)
            pieces.add(
                rewards[part],
                weights[part],
                doubly_robust=robust[part],
                accepted=accepted[part],
                agents=agents[part],
            )
        for policy in range(3):
            one, other = whole.value(policy), pieces.value(policy)
            for name in ("ips", "snips", "doubly_robust", "replay"):
                a, b = getattr(one, name), getattr(other, name)
                assert (a.value, a.stderr) == pytest.approx((b.value, b.stderr), rel=1e-6)
        difference = whole.difference(0, 1)
        assert difference.value == pytest.approx((robust[:, 0] - robust[:, 1]).mean(), abs=1e-8)
        if clusters is None:
            by_hand = (robust[:, 0] - robust[:, 1]).std(ddof=1) / math.sqrt(1000)
            assert difference.stderr == pytest.approx(by_hand, rel=1e-6)


def test_intervals_over_agents_see_that_records_of_one_agent_are_alike(rng: np.random.Generator) -> None:
    # All rewards of an agent are equal: n records are worth M, and the error is that of M numbers.
    level = rng.random(20)
    agents = np.repeat(np.arange(20), 50)
    tally = Tally(1, clusters=20)
    tally.add(level[agents], np.ones((1000, 1)), accepted=np.ones((1000, 1), dtype=bool), agents=agents)
    found = tally.value(0)
    expected = level.std(ddof=1) / math.sqrt(20)
    for one in (found.ips, found.snips, found.doubly_robust, found.replay):
        assert one.stderr == pytest.approx(expected)
        assert one.margin == pytest.approx(stats.t.ppf(0.975, 19) * expected)


def test_the_spread_over_draws_widens_the_interval() -> None:
    tally = Tally(1, draws=4)
    tally.add(np.full(10, 0.5), np.ones((10, 1)), draws=np.array([[4.0], [5.0], [5.0], [6.0]]))
    assert tally.value(0).doubly_robust.stderr == pytest.approx(np.std([0.4, 0.5, 0.5, 0.6], ddof=1) / 2)


def test_a_data_frame_is_taken_by_its_columns() -> None:
    frame = pd.DataFrame({"r": [1.0, 0.0], "p": [0.5, 0.5], "t": [1.0, 0.0]})
    assert evaluate_frame(frame, reward="r", propensity="p", target="t").ips.value == pytest.approx(1.0)
    with pytest.raises(ConfigurationError, match="column is 'q', expected one of r, p, t"):
        evaluate_frame(frame, reward="r", propensity="q", target="t")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"propensity": [0.5, 0.0]}, "propensity in row 2 is 0.0, expected a number above 0 and at most 1"),
        ({"propensity": [1.5, 0.5]}, "propensity in row 1 is 1.5"),
        ({"propensity": [0.5, math.nan]}, "propensity in row 2 is nan"),
        ({"propensity": [0.5, "high"]}, "propensity in row 2 is 'high'"),
        ({"reward": [math.inf, 0.0]}, "reward in row 1 is inf, expected a finite number"),
        ({"target": [0.5, -0.1]}, "target in row 2 is -0.1, expected a number from 0 to 1"),
        ({"target": [0.5]}, "target is 'of shape (1,)'"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_row(changed: dict[str, Any], named: str) -> None:
    columns: dict[str, Any] = {"reward": [1.0, 0.0], "propensity": [0.5, 0.5], "target": [1.0, 0.0]} | changed
    with pytest.raises(ConfigurationError) as raised:
        evaluate_arrays(
            np.array(columns["reward"], dtype=object),
            np.array(columns["propensity"], dtype=object),
            np.array(columns["target"], dtype=object),
        )
    assert named in str(raised.value)


def test_a_log_with_good_overlap_gets_no_warning(rng: np.random.Generator) -> None:
    # The weights' average is off by four standard errors with a chance of 6e-5.
    assert overlap_warnings({"it": _valued(rng, 2000)}) == []


def test_a_log_with_little_overlap_is_warned_about(rng: np.random.Generator) -> None:
    # Of 5000 records one in a hundred has the policy's action.
    match = rng.random(5000) < 0.01
    found = evaluate_arrays(np.ones(5000), np.where(match, 0.01, 0.99), match.astype(float))
    (warning,) = overlap_warnings({"rare": found})
    assert warning.startswith("5,000 records are worth few of a policy's own")
    assert warning.endswith(f"rare {match.sum()} (0.8 %)")


def test_what_holds_for_many_policies_is_said_once(rng: np.random.Generator) -> None:
    match = rng.random(5000) < 0.01
    rare = evaluate_arrays(np.ones(5000), np.where(match, 0.01, 0.99), match.astype(float))
    never = evaluate_arrays([1.0, 0.0], [0.5, 0.5], [0.0, 0.0])
    found = {f"policy {number}": rare for number in range(9)} | {"odd": never, "fine": _valued(rng, 2000)}
    few, nothing = overlap_warnings(found)
    assert [few.count(f"policy {number} ") for number in range(9)] == [1] * 9
    assert few.count("little overlap") == 1
    assert nothing.endswith(": odd")
    assert "fine" not in few + nothing


def test_one_heavy_record_is_warned_about() -> None:
    propensity = np.full(1000, 0.5)
    propensity[17] = 1e-4
    found = evaluate_arrays(np.ones(1000), propensity, np.full(1000, 0.5))
    warnings = " ".join(overlap_warnings({"heavy": found}))
    assert "one record carries much of all weight: heavy 83 %" in warnings


def test_wrong_propensities_are_warned_about(rng: np.random.Generator) -> None:
    context, action, reward = _log(rng, 3000)
    found = evaluate_arrays(reward, np.full(3000, 1 / 3), POLICY[context, action])
    assert any("where 1 is expected" in one for one in overlap_warnings({"it": found}))


def test_a_policy_that_the_log_never_follows_cannot_be_valued() -> None:
    found = evaluate_arrays([1.0, 0.0], [0.5, 0.5], [0.0, 0.0])
    assert math.isnan(found.snips.value)
    assert overlap_warnings({"odd": found}) == [
        "the log never does what a policy would do, so nothing can be said of it: odd"
    ]
    assert found.snips.as_dict()["value"] is None


def test_an_interval_with_few_degrees_of_freedom_is_student_s() -> None:
    assert Estimate(1.0, 0.5, 0.95, 3).high == pytest.approx(1 + 0.5 * stats.t.ppf(0.975, 3))
