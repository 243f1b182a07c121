"""The protocol around compiled kernels: epochs of rounds in between, releases and noise here.

The law is the reference's; the random numbers are not. What is different, and why that changes no law:

- Each estimator of each team is played by itself, over its own rounds: nothing it does touches another.
- Only sums over a team are kept, and one noise of the summed variance is added to them: agents' noises are
  independent Gaussians through the same mechanism, and nobody looks at a single agent's release.
- Everything lives in the frame where θ* = ‖θ*‖ e₁: no rotation changes the laws of arms, rewards and noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError
from feducb.models.play import Knowledge, OwnDataPlay, Rule
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import Privatizer, PrivatizerState
from feducb.protocol.estimators import Estimator
from feducb.protocol.synchronisation import add_up
from feducb.simulation.backends.backend import Kernels, OwnPlay, Stretch
from feducb.simulation.backends.foreign import foreign
from feducb.simulation.checkpoint import Checkpoint
from feducb.simulation.plan import Plan, Team
from feducb.simulation.reference import BlockResult, checkpoints
from feducb.system import single_threaded_blas
from feducb.types import Belief, ReleasedSum, Statistics, merge
from feducb.worlds.streams import Purpose, Streams

__all__ = ["MOST_ROUNDS", "KernelsBackend", "play_teams", "runs_at_once", "turns_in_all"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Progress = Callable[[int], None]

MOST_ROUNDS = 2**32 - 1  # what kernels count rounds with
_MOST_ENTRIES = 2**24  # of Gram matrices, one per run and agent, that a kernel may hold


class _Tell(Protocol):
    def __call__(self, steps: int, freeze: Callable[[], None] = ...) -> None: ...


@dataclass(frozen=True, slots=True)
class _Unit:
    """One estimator of one team: a federation on rounds of its own, which are counted from 1 here.

    Attributes:
        number: of the unit; no two share random numbers.
        team: who.
        estimator: how they play.
        rounds: the real rounds.
        base: what kernels add to its own rounds: no two units share random numbers.
        points: how many of its rounds lie up to each checkpoint.
        lag: own rounds from a release to its use.
    """

    number: int
    team: Team
    estimator: Estimator
    rounds: range
    base: int
    points: tuple[int, ...]
    lag: int

    @property
    def kernel_points(self) -> list[int]:
        """The checkpoints as kernels count; those between which it has no round are one."""
        return [self.base + point for point in sorted(set(self.points) - {0})]

    def stretch(self, runs: range, first: int) -> Stretch:
        """These runs from one of its own rounds on."""
        return Stretch(
            runs=runs,
            agents=len(self.team.agents),
            first_round=self.base + first,
            points=self.kernel_points,
        )

    def at_checkpoints(self, regret: Array) -> Array:
        """(runs, points) from (runs, kernel points): where several are one, the first has it."""
        spread = np.zeros((len(regret), len(self.points)))
        spread[:, [self.points.index(point) for point in sorted(set(self.points) - {0})]] = regret
        return spread

    def releases(self) -> list[int]:
        """Own rounds of its public releases."""
        return [self.rounds.index(at) + 1 for at in self.estimator.release_rounds]


class KernelsBackend(ABC):
    """A backend that leaves acting to compiled kernels.

    Attributes:
        defer: whether candidates that cannot be chosen are left undrawn; changes nothing but the time.
    """

    name: str

    def __init__(self, *, defer: bool = True) -> None:
        self.defer = defer

    @abstractmethod
    def missing(self, plan: Plan) -> str | None:
        """What this machine or these kernels lack for a plan; None if nothing."""

    @abstractmethod
    def kernels(self, plan: Plan, *, threads: int) -> Kernels:
        """Kernels for a plan."""

    def refusal(self, plan: Plan) -> str | None:
        """Why this plan cannot be played here; None if it can."""
        if (unknown := foreign(plan)) is not None:
            return unknown
        if plan.topology is not None and plan.determinant:
            return "the determinant trigger on a graph counts who asked, which only the reference does"
        if turns_in_all(plan) > MOST_ROUNDS:
            return "there are more rounds than 32 bits count"
        return self.missing(plan)

    def play(
        self, plan: Plan, *, threads: int, progress: Progress, checkpoint: Checkpoint | None
    ) -> list[BlockResult]:
        """All runs of each team.

        Raises:
            ConfigurationError: the plan is refused.
        """
        if (reason := self.refusal(plan)) is not None:
            raise ConfigurationError("backend", self.name, f"another one: {reason}")
        with single_threaded_blas():
            kernels = self.kernels(plan, threads=threads)
            return play_teams(plan, kernels, progress=progress, checkpoint=checkpoint)


def turns_in_all(plan: Plan) -> int:
    """How many rounds kernels count, over all units."""
    return len(plan.estimators) * -(-plan.horizon // len(plan.teams[0].estimators))


def runs_at_once(agents: int, dim: int) -> int:
    """How many runs of a team are played together; with many agents one by one."""
    return max(1, _MOST_ENTRIES // (agents * dim**2))


def _units(plan: Plan) -> list[list[_Unit]]:
    """What is played apart: by team, one unit per estimator."""
    points = checkpoints(plan.horizon).tolist()
    groups = len(plan.teams[0].estimators)
    longest = -(-plan.horizon // groups)
    units = []
    for team_number, team in enumerate(plan.teams):
        own = []
        for group, estimator in enumerate(team.estimators):
            number, rounds = team_number * groups + group, range(group or groups, plan.horizon + 1, groups)
            up_to = tuple(bisect_right(rounds, point) for point in points)
            lag = -(-plan.lag // groups)
            own.append(_Unit(number, team, estimator, rounds, number * longest, up_to, lag))
        units.append(own)
    return units


def play_teams(
    plan: Plan, kernels: Kernels, *, progress: Progress, checkpoint: Checkpoint | None
) -> list[BlockResult]:
    """All runs of each team."""
    results = []
    for units in _units(plan):
        at_once = runs_at_once(len(units[0].team.agents), plan.problem.dim)
        blocks = [range(first, min(first + at_once, plan.runs)) for first in range(0, plan.runs, at_once)]
        parts = [
            [_play(plan, unit, block, kernels, progress, checkpoint) for block in blocks] for unit in units
        ]
        regret = sum(np.concatenate([part.regret for part in unit]) for unit in parts)
        released = [
            tuple(sorted(at for unit in parts for at in _runs_of(unit)[run])) for run in range(plan.runs)
        ]
        results.append(BlockResult(np.asarray(regret) / len(units[0].team.agents), tuple(released)))
    return results


def _runs_of(blocks: list[_Played]) -> list[tuple[int, ...]]:
    return [rounds for block in blocks for rounds in block.release_rounds]


@dataclass(slots=True)
class _Played:
    """What a unit's runs came to so far.

    Attributes:
        regret: (runs, points), summed over agents.
        release_rounds: real rounds, one tuple per run.
        next_round: the next of its own rounds; one past the last when done.
        released: what agents know and have recorded (`ReleasedPlay` and uniform play).
        own: what kernels hold, and by run what was recorded and released (own-data play).
    """

    regret: Array
    release_rounds: list[tuple[int, ...]]
    next_round: int = 1
    released: _Released | None = None
    own: tuple[Any, list[_Out]] | None = None


@dataclass(slots=True)
class _Out:
    """The way out of a team: its pooled sums, the mechanism's memory, and the noise to come."""

    state: PrivatizerState
    noise: SeededNoise

    def release(self, privatizer: Privatizer) -> ReleasedSum:
        self.state, release = privatizer.release(self.state, self.noise)
        return add_up(release)

    def record(self, gram: Array, moment: Array) -> None:
        more = Statistics(gram[:, None], moment[:, None], 0)
        self.state = PrivatizerState(merge(self.state.total, more), self.state.released, self.state.memory)


