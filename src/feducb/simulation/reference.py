"""The readable simulation, to be read beside Algorithm 1 and to check every faster one against.

All agents of a block of runs advance together, in numpy, with leading axes (runs, agents). Memory does not
depend on the horizon: visitors arrive a few rounds at a time and are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.agent import Knowledge, decide
from feducb.environments.base import Chosen, Contexts
from feducb.privacy.noise import SeededNoise
from feducb.protocol.controller import synchronise
from feducb.protocol.messages import ReleasedSum
from feducb.simulation.plan import Plan
from feducb.streams import Purpose, Streams

__all__ = ["BlockResult", "Observer", "Step", "checkpoints", "run_block"]

Array = NDArray[np.float64]

_ARRIVAL_BYTES = 2**21  # visitors held at once: few enough to stay in cache
_CURVE_POINTS = 200
_RECORDS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Step:
    """What happened in some rounds; handed to an observer and then forgotten.

    Attributes:
        first_round: the first of the rounds, counted from 1.
        chosen: the choices.
        rewards: (runs, agents, R).
        total: the sum released at the end of the last of the rounds, if one was.
        knowledge: what agents know after it.
        theta: (runs, d), the truth.
    """

    first_round: int
    chosen: Chosen
    rewards: Array
    total: ReleasedSum | None
    knowledge: Knowledge
    theta: Array


Observer = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class BlockResult:
    """What a block of runs came to.

    Attributes:
        regret: (runs, points), per-agent regret in the rounds up to each checkpoint and after the last.
        release_rounds: the rounds at which releases took place, one tuple a run.
    """

    regret: Array
    release_rounds: tuple[tuple[int, ...], ...]


def checkpoints(horizon: int) -> NDArray[np.int64]:
    """Rounds at which the regret curve is read: up to 200, evenly spread, the last one T."""
    points = min(horizon, _CURVE_POINTS)
    return np.unique(np.round(np.linspace(horizon / points, horizon, points)).astype(np.int64))


def run_block(
    plan: Plan,
    runs: range,
    *,
    progress: Callable[[int], None] = lambda steps: None,
    observer: Observer | None = None,
) -> BlockResult:
    """Play the given runs from the first round to the last.

    Args:
        plan: what to play.
        runs: which runs; under the determinant trigger one at a time, since each has its own sync rounds.
        progress: told how many agent-steps were just done.
        observer: shown every step.
    """
    if plan.determinant and len(runs) > 1:
        raise ValueError("under the determinant trigger a block is one run")
    streams, shape = Streams(plan.seed), (len(runs), plan.agents)
    visits = plan.environment.open(streams, runs, plan.agents)
    noise = SeededNoise(
        streams.grid(runs, plan.agents, Purpose.NOISE)
        if plan.trust == "nobody"
        else [[streams.shared(run, Purpose.NOISE)] for run in runs]
    )
    play = streams.grid(runs, plan.agents, Purpose.PLAY)
    rule, privatizer = plan.rule, plan.privatizer
    knowledge = rule.start(shape)
    pending = privatizer.start(shape) if privatizer else None
    points = checkpoints(plan.horizon).tolist()
    point, regret = 0, np.zeros((len(runs), len(points)))
    records: list[tuple[Array, Array]] = []
    public_rounds, released_at = frozenset(plan.release_rounds), list[int]()

    for first, contexts in _steps(plan, visits.arrive, shape):
        rounds = contexts.means.shape[2]
        last = first + rounds - 1
        # Every agent acts (Alg. 1, l. 4–9).
        coins = None
        if knowledge.belief is None:
            coins = np.array([[one.random(rounds) for one in row] for row in play])
        index = decide(knowledge, contexts.actions, exploration=plan.exploration, coins=coins)
        chosen = contexts.chosen(index)
        rewards = visits.reward(chosen)
        assert contexts.best is not None
        lost = (contexts.best - chosen.means).sum(axis=1) / plan.agents
        for offset in range(rounds):
            point += points[point] < first + offset
            regret[:, point] += lost[:, offset]

        # Every agent takes its record in (l. 10–11) …
        if privatizer is not None:
            records.append((chosen.actions, rewards))
        if rule.acts_on_own_data:
            knowledge = rule.observe(knowledge, chosen.actions[:, :, 0], rewards[:, :, 0])

        # … and then, in a phase of its own, all synchronise if any asked for it (l. 12–21).
        total = None
        if privatizer is not None and pending is not None:
            due = last in public_rounds or rule.wants_sync(knowledge)
            if due or rounds > 1 or len(records) >= _RECORDS_AT_ONCE:  # one by one would be slow
                actions, paid = (np.concatenate(part, axis=2) for part in zip(*records, strict=True))
                pending = privatizer.record(pending, actions, paid)
                records.clear()
            if due and pending.released < privatizer.mechanism.releases:
                pending, total = synchronise(privatizer, pending, noise, trust=plan.trust)
                knowledge = rule.absorb(knowledge, total)
                released_at.append(last)

        if observer is not None:
            observer(Step(first, chosen, rewards, total, knowledge, visits.theta))
        progress(rounds * len(runs) * plan.agents)
    return BlockResult(regret, (tuple(released_at),) * len(runs))


def _steps(
    plan: Plan, arrive: Callable[[int], Contexts], shape: tuple[int, int]
) -> Iterator[tuple[int, Contexts]]:
    """Visitors in order, cut wherever knowledge may change: after a release, or after each round."""
    problem = plan.environment.problem
    one_round = 8 * shape[0] * shape[1] * plan.environment.arms * problem.dim
    at_once = max(1, _ARRIVAL_BYTES // one_round)
    cuts = set(plan.release_rounds)
    for start in range(1, plan.horizon + 1, at_once):
        stop = min(start + at_once, plan.horizon + 1)
        contexts = arrive(stop - start)
        first = start
        for current in range(start, stop):
            if plan.rule.acts_on_own_data or current in cuts or current == stop - 1:
                yield first, contexts.part(first - start, current + 1 - start)
                first = current + 1
