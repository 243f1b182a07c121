"""Chen, Li, Rakhlin & Simchi-Levi 2025 (arXiv 2502.13115): information-weighted private regression in epochs.

Under privacy not the covariance of contexts says how well θ* can be known, but an L₁ analogue of it: where a
record is x, noise is the same whether x is long or short in a direction that matters. So records are
weighted. With W such that W E[w x xᵀ] W = I, w = 1/(1 + γ‖Wx‖) and u = w W x, the equation
E[u xᵀ] θ = E[u y] is solved under noise: u is at most 1/γ long, and the error at x is in proportion to ‖Wx‖.
γ → ∞ is the weight 1/‖Ux‖ of their local model, γ → 0 ordinary regression in whitened coordinates; their
joint model is between. Bandits play in epochs of doubling length, each by what the last ones told.

Neighbours differ in one interaction, which is in one sum of one epoch: an epoch costs what the stream does.
Told centrally (their joint model), or by every agent for its own sums (*silos*).

What is resolved: W is found by one step an epoch, from a quarter of its records, beginning at the W of the
epoch before (their iteration, spread over epochs); γ is in proportion to where noise and rewards err alike;
sums (u xᵀ, κ u y) move by what two records differ at most (`Weighting.move`, exact for W in proportion to I),
the Gaussian is exact for that, κ where it errs least; the best estimate is played, which lost several times
less in the worlds tried than drawing among the actions that no epoch has ruled out. The first epoch and the
ridge are tuned; so was γ, once for all: from 12 times its usual on it changes a hundredth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from feducb.config import Budget, Problem
from feducb.privacy.calibration import to_mu
from feducb.simulation.results import SimulationResult
from feducb.types import Array, Indices
from feducb.worlds.family import named_world
from feducb.worlds.streams import Purpose, Streams
from feducb.worlds.world import Contexts, Environment
from feducb_lab.experiments.prior.by_itself import Lasting

__all__ = ["Weighting", "reweighted_epochs", "told"]

UNIT = "one interaction: an action and its reward, replaced by another"
_AT_ONCE = 50  # rounds that are played together
_LONGEST = 1e3  # of W: what an epoch has not seen at all is not worth more
_LENGTHS = np.append(0.0, np.geomspace(1e-4, 1.0, 60))  # of records over L: intervals of `Weighting.move`
_DROWNED = 0.3  # of the noise of S: smaller eigenvalues are lifted to it (tuned)


@dataclass(frozen=True, slots=True)
class Weighting:
    """W, γ and the noise that goes with them.

    Attributes:
        root: (d, d), W.
        damping: γ.
        mu: μ of one interaction; ∞ tells sums as they are.
        noises: how many add noise: 1, or M silos.
    """

    root: Array
    damping: float
    mu: float
    noises: int = 1

    def damped(self, actions: Array) -> Array:
        """(n, d), u = W x/(1 + γ‖Wx‖), at most 1/γ long."""
        turned = actions @ self.root
        return np.asarray(turned / (1.0 + self.damping * np.linalg.norm(turned, axis=1, keepdims=True)))

    def reward_weight(self, problem: Problem) -> float:
        """κ, where the noise of y u − (u xᵀ)θ* is least: of `move`² (1/κ² + S²)."""
        return _reward_weight(*self._shape(), problem)

    def _shape(self) -> tuple[float, float, float]:
        """Of W the longest axis and the shortest, and γ."""
        longest, shortest = (float(np.linalg.norm(self.root, order)) for order in (2, -2))
        return longest, shortest, self.damping

    def longest(self, problem: Problem, *, rewarded: bool = True) -> float:
        """Of (u xᵀ, κ u y), or of u xᵀ alone: what u can be at most, times √(L² + κ²B²) or L."""
        stretched = float(np.linalg.norm(self.root, 2)) * problem.action_bound
        long = stretched / (1.0 + self.damping * stretched)
        reward = self.reward_weight(problem) * problem.reward_bound if rewarded else 0.0
        return long * math.hypot(problem.action_bound, reward)

    def move(self, problem: Problem, *, rewarded: bool = True) -> float:
        """How far apart (u xᵀ, κ u y), or u xᵀ alone, of two records can be; at most twice the longest.

        Let a, a' be the lengths of u, u', and r, r' of x, x', with cosines s of u, u' and t of x, x'. The
        square of the distance is a²(r² + κ²y²) + a'²(r'² + κ²y'²) − 2aa's(rr't + κ²yy'), and s ≥ 0 without
        loss, since −x' has −u'. It is convex in each of y, y', a, a', r, r' by itself, so that it is greatest
        at an end of each of their ranges. Of y, y' these are ±B, of opposite signs at worst: with b = κ²B²
        that leaves a²(r² + b) + a'²(r'² + b) + 2aa's(b − rr't). At most a is A(r) = ‖W‖r/(1 + γ‖W‖r), which
        rises: r is divided into intervals, in each of which r is at either end and a is 0 or A(upper end),
        which bounds what is between. How large s(b − rr't) can be says Wielandt's inequality, that
        tan(φ/2) ≥ tan(θ/2)/k for the angles θ of x, x' and φ of Wx, Wx', k the condition number of W: it is
        at most the maximum over z = tan²(θ/2) of (k² − z)/(k² + z) · (b − rr'(1 − z)/(1 + z)) (`_crossed`).

        Where W = wI all of this is attained but for the intervals: for L = B = S = 1, 3/√2 = 2.12 times A(L)
        while γw is moderate, up to √5 of it for a large γw, where short records count like long ones; twice
        the longest is 2√2. The more W differs from I the nearer this is to twice the longest, and that is
        attained for a large γ.
        """
        weight = self.reward_weight(problem) if rewarded else 0.0
        return _move(*self._shape(), problem, weight)

    def deviation(self, problem: Problem, *, rewarded: bool = True) -> float:
        """Of the noise of each entry."""
        return self.move(problem, rewarded=rewarded) * math.sqrt(self.noises) / self.mu


def _move(longest: float, shortest: float, damping: float, problem: Problem, weight: float) -> float:
    """`Weighting.move` for this κ; without rewards κ = 0."""
    b, upper = (weight * problem.reward_bound) ** 2, problem.action_bound * _LENGTHS[1:]
    a = np.tile(longest * upper / (1.0 + damping * longest * upper), 2)
    r = np.append(problem.action_bound * _LENGTHS[:-1], upper)
    own = a**2 * (r**2 + b)
    crossed = np.outer(a, a) * _crossed((longest / shortest) ** 2, b, np.outer(r, r))
    return math.sqrt(max(float((own[:, None] + own + 2.0 * crossed).max()), float(own.max())))


@lru_cache(maxsize=512)
def _reward_weight(longest: float, shortest: float, damping: float, problem: Problem) -> float:
    """`Weighting.reward_weight`: at most where (L² + κ²B²)(1/κ² + S²) is least, which is right for k → ∞."""
    most = math.sqrt(problem.action_bound / (problem.reward_bound * problem.parameter_bound))
    weights = [most * share for share in np.linspace(1.0, 0.6, 9)]
    errors = [
        _move(longest, shortest, damping, problem, weight) * math.hypot(1.0 / weight, problem.parameter_bound)
        for weight in weights
    ]
    return float(weights[int(np.argmin(errors))])


def _crossed(squared: float, b: float, product: Array) -> Array:
    """The maximum over z ≥ 0 of (m − z)/(m + z) · (b − ρ(1 − z)/(1 + z)), for m = k² and each ρ.

    Where z > 0 it is the smaller λ with a double root of numerator − λ · denominator, which is
    λ²(m − 1)² − 2λQ + (mp + q)² = 0 for p = b + ρ, q = b − ρ and Q = m²p + 3mp − 3mq − q; else q, at z = 0.
    """
    m, p, q = squared, b + product, b - product
    half = m * m * p + 3.0 * m * (p - q) - q
    root = np.sqrt(np.maximum(half**2 - ((m - 1.0) * (m * p + q)) ** 2, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = (m * p + q) ** 2 / (half + root)
        there = m * p - q - inside * (m + 1.0) >= 0.0
    return np.where(there, inside, q)


def told(
    weighting: Weighting,
    problem: Problem,
    actions: Array,
    rewards: Array | None,
    generator: np.random.Generator,
) -> tuple[Array, Array]:
    """Σ u xᵀ (d, d) and Σ u y (d,) under noise; without rewards the first alone, and zeros."""
    damped = weighting.damped(actions)
    noise = weighting.deviation(problem, rewarded=rewards is not None)
    gram = damped.T @ actions + noise * generator.standard_normal((problem.dim, problem.dim))
    if rewards is None:
        return gram, np.zeros(problem.dim)
    scale = noise / weighting.reward_weight(problem)
    return gram, damped.T @ rewards + scale * generator.standard_normal(problem.dim)


def _stepped(weighting: Weighting, gram: Array, records: int, floor: float) -> Weighting:
    """The next W, S^−½ of S = E[w x xᵀ] from Σ u xᵀ = W Σ w x xᵀ; what noise drowns is not stretched."""
    seen = np.linalg.solve(weighting.root, gram) / records
    values, axes = np.linalg.eigh((seen + seen.T) / 2.0)
    values = np.maximum(values, max(floor, _LONGEST**-2))
    return replace(weighting, root=(axes / np.sqrt(values)) @ axes.T)


def _estimate(weighting: Weighting, problem: Problem, gram: Array, moment: Array, ridge: float) -> Array:
    """θ̂ = W (Σ u xᵀ W + r I)⁻¹ Σ u y, r so many times the noise of that matrix, which is about n I."""
    noise = weighting.deviation(problem) * float(np.linalg.norm(weighting.root, 2))
    inner = gram @ weighting.root + ridge * noise * np.eye(problem.dim)
    return np.asarray(weighting.root @ np.linalg.solve(inner, moment))


def _choose(theta: Array | None, contexts: Contexts, coins: Array) -> Indices:
    """(1, agents, R), the best candidates by θ̂; any, while there is none."""
    if theta is None:
        return np.asarray((coins * contexts.actions.shape[-2]).astype(np.int64)[None])
    return np.asarray((contexts.actions @ theta).argmax(axis=-1))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Epochs:
    """All that a run needs to know."""

    world: Environment
    lasting: Lasting
    first: int
    damping: float
    ridge: float
    mu: float
    noises: int

    def ends(self) -> list[int]:
        """The last rounds of all epochs but the last, which nobody reads."""
        ends, length = list[int](), self.first
        while sum(ends[-1:]) + 2 * length <= self.lasting.horizon:
            ends.append(sum(ends[-1:]) + length)
            length *= 2
        return ends

    def run(self, streams: Streams, run: int) -> Array:
        """(T,), what the average agent loses in each round."""
        problem, agents = self.world.problem, self.lasting.agents
        visits = self.world.open(streams, range(run, run + 1), range(agents))
        noise, coins = streams.shared(run, Purpose.NOISE), streams.shared(run, Purpose.PLAY)
        start = math.sqrt(problem.dim) / problem.action_bound
        weighting = Weighting(start * np.eye(problem.dim), 1.0, self.mu, self.noises)
        theta, begin, lost = None, 0, list[Array]()
        for end in (*self.ends(), self.lasting.horizon):
            kept: list[tuple[Array, Array]] = []
            for now in range(begin, end, _AT_ONCE):
                contexts = visits.arrive(min(_AT_ONCE, end - now))
                assert contexts.best is not None
                chosen = contexts.chosen(_choose(theta, contexts, coins.random(contexts.best.shape[1:])))
                lost.append((contexts.best - chosen.means).mean(axis=(0, 1)))
                if end < self.lasting.horizon:
                    kept.append((chosen.actions.reshape(-1, problem.dim), visits.reward(chosen).ravel()))
            if kept:
                actions, rewards = (np.concatenate(part) for part in zip(*kept, strict=True))
                weighting, theta = self.learn(weighting, actions, rewards, noise)
            begin = end
        return np.concatenate(lost)

    def learn(
        self, weighting: Weighting, actions: Array, rewards: Array, noise: np.random.Generator
    ) -> tuple[Weighting, Array]:
        """W from a quarter of an epoch's records, θ̂ from the rest."""
        problem, cut = self.world.problem, len(rewards) // 4
        # noise of 2/(γμ) beside rewards' ½√n
        damping = self.damping * 4.0 * math.sqrt(self.noises) / (self.mu * math.sqrt(len(rewards)))
        weighting = replace(weighting, damping=damping)
        gram, _ = told(weighting, problem, actions[:cut], None, noise)
        drowned = _DROWNED * weighting.deviation(problem, rewarded=False) * math.sqrt(problem.dim) / cut
        weighting = _stepped(weighting, gram, cut, drowned / float(np.linalg.norm(weighting.root, -2)))
        gram, moment = told(weighting, problem, actions[cut:], rewards[cut:], noise)
        return weighting, _estimate(weighting, problem, gram, moment, self.ridge)


def reweighted_epochs(
    *,
    first: int,
    damping: float = 24.0,
    ridge: float = 1.0,
    environment: str = "paper",
    trust: str = "controller",
    **setting: Any,
) -> SimulationResult:
    """Epochs of doubling length, the first of ``first`` rounds; γ is ``damping`` times its usual."""
    given = {name: setting.pop(name, usual) for name, usual in (("epsilon", 1.0), ("delta", 1e-6))}
    lasting, mu = Lasting(**setting), to_mu(Budget(**given))
    epochs = _Epochs(
        world=named_world(environment, Problem(dim=lasting.dim), lasting.arms),
        lasting=lasting,
        first=first,
        damping=damping,
        ridge=ridge,
        mu=mu,
        noises=lasting.agents if trust == "nobody" else 1,
    )
    privacy = given | {"mu": mu, "trust": trust, "unit": UNIT, "mechanism": "two sums an epoch"}
    return lasting.play(epochs.run, epochs.ends(), privacy=privacy)
