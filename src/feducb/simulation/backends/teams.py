"""The protocol around compiled kernels: epochs of rounds in between, releases and noise here.

The law is the reference's; the random numbers are not. What is different, and why that changes no law:

- Each estimator of each team is played by itself, over its own rounds: nothing it does touches another.
- Only sums over a team are kept, and one noise of the summed variance is added to them: agents' noises are
  independent Gaussians through the same mechanism, and nobody looks at a single agent's release.
- Everything lives in the frame where θ* = ‖θ*‖ e₁: no rotation changes the laws of arms, rewards and noise.
  Where agents differ each of them acts in a frame of its own, out of which its sums are turned (`_Frames`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from feducb.errors import ConfigurationError
from feducb.models.play import AlonePlay, JointPlay, Knowledge, OwnDataPlay
from feducb.privacy.noise import SeededNoise
from feducb.privacy.privatizer import Privatizer, PrivatizerState
from feducb.protocol.estimators import Estimator
from feducb.protocol.synchronisation import add_up, pooled
from feducb.simulation.absences import SecureRows, rows_of
from feducb.simulation.backends.backend import Ints, Kernels, OwnPlay, Stretch, Sums
from feducb.simulation.backends.foreign import foreign
from feducb.simulation.checkpoint import Checkpoint, Piece
from feducb.simulation.plan import Plan, Team
from feducb.simulation.reference import BlockResult, checkpoints
from feducb.system import single_threaded_blas
from feducb.types import Array, Belief, ReleasedSum, Statistics, merge
from feducb.worlds.streams import Purpose, Streams
from feducb.worlds.synthetic import PaperEnvironment, deviations

__all__ = ["MOST_ROUNDS", "KernelsBackend", "play_teams", "runs_at_once", "turns_in_all"]

Progress = Callable[[int], None]

MOST_ROUNDS = 2**32 - 1  # what kernels count rounds with
_MOST_ENTRIES = 2**24  # of Gram matrices, one per run and agent, that a kernel may hold


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

    def stretch(self, runs: range, first: int, *, apart: bool = False) -> Stretch:
        """These runs from one of its own rounds on; ``apart``, every agent is a run of one to the kernels."""
        agents = len(self.team.agents)
        if apart:
            runs, agents = range(runs.start * agents, runs.stop * agents), 1
        return Stretch(runs=runs, agents=agents, first_round=self.base + first, points=self.kernel_points)

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
        return None

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
    points = checkpoints(plan.horizon, plan.history).tolist()
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
        agents = len(units[0].team.agents)
        at_once = 1 if plan.absence else runs_at_once(agents, plan.problem.dim)
        regret = np.zeros((plan.runs, len(units[0].points)))
        released: list[tuple[int, ...]] = [()] * plan.runs
        for unit in units:
            for first in range(0, plan.runs, at_once):
                runs = range(plan.runs)[first : first + at_once]
                piece = Piece(checkpoint, f"unit-{unit.number}-runs-{first}")
                played = _play(plan, unit, runs, kernels, progress, piece)
                regret[runs.start : runs.stop] += played.regret
                for run, rounds in zip(runs, played.release_rounds, strict=True):
                    released[run] += rounds
        results.append(BlockResult(regret / agents, tuple(tuple(sorted(rounds)) for rounds in released)))
    return results


@dataclass(slots=True)
class _Out:
    """The way out of a team: its sums, the mechanism's memory, and the noise to come.

    Sums are those of all agents together, or of each where one of them may be away.
    """

    privatizer: Privatizer
    state: PrivatizerState
    noise: SeededNoise
    rows: SecureRows | None

    @property
    def spent(self) -> bool:
        """Whether there are no further releases."""
        return self.state.released >= self.privatizer.mechanism.releases

    def release(self) -> ReleasedSum | None:
        """What leaves now; None if too many are away."""
        if self.rows is not None:
            opened = self.rows.release(self.state.total, self.noise)
            return None if opened is None else add_up(opened)
        self.state, release = self.privatizer.release(self.state, self.noise)
        return add_up(release)

    def record(self, gram: Array, moment: Array) -> None:
        held = self.state.total
        runs, kept, dim = held.moment.shape  # of each agent, or of all together
        grams, moments = gram.reshape(runs, kept, -1, dim, dim), moment.reshape(runs, kept, -1, dim)
        more = Statistics(grams.sum(axis=2), moments.sum(axis=2), 0)
        self.state = PrivatizerState(merge(held, more), self.state.released, self.state.memory)


@dataclass(slots=True)
class _Played:
    """What a unit's runs came to so far, and what they need to go on.

    Attributes:
        regret: (runs, points), summed over agents.
        release_rounds: real rounds, one tuple per run.
        next_round: the next of its own rounds; one past the last when done.
        outs: one for all runs, or in own-data play one per run; none where nothing leaves.
        knowledge: what agents know (`ReleasedPlay` and uniform play).
        arriving: sums on their way to them, and from which round on they are used.
        own: the kernels' play (own-data play).
        held: what it holds, where it is kept.
    """

    regret: Array
    release_rounds: list[tuple[int, ...]]
    next_round: int = 1
    outs: list[_Out] = field(default_factory=list)
    knowledge: Knowledge | None = None
    arriving: deque[tuple[int, ReleasedSum]] = field(default_factory=deque)
    own: OwnPlay | None = None
    held: Any = None

    def frozen(self) -> _Played:
        """The same, to be kept."""
        return self if self.own is None else replace(self, own=None, held=self.own.dump())


def _open_outs(plan: Plan, unit: _Unit, blocks: Sequence[range]) -> list[_Out]:
    """One for each block of runs."""
    if unit.estimator.privatizer is None:
        return []
    privatizer, streams = pooled(unit.estimator.privatizer), Streams(plan.seed)
    kept = len(unit.team.agents) if plan.absence else 1
    return [
        _Out(
            privatizer,
            privatizer.start((len(runs), kept)),
            SeededNoise([[streams.pooled(run, unit.number, Purpose.NOISE)] for run in runs]),
            rows_of(plan, unit.team, runs.start),
        )
        for runs in blocks
    ]


def _play(
    plan: Plan, unit: _Unit, runs: range, kernels: Kernels, progress: Progress, piece: Piece
) -> _Played:
    """One unit's runs, from where they were."""
    played: _Played = piece.load() or _Played(np.zeros((len(runs), len(unit.points))), [()] * len(runs))
    progress((played.next_round - 1) * len(runs) * len(unit.team.agents))
    if played.next_round <= len(unit.rounds):
        advance = _PLAYS.get(type(unit.estimator.rule), _play_released)
        for steps in advance(plan, unit, runs, kernels, played):
            progress(steps)
            if piece.due():
                piece.save(played.frozen())
        played = _Played(played.regret, played.release_rounds, len(unit.rounds) + 1)
        piece.save(played)
    return played


