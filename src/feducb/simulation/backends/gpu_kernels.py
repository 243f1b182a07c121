"""The CUDA kernels of ``kernels.cu`` as Python calls: numpy arrays in, numpy arrays out.

Everything lives in the frame where θ* = ‖θ*‖ e₁; the laws do not change under rotations, so beliefs, sums and
noise can be made and used in that frame as they are. CuPy is imported when the first kernels are made.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.models.play import OwnDataPlay
from feducb.simulation.backends.backend import Ints, OwnDataSettings, Stretch, Sums
from feducb.types import Array, Belief
from feducb.worlds.synthetic import PaperEnvironment

__all__ = [
    "LARGEST_ARMS",
    "LARGEST_DIM",
    "Arrowhead",
    "GpuKernels",
    "OwnDataRuns",
    "arrowhead",
    "missing_gpu",
    "others_bound",
]

LARGEST_DIM = 128
LARGEST_ARMS = 2**20
_MOST_STEPS = 2**34  # of one run in one call: what 64-bit sums hold with room to spare
# Sums are whole multiples of 1/unit: integers add up to the same in whatever order blocks finish. As in
# kernels.cu.
_SUM_UNIT, _REGRET_UNIT = 2.0**28, 2.0**26
_NEVER = 2**32 - 1
_FILL = 2**16  # threads that fill a GPU
# Any multiplier above β²λ_max gives a valid bound; the grid only decides how tight it is.
_MULTIPLIERS: Array = np.geomspace(1e-6, 1e3, 91)


def missing_gpu() -> str | None:
    """Why the kernels cannot run here, or None if they can."""
    try:
        cupy: Any = importlib.import_module("cupy")
    except ImportError:
        return "CuPy is not installed"
    try:
        return None if cupy.cuda.runtime.getDeviceCount() else "there is no CUDA device"
    except Exception as error:  # CuPy raises its own types, which need CuPy to be named
        return f"CUDA does not answer: {error}"


def others_bound(belief: Belief, environment: PaperEnvironment) -> Array:
    """(runs,), a score that no arm but the best can exceed, whatever is drawn.

    An arm is x = (c, r) with c in the others' band over ‖θ*‖ and ‖r‖ ≤ ρ(c) = √(L² − c²). With B = V^(−1/2),

        score ≤ c (θ̂₁ + β√a + b‖V⁻¹e₁‖) + ρ(c) (max over ‖v‖ ≤ 1 of ‖θ̂⊥ + βB⊥v‖ + b‖V⁻¹⊥‖),

    where a is V⁻¹'s corner. The maximum is at most √(μ + ‖θ̂⊥‖² + Σ β²λ_i θ̂_i²/(μ − β²λ_i)) for every μ above
    β²λ_max, with λ_i the eigenvalues of V⁻¹'s block in the complement of e₁: the least over a grid is taken.
    A c + B ρ(c) is concave in c. A part in 10⁵ is added for single precision.

    With a part of the bonus (`Tempered`) the highest score is convex in it, so that the line from the bound
    without widths to this one is a bound, and so is what is added.

    Args:
        belief: leading axis (runs,), in the frame of θ*.
        environment: the bands.
    """
    beta, width = belief.ellipsoid_width, belief.euclidean_width
    inverse, theta = belief.inverse, belief.theta
    corner, edge = inverse[:, 0, 0], inverse[:, 0, 1:]
    # The two parts of x, along θ* and across, are bounded one by one and then weighed against each other:
    # looser than `pruning.highest_score` on processors, but all runs at once in numpy, where there is no time
    # for a search per run.
    along = theta[:, 0] + beta * np.sqrt(corner) + width * np.hypot(corner, np.linalg.norm(edge, axis=-1))
    across = np.zeros_like(beta)
    if theta.shape[1] > 1:
        values, vectors = np.linalg.eigh(inverse[:, 1:, 1:])
        estimate2 = np.einsum("rdk,rd->rk", vectors, theta[:, 1:]) ** 2
        stretch = np.maximum(beta[:, None] ** 2 * values, 1e-300)
        longest = stretch[:, -1:]
        total = estimate2.sum(axis=-1, keepdims=True)
        multiplier = longest + np.maximum(longest, np.sqrt(longest * total)) * _MULTIPLIERS
        gain = (stretch * estimate2)[:, None, :] / (multiplier[:, :, None] - stretch[:, None, :])
        across = np.sqrt((multiplier + total + gain.sum(axis=-1)).min(axis=-1))
        across += width * np.linalg.norm(inverse[:, :, 1:], 2, axis=(1, 2))
    radius = environment.problem.action_bound
    low, high = (band / environment.parameter_norm for band in environment.others)
    length = np.maximum(np.hypot(along, across), 1e-300)
    # The maximum of A c + B√(L² − c²) without the band is at L·A/√(A² + B²); concave, so clipping finds the
    # one inside.
    at = np.clip(radius * along / length, low, high)
    bound = along * at + across * np.sqrt(np.maximum(radius**2 - at**2, 0.0))
    # Scores are single precision on the GPU, with fast roots and divisions.
    return np.asarray(bound + 1e-5 * (np.abs(along) * radius + across * radius) + 1e-6)


@dataclass(frozen=True, slots=True)
class Arrowhead:
    """Beliefs in the frame where V⁻¹ is diagonal but for its first row and column.

    Attributes:
        heads: (runs, 7) float32: θ̂₁, corner of V⁻¹, β, b, ‖edge‖², floor and rise of the bound on the others'
            scores, floor + c·rise with a part c of the bonus.
        sides: (runs, d − 1, 4) float32: θ̂_i, edge, diagonal, 0.
        rotations: (runs, d − 1, d − 1), orthogonal coordinates = rotation @ coordinates in this frame.
    """

    heads: NDArray[np.float32]
    sides: NDArray[np.float32]
    rotations: Array


def arrowhead(belief: Belief, floor: Array, rise: Array) -> Arrowhead:
    """Turn beliefs, leading axis (runs,), into the kernel's frame."""
    runs, dim = belief.theta.shape
    values, vectors = np.linalg.eigh(belief.inverse[:, 1:, 1:])
    edge = np.einsum("rdk,rd->rk", vectors, belief.inverse[:, 0, 1:])
    theta = np.einsum("rdk,rd->rk", vectors, belief.theta[:, 1:])
    beta, width = belief.ellipsoid_width, belief.euclidean_width
    heads = [belief.theta[:, 0], belief.inverse[:, 0, 0], beta, width, (edge**2).sum(axis=-1), floor, rise]
    sides = np.zeros((runs, dim - 1, 4), dtype=np.float32)
    sides[..., 0], sides[..., 1], sides[..., 2] = theta, edge, values
    return Arrowhead(np.stack(heads, axis=-1).astype(np.float32), sides, vectors)


