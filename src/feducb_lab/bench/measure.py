"""Timing: all in one process, in turn, several rounds; medians, and ratios within a round.

Two machines, or two minutes on one, are not comparable; two blocks that follow each other are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from feducb.config import Problem
from feducb.worlds.streams import Streams
from feducb.worlds.synthetic import PaperEnvironment
from feducb.worlds.world import Chosen
from feducb_lab.bench.backends import Backend
from feducb_lab.bench.rivals import Peer, available

__all__ = ["Effort", "Row", "Simulated", "measure"]

Array = NDArray[np.float64]

_VISITORS = 64  # of one block; then they come again
_PRACTICE = 150  # steps before anything is timed: the first decisions are all ties


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """What is timed, and for how long."""

    arms: int = 100  # K
    rounds: int = 9  # how often everything is timed
    seconds: float = 0.02  # length of a timed block
    steps: int = 50_000  # agent-steps of a timed simulation
    ceiling_size: int = 1024  # n of the n × n matrices


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One peer; microseconds, medians over the rounds. Ratios are against the first peer, within a round."""

    name: str
    package: str
    version: str
    what: str  # the algorithm, and why it is the closest
    sees_candidates: bool  # reads all K × d features, or one context of d
    reads_features: bool  # deciding includes reading them
    prepare: float  # turning an array of features into what the library takes
    decide: float  # one decision from that, one call
    decide_range: tuple[float, float]  # of the rounds
    step: float  # one decision and learning from it
    step_range: tuple[float, float]
    batched: float | None  # a decision of many in one call, features in an array; None if it cannot
    decide_ratio: float
    call_ratio: float  # from the array of features on: prepare and decide
    step_ratio: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulated:
    """Whole agent-steps, visitors and rewards drawn too; microseconds, against our first backend."""

    name: str  # of our backend, or of a peer
    step: float  # median of the rounds; a peer's is its own step and the environment's
    ratio: float  # median of the rounds' ratios


