"""Several seasons, and worlds that change: what is remembered helps, and what misleads can be forgotten.

That the set still covers is in `test_coverage.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import feducb
from feducb.errors import ConfigurationError
from feducb.models.remembering import RememberingPlay
from feducb.worlds.drifting import Drifting, parse_drift
from feducb.worlds.streams import Streams
from feducb.worlds.synthetic import paper_world

SMALL: dict[str, Any] = {
    "agents": 8, "dim": 3, "arms": 6, "horizon": 900, "runs": 4, "epsilon": 8.0, "seed": 2, "threads": 1
}  # fmt: skip


def _lost(result: feducb.SimulationResult, first: int, last: int) -> float:
    """Per agent and round, from one round to another."""
    at = np.searchsorted(result.rounds, [first, last])
    return float((result.regret[:, at[1]] - result.regret[:, at[0]]).mean() / (last - first))


def test_what_is_remembered_spares_a_new_season_its_beginning() -> None:
    remembered, anew = (feducb.simulate(**SMALL, seasons=3, remember=one) for one in ("all", "none"))
    assert _lost(remembered, 9, 290) == _lost(anew, 9, 290)  # the first is the same
    assert _lost(remembered, 310, 350) < 0.5 * _lost(anew, 310, 350)
    assert remembered.mean < anew.mean
    assert remembered.config["seasons"] == 3
    assert remembered.privacy["seasons"] == 3


def test_each_season_releases_by_the_same_plan_under_fresh_noise() -> None:
    result = feducb.simulate(**SMALL, seasons=3)
    rounds = np.array(result.release_rounds[0])
    once = feducb.simulate(**(SMALL | {"horizon": 300}), backend="reference")
    np.testing.assert_array_equal(rounds.reshape(3, -1) - [[0], [300], [600]], [once.release_rounds[0]] * 3)
    assert result.releases == 3 * once.releases


@pytest.mark.parametrize("half_life", [None, 60.0])
def test_weights_are_public_and_from_0_to_1(half_life: float | None) -> None:
    rules: list[RememberingPlay] = []
    made = RememberingPlay.start

    def start(self: RememberingPlay, shape: tuple[int, ...]) -> Any:
        rules.append(self)
        return made(self, shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RememberingPlay, "start", start)
        feducb.simulate(**(SMALL | {"runs": 1}), seasons=3, half_life=half_life)
    assert [len(one.past) for one in rules] == [0, 1, 2]
    for rule in rules:
        assert rule.weights.min() >= 0.0
        assert rule.weights[1:].max(axis=1) == pytest.approx(1.0)
        if half_life is not None and len(rule.past) == 2:
            assert np.all(rule.weights[:, 2] < rule.weights[:, 1])  # the older counts less


def test_a_world_that_turns_keeps_its_means_and_its_bounds() -> None:
    world = paper_world(feducb.Problem(dim=4), 5)
    turning = Drifting(world=world, rate=90.0)
    plain, turned = (one.open(Streams(3), range(2), range(3)) for one in (world, turning))
    start = turned.theta.copy()
    for _ in range(2):
        still, moved = plain.arrive(500), turned.arrive(500)
    np.testing.assert_array_equal(still.means, moved.means)
    lengths = [np.linalg.norm(one.actions, axis=-1) for one in (still, moved)]
    np.testing.assert_allclose(*lengths)
    np.testing.assert_allclose(
        np.einsum("rakd,rd->rak", moved.actions[:, :, -1], turned.theta), moved.means[:, :, -1]
    )
    cosine = np.sum(start * turned.theta, axis=1) / np.linalg.norm(start, axis=1) ** 2
    np.testing.assert_allclose(cosine, 0.0, atol=2e-3)  # 90 degrees less one round


def test_what_misleads_after_a_jump_can_be_forgotten() -> None:
    """A jump in the middle of the first of three seasons: regret of the last one."""
    setting = SMALL | {"drift": "jump:150", "seasons": 3, "horizon": 1800, "policy": "optimistic"}
    stays, fades, anew = (
        feducb.simulate(**setting, **one) for one in ({}, {"half_life": 200.0}, {"remember": "none"})
    )
    lost = [_lost(one, 1200, 1800) for one in (stays, fades, anew)]
    assert lost[1] < lost[0]
    assert lost[2] < lost[0] + 0.2


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"seasons": 7}, "seasons"),
        ({"seasons": 2, "play": "own"}, "seasons"),
        ({"half_life": 50.0, "play": "own"}, "half_life"),
        ({"seasons": 2, "topology": "ring:8", "agents": None}, "seasons"),
        ({"seasons": 2, "remember": "some"}, "remember"),
        ({"seasons": 2, "discount": 2.0}, "discount"),
        ({"half_life": 50.0, "discount": 0.5}, "discount"),
        ({"half_life": 0.0}, "half_life"),
        ({"seasons": 2, "backend": "cpu"}, "backend"),
        ({"drift": "turn:5", "backend": "cpu"}, "backend"),
        ({"drift": "spin:5"}, "drift"),
        ({"drift": "turn:fast"}, "drift"),
        ({"seasons": 3, "history": 30}, "seasons"),
    ],
)
def test_what_cannot_be_played_is_refused(asked: dict[str, Any], names: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        feducb.simulate(**(SMALL | asked))
    assert error.value.setting == names


def test_drift_is_read_from_text() -> None:
    world = paper_world(feducb.Problem(dim=3), 4)
    assert parse_drift("turn:2.5", world) == Drifting(world=world, rate=2.5)
    assert parse_drift("jump:400", world) == Drifting(world=world, jump=400)
