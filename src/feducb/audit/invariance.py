"""What one record may not change: when agents release, and what they decide before it was released."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from feducb.audit.findings import Check
from feducb.config import Problem
from feducb.errors import PrivateScheduleError
from feducb.protocol.graphs import Topology
from feducb.simulation.reference import Observer, Step
from feducb.simulation.runner import simulate
from feducb.worlds.streams import Streams
from feducb.worlds.synthetic import PaperEnvironment
from feducb.worlds.world import Chosen, Contexts, Environment, OwnEnvironment, Visits

__all__ = [
    "CALIBRATED",
    "GRAPH",
    "OTHER",
    "STEADY_WORLD",
    "ReplacedRecord",
    "Trace",
    "check_decisions",
    "check_graph",
    "check_private_schedule",
    "check_release_times",
    "watch",
]

Array = NDArray[np.float64]
_Left = dict[tuple[int, int], bytes]
_Played = TypeVar("_Played")

_AGENTS, _HORIZON = 2, 60
CALIBRATED: dict[str, Any] = {"mode": "calibrated", "epsilon": 20.0, "releases": 8, "first_release": 4}
"""What is shipped; a large ε, so that a record does show after its release, and the check is not idle."""

_ON_A_GRAPH: dict[str, Any] = {"topology": "line:5", "ttl": 2}
GRAPH: dict[str, Any] = CALIBRATED | _ON_A_GRAPH
"""The same without a controller: two cliques, two estimators per agent."""

_WORLD = PaperEnvironment(problem=Problem(dim=2), arms=6)
OTHER = (np.array([0.0, -1.0]), -1.0)
"""Action and reward of a replaced record."""

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
        """The bounds of the inner world: both records keep them."""
        return self.inner.problem

    @property
    def arms(self) -> int:
        """As many candidates as the inner world has."""
        return self.inner.arms

    def open(self, streams: Streams, runs: range, agents: Sequence[int]) -> Visits:
        """Start these runs, with the record replaced where its agent is among them."""
        inner = self.inner.open(streams, runs, agents)
        return _ReplacedVisits(self, inner, agents.index(self.agent)) if self.agent in agents else inner


class _ReplacedVisits:
    def __init__(self, change: ReplacedRecord, inner: Visits, position: int) -> None:
        self._change, self._inner, self._position = change, inner, position
        self._arrived = self._paid = 0
        self.theta = inner.theta

    def arrive(self, rounds: int) -> Contexts:
        contexts = self._inner.arrive(rounds)
        actions = np.array(contexts.actions)
        place = self._change.round - 1 - self._arrived
        if 0 <= place < rounds:
            actions[:, self._position, place] = self._change.action
        self._arrived += rounds
        return Contexts(actions, contexts.means)

    def reward(self, chosen: Chosen) -> Array:
        rewards = self._inner.reward(chosen)
        place = self._change.round - 1 - self._paid
        if 0 <= place < rewards.shape[2]:
            rewards[:, self._position, place] = self._change.reward
        self._paid += rewards.shape[2]
        return rewards


class Trace(NamedTuple):
    """What was seen of one run, with the same seed every time.

    Attributes:
        decided: (agents, T), all decisions.
        left: by agent and round, what it released.
        rounds: of releases, where there is a controller.
        graph: where there is none.
    """

    decided: NDArray[np.int64]
    left: _Left
    rounds: tuple[int, ...]
    graph: Topology | None


def watch(play: Callable[[Observer], _Played]) -> tuple[NDArray[np.int64], _Left, _Played]:
    """Play one run: all decisions (agents, T), by agent and round what it released, and what it came to."""
    decisions: dict[int, list[NDArray[np.int64]]] = defaultdict(list)
    left: _Left = {}

    def look(step: Step) -> None:
        last = step.first_round + step.rewards.shape[2] - 1
        for position, agent in enumerate(step.team.agents):
            decisions[agent].append(step.chosen.index[0, position])
            if step.release is not None:
                parts = step.release.gram[0, position], step.release.moment[0, position]
                left[agent, last] = b"".join(part.tobytes() for part in parts)

    played = play(look)
    return np.array([np.concatenate(decisions[agent]) for agent in sorted(decisions)]), left, played


def _trace(environment: Environment, setting: dict[str, Any]) -> Trace:
    decided, left, result = watch(
        lambda look: simulate(environment=environment, horizon=_HORIZON, runs=1, observer=look, **setting)
    )
    return Trace(decided, left, result.release_rounds[0], result.topology)


def _traces(setting: dict[str, Any]) -> tuple[Trace, dict[tuple[int, int], Trace]]:
    """With every record as it is; and, by agent and round, with one replaced."""
    setting = {"agents": _AGENTS} | setting
    changed = {place: _trace(ReplacedRecord(_WORLD, *place, *OTHER), setting) for place in _PLACES}
    return _trace(_WORLD, setting), changed


def check_release_times(setting: dict[str, Any]) -> Check:
    """Replace one record at a time: all release rounds stay (row 1 of the paper's list of leaks)."""
    plain, changed = _traces(setting)
    moved = [place for place, other in changed.items() if other.rounds != plain.rounds]
    return Check(
        "release times",
        not moved,
        f"{len(moved)} of {len(changed)} replaced records moved a release round",
    )


def check_private_schedule() -> Check:
    """The determinant trigger is refused where anything private is promised."""
    try:
        _trace(_WORLD, {"mode": "calibrated", "agents": _AGENTS, "schedule": "determinant", "epsilon": 20.0})
    except PrivateScheduleError as error:
        return Check("private schedule", True, str(error))
    return Check("private schedule", False, "the determinant trigger was taken")


def check_decisions(setting: dict[str, Any]) -> Check:
    """Replace one record at a time: before its release no other decision changes (row 2)."""
    plain, changed = _traces(setting)
    moved, counted = [], 0
    for (agent, at), other in changed.items():
        release = next((one for one in plain.rounds if one >= at), _HORIZON)
        same = plain.decided == other.decided
        counted += not same[:, release:].all() or other.rounds != plain.rounds
        same[agent, at - 1] = True  # the replaced visitor's own decision is hers
        moved += [(agent, at)] if not same[:, :release].all() else []
    return Check(
        "decisions",
        not moved and counted > 0,
        f"{len(moved)} of {len(changed)} replaced records changed a decision before their release; "
        f"{counted} changed one after it, as they may",
    )


def _draw_steadily(generator: np.random.Generator, agent: int, rounds: int) -> Array:
    directions = generator.standard_normal((rounds, 6, 2))
    return np.asarray(directions / np.linalg.norm(directions, axis=-1, keepdims=True))


STEADY_WORLD = OwnEnvironment(
    problem=Problem(dim=2),
    arms=6,
    theta=np.array([0.5, 0.3]),
    draw=_draw_steadily,
    pay=lambda generator, actions, means: means + 0.2 * (generator.random(len(means)) - 0.5),
)
"""A visitor uses up as many random numbers whatever was chosen for another."""


def check_graph(setting: dict[str, Any]) -> Check:
    """Replace one record at a time on a graph: where, and from when on, anything may change.

    A record of round t belongs to estimator g = t mod γ of its agent, or to its only one. It may show in that
    agent's next release for g, γ rounds later in decisions of its clique in rounds of g, and nowhere else:
    not at another agent's door before that, not in another clique or estimator, and never in when anything
    leaves.
    """
    setting = _ON_A_GRAPH | setting
    decided, left, _, graph = _trace(STEADY_WORLD, setting)
    assert graph is not None
    groups = 1 if setting.get("estimators") == "one" else graph.ttl
    moved, counted = [], 0
    for agent, at in product(range(graph.agents), (1, 5, 6, 20, 41)):
        other = _trace(ReplacedRecord(STEADY_WORLD, agent, at, *OTHER), setting)
        group, members = at % groups, graph.members(agent)
        own = {(agent, t) for who, t in left if who == agent and t >= at and t % groups == group}
        read = min((t for _, t in own), default=_HORIZON + 1) + graph.ttl
        later = {(who, t) for who, t in product(members, range(read, _HORIZON + 1)) if t % groups == group}
        released = {name for name in left.keys() & other.left if left[name] != other.left[name]}
        choices = {(int(who), int(t) + 1) for who, t in np.argwhere(decided != other.decided)}
        counted += len(released)
        strange = (left.keys() ^ other.left) | (released - own - later) | (choices - later - {(agent, at)})
        moved += [(agent, at)] if strange else []
    return Check(
        f"on a graph estimators={groups}",
        not moved and counted > 0,
        f"{len(moved)} of {5 * graph.agents} replaced records showed where they must not; "
        f"{counted} releases changed where they may",
    )