def _play_released(plan: Plan, unit: _Unit, runs: range, kernels: Kernels, played: _Played) -> Iterator[int]:
    """Between releases the policy is fixed: `ReleasedPlay`, and uniform play.

    Yields:
        Agent-steps that were just done.
    """
    rule, agents, frames = unit.estimator.rule, len(unit.team.agents), _Frames.of(plan, unit, runs)
    apart = plan.absence > 0.0 or frames is not None
    if played.knowledge is None:
        played.knowledge, played.outs = rule.start((len(runs), 1)), _open_outs(plan, unit, [runs])
    due = set(unit.releases())
    cuts = sorted(due | {at + unit.lag - 1 for at in due})
    at_once = _rounds_at_once(plan, kernels, agents * len(runs))
    while played.next_round <= len(unit.rounds):
        first = played.next_round
        while played.arriving and played.arriving[0][0] <= first:
            played.knowledge = rule.absorb(played.knowledge, played.arriving.popleft()[1])
        next_cut = cuts[bisect_right(cuts, first - 1) :][:1]
        last = min(*next_cut, len(unit.rounds), first - 1 + at_once)
        belief = _of_runs(played.knowledge.belief, plan.exploration, agents if apart else 1)
        sums = _fixed(kernels, frames, belief, unit.stretch(runs, first, apart=apart), last - first + 1)
        played.regret += unit.at_checkpoints(_by_run(sums.regret, runs))
        for out in played.outs:
            out.record(sums.gram, sums.moment)
            if last in due and (total := out.release()) is not None:
                played.arriving.append((last + unit.lag, total))
                real = unit.rounds[last - 1]
                played.release_rounds = [(*rounds, real) for rounds in played.release_rounds]
        played.next_round = last + 1
        yield (last - first + 1) * agents * len(runs)


