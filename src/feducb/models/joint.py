"""What an agent knows of θ* from its own records and the others' sum together (``play="own"``).

Everything here takes leading axes: one agent, or runs × agents.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from feducb.config import Problem
from feducb.models.mixture import MixtureBound, narrowest
from feducb.models.parts import Eigenbasis, Parts
from feducb.types import Array, Belief, Statistics

__all__ = ["Hearing", "JointBound", "Others", "weight_of"]

_WIDER = 1.1  # than alone in some direction, by so much at most
_DOUBT = 0.15  # the chance of χ² below which own records contradict the others' in all directions together,
_SHORT = 0.03  # and in the one that others praise
_EARLY = 0.65  # of the records with which it may still look around: with fewer, doubt costs least,
_LESS = 0.25  # and so much of the tolerance is left
_SURE = 1.3  # S over the longest half-axis of alone's set, from which on it is acted on
_LEAST = 1e-3  # records of a direction that least squares begins with
_FIRM = 10.0  # records as scattered as rewards may be, beside those that say how scattered they are
_TIMES = 10.0  # the planned records: a sum of more is left
_ROUNDED = 1e-3  # of the planned records in a direction: what rounding may take off a Gram, noise or not


class Hearing(IntEnum):
    """Whether an agent in its own phase reads the others' sum, and if not why."""

    HEARD = 0
    IMPOSSIBLE = 1  # no records add up to that sum
    CONTRADICTED = 2  # own records speak against it
    NO_HELP = 3  # it tells no more than own records do, or what these rule out
    UNKNOWN = 4  # what is the others' cannot be told from the last sum


@dataclass(frozen=True, slots=True)
class Others:
    """What the others' shared records came to, for an agent: the sum at the close less its own records.

    Attributes:
        basis: the eigenvectors of A = G + H.
        values: (..., d), its eigenvalues.
        moment: (..., d), a = u + h, in their basis.
    """

    basis: Eigenbasis
    values: Array
    moment: Array

    @classmethod
    def of(cls, gram: Array, moment: Array) -> Others:
        """From A (..., d, d) and a (..., d)."""
        basis = Eigenbasis.of(gram)
        return cls(basis, basis.values, basis.turn_in(moment))

    def matrix(self, entries: Array) -> Array:
        """(..., d, d), with these eigenvalues (..., d) in A's place."""
        return self.basis.matrix(entries)

    def vector(self, entries: Array) -> Array:
        """(..., d), out of A's eigenbasis."""
        return self.basis.turn_out(entries)

    def parts(self, own: Statistics) -> Parts:
        """Those that own records have as well."""
        return self.basis.parts.together(own.gram)


def weight_of(problem: Problem, evenly: float, noise: float, distance: float) -> float:
    """c, what a record of the others is worth to an agent beside one of its own; public.

    Others' records spread evenly give G = ``evenly`` · I, whose moment has the variance σ²G of rewards,
    ``noise`` of privacy and (h²/d)G² of sites that differ by h; own records have the first alone.
    """
    rewards = problem.noise_scale**2 * evenly
    if not rewards:  # there are no others
        return 0.0
    return rewards / (rewards + noise + distance**2 / problem.dim * evenly**2)


