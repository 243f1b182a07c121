"""The readable simulation, to be read beside Algorithms 1 and 3 and to check every faster one against.

All agents of a team advance together, a block of runs at a time, in numpy, with leading axes (runs, agents).
Memory does not depend on the horizon: visitors arrive a few rounds at a time and are forgotten.

On a graph a team is a clique. Floods that are not lost reach all of it γ rounds after a release, when the
estimator it is for has its next turn, so nothing need be sent here; `peer_to_peer` sends every message.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.models.play import Knowledge
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import Privatizer, Release
from feducb.protocol.estimators import Estimator
from feducb.protocol.synchronisation import add_up, synchronise
from feducb.simulation.absences import SecureRows, rows_of
from feducb.simulation.checkpoint import Piece
from feducb.simulation.plan import Plan, Team
from feducb.trust import Trust
from feducb.types import Array, ReleasedSum
from feducb.worlds.streams import Purpose, Streams
from feducb.worlds.world import Chosen, Contexts

__all__ = ["BlockResult", "Live", "Observer", "Step", "checkpoints", "run_block"]

_ARRIVAL_BYTES = 2**21  # visitors held at once: few enough to stay in cache
_CURVE_POINTS = 200
_UNKEPT = Piece(None, "")


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
        theta: (runs, d), the truth, or (runs, agents, d) where agents differ.
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
        release_rounds: the rounds at which releases took place, one tuple per run.
        requests: who asked for a synchronisation, by number, as often as each did (``paper`` on a graph).
    """

    regret: Array
    release_rounds: tuple[tuple[int, ...], ...]
    requests: tuple[int, ...] = ()


def checkpoints(horizon: int, history: int = 0) -> NDArray[np.int64]:
    """Rounds at which the regret curve is read: up to 200, evenly spread, the last one T.

    Where there is a history its last round comes before them.
    """
    counted = horizon - history
    points = min(counted, _CURVE_POINTS)
    spread = np.unique(np.round(np.linspace(counted / points, counted, points)).astype(np.int64))
    return np.array([history, *(history + spread)]) if history else spread


class _Batch:
    """Records on their way out, through a privatizer that takes them in by pieces: one by one would be slow.

    Pieces have one size whatever comes at once, so that sums are the same to the last bit.
    """

    _PIECE = 64

    def __init__(self, privatizer: Privatizer, shape: tuple[int, int], rows: SecureRows | None) -> None:
        self._privatizer, self._state, self._rows = privatizer, privatizer.start(shape), rows
        self._actions: list[Array] = []
        self._rewards: list[Array] = []
        self._waiting = 0

    @property
    def spent(self) -> bool:
        """Whether there are no further releases."""
        released = self._state.released if self._rows is None else self._rows.made
        return released >= self._privatizer.mechanism.releases

    def add(self, actions: Array, rewards: Array) -> None:
        """Some more: actions (..., n, d), rewards (..., n)."""
        done = 0
        while done < rewards.shape[-1]:
            more = slice(done, done + self._PIECE - self._waiting)
            self._actions.append(actions[..., more, :])
            self._rewards.append(rewards[..., more])
            self._waiting += self._rewards[-1].shape[-1]
            done = more.stop
            if self._waiting == self._PIECE:
                self._take_in()

    def _take_in(self) -> None:
        if self._waiting:
            actions, rewards = np.concatenate(self._actions, axis=-2), np.concatenate(self._rewards, axis=-1)
            self._state = self._privatizer.record(self._state, actions, rewards)
            self._actions, self._rewards, self._waiting = [], [], 0

    def release(self, noise: SeededNoise, trust: Trust) -> Release | None:
        """What leaves now, of all records so far; None if too many are away."""
        self._take_in()
        if self._rows is not None:
            return self._rows.release(self._state.total, noise)
        self._state, release = synchronise(self._privatizer, self._state, noise, trust=trust)
        return release


