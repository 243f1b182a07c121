"""What an agent knows of θ* from its own records and the others' sum together (``play="own"``).

Everything here takes leading axes: one agent, or runs × agents.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from feducb.config import Problem
from feducb.models.mixture import MixtureBound, narrowest
from feducb.types import Array, Belief, Indices, Statistics

__all__ = ["JointBound", "Others", "weight_of"]

_WIDER = 1.1  # than alone in some direction, by so much at most
_DOUBT = 1.5  # of log-likelihood below the likeliest: a distance within it is not ruled out
_LEAST = 1e-3  # records of a direction that least squares begins with
_MOST = 1e12  # over Λ: a sum with more scatter is no honest one's, and too much to compute with


@dataclass(frozen=True, slots=True)
class Others:
    """What the others' shared records came to, for an agent: the sum at the close less its own records.

    Attributes:
        values: (..., d), rising eigenvalues of A = G + H.
        vectors: (..., d, d), its eigenvectors, as columns.
        moment: (..., d), a = u + h, in their basis.
    """

    values: Array
    vectors: Array
    moment: Array

    @classmethod
    def of(cls, gram: Array, moment: Array) -> Others:
        """From A (..., d, d) and a (..., d)."""
        values, vectors = np.linalg.eigh(gram)
        return cls(values, vectors, np.einsum("...dk,...d->...k", vectors, moment))

    def matrix(self, entries: Array) -> Array:
        """(..., d, d), with these eigenvalues (..., d) in A's place."""
        return np.asarray((self.vectors * entries[..., None, :]) @ np.swapaxes(self.vectors, -1, -2))

    def vector(self, entries: Array) -> Array:
        """(..., d), out of A's eigenbasis."""
        return np.asarray(np.einsum("...dk,...k->...d", self.vectors, entries))


def weight_of(problem: Problem, evenly: float, noise: float, distance: float) -> float:
    """c, what a record of the others is worth to an agent beside one of its own; public.

    Others' records spread evenly give G = ``evenly`` · I, whose moment has the variance σ²G of rewards,
    ``noise`` of privacy and (h²/d)G² of sites that differ by h; own records have the first alone.
    """
    rewards = problem.noise_scale**2 * evenly
    return rewards / (rewards + noise + distance**2 / problem.dim * evenly**2)