@dataclass(frozen=True, kw_only=True, slots=True)
class JointBound:
    """A set around an agent's θ* from raw own sums and the others' noisy one. Proof: docs/theory.md, 10.

    Own G₀, u₀, which grow, and others A, a, which stand still. For a public weight c, with N = G₀ + cA and
    y = u₀ + ca,

        ‖y − Nθ*‖²_{Σ⁻¹} ≤ 2 ln x + log det(Σ/Λ),
        Σ = σ²G₀ + c²(σ²(A + λ√w I)₊ + wD̄ I) + ΛI,   Λ = ½c²wD̄ + ρσ².

    Where sites are alike this set and alone's hold together but for a chance of α, whichever is read. Alone's
    is read if others' sum is none that records can have, if the joint set is wider in some direction by more
    than a tenth, if its centre lies outside of alone's, or if own records contradict the others'. So whatever
    these sent, the set that is read is no wider than 1.1 times alone's and centred no further off than own
    records allow. Its `estimate`, for those who act on that alone, is held to nothing more.

    Who followed others that it no longer hears has records of few directions, and would do badly to act on
    them at once: as an agent alone begins with uniform draws, it looks around first (`_looking`).

    Attributes:
        alone: reads own sums alone.
        variance: w, of the sum at the close.
        evenly: what others' records add to A in each direction, as many as are planned and spread evenly.
        weight: c. The further sites may be apart the less it is, and the sooner own records outweigh others'.
        distance: h, how far apart sites are taken to be, for the `estimate`.
        tolerance: how far from the others own records may be before they contradict them. It may be less than
            h: others further off are no help. Early it is a quarter of that.
        looks: how many own records there are at most when it looks around.
        log_threshold: ln x.
        gram_radius: λ, at its own share of α.
        residual: D̄.
        rounding: as in `MixtureBound`.
    """

    alone: MixtureBound
    variance: float
    evenly: float
    weight: float
    distance: float
    tolerance: float
    looks: int
    log_threshold: float
    gram_radius: float
    residual: float
    rounding: float = 0.0

    @property
    def problem(self) -> Problem:
        """The public bounds."""
        return self.alone.problem

    def belief(self, own: Statistics, others: Others) -> Belief:
        """What both tell."""
        return self.weigh(own, others)[0]

    def weigh(self, own: Statistics, others: Others) -> tuple[Belief, NDArray[np.int64]]:
        """What both tell, and (...) whether the others' sum is read: numbers of `Hearing`."""
        possible = self.possible(others)
        values, moment = (np.where(possible[..., None], one, 0.0) for one in (others.values, others.moment))
        others, parts = Others(others.basis, values, moment), others.parts(own)
        joint, alone = self.read(own, others), self._alone(own)
        agreed = np.where(_within(joint, alone, parts), Hearing.HEARD, Hearing.NO_HELP)
        fits = np.where(self.contradicted(own, others), Hearing.CONTRADICTED, agreed)
        hearing = np.where(possible, fits, Hearing.IMPOSSIBLE).astype(np.int64)
        return _either(hearing == Hearing.HEARD, joint, self._looking(own, alone)), hearing

    def unheard(self, own: Statistics) -> Belief:
        """What own records tell by themselves."""
        return self._looking(own, self._alone(own))

    def _alone(self, own: Statistics) -> Belief:
        return self.alone.belief(own.gram, own.moment, np.zeros(own.moment.shape[:-1]))

    def _looking(self, own: Statistics, alone: Belief) -> Belief:
        """Alone's set, once it says something in every direction.

        Before that, and for a public number of records at most, the candidate is played of which own records
        say least: the set is taken around 0, as much wider as it then must be, so that it still holds θ*.
        """
        parts = Parts.of(own.gram)  # and of alone's set
        longest = np.sqrt(parts.eigenvalues(alone.inverse)[..., -1]) * alone.ellipsoid_width
        looks = (longest * _SURE > self.problem.parameter_bound) & (own.count < self.looks)
        around = replace(
            alone,
            theta=np.zeros_like(alone.theta),
            ellipsoid_width=alone.ellipsoid_width + np.sqrt(_squared(alone.theta, alone.inverse, parts)),
        )
        return _either(looks, around, alone)

    def read(self, own: Statistics, others: Others) -> Belief:
        """The joint set, whatever alone's is."""
        problem, prior, weight, parts = self.problem, self._prior, self.weight, others.parts(own)
        squared = problem.noise_scale**2
        design = np.maximum(others.values + self.gram_radius * self.variance**0.5, 0.0)
        spread = weight**2 * (squared * design + self.variance * self.residual) + prior
        scatter = squared * own.gram + others.matrix(spread)
        gram = own.gram + others.matrix(weight * others.values)
        moment = own.moment + weight * others.vector(others.moment)
        log_det = parts.log_det(scatter) - problem.dim * math.log(prior)
        radius = (np.sqrt(2.0 * self.log_threshold + log_det) + self.rounding) ** 2
        signal, pull, weighed = _normal_equations(parts, gram, moment, scatter, radius)
        basis = Eigenbasis.of(signal, parts)
        precision, centre, size = narrowest(
            np.maximum(basis.values, 0.0), basis.turn_in(pull), moment * weighed, problem.parameter_bound
        )
        return Belief(
            theta=basis.turn_out(centre),
            inverse=basis.matrix(1.0 / precision),
            ellipsoid_width=np.sqrt(size),
            euclidean_width=np.zeros_like(size),
            estimate=self._likely(own, others),
        )

    def possible(self, others: Others) -> NDArray[np.bool_]:
        """(...), whether records can add up to that: no less than noise takes off, nor far more than planned.

        Of n records ‖u‖ ≤ nLB, and tr G ≤ nL².
        """
        problem, noise = self.problem, self.gram_radius * self.variance**0.5
        least = -noise - _ROUNDED * self.evenly  # an exact Gram of few directions rounds to less than none
        squares = problem.dim * _TIMES * self.evenly  # nL²
        longest = squares * problem.reward_bound / problem.action_bound + noise * math.sqrt(self.residual)
        with np.errstate(over="ignore", invalid="ignore"):
            few = others.values.sum(axis=-1) <= squares + problem.dim * noise
        short = np.abs(others.moment).max(axis=-1) <= longest
        return np.asarray(few & short & (others.values.min(axis=-1) >= least))

    def contradicted(self, own: Statistics, others: Others) -> NDArray[np.bool_]:
        """(...), whether own records, by χ², are further from the others' than noise and tolerance h explain.

        If θ_m − θ has the variance (h²/d)I, own least squares less the others' estimate f has that of both
        and (h²/d)I more. Rewards scatter less than their bound σ says, and what own records tell of that
        counts here, where nothing is proven: a test at σ would take twice the records to speak. Of d
        directions the one in which others promise most is looked at by itself as well: whether rewards are
        what f says of the actions that were played, fᵀu₀ against fᵀG₀f.
        """
        problem, dim, parts = self.problem, self.problem.dim, others.parts(own)
        tolerance = self.tolerance * (_LESS if own.count < _EARLY * self.looks else 1.0)
        signal, pull = self._information(others, 0.0)
        precision = signal + dim / problem.parameter_bound**2
        said, spread = others.vector(pull / precision), others.matrix(1.0 / precision + tolerance**2 / dim)
        inverse = parts.inverse(own.gram + _LEAST * problem.action_bound**2 * np.eye(dim))
        least = np.einsum("...de,...e->...d", inverse, own.moment)
        noise = self._scatter(own, least)
        apart = _squared(least - said, noise[..., None, None] * inverse + spread, parts) > chi2.isf(
            _DOUBT, dim
        )
        promised = np.einsum("...de,...e->...d", own.gram, said)
        short = (said * (promised - own.moment)).sum(axis=-1)
        scatter = noise * (said * promised).sum(axis=-1)
        scatter = scatter + np.einsum("...d,...de,...e->...", promised, spread, promised)
        return np.asarray(apart | (short**2 > chi2.isf(_SHORT, 1) * scatter))

    def _scatter(self, own: Statistics, least: Array) -> Array:
        """(...), the variance of rewards around least squares (..., d); never above its bound σ²."""
        most, freedom = self.problem.noise_scale**2, max(own.count - self.problem.dim, 0)
        left = np.maximum(own.squares - (least * own.moment).sum(axis=-1), 0.0)
        return np.asarray(np.minimum((left + _FIRM * most) / (freedom + _FIRM), most))

    @property
    def _prior(self) -> float:
        """Λ."""
        own = self.alone.regularizer * self.problem.noise_scale**2
        return 0.5 * self.weight**2 * self.variance * self.residual + own

    def _likely(self, own: Statistics, others: Others) -> Array:
        """An estimate that weighs both by their noise, as `MixtureBound` has one; nothing is proven."""
        squared, eye = self.problem.noise_scale**2, np.eye(self.problem.dim)
        signal, pull = self._information(others, self.distance)
        weighed = own.gram / squared + others.matrix(signal) + eye / self.problem.parameter_bound**2
        pulled = own.moment / squared + others.vector(pull)
        return others.parts(own).solve(weighed, pulled)

    def _information(self, others: Others, distance: float) -> tuple[Array, Array]:
        """In A's eigenbasis what the others tell of θ*: precisions (..., d), and these times an estimate."""
        values = np.maximum(others.values, 0.0)
        differ = distance**2 / self.problem.dim * values**2
        spread = self.problem.noise_scale**2 * values + self.variance * self.residual + differ
        share = np.divide(values, spread, out=np.zeros_like(values), where=spread > 0.0)
        return share * values, share * others.moment


