"""What one record may not change: when agents release, and what they decide before it was released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.audit.results import Check
from feducb.config import Problem
from feducb.environments.base import Chosen, Contexts, Environment, Visits
from feducb.environments.synthetic import PaperEnvironment
from feducb.errors import PrivateScheduleError
from feducb.simulation.reference import Step
from feducb.simulation.runner import simulate
from feducb.streams import Streams

__all__ = ["CALIBRATED", "ReplacedRecord", "check_decisions", "check_private_schedule", "check_release_times"]

Array = NDArray[np.float64]
Trace = tuple[NDArray[np.int64], tuple[int, ...]]

_AGENTS, _HORIZON = 2, 60
CALIBRATED: dict[str, Any] = {"mode": "calibrated", "epsilon": 20.0, "releases": 8, "first_release": 4}
"""What is shipped; a large ε, so that a record does show after its release, and the check is not idle."""

_PLACES = [(agent, at) for agent in range(_AGENTS) for at in (1, 3, 4, 5, 20, 41, 60)]


@dataclass(frozen=True)
class ReplacedRecord:
    """A world in which one record, of one agent in one round, is another.

    Attributes:
        inner: the world it is taken from.
        agent: whose visitor.
        round: which, from 1.
        action: what she is offered, whatever is chosen.
        reward: what she gives.
    """

    inner: Environment
    agent: int
    round: int
    action: Array
    reward: float

    @property
    def problem(self) -> Problem:
        """The same bounds."""
        return self.inner.problem

    @property
    def arms(self) -> int:
        """As many."""
        return self.inner.arms

    def open(self, streams: Streams, runs: range, agents: int) -> Visits:
        """Start these runs."""
        return _ReplacedVisits(self, self.inner.open(streams, runs, agents))


class _ReplacedVisits:
    def __init__(self, change: ReplacedRecord, inner: Visits) -> None:
        self._change, self._inner = change, inner
        self._arrived = self._paid = 0
        self.theta = inner.theta

    def arrive(self, rounds: int) -> Contexts:
        contexts = self._inner.arrive(rounds)
        actions = np.array(contexts.actions)
        place = self._change.round - 1 - self._arrived
        if 0 <= place < rounds:
            actions[:, self._change.agent, place] = self._change.action
        self._arrived += rounds
        return Contexts(actions, contexts.means)

    def reward(self, chosen: Chosen) -> Array:
        rewards = self._inner.reward(chosen)
        place = self._change.round - 1 - self._paid
        if 0 <= place < rewards.shape[2]:
            rewards[:, self._change.agent, place] = self._change.reward
        self._paid += rewards.shape[2]
        return rewards


def _world() -> PaperEnvironment:
    return PaperEnvironment(problem=Problem(dim=2), arms=6)


def _trace(environment: Environment, setting: dict[str, Any]) -> Trace:
    """All decisions (agents, T) and the release rounds of one run, with the same seed every time."""
    steps: list[NDArray[np.int64]] = []

    def look(step: Step) -> None:
        steps.append(step.chosen.index[0])

    result = simulate(
        environment=environment,
        agents=_AGENTS,
        horizon=_HORIZON,
        runs=1,
        observer=look,
        **setting,
    )
    return np.concatenate(steps, axis=1), result.release_rounds[0]


def _traces(setting: dict[str, Any]) -> tuple[Trace, list[tuple[int, int, Trace]]]:
    world = _world()
    changed = [
        (agent, at, _trace(ReplacedRecord(world, agent, at, np.array([0.0, -1.0]), -1.0), setting))
        for agent, at in _PLACES
    ]
    return _trace(world, setting), changed


def check_release_times(setting: dict[str, Any]) -> Check:
    """Replace one record at a time: all release rounds stay (row 1 of the paper's list of leaks)."""
    (_, rounds), changed = _traces(setting)
    moved = [(agent, at) for agent, at, (_, other) in changed if other != rounds]
    return Check(
        "release times",
        not moved,
        f"{len(moved)} of {len(changed)} replaced records moved a release round",
    )


def check_private_schedule() -> Check:
    """The determinant trigger is refused where anything private is promised."""
    try:
        _trace(_world(), {**CALIBRATED, "schedule": "determinant", "releases": None})
    except PrivateScheduleError as error:
        return Check("private schedule", True, str(error))
    return Check("private schedule", False, "the determinant trigger was taken")


def check_decisions(setting: dict[str, Any]) -> Check:
    """Replace one record at a time: before its release no other decision changes (row 2)."""
    (before, rounds), changed = _traces(setting)
    moved, counted = [], 0
    for agent, at, (after, other) in changed:
        release = next((one for one in rounds if one >= at), _HORIZON)
        same = before[:, :release] == after[:, :release]
        same[agent, at - 1] = True  # the replaced visitor's own decision is hers
        if not same.all():
            moved.append((agent, at))
        counted += bool((before[:, release:] != after[:, release:]).any()) or other != rounds
    return Check(
        "decisions",
        not moved and counted > 0,
        f"{len(moved)} of {len(changed)} replaced records changed a decision before their release; "
        f"{counted} changed one after it, as they may",
    )
