"""The readable simulation, to be read beside Algorithms 1 and 3 and to check every faster one against.

All agents of a team advance together, a block of runs at a time, in numpy, with leading axes (runs, agents).
Memory does not depend on the horizon: visitors arrive a few rounds at a time and are forgotten.

On a graph a team is a clique. Floods that are not lost reach all of it γ rounds after a release, when the
estimator it is for has its next turn, so nothing need be sent here; `peer_to_peer` sends every message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.agent import Knowledge, decide
from feducb.environments.base import Chosen, Contexts
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import Release
from feducb.protocol.controller import add_up, synchronise
from feducb.protocol.messages import ReleasedSum
from feducb.simulation.plan import Estimator, Plan, Team
from feducb.streams import Purpose, Streams

__all__ = ["BlockResult", "Observer", "Step", "checkpoints", "run_block"]

Array = NDArray[np.float64]

_ARRIVAL_BYTES = 2**21  # visitors held at once: few enough to stay in cache
_CURVE_POINTS = 200
_RECORDS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Step:
    """What happened to a team in some rounds; handed to an observer and then forgotten.

    Attributes:
        first_round: the first of the rounds, counted from 1.
        team: who.
        chosen: the choices.
        rewards: (runs, agents, R).
        release: what left each agent at the end of the last of the rounds, if anything did.
        total: its sum.
        knowledge: what agents know after it, for the estimator of the last round.
        theta: (runs, d), the truth.
    """

    first_round: int
    team: Team
    chosen: Chosen
    rewards: Array
    release: Release | None
    total: ReleasedSum | None
    knowledge: Knowledge
    theta: Array


Observer = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class BlockResult:
    """What a block of runs came to, for one team.

    Attributes:
        regret: (runs, points), per-agent regret in the rounds up to each checkpoint and after the last.
        release_rounds: the rounds at which releases took place, one tuple a run.
        requests: who asked for a synchronisation, by number, as often as each did (``paper`` on a graph).
    """

    regret: Array
    release_rounds: tuple[tuple[int, ...], ...]
    requests: tuple[int, ...] = ()


def checkpoints(horizon: int) -> NDArray[np.int64]:
    """Rounds at which the regret curve is read: up to 200, evenly spread, the last one T."""
    points = min(horizon, _CURVE_POINTS)
    return np.unique(np.round(np.linspace(horizon / points, horizon, points)).astype(np.int64))


class _Estimate:
    """One estimator as it goes: what agents know, what they have recorded, what is on its way to them."""

    def __init__(self, estimator: Estimator, shape: tuple[int, int]) -> None:
        self.rule, self.privatizer = estimator.rule, estimator.privatizer
        self.public_rounds = frozenset(estimator.release_rounds)
        self.knowledge = self.rule.start(shape)
        self.pending = self.privatizer.start(shape) if self.privatizer else None
        self.records: list[tuple[Array, Array]] = []
        self.arriving: deque[tuple[int, ReleasedSum]] = deque()
        self.asked = False

    def catch_up(self, now: int) -> None:
        """Absorb what arrives by the start of this round."""
        while self.arriving and self.arriving[0][0] <= now:
            self.knowledge = self.rule.absorb(self.knowledge, self.arriving.popleft()[1])

    def observe(self, actions: Array, rewards: Array) -> None:
        """Records of rounds in which it was used: actions (runs, agents, R, d), rewards (runs, agents, R)."""
        if self.privatizer is not None:
            self.records.append((actions, rewards))
            if rewards.shape[2] > 1 or len(self.records) >= _RECORDS_AT_ONCE:
                self.take_in_records()
        if self.rule.acts_on_own_data:
            self.knowledge = self.rule.observe(self.knowledge, actions[:, :, 0], rewards[:, :, 0])

    def take_in_records(self) -> None:
        """One by one would be slow, so records wait for each other."""
        if self.records and self.privatizer is not None and self.pending is not None:
            actions, paid = (np.concatenate(part, axis=2) for part in zip(*self.records, strict=True))
            self.pending = self.privatizer.record(self.pending, actions, paid)
            self.records.clear()

    def synchronise(self, plan: Plan, now: int, noise: SeededNoise) -> tuple[Release | None, list[int]]:
        """What leaves after acting in this round, if anything, and who asks for a synchronisation on a graph.

        There the request travels first, and is answered when the estimator has its next turn (Alg. 3, as its
        proof reads it); who is about to answer does not ask again.
        """
        if self.privatizer is None or self.pending is None:
            return None, []
        asking, askers = self.rule.wants_sync(self.knowledge), list[int]()
        due = now in self.public_rounds
        if plan.topology is None:
            due = due or bool(asking.any())
        else:
            due = due or self.asked
            self.asked = bool(asking.any()) and not due
            askers = np.nonzero(asking[0])[0].tolist() if self.asked else []
        if not due or self.pending.released >= self.privatizer.mechanism.releases:
            return None, askers
        self.take_in_records()
        self.pending, release = synchronise(self.privatizer, self.pending, noise, trust=plan.trust)
        return release, askers


def run_block(
    plan: Plan,
    runs: range,
    *,
    team: Team | None = None,
    progress: Callable[[int], None] = lambda steps: None,
    observer: Observer | None = None,
) -> BlockResult:
    """Play the given runs of one team from the first round to the last.

    Args:
        plan: what to play.
        runs: which runs; under the determinant trigger one at a time, since each has its own sync rounds.
        team: which team; the first if not given.
        progress: told how many agent-steps were just done.
        observer: shown every step.
    """
    if plan.determinant and len(runs) > 1:
        raise ValueError("under the determinant trigger a block is one run")
    team = team or plan.teams[0]
    streams, shape = Streams(plan.seed), (len(runs), len(team.agents))
    visits = plan.environment.open(streams, runs, team.agents)
    noise = SeededNoise(
        streams.grid(runs, team.agents, Purpose.NOISE)
        if plan.trust == "nobody"
        else [[streams.shared(run, Purpose.NOISE)] for run in runs]
    )
    play = streams.grid(runs, team.agents, Purpose.PLAY)
    estimates = [_Estimate(estimator, shape) for estimator in team.estimators]
    groups = len(estimates)
    points = checkpoints(plan.horizon).tolist()
    point, regret = 0, np.zeros((len(runs), len(points)))
    released_at, requests = list[int](), list[int]()

    for first, contexts in _steps(plan, team, visits.arrive, shape):
        rounds = contexts.means.shape[2]
        last = first + rounds - 1
        for estimate in estimates:
            estimate.catch_up(first)
        # Every agent acts (Alg. 1, l. 4–9), in round t by estimator t mod γ (Alg. 3, l. 4).
        coins = None
        if any(estimate.knowledge.belief is None for estimate in estimates):
            coins = np.array([[one.random(rounds) for one in row] for row in play])
        turns = [
            (estimates[(first + offset) % groups], slice(offset, None, groups))
            for offset in range(min(groups, rounds))
        ]
        index = np.empty((*shape, rounds), dtype=np.int64)
        for estimate, own in turns:
            index[:, :, own] = decide(
                estimate.knowledge,
                contexts.actions[:, :, own],
                exploration=plan.exploration,
                coins=None if coins is None else coins[:, :, own],
            )
        chosen = contexts.chosen(index)
        rewards = visits.reward(chosen)
        assert contexts.best is not None
        lost = (contexts.best - chosen.means).mean(axis=1)
        for offset in range(rounds):
            point += points[point] < first + offset
            regret[:, point] += lost[:, offset]

        # Every agent takes its record in (l. 10–11) …
        for estimate, own in turns:
            estimate.observe(chosen.actions[:, :, own], rewards[:, :, own])
        estimate = estimates[last % groups]

        # … and then, in a phase of its own, all synchronise if any asked for it (l. 12–21).
        release, askers = estimate.synchronise(plan, last, noise)
        requests += [team.agents[asker] for asker in askers]
        total = None
        if release is not None:
            total = add_up(release)
            released_at.append(last)
            estimate.arriving.append((last + plan.lag, total))
            estimate.catch_up(last + groups)  # what is here by its next turn need not wait for it

        if observer is not None:
            observer(Step(first, team, chosen, rewards, release, total, estimate.knowledge, visits.theta))
        progress(rounds * len(runs) * len(team.agents))
    return BlockResult(regret, (tuple(released_at),) * len(runs), tuple(requests))


def _steps(
    plan: Plan, team: Team, arrive: Callable[[int], Contexts], shape: tuple[int, int]
) -> Iterator[tuple[int, Contexts]]:
    """Visitors in order, cut wherever knowledge may change: after a release, or after each round."""
    problem = plan.environment.problem
    one_round = 8 * shape[0] * shape[1] * plan.environment.arms * problem.dim
    at_once = max(1, _ARRIVAL_BYTES // one_round)
    every_round = any(estimator.rule.acts_on_own_data for estimator in team.estimators)
    releases = {at for estimator in team.estimators for at in estimator.release_rounds}
    waits = {at + plan.lag - 1 for at in releases} if len(team.estimators) < plan.lag else set()
    cuts = releases | waits
    for start in range(1, plan.horizon + 1, at_once):
        stop = min(start + at_once, plan.horizon + 1)
        contexts = arrive(stop - start)
        first = start
        for current in range(start, stop):
            if every_round or current in cuts or current == stop - 1:
                yield first, contexts.part(first - start, current + 1 - start)
                first = current + 1