def _play_alone(plan: Plan, unit: _Unit, runs: range, kernels: Kernels, played: _Played) -> Iterator[int]:
    """Every agent of every run is a run of one to the kernels: between two readings its policy is fixed.

    Yields:
        Agent-steps that were just done.
    """
    rule, agents = unit.estimator.rule, len(unit.team.agents)
    assert isinstance(rule, AlonePlay)
    held = played.knowledge or rule.start((len(runs) * agents, 1))
    at_once = _rounds_at_once(plan, kernels, len(runs) * agents)
    while played.next_round <= len(unit.rounds):
        first = last = played.next_round
        while last < min(len(unit.rounds), first - 1 + at_once) and not rule.reads_at(last):
            last += 1
        belief = _of_runs(held.belief, plan.exploration)
        sums = kernels.fixed(belief, unit.stretch(runs, first, apart=True), last - first + 1)
        played.regret += unit.at_checkpoints(_by_run(sums.regret, runs))
        more = (sums.gram[:, None], sums.moment[:, None], last - first + 1, sums.squares[:, None])
        held = rule.take_in(held, Statistics(*more))
        played.knowledge, played.next_round = held, last + 1
        yield (last - first + 1) * len(runs) * agents


def _play_joint(plan: Plan, unit: _Unit, runs: range, kernels: Kernels, played: _Played) -> Iterator[int]:
    """Until the last release as `_play_released`, then as `_play_alone`: sums of each agent are kept.

    Yields:
        Agent-steps that were just done.
    """
    rule, agents, frames = unit.estimator.rule, len(unit.team.agents), _Frames.of(plan, unit, runs)
    assert isinstance(rule, JointPlay)
    if played.knowledge is None:
        played.knowledge, played.outs = rule.start((len(runs), agents)), _open_outs(plan, unit, [runs])
    due = set(unit.releases())
    at_once = _rounds_at_once(plan, kernels, agents * len(runs))
    shape, dim = (len(runs), agents), plan.problem.dim
    while played.next_round <= len(unit.rounds):
        first = last = played.next_round
        while last < min(len(unit.rounds), first - 1 + at_once) and not (last in due or rule.reads_at(last)):
            last += 1
        belief = _of_each(played.knowledge.belief, plan.exploration, shape)
        sums = _fixed(kernels, frames, belief, unit.stretch(runs, first, apart=True), last - first + 1)
        played.regret += unit.at_checkpoints(_by_run(sums.regret, runs))
        gram, moment = sums.gram.reshape(*shape, dim, dim), sums.moment.reshape(*shape, dim)
        more = Statistics(gram, moment, last - first + 1, sums.squares.reshape(shape))
        knowledge = rule.take_in(played.knowledge, more)
        (out,) = played.outs
        if not out.spent:
            out.record(gram, moment)
        if last in due:
            total = out.release()
            assert total is not None  # nobody is away in joint play
            knowledge = rule.absorb(knowledge, total)
            played.release_rounds = [(*rounds, unit.rounds[last - 1]) for rounds in played.release_rounds]
        played.knowledge, played.next_round = knowledge, last + 1
        yield (last - first + 1) * agents * len(runs)


@dataclass(frozen=True, slots=True)
class _Frames:
    """Where agents differ: mirrors (n, d, d) that swap the first axis and an agent's θ*/‖θ*‖."""

    mirrors: Array

    @classmethod
    def of(cls, plan: Plan, unit: _Unit, runs: range) -> _Frames | None:
        """None where agents are alike: then one frame is everybody's."""
        world, dim = plan.environment, plan.problem.dim
        assert isinstance(world, PaperEnvironment)
        if not world.heterogeneity:
            return None
        common = np.broadcast_to(np.eye(dim)[0], (len(runs), dim))
        units = deviations(Streams(plan.seed), runs, unit.team.agents, common, world.heterogeneity)
        across = (common[:, None] - units).reshape(-1, dim)
        across /= np.linalg.norm(across, axis=-1, keepdims=True)
        return cls(np.eye(dim) - 2.0 * across[:, :, None] * across[:, None, :])

    def into(self, belief: Belief) -> Belief:
        """As each agent sees it."""
        return replace(
            belief,
            theta=(self.mirrors @ belief.theta[..., None])[..., 0],
            inverse=self.mirrors @ belief.inverse @ self.mirrors,
        )

    def out_of(self, sums: Sums) -> Sums:
        """As all see them."""
        return replace(
            sums,
            gram=self.mirrors @ sums.gram @ self.mirrors,
            moment=(self.mirrors @ sums.moment[..., None])[..., 0],
        )


