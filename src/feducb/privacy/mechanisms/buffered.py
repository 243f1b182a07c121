"""Buffered linear Toeplitz (BLT): any number of releases with a handful of arrays of state.

The square root of P is the Toeplitz matrix of (1 − x)^(−1/2). Here a rational function stands in for it,

    e(x) = Π (1 − zero_i x)/(1 − pole_i x) = 1 + Σ weight_i x/(1 − pole_i x),    1 > pole_1 > zero_1 > pole_2
    > …

Interlaced like this all weights are positive, so e's coefficients are positive and fall, and multiplying by E
takes one decaying buffer per pole (Dvijotham et al. 2024). Each column is then stretched to length 1, which
makes every release better: a row of the stretched F is a convex combination of that row and earlier ones of
the Toeplitz F, and those are shorter (docs/theory.md). Decoding runs the same buffers backwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError
from feducb.privacy.mechanisms.mechanism import (
    SLACK,
    Mechanism,
    Memory,
    mix,
    norm,
    square_root_coefficients,
)
from feducb.types import Array

__all__ = ["BufferedToeplitz", "Rates", "build_table"]

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class BufferedToeplitz(Mechanism):
    """BLT for n releases, with rates from the table for the next power of two (`scripts/make_blt_table`)."""

    name: ClassVar[str] = "blt"

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        largest = max(_table())
        if self.releases > largest:
            raise ConfigurationError("releases", self.releases, f"at most {largest} for blt")

    @property
    def rates(self) -> Rates:
        """The poles and zeros."""
        table = _table()
        return table[min(size for size in table if size >= self.releases)]

    def encoder(self) -> Array:
        """E, by streaming unit batches through."""
        memory: Memory = ()
        out = []
        for release, unit in enumerate(np.eye(self.releases), start=1):
            memory, row = self.encode(memory, release, unit[None])
            out.append(row)
        return np.array(out)

    def error(self, release: int) -> float:
        """‖row_k(F)‖, from row norms that are computed in chunks and kept."""
        chunk, place = divmod(release - 1, _CHUNK)
        return float(_row_norm_chunk(self, chunk)[place])

    def worst_error(self) -> float:
        """The largest row norm; O(n) time, under a second for a million."""
        return max(float(chunk.max()) for chunk in self._row_norms())

    def correlate(self, memory: Memory, release: int, fresh: Array) -> tuple[Memory, Array]:
        """The next row of F: take off what earlier rows left in the buffers, add to the running sum."""
        buffers, total = self._unpack(memory, fresh[0])
        item = fresh[0] - mix(self.rates.weights, buffers)
        total = total + self.column_norms(release - 1, release)[0] * item
        return (self._advance(buffers, item), total), total

    def encode(self, memory: Memory, release: int, batch: Array) -> tuple[Memory, Array]:
        """The next row of E·b."""
        buffers, total = self._unpack(memory, batch[0])
        item = batch[0] / self.column_norms(release - 1, release)[0]
        row = item + mix(self.rates.weights, buffers)
        return (self._advance(buffers, item), total), np.asarray(row)

    def _unpack(self, memory: Memory, like: Array) -> tuple[Array, Array]:
        if not memory:
            return np.zeros((len(self.rates.poles), *like.shape)), np.zeros_like(like)
        buffers, total = memory
        assert buffers is not None
        assert total is not None
        return buffers, total

    def _advance(self, buffers: Array, item: Array) -> Array:
        decay = (1.0 - self.rates.poles).reshape(-1, *[1] * item.ndim)
        return np.asarray(buffers * decay + item)

    def column_norms(self, first: int, last: int) -> Array:
        """What columns first..last−1 (counted from 0) of the Toeplitz matrix are divided by to make E."""
        poles, weights = self.rates.poles, self.rates.weights
        share = np.outer(weights, weights) / (poles[:, None] + poles - np.outer(poles, poles))
        power = _powers(poles, self.releases - 1 - np.arange(first, last))
        squared = 1.0 + share.sum() - np.sum((power @ share) * power, axis=1)
        return np.asarray(np.sqrt(squared) * (1.0 + SLACK))

    def _row_norms(self) -> Iterator[Array]:
        """‖row_k(F)‖ for all k, in chunks.

        Decoding white noise z is a Markov chain: r_i ← zero_i r_i + z, sum ← sum + scale (z − fall·r). Its
        variances follow from recursions: ``cross`` is cov(sum, r), ``pull`` is cov(r, fall·r).
        """
        from scipy.signal import lfilter  # slow to import

        zeros, falls = self.rates.zeros, self.rates.falls
        share = falls / (zeros[:, None] + zeros - np.outer(zeros, zeros))
        cross, variance = np.zeros(len(zeros)), 0.0
        for first in range(0, self.releases, _CHUNK):
            steps = np.arange(first, min(first + _CHUNK, self.releases))
            scale = self.column_norms(first, first + len(steps))
            power = _powers(zeros, steps)
            pull = share.sum(axis=1) - power * (power @ share.T)
            drive = scale[:, None] * (1.0 - (1.0 - zeros) * pull)
            after = np.empty_like(drive)
            for i, decay in enumerate(1.0 - zeros):
                after[:, i], _ = lfilter([1.0], [1.0, -decay], drive[:, i], zi=[decay * cross[i]])
            before = np.vstack([cross, after[:-1]])
            growth = scale**2 * (1.0 + pull @ falls) - 2.0 * scale * (before @ falls)
            variances = variance + np.cumsum(growth)
            cross, variance = after[-1], float(variances[-1])
            yield np.sqrt(variances)


@lru_cache(maxsize=64)
def _row_norm_chunk(mechanism: BufferedToeplitz, which: int) -> Array:
    return next(islice(mechanism._row_norms(), which, None))


class Rates:
    """1 − pole_1 < 1 − zero_1 < 1 − pole_2 < …, all in (0, 1], and what follows from them.

    Attributes:
        poles: 1 − pole_i.
        zeros: 1 − zero_i.
        weights: e(x) = 1 + Σ weight_i x/(1 − pole_i x).
        falls: 1/e(x) = 1 − Σ fall_i x/(1 − zero_i x).
    """

    def __init__(self, rates: list[float]) -> None:
        # On a grid where 1 − rate is exact: a buffer then decays just as the column norms assume.
        exact = np.round(np.array(rates) * 2.0**50) / 2.0**50
        if len(exact) % 2 or np.any(np.diff(exact, prepend=0.0) <= 0.0) or exact[-1] > 1.0:
            raise ValueError("need an even number of rising rates in (0, 1]")
        self.poles, self.zeros = exact[0::2], exact[1::2]
        self.weights = _residues(self.poles, self.zeros)
        self.falls = -_residues(self.zeros, self.poles)


@lru_cache(maxsize=1)
def _table() -> dict[int, Rates]:
    text = resources.files("feducb.privacy.mechanisms").joinpath("blt_table.json").read_text()
    return {int(size): Rates(rates) for size, rates in json.loads(text).items()}


def build_table(exponents: range = range(9, 25), excess: float = 0.002) -> dict[str, list[float]]:
    """For each power of two, the fewest buffers whose error is within ``excess`` of the square root's."""
    table = {}
    for size in (2**i for i in exponents):
        exact = norm(square_root_coefficients(size)) ** 2
        tuned = (_tune(size, buffers) for buffers in range(1, 20))
        table[str(size)] = next(
            rates for rates in tuned if np.exp(_log_error(np.array(rates), size)) < exact * (1.0 + excess)
        )
    return table


