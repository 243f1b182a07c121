"""Records from before the first round: uniform, in the first release in one go, and at no regret."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import feducb
from feducb.errors import ConfigurationError
from feducb.simulation.reference import Step

SETTING: dict[str, Any] = {"agents": 6, "dim": 3, "arms": 9, "horizon": 200, "runs": 3}
PLAYS: dict[str, dict[str, Any]] = {
    "alone": {"baseline": "alone"},
    "no privacy": {"baseline": "no-privacy"},
    "released": {"epsilon": 8.0},
    "own": {"play": "own"},
    "own, two releases": {"play": "own", "schedule": "explicit:20"},
}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_what_came_before_costs_nothing_and_the_rest_is_counted_from_there(backend: Any) -> None:
    # Uniform play learns nothing, so that history is the same visitors, uncounted.
    uniform: dict[str, Any] = SETTING | {"baseline": "uniform", "backend": backend}
    after = feducb.simulate(**uniform | {"horizon": 80}, history=120)
    whole = feducb.simulate(**uniform)  # its curve is read after every round
    assert after.rounds.tolist() == list(range(1, 81))
    np.testing.assert_allclose(after.regret, whole.regret[:, 120:] - whole.regret[:, 119:120])
    assert after.config["history"] == 120


@pytest.mark.parametrize("play", PLAYS)
def test_before_the_first_round_all_draw_uniformly_and_nothing_leaves(play: str) -> None:
    seen: list[Step] = []
    result = feducb.simulate(**SETTING | PLAYS[play], history=50, observer=seen.append)
    for step in seen:
        last = step.first_round + step.rewards.shape[-1] - 1
        if last < 50:
            assert step.release is None
            assert step.knowledge.belief is None
    assert all(at >= 0 for rounds in result.release_rounds for at in rounds)


def test_when_releases_are_made() -> None:
    own = SETTING | {"play": "own", "epsilon": 20.0}
    assert set(feducb.simulate(**own, history=50).release_rounds) == {(0,)}
    shares = set(feducb.simulate(**own).release_rounds).pop()
    few = set(feducb.simulate(**own, history=3).release_rounds).pop()
    assert few[-1] == shares[-1] - 3 > 0  # too few to close at once
    assert set(feducb.simulate(**own | {"epsilon": 0.1}, history=3).release_rounds) == {()}  # nor to share
    listed = feducb.simulate(**SETTING, schedule="explicit:20,40", history=50)
    assert set(listed.release_rounds) == {(0, 20, 40)}
    assert set(feducb.simulate(**SETTING, baseline="no-privacy", history=150).release_rounds).pop()[0] == 0


@pytest.mark.parametrize("play", ["alone", "own"])
def test_both_backends_learn_the_same_from_it_and_more_teaches_more(play: str) -> None:
    # Means of 20 runs, 6 agents each, with a standard error: 4.5 of that of the difference are chance once in
    # 1e5. History of 30 instead of 300 records would be seen: the second assertion says by how much.
    setting = SETTING | {"runs": 20, "horizon": 500, "trust": "controller"} | PLAYS[play]
    settings: tuple[tuple[int, Any], ...] = ((300, "cpu"), (300, "reference"), (30, "cpu"))
    compiled, readable, less = (
        feducb.simulate(**setting, history=history, backend=backend) for history, backend in settings
    )
    errors = [one.stderr or 0.0 for one in (compiled, readable)]
    assert abs(compiled.mean - readable.mean) < 4.5 * np.linalg.norm(errors)
    assert less.mean > 1.5 * compiled.mean


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"history": -1}, "history is -1, expected"),
        ({"history": 9, "topology": "ring:6"}, "history is 9, expected 0 on a graph"),
        ({"history": 9, "mode": "paper"}, "history is 9, expected 0 in paper mode"),
    ],
)
def test_refused(setting: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        feducb.simulate(**SETTING | setting)