class _Player:
    """A peer that has practised, and visitors in its own form."""

    def __init__(self, peer: type[Peer], contexts: Array, means: Array, coins: Array) -> None:
        self.peer = peer()
        self.contexts = contexts
        self.peer.start(contexts.shape[2], contexts.shape[1])
        self.means: list[list[float]] = means.tolist()
        self.coins: list[float] = coins.tolist()
        self.prepared = [self.peer.prepare(actions) for actions in contexts]
        self.steps(_PRACTICE)

    def prepare(self, count: int) -> None:
        prepare, discard, contexts = self.peer.prepare, self.peer.discard, self.contexts
        for i in range(count):
            discard(prepare(contexts[i % _VISITORS]))

    def decide(self, count: int) -> None:
        decide, prepared = self.peer.decide, self.prepared
        for i in range(count):
            decide(prepared[i % _VISITORS])

    def steps(self, count: int) -> None:
        peer, all_prepared, means, coins = self.peer, self.prepared, self.means, self.coins
        for i in range(count):
            visitor = i % _VISITORS
            prepared = all_prepared[visitor]
            index = peer.decide(prepared)
            peer.learn(prepared, index, float(coins[visitor] < means[visitor][index]))

    def batches(self, count: int) -> None:
        for _ in range(-(-count // _VISITORS)):
            self.peer.decide_many(self.contexts)


class _Clock:
    """Times blocks of about the same length, whatever one call takes."""

    def __init__(self, block: Callable[[int], None], seconds: float, least: int) -> None:
        started = time.perf_counter()
        block(least)
        once = (time.perf_counter() - started) / least
        self._count = least * max(1, int(seconds / (once * least)))
        self._block = block
        self.times: list[float] = []

    def tick(self) -> None:
        started = time.perf_counter()
        self._block(self._count)
        self.times.append(1e6 * (time.perf_counter() - started) / self._count)


def measure(
    peers: Sequence[type[Peer]],
    backends: Sequence[tuple[str, Backend]],
    dim: int,
    effort: Effort,
) -> tuple[list[Row], list[Simulated]]:
    """Time peers that are available on the same visitors, and our simulations beside them.

    The first peer and the first backend are those that the others are compared with. A peer's agent-step is
    its own decision and learning, and drawing one visitor and one reward with our environment; turning
    features into the library's form is left out of it.
    """
    arms, seconds = effort.arms, effort.seconds
    visitors = _visitors(dim, arms)
    clocks: list[dict[str, _Clock]] = []
    for peer in peers:
        player = _Player(peer, *visitors)
        blocks = {"prepare": player.prepare, "decide": player.decide, "steps": player.steps}
        if peer.batches:
            blocks["batches"] = player.batches
        least = {"batches": _VISITORS}
        clocks.append({name: _Clock(block, seconds, least.get(name, 3)) for name, block in blocks.items()})
    drawing = _Clock(lambda count: _draw(dim, arms, count), seconds, 64)
    simulations: list[list[float]] = [[] for _ in backends]
    for _ in range(effort.rounds):
        for kind in ("prepare", "decide", "batches", "steps"):
            for of_peer in clocks:
                if kind in of_peer:
                    of_peer[kind].tick()
        drawing.tick()
        for (_, run), times in zip(backends, simulations, strict=True):
            times.append(1e6 / run(dim, arms, effort.steps))
    rows = [_row(peer, of_peer, clocks[0]) for peer, of_peer in zip(peers, clocks, strict=True)]
    if not backends:
        return rows, []
    whole = [(name, times) for (name, _), times in zip(backends, simulations, strict=True)]
    whole.append(("environment alone", drawing.times))
    for peer, of_peer in zip(peers, clocks, strict=True):
        whole.append((peer.name, _sums(of_peer["steps"].times, drawing.times)))
    return rows, [
        Simulated(name=name, step=median(times), ratio=_ratio(times, simulations[0])) for name, times in whole
    ]


def _row(peer: type[Peer], own: dict[str, _Clock], first: dict[str, _Clock]) -> Row:
    about = ("name", "package", "what", "sees_candidates", "reads_features")
    times = {kind: clock.times for kind, clock in own.items()}
    calls = [_sums(clocks["prepare"].times, clocks["decide"].times) for clocks in (own, first)]
    return Row(
        **{name: getattr(peer, name) for name in about},
        version=str(available(peer)[0]),
        prepare=median(times["prepare"]),
        decide=median(times["decide"]),
        decide_range=(min(times["decide"]), max(times["decide"])),
        step=median(times["steps"]),
        step_range=(min(times["steps"]), max(times["steps"])),
        batched=median(times["batches"]) if "batches" in times else None,
        decide_ratio=_ratio(times["decide"], first["decide"].times),
        call_ratio=_ratio(*calls),
        step_ratio=_ratio(times["steps"], first["steps"].times),
    )


def _sums(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _ratio(times: Sequence[float], of_first: Sequence[float]) -> float:
    """The median of the rounds' ratios."""
    return median(one / first for one, first in zip(times, of_first, strict=True))


def _environment(dim: int, arms: int) -> PaperEnvironment:
    return PaperEnvironment(problem=Problem(dim=dim), arms=arms)


def _visitors(dim: int, arms: int) -> tuple[Array, Array, Array]:
    """Candidates (R, K, d) in random order, their mean rewards (R, K), and coins (R,)."""
    contexts = _environment(dim, arms).open(Streams(0), range(1), range(1)).arrive(_VISITORS)
    rng = np.random.default_rng(0)
    order = rng.permuted(np.tile(np.arange(arms), (_VISITORS, 1)), axis=1)
    actions = np.take_along_axis(contexts.actions[0, 0], order[..., None], axis=1)
    return actions, np.take_along_axis(contexts.means[0, 0], order, axis=1), rng.random(_VISITORS)


def _draw(dim: int, arms: int, count: int) -> None:
    """Visitors and rewards of one agent, as many at once as stay in the cache."""
    visits = _environment(dim, arms).open(Streams(0), range(1), range(1))
    at_once = max(1, 2**21 // (8 * arms * dim))
    for first in range(0, count, at_once):
        size = min(at_once, count - first)
        contexts = visits.arrive(size)
        none = np.zeros((1, 1, size), dtype=np.int64)
        visits.reward(Chosen(none, contexts.actions[..., 0, :], contexts.means[..., 0]))