def _tune(size: int, buffers: int) -> list[float]:
    """Rates that make the last release of the unstretched encoder best."""
    from scipy.optimize import minimize

    def rates(x: Array) -> Array:
        return np.asarray(np.exp(-np.cumsum(np.exp(x[::-1]))[::-1]))

    start = np.full(2 * buffers, np.log(max(np.log(size), 1.0) / (2 * buffers)))
    start[-1] = -1.0
    options: Any = {"ftol": 1e-12, "gtol": 1e-7, "maxiter": 1000, "maxfun": 100_000}
    fitted = minimize(  # type: ignore[call-overload]
        lambda x: _log_error(rates(x), size),
        start,
        method="L-BFGS-B",
        bounds=[(-5.0, 3.0)] * len(start),
        options=options,
    )
    return [float(f"{rate:.6g}") for rate in rates(fitted.x)]


def _log_error(rates: Array, size: int) -> float:
    """log of ‖e‖·‖f‖ over n coefficients, e(x) f(x) = 1/(1 − x): the last release of the Toeplitz encoder."""
    pole, zero = rates[0::2], np.concatenate([[0.0], rates[1::2]])
    e = 1.0 + _energy(pole, _residues(pole, rates[1::2]), size - 1)
    f = _energy(zero, _residues(zero, pole), size)
    return 0.5 * float(np.log(e) + np.log(f))


def _residues(at: Array, other: Array) -> Array:
    """Π_j (other_j − at_i)/Π_{j≠i} (at_j − at_i): partial fractions, free of cancellation."""
    spread = at - at[:, None] + np.eye(len(at))
    return np.asarray(np.prod(other - at[:, None], axis=1) / np.prod(spread, axis=1))


def _powers(rates: Array, steps: NDArray[np.int64]) -> Array:
    """(1 − rate)^t, a column per rate."""
    return np.asarray((1.0 - rates) ** steps[:, None])


def _energy(rates: Array, weights: Array, length: int) -> float:
    """Σ over j < length of (Σ_i weight_i (1 − rate_i)^j)²."""
    decay = np.log1p(-np.minimum(rates, 1.0 - 1e-16))
    joint = rates[:, None] + rates - np.outer(rates, rates)
    span = -np.expm1(length * (decay[:, None] + decay)) / np.where(joint > 0, joint, 1.0)
    return float(weights @ np.where(joint > 0, span, length) @ weights)