@dataclass(frozen=True, kw_only=True, slots=True)
class JointBound:
    """A set around an agent's θ* from raw own sums and the others' noisy one. Proof: docs/theory.md, 10.

    Own G₀, u₀, which grow, and others A, a, which stand still. For each public weight c_j, with N = G₀ + c_jA
    and y = u₀ + c_ja,

        ‖y − Nθ*‖²_{Σ⁻¹} ≤ 2 ln x_j + log det(Σ/Λ_j),
        Σ = σ²G₀ + c_j²(σ²(A + λ√w I)₊ + wD̄ I + (h_j²/d)A²) + Λ_j I,   Λ_j = ½c_j²wD̄ + ρσ².

    Where sites are alike all of them hold together, and with them alone's, but for a chance of α, whichever
    is read; h_j widens the j-th for sites that differ, for which nothing is proven. The one that is read is
    picked by what own records say of it, given the others'; alone's is read instead if the one that is picked
    is wider than that in some direction by more than a tenth, or if its centre lies outside of alone's. So
    whatever the others sent, the set that is read is no wider than 1.1 times alone's and centred no further
    off than own records allow. Its `estimate`, for those who act on that alone, is held to nothing.

    Attributes:
        alone: reads own sums alone.
        variance: w, of the sum at the close.
        weights: c_j.
        distances: h_j, rising.
        log_thresholds: ln x_j.
        gram_radius: λ, at its own share of α.
        residual: D̄.
        rounding: as in `MixtureBound`.
    """

    alone: MixtureBound
    variance: float
    weights: tuple[float, ...]
    distances: tuple[float, ...]
    log_thresholds: tuple[float, ...]
    gram_radius: float
    residual: float
    rounding: float = 0.0

    @property
    def problem(self) -> Problem:
        """The public bounds."""
        return self.alone.problem

    def belief(self, own: Statistics, others: Others) -> Belief:
        """What both tell."""
        others = self._tame(others)
        joint = self.read(own, others, self.largest_likely(own, others))
        alone = self.alone.belief(own.gram, own.moment, np.zeros(own.moment.shape[:-1]))
        chosen = _within(joint, alone)

        def pick(name: str) -> Array:
            one, other = getattr(joint, name), getattr(alone, name)
            return np.asarray(
                np.where(chosen.reshape(chosen.shape + (1,) * (one.ndim - chosen.ndim)), one, other)
            )

        return Belief(**{one.name: pick(one.name) for one in fields(Belief)})

    def read(self, own: Statistics, others: Others, picked: Indices) -> Belief:
        """The set of the distance numbered ``picked`` (...), whatever alone's is."""
        problem, dim = self.problem, self.problem.dim
        squared, noise = problem.noise_scale**2, self.variance * self.residual
        weight, distance, log_threshold = (
            np.array(values)[picked] for values in (self.weights, self.distances, self.log_thresholds)
        )
        prior = 0.5 * weight**2 * noise + self.alone.regularizer * squared
        design = np.maximum(others.values + self.gram_radius * self.variance**0.5, 0.0)
        differ = (distance**2 / dim)[..., None] * others.values**2
        spread = weight[..., None] ** 2 * (squared * design + noise + differ) + prior[..., None]
        scatter = squared * own.gram + others.matrix(spread)
        gram = own.gram + others.matrix(weight[..., None] * others.values)
        moment = own.moment + weight[..., None] * others.vector(others.moment)
        log_det = np.linalg.slogdet(scatter)[1] - dim * np.log(prior)
        radius = (np.sqrt(2.0 * log_threshold + log_det) + self.rounding) ** 2
        solved = np.linalg.solve(scatter, np.concatenate([gram, moment[..., None]], axis=-1))
        solved /= radius[..., None, None]
        pull = (gram @ solved[..., -1:])[..., 0]
        values, vectors = np.linalg.eigh(gram @ solved[..., :-1])
        precision, centre, size = narrowest(
            np.maximum(values, 0.0),
            np.einsum("...dk,...d->...k", vectors, pull),
            moment * solved[..., -1],
            problem.parameter_bound,
        )
        return Belief(
            theta=np.einsum("...dk,...k->...d", vectors, centre),
            inverse=(vectors / precision[..., None, :]) @ np.swapaxes(vectors, -1, -2),
            ellipsoid_width=np.sqrt(size),
            euclidean_width=np.zeros_like(size),
            estimate=self._likely(own, others, distance),
        )

    def _tame(self, others: Others) -> Others:
        """Nothing in place of sums so large that rounding would decide what they tell."""
        squared, weight, distance = (
            self.problem.noise_scale**2,
            *map(np.array, (self.weights, self.distances)),
        )
        prior = 0.5 * weight**2 * self.variance * self.residual + self.alone.regularizer * squared
        size = np.maximum(np.abs(others.values), np.abs(others.moment)).max(axis=-1)[..., None]
        with np.errstate(over="ignore", invalid="ignore"):
            scatter = weight**2 * (squared * size + distance**2 / self.problem.dim * size**2)
        kept = (scatter <= _MOST * prior).all(axis=-1)[..., None]
        values, moment = (np.where(kept, part, 0.0) for part in (others.values, others.moment))
        return Others(values, others.vectors, moment)

    def largest_likely(self, own: Statistics, others: Others) -> Indices:
        """(...), the number of the largest distance that own records, given the others', do not rule out.

        With θ_m − θ ~ N(0, (h²/d)I), own least squares less the others' estimate is Gaussian, with the
        variance of both and (h²/d)I more.
        """
        if len(self.distances) == 1:
            return np.zeros(own.moment.shape[:-1], dtype=np.int64)
        problem, dim = self.problem, self.problem.dim
        signal, pull = self._information(others, np.zeros(own.moment.shape[:-1]))
        precision = signal + dim / problem.parameter_bound**2
        inverse = np.linalg.inv(own.gram + _LEAST * problem.action_bound**2 * np.eye(dim))
        off = np.einsum("...de,...e->...d", inverse, own.moment) - others.vector(pull / precision)
        sizes, axes = np.linalg.eigh(problem.noise_scale**2 * inverse + others.matrix(1.0 / precision))
        off = np.einsum("...dk,...d->...k", axes, off)
        sizes = sizes[..., None, :] + (np.array(self.distances) ** 2 / dim)[:, None]
        likely = -0.5 * (np.log(sizes) + off[..., None, :] ** 2 / sizes).sum(axis=-1)
        possible = likely >= likely.max(axis=-1, keepdims=True) - _DOUBT
        return np.asarray(len(self.distances) - 1 - np.argmax(possible[..., ::-1], axis=-1))

    def _likely(self, own: Statistics, others: Others, distance: Array) -> Array:
        """An estimate that weighs both by their noise, as `MixtureBound` has one; nothing is proven."""
        squared, eye = self.problem.noise_scale**2, np.eye(self.problem.dim)
        signal, pull = self._information(others, distance)
        weighed = own.gram / squared + others.matrix(signal) + eye / self.problem.parameter_bound**2
        pulled = own.moment / squared + others.vector(pull)
        return np.asarray(np.linalg.solve(weighed, pulled[..., None])[..., 0], dtype=np.float64)

    def _information(self, others: Others, distance: Array) -> tuple[Array, Array]:
        """In A's eigenbasis what the others tell of θ*: precisions (..., d), and these times an estimate."""
        values = np.maximum(others.values, 0.0)
        differ = (distance**2 / self.problem.dim)[..., None] * values**2
        spread = self.problem.noise_scale**2 * values + self.variance * self.residual + differ
        share = np.divide(values, spread, out=np.zeros_like(values), where=spread > 0.0)
        return share * values, share * others.moment


def _within(joint: Belief, alone: Belief) -> NDArray[np.bool_]:
    """Whether a set is at most `_WIDER` as wide as alone's in all directions, its centre in alone's."""
    most = alone.inverse * (_WIDER * alone.ellipsoid_width[..., None, None]) ** 2
    has = joint.inverse * joint.ellipsoid_width[..., None, None] ** 2
    off = joint.theta - alone.theta
    squared = (off * np.linalg.solve(alone.inverse, off[..., None])[..., 0]).sum(axis=-1)
    narrow = np.linalg.eigvalsh(most - has)[..., 0] >= 0.0
    return np.asarray(narrow & (squared <= alone.ellipsoid_width**2))