def _normal_equations(
    parts: Parts, gram: Array, moment: Array, scatter: Array, radius: Array
) -> tuple[Array, Array, Array]:
    """NΣ⁻¹N (..., d, d), NΣ⁻¹y and Σ⁻¹y (..., d), each over r² (...), part by part."""
    signals, pulls, weighed = [], [], []
    pieces = zip(*map(parts.cut_matrix, (gram, scatter)), parts.cut(moment), strict=True)
    for design, spread, pulled in pieces:
        solved = np.linalg.solve(spread, np.concatenate([design, pulled[..., None]], axis=-1))
        solved /= radius[..., None, None, None]
        signals.append(design @ solved[..., :-1])
        pulls.append((design @ solved[..., -1:])[..., 0])
        weighed.append(solved[..., -1])
    return parts.join_matrix(signals), parts.join(pulls), parts.join(weighed)


def _within(joint: Belief, alone: Belief, parts: Parts) -> NDArray[np.bool_]:
    """Whether a set is at most `_WIDER` as wide as alone's in all directions, its centre in alone's."""
    most = alone.inverse * (_WIDER * alone.ellipsoid_width[..., None, None]) ** 2
    has = joint.inverse * joint.ellipsoid_width[..., None, None] ** 2
    narrow = parts.eigenvalues(most - has)[..., 0] >= 0.0
    near = _squared(joint.theta - alone.theta, alone.inverse, parts) <= alone.ellipsoid_width**2
    return np.asarray(narrow & near)


def _squared(off: Array, inverse: Array, parts: Parts) -> Array:
    """(...), ‖off‖²_P from P⁻¹, which has these parts."""
    return np.asarray((off * parts.solve(inverse, off)).sum(axis=-1))


def _either(which: NDArray[np.bool_], one: Belief, other: Belief) -> Belief:
    """The one where ``which``, the other elsewhere."""

    def pick(name: str) -> Array:
        first, second = getattr(one, name), getattr(other, name)
        return np.asarray(
            np.where(which.reshape(which.shape + (1,) * (first.ndim - which.ndim)), first, second)
        )

    return Belief(**{part.name: pick(part.name) for part in fields(Belief)})
