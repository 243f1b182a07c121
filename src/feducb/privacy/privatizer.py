"""The only door out of an agent: records in, noisy cumulative sums out (Alg. 2).

`WayOut` says it once. `Privatizer` does it with floats and any source of noise, for simulations;
`deployed.DeployedPrivatizer` with whole numbers and noise that cannot be seeded.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import InitVar, dataclass, field, replace
from typing import ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from feducb.config import Problem
from feducb.errors import (
    ConfigurationError,
    RecordOutOfBoundsError,
    ReleasesExhaustedError,
    UnsealedReleaseError,
)
from feducb.interfaces import Model, require_model
from feducb.privacy.mechanisms import Mechanism, Memory
from feducb.privacy.noise import NoiseSource
from feducb.types import Array, Statistics, zeros

__all__ = [
    "Excess",
    "Privatizer",
    "PrivatizerState",
    "Release",
    "Sealed",
    "State",
    "WayOut",
    "placed",
    "within_bounds",
]

Excess = Literal["clip", "refuse"]
Sums = TypeVar("Sums")
Kept = TypeVar("Kept")
Source = TypeVar("Source")
Made = TypeVar("Made")
Number = TypeVar("Number", np.float64, np.int64)

_SEAL = object()
_ROUNDING = 1e-9  # a vector this much longer than its bound is a rounding error, and is clipped


@dataclass(kw_only=True, slots=True, eq=False, repr=False)
class Sealed:
    """What may leave: only the privatizers of this package hold the seal that it takes to build one.

    None shows what is in it: a raw upload must not get into a log by accident.
    """

    forged: ClassVar[str] = ""
    seal: InitVar[object] = None

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise UnsealedReleaseError(self.forged)


@dataclass(frozen=True, repr=False)
class State(Generic[Sums, Kept]):
    """What a privatizer carries from one release to the next. Private.

    Attributes:
        total: sums of records: of all so far, or of those since the last release.
        released: how many releases have been made.
        memory: the mechanism's.
    """

    total: Sums
    released: int
    memory: Kept


PrivatizerState = State[Statistics, Memory]


class WayOut(ABC, Generic[Sums, Kept, Source, Made]):
    """Bounds, then sums, then noise, then a release that is counted; in any arithmetic, state in, state out.

    Guarantees:
        Nothing enters a sum beyond the bounds, and nothing leaves but what ``_publish`` makes, at most as
        often as the mechanism's noise was made for.
    """

    __slots__ = ()
    problem: Problem
    model: Model
    mechanism: Mechanism
    excess: Excess

    def record(self, state: State[Sums, Kept], actions: Array, rewards: Array) -> State[Sums, Kept]:
        """Take records in: actions (..., n, d), rewards (..., n)."""
        actions, rewards = within_bounds(self.problem, self.excess, actions, rewards)
        if self.excess == "refuse" and not np.array_equal(self.model.nearest(actions), actions):
            raise RecordOutOfBoundsError(f"an action does not fit the model {self.model.name}")
        return replace(state, total=self._add(state.total, actions, rewards))

    def release(self, state: State[Sums, Kept], source: Source) -> tuple[State[Sums, Kept], Made]:
        """Publish everything recorded so far, under noise; raises `ReleasesExhaustedError` after the last."""
        number = state.released + 1
        if number > self.mechanism.releases:
            raise ReleasesExhaustedError(
                f"release {number} was asked for, but the budget covers {self.mechanism.releases}"
            )
        total, memory, made = self._publish(state, number, source)
        return State(total, number, memory), made

    @abstractmethod
    def _add(self, total: Sums, actions: Array, rewards: Array) -> Sums:
        """Sums with these records, which are within the bounds."""

    @abstractmethod
    def _publish(self, state: State[Sums, Kept], number: int, source: Source) -> tuple[Sums, Kept, Made]:
        """The sums and the memory to go on with, and release ``number``."""


@dataclass(kw_only=True, slots=True, eq=False, repr=False)
class Release(Sealed):
    """What leaves a simulated agent: its cumulative sums under noise. Only a `Privatizer` can build one.

    It never travels: messages carry `deployed.GridRelease`.

    Attributes:
        number: k, counted from 1. Release k replaces release k − 1.
        gram: (..., d, d), G + H.
        moment: (..., d), u + h.
        variance: (...), the variance of one off-diagonal entry of H; public.
    """

    forged: ClassVar[str] = "only a Privatizer builds a Release: raw sums must not leave an agent"
    number: int
    gram: Array
    moment: Array
    variance: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Privatizer(WayOut[Statistics, Memory, NoiseSource, Release]):
    """Alg. 2 for one agent, or for many with leading axes ``...``, in floats.

    Guarantees:
        With ``noise_scale`` = R²/μ (`calibration.noise_scale`) and records that enter once each, everything
        it ever returns is μ-GDP together, also against whoever chooses the next action from earlier
        releases, if no state is released from twice. Bounds are enforced in here; with ``refuse``, do not
        drop a refused batch for what one of its records was (clip where records cannot be trusted).

    Attributes:
        problem: the public bounds L and B.
        mechanism: how noise is spread over the releases.
        noise_scale: (...) or a number, √v of the fresh noise; 0 means no privacy (simulation only).
        shift: (...) or a number, added to the diagonal of each Gram (``paper``: 2Λ).
        reward_weight: s; the moment s·u carries the Gram's noise, so u carries 1/s of it.
        excess: what to do with a record beyond the bounds: ``clip`` it, or ``refuse`` it with an error.
        model: what is learnt.
    """

    problem: Problem
    mechanism: Mechanism
    noise_scale: float | Array
    shift: float | Array = 0.0
    reward_weight: float = 1.0
    excess: Excess = "refuse"
    model: Model = field(default_factory=lambda: require_model("linear"))

    def __post_init__(self) -> None:
        if self.excess not in ("clip", "refuse"):
            raise ConfigurationError("excess", self.excess, "clip or refuse")
        scales = np.asarray(self.noise_scale, dtype=np.float64)
        positive = scales > 0.0
        if not np.all(np.isfinite(scales)) or np.any(scales < 0.0) or positive.any() != positive.all():
            raise ConfigurationError("noise_scale", scales.tolist(), "finite numbers, all positive or all 0")

    def start(self, shape: tuple[int, ...] = ()) -> PrivatizerState:
        """Nothing recorded, nothing released."""
        return State(zeros(self.problem.dim, shape), 0, ())

    def _add(self, total: Statistics, actions: Array, rewards: Array) -> Statistics:
        return self.model.add(total, actions, rewards)

    def _publish(
        self, state: PrivatizerState, number: int, source: NoiseSource
    ) -> tuple[Statistics, Memory, Release]:
        dim, memory = self.problem.dim, state.memory
        gram, moment = state.total.gram, state.total.moment
        scale = np.asarray(self.noise_scale, dtype=np.float64)
        if np.all(scale > 0):
            noisy = self.model.noisy(dim)
            fresh = source.draw(self.mechanism.rows(number), int(noisy.sum()))
            memory, correlated = self.mechanism.correlate(memory, number, fresh)
            gram_noise, moment_noise = self.model.read(
                placed(correlated * scale[..., None], noisy),
                dim=dim,
                weight=self.reward_weight,
                unit=math.sqrt(2.0),
            )
            gram, moment = gram + gram_noise, moment + moment_noise
        shift = np.asarray(self.shift, dtype=np.float64)
        release = Release(
            number=number,
            gram=gram + shift[..., None, None] * np.eye(dim),
            moment=moment,
            variance=np.broadcast_to((scale * self.mechanism.error(number)) ** 2, moment.shape[:-1]),
            seal=_SEAL,
        )
        return state.total, memory, release


def placed(noise: NDArray[Number], noisy: NDArray[np.bool_]) -> NDArray[Number]:
    """(..., q), noise where coordinates are noisy, and 0 in the others; from (..., noisy ones)."""
    if noisy.all():
        return noise
    whole = np.zeros((*noise.shape[:-1], len(noisy)), dtype=noise.dtype)
    whole[..., noisy] = noise
    return whole


def within_bounds(problem: Problem, excess: Excess, actions: Array, rewards: Array) -> tuple[Array, Array]:
    """Centre rewards, then clip records to the bounds, each by itself, or refuse them all if one is beyond.

    Centring comes first: what is clipped and summed is y − c, so that B bounds all that a reward can move. No
    reward decides what becomes of its action, which may be public (`models.PublicContexts`).

    Args:
        problem: the public bounds.
        excess: ``clip`` or ``refuse``.
        actions: (..., n, d).
        rewards: (..., n), as they came.
    """
    action_bound, reward_bound = problem.action_bound, problem.reward_bound
    rewards = rewards - problem.reward_centre
    squared = np.einsum("...d,...d->...", actions, actions)
    if squared.max(initial=0.0) <= action_bound**2 and np.abs(rewards).max(initial=0.0) <= reward_bound:
        return actions, rewards  # nothing to do; a number that is not finite does not get here
    finite = np.asarray(np.isfinite(actions).all(axis=-1))
    if excess == "refuse":
        _refuse(problem, actions, rewards, finite & np.isfinite(rewards))
    # An action that is not finite counts as nothing, a reward that is not as c; huge entries are scaled down
    # before they are squared.
    actions = np.where(finite[..., None], actions, 0.0)
    rewards = np.where(np.isfinite(rewards), rewards, 0.0)
    largest = np.maximum(np.abs(actions).max(axis=-1, initial=0.0), np.finfo(np.float64).tiny)
    length = largest * np.linalg.norm(actions / largest[..., None], axis=-1)
    # Shrunk a little further than to the bound: rounding must not leave anything beyond it. What fits by the
    # test above stays as it is, to the last bit: another record's excess must not move it.
    long = ~(squared <= action_bound**2) & (length > action_bound)
    scale = np.where(long, action_bound * (1.0 - 1e-15) / np.maximum(length, action_bound), 1.0)
    return actions * scale[..., None], np.clip(rewards, -reward_bound, reward_bound)


def _refuse(problem: Problem, actions: Array, rewards: Array, finite: NDArray[np.bool_]) -> None:
    if not finite.all():
        raise RecordOutOfBoundsError("a record has an action or reward that is not finite, expected numbers")
    longest = float(np.hypot.reduce(actions, axis=-1).max(initial=0.0))
    if longest > problem.action_bound * (1.0 + _ROUNDING):
        raise RecordOutOfBoundsError(
            f"an action has length {longest:.6g}, expected at most {problem.action_bound:g}"
        )
    beyond = np.abs(rewards) > problem.reward_bound * (1.0 + _ROUNDING)
    if beyond.any():
        low, high = problem.reward_range
        given = float(rewards[beyond][0]) + problem.reward_centre
        raise RecordOutOfBoundsError(f"a reward is {given:.6g}, expected {low:g} to {high:g}")