@dataclass(slots=True)
class _Released:
    knowledge: Knowledge
    out: _Out | None
    arriving: deque[tuple[int, ReleasedSum]] = field(default_factory=deque)


def _pooled(privatizer: Privatizer) -> Privatizer:
    """For a team's sum: independent noises add their variances, shifts add up."""
    scale = float(np.linalg.norm(privatizer.noise_scale))
    shift = float(np.sum(privatizer.shift))
    return replace(privatizer, noise_scale=np.array([scale]), shift=np.array([shift]))


def _open_out(plan: Plan, unit: _Unit, runs: range, privatizer: Privatizer) -> _Out:
    streams = Streams(plan.seed)
    noise = SeededNoise([[streams.pooled(run, unit.number, Purpose.NOISE)] for run in runs])
    return _Out(privatizer.start((len(runs), 1)), noise)


def _play(
    plan: Plan,
    unit: _Unit,
    runs: range,
    kernels: Kernels,
    progress: Progress,
    checkpoint: Checkpoint | None,
) -> _Played:
    """One unit's runs, from where they were."""
    piece = f"unit-{unit.number}-runs-{runs.start}"
    played: _Played | None = checkpoint.load(piece) if checkpoint else None
    if played is None:
        points = len(unit.points)
        played = _Played(np.zeros((len(runs), points)), [() for _ in runs])
    agents = len(unit.team.agents)
    progress((played.next_round - 1) * len(runs) * agents)

    def tell(steps: int, freeze: Callable[[], None] = lambda: None) -> None:
        progress(steps)
        if checkpoint and checkpoint.due(piece):
            freeze()
            checkpoint.save(piece, played)

    if played.next_round <= len(unit.rounds):
        player = _play_own if isinstance(unit.estimator.rule, OwnDataPlay) else _play_released
        player(plan, unit, runs, kernels, played, tell)
        played.released = played.own = None
        played.next_round = len(unit.rounds) + 1
        if checkpoint:
            checkpoint.save(piece, played)
    return played