def _unpacked(sums: Array, dim: int) -> tuple[Array, Array, Array]:
    """Gram matrices, moments and squares from packed augmented sums, (..., (d+1)(d+2)/2)."""
    full = np.zeros((*sums.shape[:-1], dim + 1, dim + 1))
    rows, columns = np.tril_indices(dim + 1)
    # The augmented record (x, y) has the moment as row d, and y² in its corner, which never leaves (differs
    # from the paper: Alg. 1, l. 11 has it, and it would cost privacy for nothing).
    full[..., rows, columns] = sums
    full[..., columns, rows] = sums
    return full[..., :dim, :dim], full[..., dim, :dim], full[..., dim, dim]


def _packed(gram: Array, moment: Array) -> Array:
    """The inverse of `_unpacked`; the corner is zero."""
    dim = moment.shape[-1]
    full = np.zeros((*moment.shape[:-1], dim + 1, dim + 1))
    full[..., :dim, :dim] = gram
    full[..., dim, :dim] = moment
    return np.asarray(full[(..., *np.tril_indices(dim + 1))])


class GpuKernels:
    """Kernels for one environment and one seed, compiled when first used.

    A random number depends on the seed and on (run, agent, round) alone: calls may be cut anywhere, and runs
    or agents left out, without changing the others.

    Args:
        environment: the paper's; d at most 128.
        seed: of everything random.
        philox_rounds: 7, or the more cautious 10.
    """

    def __init__(
        self,
        environment: PaperEnvironment,
        *,
        seed: int,
        philox_rounds: int = 7,
    ) -> None:
        dim = environment.problem.dim
        if dim > LARGEST_DIM or environment.arms > LARGEST_ARMS:
            raise ValueError(
                f"the kernels take d up to {LARGEST_DIM} and K up to {LARGEST_ARMS}, "
                f"not d = {dim}, K = {environment.arms}"
            )
        self.cupy: Any = importlib.import_module("cupy")
        self.environment = environment
        self.dim, self.arms = dim, environment.arms
        self.philox_rounds = philox_rounds
        # Neighbouring seeds must not give neighbouring keys.
        self._keys = tuple(np.random.SeedSequence(seed).generate_state(2, np.uint32))
        (low, high), (other_low, other_high) = environment.best, environment.others
        bands = [low, high - low, other_low, other_high - other_low]
        lengths = [1.0 / environment.parameter_norm, environment.problem.action_bound**2]
        self._world = self.cupy.asarray(np.array(bands + lengths, dtype=np.float32))
        self._modules: dict[tuple[str, ...], tuple[Any, list[int]]] = {}
        attributes = self.cupy.cuda.Device().attributes
        self.multiprocessors = int(attributes["MultiProcessorCount"])

    def _module(self, *settings: str) -> tuple[Any, list[int]]:
        """Kernels and their layout, compiled by themselves when first used: at large d it takes its time."""
        if settings not in self._modules:
            options = (
                "--std=c++17",
                # Faster, and covered by the 10⁻⁵ that `others_bound` adds; choices are compared with the
                # reference's in tests.
                "--ftz=true",
                "--prec-div=false",
                "--prec-sqrt=false",
                f"-DDIM={self.dim}",
                f"-DPHILOX_ROUNDS={self.philox_rounds}",
                *settings,
            )
            source = files("feducb.simulation.backends").joinpath("kernels.cu").read_text(encoding="utf-8")
            module = self.cupy.RawModule(code=source, options=options)
            sizes = self.cupy.zeros(8, dtype=np.int32)
            module.get_function("layout")((1,), (1,), (sizes,))
            self._modules[settings] = module, self.cupy.asnumpy(sizes).tolist()
        return self._modules[settings]

    def _function(self, module: Any, name: str, shared: int) -> Any:
        kernel = module.get_function(name)
        # Above 48 KiB a kernel must ask for its shared memory.
        kernel.max_dynamic_shared_size_bytes = shared
        return kernel

    def fixed_epoch(
        self,
        belief: Belief | None,
        stretch: Stretch,
        rounds: int,
        *,
        full: float = 1.0,
        defer: bool = True,
        blocks: int | None = None,
    ) -> Sums:
        """Play rounds in which beliefs do not change; sums over agents, in the frame of θ*.

        Args:
            belief: leading axis (runs,), shared by a run's agents, in the frame of θ*; None draws uniformly.
            stretch: who plays, and from when on.
            rounds: how many.
            full: the chance of the whole bonus, else it is scaled by a coin (`Tempered`); 1 is `Optimistic`.
            defer: draw the other arms only where the best arm's score leaves the choice open. Choices are the
                same, and so is regret (where the bands overlap, its law).
            blocks: thread blocks, for tests; results do not depend on it.
        """
        runs, agents = stretch.runs, stretch.agents
        steps, count = agents * rounds, len(runs)
        if steps > _MOST_STEPS:
            raise ValueError(f"{steps} steps of a run at once are more than the sums hold: {_MOST_STEPS}")
        wide = belief is not None and bool(np.any(belief.euclidean_width))
        tempered = belief is not None and full < 1.0
        settings = "-DNO_OWN", f"-DWIDE={int(wide)}", f"-DTEMPERED={int(tempered)}"
        module, (entries, threads, shared, passes, *_) = self._module(*settings)
        kernel = self._function(module, "fixed_epoch", shared)
        if belief is None:
            sides = np.zeros((count, max(self.dim - 1, 1), 4), dtype=np.float32)
            arrow = Arrowhead(np.zeros((count, 7), dtype=np.float32), sides, np.zeros(0))
        else:
            # Infinite: no score beats it, so all arms are drawn at every step.
            floor, rise = np.full(count, np.inf), np.zeros(count)
            if defer:
                floor = top = others_bound(belief, self.environment)
                if tempered:
                    without = replace(belief, ellipsoid_width=rise, euclidean_width=rise)
                    floor = others_bound(without, self.environment)
                rise = top - floor
            arrow = arrowhead(belief, floor, rise)
        # Whether another arm's mean can exceed the best arm's.
        overlap = self.environment.others[1] > self.environment.best[0]
        numbers = (belief is not None, overlap, self.arms, agents, count, runs.start, stretch.first_round)
        points = np.asarray(stretch.points, dtype=np.uint32)
        cupy = self.cupy
        sums = cupy.zeros((count, entries), dtype=np.int64)
        regret = cupy.zeros((count, len(points)), dtype=np.uint64)
        drawn = cupy.zeros(count, dtype=np.uint64)
        # Blocks take units in turn; 32 per multiprocessor even out those that must draw more arms than
        # others.
        units = count * math.ceil(steps / (threads * passes))
        grid = blocks or max(1, min(units, 32 * self.multiprocessors))
        sides = np.ascontiguousarray(arrow.sides if arrow.sides.size else np.zeros((1, 4), dtype=np.float32))
        kernel(
            (grid,),
            (threads,),
            (
                self._world,
                cupy.asarray(arrow.heads),
                cupy.asarray(sides),
                cupy.asarray(points),
                np.int32(len(points)),
                *self._keys,
                np.float32(full),
                *(np.uint32(number) for number in numbers),
                np.uint64(steps),
                sums,
                regret,
                drawn,
            ),
            shared_mem=shared,
        )
        gram, moment, squares = _unpacked(cupy.asnumpy(sums) / _SUM_UNIT, self.dim)
        if belief is not None:
            # Back from the arrowhead's frame: next epoch's belief will have another.
            turn = np.zeros((count, self.dim, self.dim))
            turn[:, 0, 0] = 1.0
            turn[:, 1:, 1:] = arrow.rotations
            gram = turn @ gram @ np.swapaxes(turn, -1, -2)
            moment = (turn @ moment[..., None])[..., 0]
        radius = self.environment.problem.action_bound
        return Sums(
            # The kernel sums x/L, so that entries stay below 1 and fit their unit.
            gram=gram * radius**2,
            moment=moment * radius,
            squares=squares,
            regret=cupy.asnumpy(regret) / _REGRET_UNIT,
            drawn=cupy.asnumpy(drawn).astype(np.int64),
        )

    def draw_arms(self, *, run: int, agents: int, first_round: int, rounds: int) -> tuple[Array, Array]:
        """What visitors offer: actions (rounds, agents, K, d) and means (rounds, agents, K)."""
        cupy = self.cupy
        actions = cupy.zeros((rounds, agents, self.arms, self.dim), dtype=np.float32)
        means = cupy.zeros((rounds, agents, self.arms), dtype=np.float32)
        self._draw("draw_arms", run, first_round, actions, means)
        return cupy.asnumpy(actions).astype(np.float64), cupy.asnumpy(means).astype(np.float64)

    def draw_rewards(self, means: Array, *, run: int, first_round: int) -> tuple[Array, Ints]:
        """Rewards of arms with these means, (rounds, agents), and the coins of uniform play."""
        cupy = self.cupy
        rewards = cupy.zeros(means.shape, dtype=np.float32)
        coins = cupy.zeros(means.shape, dtype=np.uint32)
        self._draw("draw_rewards", run, first_round, cupy.asarray(means.astype(np.float32)), rewards, coins)
        return cupy.asnumpy(rewards).astype(np.float64), cupy.asnumpy(coins).astype(np.int64)

    def draw_parts(self, full: float, *, run: int, agents: int, first_round: int, rounds: int) -> Array:
        """(rounds, agents), the part of the bonus that steps are played with (`Tempered`)."""
        parts = self.cupy.zeros((rounds, agents), dtype=np.float32)
        self._draw("draw_parts", run, first_round, parts, np.float32(full))
        return np.asarray(self.cupy.asnumpy(parts).astype(np.float64))

    def _draw(self, name: str, run: int, first_round: int, *arrays: Any) -> None:
        """Call a kernel that draws into arrays, the first with leading axes (rounds, agents)."""
        rounds, agents = arrays[0].shape[:2]
        numbers = [np.uint32(number) for number in (self.arms, agents, run, first_round)]
        given = (self._world, *self._keys, *numbers, np.uint64(rounds * agents), *arrays)
        self._parts(name)((4 * self.multiprocessors,), (128,), given)

    def draw_words(
        self, count: int, *, keys: tuple[int, int], round: int, agent: int, run: int
    ) -> NDArray[np.uint32]:
        """(count, 4), the generator's words for the first slots."""
        words = self.cupy.zeros((count, 4), dtype=np.uint32)
        numbers = [np.uint32(number) for number in (*keys, round, agent, run, count)]
        self._parts("draw_words")((4 * self.multiprocessors,), (128,), (*numbers, words))
        return np.asarray(self.cupy.asnumpy(words))

    def choose(self, belief: Belief, actions: Array, *, full: bool = True) -> Ints:
        """(steps,), the choice among given actions (steps, K, d), all with one belief (no leading axis).

        ``full`` scores as own-data play does, with all of V⁻¹; otherwise as `fixed_epoch` does.
        """
        steps, arms, dim = actions.shape
        one = Belief(
            *(np.asarray(part)[None] for part in (belief.theta, belief.inverse)),
            *(np.reshape(part, (1,)) for part in (belief.ellipsoid_width, belief.euclidean_width)),
        )
        arrow = arrowhead(one, np.zeros(1), np.zeros(1))
        if not full:
            actions = actions.copy()
            actions[..., 1:] = actions[..., 1:] @ arrow.rotations[0]
        blocks = (dim + 3) // 4
        triangle = np.zeros(8 * blocks * (blocks + 1), dtype=np.float32)
        for i in range(dim):
            # `triangle_row` of kernels.cu: rows in blocks of four, the diagonal halved, so that V⁻¹ = T + Tᵀ.
            start = 8 * (i // 4) * (i // 4 + 1) + 4 * (i % 4) * (i // 4 + 1)
            triangle[start : start + i + 1] = belief.inverse[i, : i + 1]
            triangle[start + i] *= 0.5
        theta = np.zeros(4 * blocks, dtype=np.float32)
        theta[:dim] = belief.theta
        cupy = self.cupy
        chosen = cupy.zeros(steps, dtype=np.uint32)
        sides = arrow.sides[0] if dim > 1 else np.zeros((1, 4), dtype=np.float32)
        self._parts("choose_given", bool(np.any(belief.euclidean_width)))(
            (min(steps, 16 * self.multiprocessors),),
            (32,),
            (
                cupy.asarray(np.ascontiguousarray(actions, dtype=np.float32)),
                np.uint32(arms),
                np.uint64(steps),
                np.uint32(full),
                cupy.asarray(triangle),
                cupy.asarray(theta),
                cupy.asarray(arrow.heads[0]),
                cupy.asarray(sides),
                chosen,
            ),
        )
        return np.asarray(cupy.asnumpy(chosen).astype(np.int64))

    def _parts(self, name: str, wide: bool = False) -> Any:
        module, _ = self._module("-DPARTS", "-DNO_FIXED", "-DNO_OWN", f"-DWIDE={int(wide)}")
        return module.get_function(name)


_ON_THE_GPU = ("_base", "_anchor", "_pending", "_regret")


class OwnDataRuns:
    """Runs in which every agent acts on the last released sum plus its own records. The state is on the GPU.

    Args:
        kernels: the environment and its random numbers.
        rule: the radius, the trigger, and what the sum is before the first synchronisation.
        stretch: who plays, and from when on.
        exploration: scales the widths.
        group: GPU lanes per agent, for tests; results do not depend on it.

    Attributes:
        next_round: (runs,), each run's next round, counted from 1.
        waited: (runs,), rounds since its last synchronisation.
        regret: (runs, points), summed over agents.
    """

    def __init__(
        self,
        kernels: GpuKernels,
        rule: OwnDataPlay,
        stretch: Stretch,
        *,
        exploration: float = 1.0,
        group: int | None = None,
    ) -> None:
        settings = OwnDataSettings.of(rule, exploration=exploration)
        self._kernels, self._runs, self._agents = kernels, stretch.runs, stretch.agents
        self.watched = settings.watched
        dim, cupy, count, agents = kernels.dim, kernels.cupy, len(stretch.runs), stretch.agents
        if group is None:
            group = _lanes(dim, kernels.arms, count * agents)
        module, sizes = kernels._module(
            "-DNO_FIXED",
            f"-DWIDE={int(settings.euclidean != 0.0)}",
            f"-DGUARD={int(settings.watched)}",
            f"-DGROUP={group}",
        )
        entries, self._threads, self._shared, self._groups, self._multiple = sizes[0], *sizes[4:8]
        self._kernel = kernels._function(module, "own_data_epoch", self._shared)
        widths = (
            exploration * settings.noise_scale,
            settings.logarithm,
            exploration * settings.constant,
            exploration * settings.euclidean,
        )
        trigger = (settings.threshold if settings.watched else 0.0, settings.offset)
        self._numbers = cupy.asarray(np.array(widths + trigger))
        points = np.asarray(stretch.points, dtype=np.uint32)
        self._points = cupy.asarray(points)
        self._base = cupy.zeros((count, entries), dtype=np.float64)
        self._anchor = cupy.zeros(count, dtype=np.float64)
        self._pending = cupy.zeros((count, agents, entries), dtype=np.float64)
        self._next = cupy.zeros((count, agents, entries), dtype=np.float64)
        self._regret = cupy.zeros((count, len(points)), dtype=np.uint64)
        self._gained = cupy.zeros((count, len(points)), dtype=np.uint64)
        self.next_round: Ints = np.full(count, stretch.first_round, dtype=np.int64)
        self.waited: Ints = np.zeros(count, dtype=np.int64)
        prior = np.tile(rule.prior * np.eye(dim), (count, 1, 1))
        self.restart(np.arange(count), prior, np.zeros((count, dim)))

    @property
    def regret(self) -> Array:
        """(runs, points), summed over agents."""
        return np.asarray(self._kernels.cupy.asnumpy(self._regret) / _REGRET_UNIT)

    def restart(self, places: Ints, gram: Array, moment: Array) -> None:
        """After a synchronisation: the new sum replaces the old, own records are dropped.

        Args:
            places: (n,), positions in ``runs``.
            gram: (n, d, d), positive definite.
            moment: (n, d).
        """
        # Alg. 1, l. 20 and 24: S is replaced, U ← 0, and l. 12 compares with log det S from now on.
        factor = np.linalg.cholesky(gram)  # raises if one is not positive definite
        log_det = 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)
        cupy, at = self._kernels.cupy, self._kernels.cupy.asarray(places)
        self._base[at] = cupy.asarray(_packed(gram, moment))
        self._anchor[at] = cupy.asarray(log_det)
        self._pending[at] = 0.0
        self.waited[places] = 0

    def pending(self, places: Ints) -> tuple[Array, Array]:
        """Own records since the last synchronisation: Gram (n, M, d, d) and moment (n, M, d)."""
        cupy = self._kernels.cupy
        return _unpacked(cupy.asnumpy(self._pending[cupy.asarray(places)]), self._kernels.dim)[:2]

    def dump(self) -> dict[str, Any]:
        """The state, as numpy arrays."""
        parts = {name: getattr(self, name) for name in _ON_THE_GPU}
        host = {name: self._kernels.cupy.asnumpy(part) for name, part in parts.items()}
        return host | {"next_round": self.next_round.copy(), "waited": self.waited.copy()}

    def load(self, state: Any) -> None:
        """Go on from a state."""
        for name in _ON_THE_GPU:
            setattr(self, name, self._kernels.cupy.asarray(state[name]))
        self.next_round, self.waited = state["next_round"].copy(), state["waited"].copy()

    def advance(self, rounds: Ints) -> Ints:
        """Play on by so many rounds, or to the end of the round in which an agent asks to synchronise.

        All of a run's agents first play the whole stretch; if one of them asked, the run is played again from
        where it was up to the first such round, with the same random numbers.

        Args:
            rounds: (runs,), at least 0.

        Returns:
            The positions of the runs in which an agent asked.
        """
        cupy, wanted = self._kernels.cupy, np.array(rounds, dtype=np.int64)
        active = np.flatnonzero(wanted)
        if not len(active):
            return np.zeros(0, dtype=np.int64)
        # A stretch writes to buffers of its own (`_next`, `_gained`) until it is known how far it counts.
        self._gained[...] = 0
        trigger = self._launch(active, wanted)
        asked = active[trigger[active] != _NEVER]
        # Alg. 1, l. 13 to 15: the round in which somebody asks is played to its end by all, then they
        # synchronise.
        until = trigger[asked] - self.next_round[asked] + 1
        again = asked[until < wanted[asked]]
        wanted[asked] = until
        if len(again):
            self._gained[cupy.asarray(again)] = 0
            replayed = self._launch(again, wanted)
            # The same numbers must lead to the same round: if not, something depends on the order of threads.
            if not np.array_equal(replayed[again], trigger[again]):
                raise RuntimeError("a replay did not end where the first pass did")
        if len(active) == len(wanted):
            # All runs moved: swapping is free. Otherwise those that stood still must keep their old sums.
            self._pending, self._next = self._next, self._pending
        else:
            at = cupy.asarray(active)
            self._pending[at] = self._next[at]
        self._regret += self._gained
        self.next_round += wanted
        self.waited += wanted
        return np.asarray(asked, dtype=np.int64)

    def _launch(self, places: Ints, rounds: Ints) -> Ints:
        kernels, cupy = self._kernels, self._kernels.cupy
        trigger = cupy.full(len(rounds), _NEVER, dtype=np.uint32)
        # A warp holds whole agents of one run; what is over plays along and is not counted.
        padded = -(-self._agents // self._multiple) * self._multiple
        grid = -(-padded * len(places) // self._groups)
        self._kernel(
            (grid,),
            (self._threads,),
            (
                kernels._world,
                self._numbers,
                self._base,
                self._anchor,
                self._pending,
                self._next,
                cupy.asarray(places.astype(np.uint32)),
                np.uint32(len(places)),
                cupy.asarray(self.next_round.astype(np.uint32)),
                cupy.asarray(rounds.astype(np.uint32)),
                cupy.asarray(self.waited.astype(np.uint32)),
                self._points,
                np.int32(self._points.size),
                *kernels._keys,
                np.uint32(kernels.arms),
                np.uint32(self._agents),
                np.uint32(self._runs.start),
                self._gained,
                trigger,
            ),
            shared_mem=self._shared,
        )
        return np.asarray(cupy.asnumpy(trigger).astype(np.int64))


def _lanes(dim: int, arms: int, population: int) -> int:
    """GPU lanes per agent: few, so that none idles, but more where agents are few or the matrices large."""
    # Above d = 32 one warp has too few registers for an agent's matrices.
    if dim > 32:
        return 128 if dim <= 64 else 256
    lanes = 4 if arms <= 4 else 8 if dim <= 24 else 16
    while lanes < min(32, arms) and lanes * population < _FILL:
        lanes *= 2
    return lanes