class Live:
    """One estimator as it goes: what agents know, what they have recorded, what is on its way to them."""

    def __init__(self, estimator: Estimator, shape: tuple[int, int], rows: SecureRows | None = None) -> None:
        self.rule = estimator.rule
        self.public_rounds = frozenset(estimator.release_rounds)
        self.knowledge = self.rule.start(shape)
        self.batch = _Batch(estimator.privatizer, shape, rows) if estimator.privatizer else None
        self.arriving: deque[tuple[int, ReleasedSum]] = deque()
        self.asked = False

    def catch_up(self, now: int) -> None:
        """Absorb what arrives by the start of this round."""
        while self.arriving and self.arriving[0][0] <= now:
            self.knowledge = self.rule.absorb(self.knowledge, self.arriving.popleft()[1])

    def observe(self, actions: Array, rewards: Array) -> None:
        """Records of rounds in which it was used: actions (runs, agents, R, d), rewards (runs, agents, R)."""
        if self.batch is not None:
            self.batch.add(actions, rewards)
        if self.rule.acts_on_own_data:
            self.knowledge = self.rule.observe(self.knowledge, actions[:, :, 0], rewards[:, :, 0])

    def synchronise(self, plan: Plan, now: int, noise: SeededNoise) -> tuple[Release | None, list[int]]:
        """What leaves after acting in this round, if anything, and who asks for a synchronisation on a graph.

        There the request travels first, and is answered when the estimator has its next turn (Alg. 3, as its
        proof reads it); who is about to answer does not ask again.
        """
        if self.batch is None:
            return None, []
        asking, askers = self.rule.wants_sync(self.knowledge), list[int]()
        due = now in self.public_rounds
        if plan.topology is None:
            due = due or bool(asking.any())
        else:
            due = due or self.asked
            self.asked = bool(asking.any()) and not due
            askers = np.nonzero(asking[0])[0].tolist() if self.asked else []
        if not due or self.batch.spent:
            return None, askers
        return self.batch.release(noise, plan.trust), askers


def _live(plan: Plan, team: Team, shape: tuple[int, int], rows: SecureRows | None) -> list[Live]:
    """A team's estimators; where there are several seasons, such as go from one to the next."""
    if plan.seasons.plain:
        return [Live(estimator, shape, rows) for estimator in team.estimators]
    from feducb.simulation.seasons import SeasonalLive  # it is a `Live`

    return [SeasonalLive(plan, team, estimator, shape) for estimator in team.estimators]


class _Block:
    """Some runs of a team as they go: who comes, what is drawn, and what it came to so far."""

    def __init__(self, plan: Plan, team: Team, runs: range) -> None:
        streams = Streams(plan.seed)
        self.visits = plan.environment.open(streams, runs, team.agents)
        self.noise = SeededNoise(streams.noise(runs, team.agents, pooled=plan.trust.pooled))
        self.coins = streams.grid(runs, team.agents, Purpose.PLAY)
        shape, rows = (len(runs), len(team.agents)), rows_of(plan, team, runs.start)
        self.estimates = _live(plan, team, shape, rows)
        self.regret = np.zeros((len(runs), len(checkpoints(plan.horizon, plan.history))))
        self.released_at: list[int] = []
        self.requests: list[int] = []
        self.next_round = 1