def _fixed(
    kernels: Kernels, frames: _Frames | None, belief: Belief | None, stretch: Stretch, rounds: int
) -> Sums:
    """`Kernels.fixed`, turned where agents differ."""
    if frames is None:
        return kernels.fixed(belief, stretch, rounds)
    return frames.out_of(kernels.fixed(belief and frames.into(belief), stretch, rounds))


def _rounds_at_once(plan: Plan, kernels: Kernels, players: int) -> int:
    """What a call takes a few seconds for: fewer rounds where a step is more work."""
    return max(1, int(kernels.work_at_once / (plan.environment.arms * plan.problem.dim)) // players)


def _by_run(regret: Array, runs: range) -> Array:
    """(runs, points), summed over agents, also where each was a run of one to the kernels."""
    return np.asarray(regret.reshape(len(runs), -1, regret.shape[-1]).sum(axis=1))


def _of_each(belief: Belief | None, exploration: float, shape: tuple[int, int]) -> Belief | None:
    """A belief of runs × agents, or one that a run's agents share, as one of runs of one."""
    if belief is None:
        return None
    parts = {one.name: getattr(belief, one.name) for one in fields(Belief)}
    spread = {
        name: np.broadcast_to(part, (*shape, *part.shape[2:])).reshape(-1, 1, *part.shape[2:])
        for name, part in parts.items()
        if part is not None
    }
    return _of_runs(Belief(**spread), exploration)


def _of_runs(belief: Belief | None, exploration: float, times: int = 1) -> Belief | None:
    """A belief of runs × 1 agent as one of runs, each so many times, widths scaled."""
    if belief is None:
        return None
    parts = {
        "theta": belief.centre(exploration),
        "inverse": belief.inverse,
        "ellipsoid_width": exploration * belief.ellipsoid_width,
        "euclidean_width": exploration * belief.euclidean_width,
    }
    return Belief(**{name: np.repeat(part[:, 0], times, axis=0) for name, part in parts.items()})


def _play_own(plan: Plan, unit: _Unit, runs: range, kernels: Kernels, played: _Played) -> Iterator[int]:
    """Agents act on their own records at once: with a public schedule, a trigger, or neither.

    Yields:
        Agent-steps that were just done.
    """
    rule = unit.estimator.rule
    assert isinstance(rule, OwnDataPlay)
    agents, horizon, due = len(unit.team.agents), len(unit.rounds), unit.releases()
    play = played.own = kernels.own(rule, unit.stretch(runs, 1))
    if played.held is not None:
        play.load(played.held)
    else:
        played.outs = _open_outs(plan, unit, [range(run, run + 1) for run in runs])
    stops = np.array([*due, horizon])
    at_once = _rounds_at_once(plan, kernels, agents * len(runs))
    while played.next_round <= horizon:
        done = play.next_round - unit.base - 1
        stop = stops[np.minimum(np.searchsorted(stops, done, side="right"), len(stops) - 1)]
        asked = play.advance(np.minimum(stop - done, at_once))
        after = play.next_round - unit.base - 1
        places = np.union1d(asked, np.flatnonzero(np.isin(after, due) & (after > done))).astype(np.int64)
        if played.outs and len(places):
            _synchronise(unit, play, places, after, played)
        played.regret = unit.at_checkpoints(play.regret)
        played.next_round = int(after.min()) + 1
        yield int((after - done).sum()) * agents


def _synchronise(unit: _Unit, play: OwnPlay, places: Ints, after: Ints, played: _Played) -> None:
    """Release for some of the runs: each has its own numbers and its own rounds."""
    places = np.array([place for place in places if not played.outs[place].spent], dtype=np.int64)
    if not len(places):
        return
    totals = []
    for place, gram, moment in zip(places, *play.pending(places), strict=True):
        played.outs[place].record(gram[None], moment[None])
        total = played.outs[place].release()
        assert total is not None  # nobody is away in own-data play
        totals.append(total)
        played.release_rounds[place] += (unit.rounds[int(after[place]) - 1],)
    grams, moments = [total.gram for total in totals], [total.moment for total in totals]
    play.restart(places, np.concatenate(grams), np.concatenate(moments))


_PLAYS = {OwnDataPlay: _play_own, AlonePlay: _play_alone, JointPlay: _play_joint}