def _play_released(
    plan: Plan, unit: _Unit, runs: range, kernels: Kernels, played: _Played, tell: _Tell
) -> None:
    """Between releases the policy is fixed: `ReleasedPlay`, and uniform play."""
    rule: Rule = unit.estimator.rule
    privatizer = unit.estimator.privatizer and _pooled(unit.estimator.privatizer)
    agents = len(unit.team.agents)
    if played.released is None:
        out = _open_out(plan, unit, runs, privatizer) if privatizer else None
        played.released = _Released(rule.start((len(runs), 1)), out)
    now = played.released
    due = set(unit.releases())
    cuts = sorted(due | {at + unit.lag - 1 for at in due})
    while played.next_round <= len(unit.rounds):
        first = played.next_round
        while now.arriving and now.arriving[0][0] <= first:
            now.knowledge = rule.absorb(now.knowledge, now.arriving.popleft()[1])
        at_once = max(1, kernels.steps_at_once // (agents * len(runs)))
        next_cut = cuts[bisect_right(cuts, first - 1) :][:1]
        last = min(*next_cut, len(unit.rounds), first - 1 + at_once)
        sums = kernels.fixed(
            _of_runs(now.knowledge.belief, plan.exploration),
            unit.stretch(runs, first),
            last - first + 1,
        )
        played.regret += unit.at_checkpoints(sums.regret)
        if now.out is not None and privatizer is not None:
            now.out.record(sums.gram, sums.moment)
            if last in due:
                now.arriving.append((last + unit.lag, now.out.release(privatizer)))
                real = unit.rounds[last - 1]
                played.release_rounds = [(*rounds, real) for rounds in played.release_rounds]
        played.next_round = last + 1
        tell((last - first + 1) * agents * len(runs))


def _of_runs(belief: Belief | None, exploration: float) -> Belief | None:
    """A belief of runs × 1 agent as one of runs, widths scaled."""
    if belief is None:
        return None
    return Belief(
        theta=belief.theta[:, 0],
        inverse=belief.inverse[:, 0],
        ellipsoid_width=exploration * belief.ellipsoid_width[:, 0],
        euclidean_width=exploration * belief.euclidean_width[:, 0],
    )


def _play_own(plan: Plan, unit: _Unit, runs: range, kernels: Kernels, played: _Played, tell: _Tell) -> None:
    """Agents act on their own records at once: with a public schedule, a trigger, or neither."""
    rule = unit.estimator.rule
    assert isinstance(rule, OwnDataPlay)
    privatizer = unit.estimator.privatizer and _pooled(unit.estimator.privatizer)
    agents, horizon = len(unit.team.agents), len(unit.rounds)
    play: OwnPlay = kernels.own(rule, unit.stretch(runs, 1))
    outs: list[_Out] = []
    if played.own is not None:
        state, outs = played.own
        play.load(state)
    elif privatizer is not None:
        outs = [_open_out(plan, unit, range(run, run + 1), privatizer) for run in runs]
    due = unit.releases()
    while True:
        done = play.next_round - unit.base - 1
        stops = np.array([*due, horizon])
        stop = stops[np.minimum(np.searchsorted(stops, done, side="right"), len(stops) - 1)]
        most = max(1, kernels.steps_at_once // (agents * len(runs)))
        asked = play.advance(np.minimum(stop - done, most))
        after = play.next_round - unit.base - 1
        places = np.union1d(asked, np.flatnonzero(np.isin(after, due) & (after > done))).astype(np.int64)
        if privatizer is not None and len(places):
            _synchronise(unit, privatizer, play, outs, places, after, played)
        played.regret = unit.at_checkpoints(play.regret)
        played.next_round = int(after.min()) + 1
        if (after == horizon).all():
            tell(int((after - done).sum()) * agents)
            return

        def freeze() -> None:
            played.own = (play.dump(), outs)

        tell(int((after - done).sum()) * agents, freeze)


def _synchronise(
    unit: _Unit,
    privatizer: Privatizer,
    play: OwnPlay,
    outs: list[_Out],
    places: Ints,
    after: Ints,
    played: _Played,
) -> None:
    """Release for some of the runs: each has its own numbers and its own rounds."""
    open_places = np.array(
        [place for place in places if outs[place].state.released < privatizer.mechanism.releases],
        dtype=np.int64,
    )
    if not len(open_places):
        return
    gram, moment = play.pending(open_places)
    totals = []
    for position, place in enumerate(open_places):
        outs[place].record(gram[position : position + 1], moment[position : position + 1])
        totals.append(outs[place].release(privatizer))
        played.release_rounds[place] += (unit.rounds[int(after[place]) - 1],)
    play.restart(
        open_places,
        np.concatenate([total.gram for total in totals]),
        np.concatenate([total.moment for total in totals]),
    )
