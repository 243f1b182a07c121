"""One record may move neither release times nor decisions before its release: sound and leaking settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from feducb.audit import invariance
from feducb.audit.invariance import (
    CALIBRATED,
    GRAPH,
    ReplacedRecord,
    check_decisions,
    check_graph,
    check_private_schedule,
    check_release_times,
)
from feducb.config import Problem
from feducb.errors import PrivateScheduleError
from feducb.worlds.streams import Streams
from feducb.worlds.synthetic import PaperEnvironment

WORLD = PaperEnvironment(problem=Problem(dim=2), arms=6)
OTHER = ReplacedRecord(WORLD, 1, 3, np.array([0.0, -1.0]), -0.5)
PAPER: dict[str, Any] = {"mode": "paper", "schedule": "explicit:40,60", "epsilon": 1e6}


def test_a_replaced_record_is_offered_to_one_visitor_in_one_round() -> None:
    """Also where rounds come in blocks: the others see what they would have seen."""
    plain, changed = (world.open(Streams(5), range(2), (0, 1)) for world in (WORLD, OTHER))
    np.testing.assert_array_equal(plain.theta, changed.theta)
    before, after = (
        np.concatenate([visits.arrive(rounds).actions for rounds in (2, 2, 1)], axis=2)
        for visits in (plain, changed)
    )
    differs = (before != after).any(axis=(0, 3, 4))
    assert np.argwhere(differs).tolist() == [[1, 2]]
    np.testing.assert_array_equal(after[:, 1, 2], np.broadcast_to([0.0, -1.0], (2, 6, 2)))


def test_a_world_without_the_agent_is_the_world_itself() -> None:
    visits = OTHER.open(Streams(5), range(1), (0,))
    assert type(visits) is type(WORLD.open(Streams(5), range(1), (0,)))
    assert (OTHER.problem, OTHER.arms) == (WORLD.problem, 6)


def test_a_trace_is_the_same_each_time() -> None:
    setting = {"agents": 2, **CALIBRATED}
    one, other = (invariance._trace(WORLD, setting) for _ in range(2))
    np.testing.assert_array_equal(one.decided, other.decided)
    assert one.decided.shape == (2, 60)
    assert (one.left, one.rounds, one.graph) == (other.left, other.rounds, None)
    assert {at for _, at in one.left} == set(one.rounds)
    assert len(one.rounds) == 8


def test_what_is_shipped_passes_and_is_not_idle() -> None:
    times, decisions = check_release_times(CALIBRATED), check_decisions(CALIBRATED)
    assert (times.name, decisions.name) == ("release times", "decisions")
    assert times.passed
    assert times.detail == "0 of 14 replaced records moved a release round"
    assert decisions.passed
    assert int(decisions.detail.split("; ")[1].split()[0]) > 0


def test_acting_on_raw_data_is_seen_in_decisions_though_release_times_are_public() -> None:
    assert check_release_times(PAPER).passed
    check = check_decisions(PAPER)
    assert not check.passed
    assert not check.detail.startswith("0 of 14")


def test_a_trigger_that_looks_at_data_is_seen_in_release_times() -> None:
    check = check_release_times(PAPER | {"schedule": "determinant:30"})
    assert not check.passed
    assert "replaced records moved a release round" in check.detail


def test_a_policy_that_never_hears_of_a_record_makes_the_check_idle() -> None:
    """With one release at the very end nothing can change after it, so nothing was tested."""
    check = check_decisions({"mode": "calibrated", "epsilon": 1.0, "schedule": "explicit:60"})
    assert not check.passed
    assert check.detail.startswith("0 of 14")
    assert "; 0 changed one after it" in check.detail


def test_the_private_schedule_is_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    check = check_private_schedule()
    assert check.passed
    assert "determinant" in check.detail
    monkeypatch.setattr(invariance, "_trace", lambda *_: None)
    check = check_private_schedule()
    assert not check.passed
    assert check.detail == "the determinant trigger was taken"
    monkeypatch.undo()
    with pytest.raises(PrivateScheduleError):
        invariance._trace(
            WORLD, {"mode": "calibrated", "agents": 2, "schedule": "determinant", "epsilon": 20.0}
        )


def test_a_graph_is_given_where_the_setting_has_none() -> None:
    assert {**CALIBRATED, **invariance._ON_A_GRAPH} == GRAPH
    trace = invariance._trace(invariance.STEADY_WORLD, GRAPH)
    assert trace.graph is not None
    assert (trace.graph.agents, trace.graph.ttl) == (5, 2)
    assert trace.decided.shape == (5, 60)


def test_acting_on_raw_data_is_seen_on_a_graph() -> None:
    check = check_graph(PAPER)
    assert not check.passed
    assert check.name == "on a graph estimators=2"
    assert not check.detail.startswith("0 of 25")