def run_block(
    plan: Plan,
    runs: range,
    *,
    team: Team | None = None,
    progress: Callable[[int], None] = lambda steps: None,
    observer: Observer | None = None,
    piece: Piece = _UNKEPT,
) -> BlockResult:
    """Play the given runs of one team from the first round to the last.

    Args:
        plan: what to play.
        runs: which runs; one at a time where each has rounds of its own at which agents learn.
        team: which team; the first if not given.
        progress: told how many agent-steps were just done.
        observer: shown every step.
        piece: keeps what is done, and gives what was done before.
    """
    if plan.runs_differ and len(runs) > 1:
        raise ValueError("under the determinant trigger, and with absences, a block is one run")
    team = team or plan.teams[0]
    block: _Block = piece.load() or _Block(plan, team, runs)
    shape, estimates, groups = (len(runs), len(team.agents)), block.estimates, len(team.estimators)
    visits, regret, policy = block.visits, block.regret, plan.federation.policy
    points = checkpoints(plan.horizon, plan.history).tolist()
    one_round = 8 * len(runs) * len(team.agents) * plan.environment.arms * plan.problem.dim
    at_once = max(1, _ARRIVAL_BYTES // one_round)
    progress((block.next_round - 1) * len(runs) * len(team.agents))

    for first, contexts in _steps(plan, team, visits.arrive, block.next_round, at_once):
        rounds = contexts.means.shape[2]
        last = first + rounds - 1
        for estimate in estimates:
            estimate.catch_up(first)
        # Every agent acts (Alg. 1, l. 4–9), in round t by estimator t mod γ (Alg. 3, l. 4).
        coins = None  # one per round as long as any estimator is blind, whichever has its turn
        if policy.needs_coins or any(estimate.knowledge.belief is None for estimate in estimates):
            coins = np.array([[one.random(rounds) for one in row] for row in block.coins])
        turns = [
            (estimates[(first + offset) % groups], slice(offset, None, groups))
            for offset in range(min(groups, rounds))
        ]
        index = np.empty((*shape, rounds), dtype=np.int64)
        for estimate, own in turns:
            index[:, :, own], _ = policy.decide(
                estimate.knowledge.belief,
                contexts.actions[:, :, own],
                None if coins is None else coins[:, :, own],
            )
        chosen = contexts.chosen(index)
        rewards = visits.reward(chosen)
        assert contexts.best is not None
        lost = (contexts.best - chosen.means).mean(axis=1)
        for offset in range(rounds):
            regret[:, bisect_left(points, first + offset)] += lost[:, offset]

        # Every agent takes its record in (l. 10–11) …
        for estimate, own in turns:
            estimate.observe(chosen.actions[:, :, own], rewards[:, :, own])
        estimate = estimates[last % groups]

        # … and then, in a phase of its own, all synchronise if any asked for it (l. 12–21).
        release, askers = estimate.synchronise(plan, last, block.noise)
        block.requests += [team.agents[asker] for asker in askers]
        total = None
        if release is not None:
            total = add_up(release)
            block.released_at.append(last)
            estimate.arriving.append((last + plan.lag, total))
            estimate.catch_up(last + groups)  # what is here by its next turn need not wait for it

        if observer is not None:
            observer(Step(first, team, chosen, rewards, release, total, estimate.knowledge, visits.theta))
        progress(rounds * len(runs) * len(team.agents))
        block.next_round = last + 1
        if last % at_once == 0 and piece.due():  # no visitor has arrived who was not served
            piece.save(block)
    piece.save(block)
    return BlockResult(regret, (tuple(block.released_at),) * len(runs), tuple(block.requests))


def _steps(
    plan: Plan, team: Team, arrive: Callable[[int], Contexts], next_round: int, at_once: int
) -> Iterator[tuple[int, Contexts]]:
    """Visitors in order, cut wherever knowledge may change: after a release, or after each round."""
    every_round = any(estimator.rule.acts_on_own_data for estimator in team.estimators)
    starts = [season * plan.season_rounds for season in range(plan.seasons.count)]
    releases = {
        start + at for start in starts for estimator in team.estimators for at in estimator.release_rounds
    }
    # One estimator uses a sum γ rounds after its release, in the middle of its own turns.
    waits = {at + plan.lag - 1 for at in releases} if len(team.estimators) < plan.lag else set()
    cuts = releases | waits | set(starts)
    for start in range(next_round, plan.horizon + 1, at_once):
        stop = min(start + at_once, plan.horizon + 1)
        contexts = arrive(stop - start)
        first = start
        for current in range(start, stop):
            if every_round or current in cuts or current == stop - 1:
                yield first, contexts.part(first - start, current + 1 - start)
                first = current + 1
