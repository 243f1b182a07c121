"""How an agent plays that remembers earlier seasons, and forgets what is old (docs/theory.md, 11).

A season's last sum is private already, and stays true after it. Read beside a sum of the open season it is
one more block of records under a noise of its own: weights in [0, 1] that were fixed in public make one sum
of all of them, which the set of `MixtureBound` reads as any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from feducb.interfaces import Bound
from feducb.models.play import Knowledge, ReleasedPlay, Rule
from feducb.types import Array, ReleasedSum

__all__ = ["Fading", "Newest", "RememberingPlay"]


@dataclass(frozen=True, slots=True)
class Fading:
    """How records of the open season fade from release to release: by half in every half-life.

    Batch i of release k has the weight 2^(−(t_k − t_i)/half-life): its records count as those of its end. The
    sum with these weights is a mixture of the releases so far, so nothing else need leave an agent.

    Attributes:
        moments: t_k of all releases.
        half_life: in the same unit.
        decoder: (n, r), F, whose rows say what noise each release has.
    """

    moments: tuple[float, ...]
    half_life: float
    decoder: Array

    def between(self, first: int, last: int) -> float:
        """What is left at release ``last`` of what was whole at release ``first``."""
        return float(0.5 ** ((self.moments[last - 1] - self.moments[first - 1]) / self.half_life))

    def rows(self) -> Array:
        """(n, r), the noise of the faded sums, where no release was missed."""
        steps = np.diff(self.decoder, axis=0, prepend=0.0)
        made = [steps[0]]
        for number in range(2, len(steps) + 1):
            made.append(self.between(number - 1, number) * made[-1] + steps[number - 1])
        return np.array(made)

    def records(self, rounds: Array) -> Array:
        """(n,), what so many records up to each release come to."""
        steps = np.diff(rounds, prepend=0.0)
        made = [float(steps[0])]
        for number in range(2, len(steps) + 1):
            made.append(self.between(number - 1, number) * made[-1] + float(steps[number - 1]))
        return np.array(made)


@dataclass(frozen=True, slots=True)
class Newest:
    """Where the open season stands: its newest sum, and with fading what all sums so far come to.

    Attributes:
        total: the newest sum, as it came.
        faded: the sum that is read; the same without fading.
        noise: (r,), its row of fresh noise; None without fading.
    """

    total: ReleasedSum
    faded: ReleasedSum
    noise: Array | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RememberingPlay(Rule):
    """Acts on released sums only: those of the open season, and the last of each earlier one.

    Guarantees:
        As `ReleasedPlay`: decisions are a function of releases of this and earlier seasons, public coins and
        the visitor's own candidates.

    Attributes:
        bound: what such a mixture tells about θ*.
        first: the first release with which the mixture is worth reading; 0: the earlier sums by themselves.
        past: the last sum of each season that is remembered.
        weights: (n + 1, 1 + J), what the open season's sum, and each of ``past``, counts at each release; row
            0 is before the first. Public, from 0 to 1.
        fading: how records of the open season fade; None: they do not.
    """

    bound: Bound
    first: int
    past: tuple[ReleasedSum, ...]
    weights: Array
    fading: Fading | None = None

    def start(self, shape: tuple[int, ...]) -> Knowledge:
        """What earlier seasons tell."""
        return self._know(Knowledge(), 0, None)

    def absorb(self, knowledge: Knowledge, total: ReleasedSum) -> Knowledge:
        """The new sum replaces the old in the mixture; what fades does so by the time between the two."""
        newest = self._newer(knowledge.newest, total)
        return self._know(replace(knowledge, newest=newest), total.number, newest.faded)

    def blend(self, number: int, current: ReleasedSum | None) -> ReleasedSum | None:
        """The mixture at a release: of the season's sum, faded if it fades, and of earlier ones."""
        own, *earlier = self.weights[number]
        parts = [(own, current)] if current is not None else []
        parts += [(weight, one) for weight, one in zip(earlier, self.past, strict=True) if weight]
        if not parts:
            return None
        return ReleasedSum(
            number,
            np.asarray(sum(weight * one.gram for weight, one in parts)),
            np.asarray(sum(weight * one.moment for weight, one in parts)),
            np.asarray(sum(weight**2 * one.variance for weight, one in parts)),
            parts[0][1].agents,
        )

    def _know(self, knowledge: Knowledge, number: int, current: ReleasedSum | None) -> Knowledge:
        blended = self.blend(number, current) if number >= self.first else None
        if blended is None:
            return knowledge
        return replace(knowledge, belief=ReleasedPlay(self.bound, 0).absorb(knowledge, blended).belief)

    def _newer(self, before: Newest | None, total: ReleasedSum) -> Newest:
        if self.fading is None:
            return Newest(total, total)
        row = self.fading.decoder[total.number - 1]
        if before is None:
            return Newest(total, total, row)
        assert before.noise is not None
        left = self.fading.between(before.total.number, total.number)
        noise = left * before.noise + row - self.fading.decoder[before.total.number - 1]
        fresh = np.maximum(
            total.variance / (row @ row),
            before.total.variance / np.sum(self.fading.decoder[before.total.number - 1] ** 2),
        )
        faded = replace(
            total,
            gram=left * before.faded.gram + total.gram - before.total.gram,
            moment=left * before.faded.moment + total.moment - before.total.moment,
            variance=np.asarray(fresh * (noise @ noise)),
        )
        return Newest(total, faded, noise)
