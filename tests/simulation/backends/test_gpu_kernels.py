"""The CUDA kernels play the same game as the reference: same laws, same choices, same sums.

Statistical tests have a fixed seed and say how often a right kernel would fail for another one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from devices import needs_gpu
from feducb.config import Problem
from feducb.models.confidence import PaperBound
from feducb.models.play import OwnDataPlay, Trigger
from feducb.policies import Tempered
from feducb.policies.optimistic import best_by_bound, upper_confidence_bounds
from feducb.simulation.backends.backend import Stretch
from feducb.simulation.backends.gpu_kernels import (
    GpuKernels,
    OwnDataRuns,
    arrowhead,
    others_bound,
)
from feducb.types import Belief
from feducb.worlds.streams import Streams
from feducb.worlds.synthetic import PaperEnvironment

Array = NDArray[np.float64]


def world(dim: int, arms: int, **settings: Any) -> PaperEnvironment:
    return PaperEnvironment(problem=Problem(dim=dim), arms=arms, **settings)


def beliefs(rng: np.random.Generator, runs: int, dim: int, *, wide: bool, records: float = 60.0) -> Belief:
    """Beliefs such as agents have after some records, near θ* = e₁."""
    factor = rng.standard_normal((runs, dim, 3 * dim))
    gram = factor @ np.swapaxes(factor, -1, -2) / (3 * dim) * records + np.eye(dim)
    theta = 0.9 * np.eye(dim)[0] + 0.3 * rng.standard_normal((runs, dim)) / np.sqrt(records)
    inverse = np.asarray(np.linalg.inv(gram), dtype=np.float64)
    return Belief(theta, inverse, rng.uniform(0.5, 1.5, runs), np.full(runs, 0.7 * wide))


def explored(belief: Belief, exploration: float) -> Belief:
    """With both widths scaled."""
    widths = exploration * belief.ellipsoid_width, exploration * belief.euclidean_width
    return Belief(belief.theta, belief.inverse, *widths)


def pick(belief: Belief, run: int) -> Belief:
    return Belief(
        belief.theta[run], belief.inverse[run], belief.ellipsoid_width[run], belief.euclidean_width[run]
    )


def reference_arms(environment: PaperEnvironment, rounds: int, seed: int) -> tuple[Array, Array]:
    """Actions (rounds, K, d) and means (rounds, K) of the reference, turned so that θ* points along e₁."""
    visits = environment.open(Streams(seed), range(1), range(1))
    contexts = visits.arrive(rounds)
    unit = visits.theta[0] / np.linalg.norm(visits.theta[0])
    mirror = unit - np.eye(len(unit))[0]
    length = float(mirror @ mirror)
    actions = contexts.actions[0, 0]
    if length > 0:  # Householder
        actions = actions - (2.0 / length) * (actions @ mirror)[..., None] * mirror
    return actions, contexts.means[0, 0]


# Without a GPU


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 5, 10])
def test_no_other_arm_exceeds_the_bound(rng: np.random.Generator, dim: int, wide: bool) -> None:
    environment = world(dim, 2, parameter_norm=0.9)
    actions, _ = reference_arms(environment, 20_000, seed=dim)
    belief = beliefs(rng, 6, dim, wide=wide, records=20.0)
    bound = others_bound(explored(belief, 0.8), environment)
    for run in range(6):
        scores = upper_confidence_bounds(pick(belief, run), actions[:, 1], exploration=0.8)
        assert scores.max() <= bound[run]
        if dim <= 2:  # few directions: some arm comes close
            assert scores.max() > 0.75 * bound[run]
    # With a part of the bonus a line does: from the bound without widths to that with all of them.
    floor, top = (others_bound(explored(belief, exploration), environment) for exploration in (0.0, 1.0))
    for part in (0.0, 0.1, 0.5, 0.9, 1.0):
        for run in range(6):
            scores = upper_confidence_bounds(pick(belief, run), actions[:, 1], exploration=part)
            assert scores.max() <= floor[run] + part * (top[run] - floor[run])


def test_the_arrowhead_scores_as_the_belief_does(rng: np.random.Generator) -> None:
    belief = beliefs(rng, 3, 6, wide=True)
    frame = arrowhead(explored(belief, 0.5), np.zeros(3), np.zeros(3))
    actions = rng.standard_normal((3, 50, 6))
    turned = actions[..., 1:] @ frame.rotations
    head, side = frame.heads.astype(np.float64), frame.sides.astype(np.float64)
    scores = upper_confidence_bounds(belief, actions, exploration=0.5)
    for run in range(3):
        inverse = np.diag([head[run, 1], *side[run, :, 2]])
        inverse[0, 1:] = inverse[1:, 0] = side[run, :, 1]
        theta = np.array([head[run, 0], *side[run, :, 0]])
        again = Belief(theta, inverse, head[run, 2], head[run, 3])
        x = np.concatenate([actions[run, :, :1], turned[run]], axis=-1)
        np.testing.assert_allclose(upper_confidence_bounds(again, x), scores[run], rtol=1e-5)
        assert head[run, 4] == pytest.approx((side[run, :, 1] ** 2).sum(), rel=1e-5)


def test_dimensions_beyond_the_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="d up to 128"):
        GpuKernels(world(129, 2), seed=0)


# Random numbers


def philox(counter: NDArray[np.uint64], keys: tuple[int, int], rounds: int) -> NDArray[np.uint64]:
    """Philox4x32 in numpy: counter (n, 4)."""
    c0, c1, c2, c3 = counter.T.astype(np.uint64)
    k0, k1 = keys
    low = np.uint64(2**32 - 1)
    for _ in range(rounds):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            p1 & low,
            (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            p0 & low,
        )
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack([c0, c1, c2, c3], axis=-1)


@needs_gpu
@pytest.mark.parametrize(
    ("rounds", "published"),
    [
        (7, (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48)),
        (10, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ],
)
def test_words_are_philox(rounds: int, published: tuple[int, ...]) -> None:
    kernels = GpuKernels(world(3, 4), seed=0, philox_rounds=rounds)
    zero = kernels.draw_words(1, keys=(0, 0), round=0, agent=0, run=0)
    assert tuple(zero[0].tolist()) == published  # Random123's known answers
    keys = (0xA4093822, 0x299F31D0)
    words = kernels.draw_words(1000, keys=keys, round=0x85A308D3, agent=0x13198A2E, run=0x03707344)
    counter = np.zeros((1000, 4), dtype=np.uint64)
    counter[:, 0] = np.arange(1000)
    counter[:, 1:] = 0x85A308D3, 0x13198A2E, 0x03707344
    np.testing.assert_array_equal(words, philox(counter, keys, rounds))


@needs_gpu
@pytest.mark.parametrize("dim", [2, 3, 4, 7, 10])
def test_arms_have_the_law_of_the_environment(dim: int) -> None:
    # Kolmogorov–Smirnov, each at level 1e-6; at most 2d + 3 of them.
    environment = world(dim, 5, parameter_norm=0.9)
    kernels = GpuKernels(environment, seed=7)
    actions, means = kernels.draw_arms(run=3, agents=100, first_round=5, rounds=1000)
    np.testing.assert_allclose(actions[..., 0], means / 0.9, rtol=1e-6)
    assert np.linalg.norm(actions, axis=-1).max() <= 1.0 + 1e-5
    room = np.sqrt(1.0 - actions[..., 0] ** 2)
    free = dim - 1
    inside = actions[..., 1:] / room[..., None]  # uniform in the unit ball
    for arm, (low, high) in ((0, environment.best), (4, environment.others)):
        values = means[..., arm].ravel()
        assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > 1e-6
        radius = np.linalg.norm(inside[:, :, arm].reshape(-1, free), axis=-1)
        assert stats.kstest(radius**free, "uniform").pvalue > 1e-6
    marginal = stats.beta((free + 1) / 2, (free + 1) / 2, loc=-1, scale=2)
    for axis in range(free):
        assert stats.kstest(inside[:, :, 1, axis].ravel(), marginal.cdf).pvalue > 1e-6
    if free > 1:  # no pair of coordinates has a preferred angle
        angle = np.arctan2(inside[:, :, 2, free - 2], inside[:, :, 2, free - 1])
        assert stats.kstest(angle.ravel(), stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-6


@needs_gpu
def test_neighbouring_arms_agents_rounds_and_runs_are_uncorrelated() -> None:
    # 6 standard errors, about 50 correlations: a false alarm in 1e-7 of the seeds.
    kernels = GpuKernels(world(6, 4), seed=1)

    def look(run: int) -> tuple[Array, Array]:
        actions, means = kernels.draw_arms(run=run, agents=50, first_round=1, rounds=1000)
        inside = actions[..., 1:] / np.sqrt(1.0 - actions[..., :1] ** 2)
        found = np.concatenate([inside, (inside**2).sum(axis=-1, keepdims=True)], axis=-1)
        return found - found.mean(axis=(0, 1)), means

    features, means = look(0)
    other, _ = look(1)
    pairs = [
        (features[1:], features[:-1]),
        (features[:, 1:], features[:, :-1]),
        (features[:, :, 2:], features[:, :, 1:-1]),
        (features, other),
    ]
    for left, right in pairs:
        for column in range(features.shape[-1]):
            a, b = left[..., column].ravel(), right[..., column].ravel()
            assert abs(np.corrcoef(a, b)[0, 1]) < 6.0 / np.sqrt(len(a))
    band = means[..., 1].ravel()
    for column in range(features.shape[-1]):
        assert abs(np.corrcoef(band, features[:, :, 1, column].ravel())[0, 1]) < 6.0 / np.sqrt(len(band))


@needs_gpu
@pytest.mark.parametrize("mean", [0.05, 0.3, 0.55, 0.6, 0.75, 0.95])
def test_rewards_are_beta(mean: float) -> None:
    # Dvoretzky–Kiefer–Wolfowitz at level 1e-6. Single precision cannot tell apart numbers within 6e-8
    # of 1 or below 1e-38, which Beta(p, 1 − p) often hits: there the law is not looked at.
    kernels = GpuKernels(world(2, 2), seed=5)
    rewards, _ = kernels.draw_rewards(np.full((4000, 500), mean), run=0, first_round=1)
    assert rewards.min() >= 0.0
    assert rewards.max() <= 1.0
    ordered = np.sort(rewards.ravel())
    count = len(ordered)
    first, last = np.searchsorted(ordered, [1e-30, 1.0 - 1e-6])
    law = stats.beta(mean, 1.0 - mean).cdf(ordered[first:last])
    steps = np.arange(first + 1, last + 1)
    distance = max(np.abs(law - steps / count).max(), np.abs(law - (steps - 1) / count).max())
    assert distance < np.sqrt(np.log(2.0 / 1e-6) / (2.0 * count))


@needs_gpu
def test_uniform_play_draws_every_arm_as_often() -> None:
    # χ² at level 1e-6.
    kernels = GpuKernels(world(2, 7), seed=5)
    _, coins = kernels.draw_rewards(np.full((1000, 500), 0.5), run=0, first_round=1)
    assert stats.chisquare(np.bincount(coins.ravel(), minlength=7)).pvalue > 1e-6


@needs_gpu
@pytest.mark.parametrize("full", [0.02, 0.1, 0.7])
def test_the_part_of_the_bonus_is_the_policys(full: float) -> None:
    # 7 looks at level 1e-6 for 3 chances. Missed: a chance of 0.1 that is off by less than 0.003, or a
    # correlation below 0.01 with arms, rewards, the coins of uniform play or a neighbour.
    kernels = GpuKernels(world(3, 7), seed=5)
    parts = kernels.draw_parts(full, run=1, agents=500, first_round=1, rounds=600)
    assert parts.min() >= 0.0
    assert parts.max() == 1.0
    whole = parts == 1.0
    assert stats.binomtest(int(whole.sum()), parts.size, full).pvalue > 1e-6
    assert stats.kstest(parts[~whole], "uniform").pvalue > 1e-6
    actions, means = kernels.draw_arms(run=1, agents=500, first_round=1, rounds=600)
    rewards, coins = kernels.draw_rewards(np.full(parts.shape, 0.5), run=1, first_round=1)
    for other in (means[..., 0], actions[..., 1, 1], rewards, coins):
        assert stats.spearmanr(parts.ravel(), other.ravel()).pvalue > 1e-6
    assert stats.spearmanr(parts[1:].ravel(), parts[:-1].ravel()).pvalue > 1e-6


# Choices


@needs_gpu
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize(("dim", "arms"), [(1, 3), (2, 40), (10, 100), (20, 33), (50, 8)])
def test_choices_are_those_of_the_agent(
    rng: np.random.Generator, dim: int, arms: int, wide: bool, full: bool
) -> None:
    # Single precision may swap two arms within 1e-6 of each other: that is allowed, and nothing else.
    kernels = GpuKernels(world(dim, arms), seed=0)
    belief = pick(beliefs(rng, 1, dim, wide=wide), 0)
    actions = rng.standard_normal((300, arms, dim)) / np.sqrt(dim)
    chosen = kernels.choose(explored(belief, 0.7), actions, full=full)
    right = best_by_bound(belief, actions, exploration=0.7)
    scores = upper_confidence_bounds(belief, actions, exploration=0.7)
    best = np.take_along_axis(scores, right[:, None], axis=1)[:, 0]
    found = np.take_along_axis(scores, chosen[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(found, best, atol=3e-6)
    assert (chosen != right).mean() <= 0.01


# Epochs with fixed beliefs


def undecided(scores: Array) -> NDArray[np.bool_]:
    """(...), where the two best of (..., K) scores are too close for single precision."""
    if scores.shape[-1] < 2:
        return np.zeros(scores.shape[:-1], dtype=np.bool_)
    second, first = np.moveaxis(np.partition(scores, -2, axis=-1)[..., -2:], -1, 0)
    return np.asarray(first - second < 3e-6 * np.maximum(np.abs(first), 1.0))


def replay(
    kernels: GpuKernels,
    belief: Belief | None,
    *,
    run: int,
    place: int,
    agents: int,
    first_round: int,
    rounds: int,
    full: float = 1.0,
) -> tuple[Array, Array, float, Array, int]:
    """Gram, moment, squares of rewards, regret of each round and undecided steps, from the kernels' arms."""
    actions, means = kernels.draw_arms(run=run, agents=agents, first_round=first_round, rounds=rounds)
    _, index = kernels.draw_rewards(means[..., 0], run=run, first_round=first_round)
    close = 0
    if belief is not None:  # epochs draw their arms in the belief's frame
        nothing = np.zeros(len(belief.theta))
        rotation = arrowhead(belief, nothing, nothing).rotations[place]
        actions[..., 1:] = actions[..., 1:] @ rotation.T
        flat = actions.reshape(-1, *actions.shape[2:])
        own, parts = pick(belief, place), np.ones(index.shape)
        chosen = best_by_bound(own, flat)
        if full < 1.0:
            parts = kernels.draw_parts(full, run=run, agents=agents, first_round=first_round, rounds=rounds)
            coins = np.where(parts == 1.0, 0.0, full + parts * (1.0 - full))
            chosen, _ = Tempered(full).decide(own, flat, coins.ravel())
        index = chosen.reshape(index.shape)
        estimates = upper_confidence_bounds(own, flat, exploration=0.0)
        widths = upper_confidence_bounds(own, flat) - estimates
        close = int(undecided(estimates + parts.reshape(-1, 1) * widths).sum())
    x = np.take_along_axis(actions, index[..., None, None], axis=2)[:, :, 0]
    p = np.take_along_axis(means, index[..., None], axis=2)[..., 0]
    y, _ = kernels.draw_rewards(p, run=run, first_round=first_round)
    gram = np.einsum("tmi,tmj->ij", x, x)
    moment, squares = np.einsum("tm,tmi->i", y, x), float((y**2).sum())
    return gram, moment, squares, (means.max(axis=-1) - p).sum(axis=1), close


@needs_gpu
@pytest.mark.parametrize("play", ["uniform", "narrow", "wide", "tempered", "tempered and wide"])
@pytest.mark.parametrize(
    ("dim", "arms", "agents", "rounds"),
    [
        (1, 1, 3, 50),
        (1, 4, 3, 50),
        (2, 3, 1, 400),
        (3, 1, 2, 30),
        (10, 100, 7, 300),
        (20, 40, 130, 9),
        (32, 33, 5, 60),
        (33, 9, 5, 60),
        (64, 7, 3, 70),
        (128, 5, 3, 60),
        (3, 10_000, 2, 20),
    ],
)
def test_sums_are_those_of_the_agents_own_choices(
    rng: np.random.Generator, play: str, dim: int, arms: int, agents: int, rounds: int
) -> None:
    # Single precision may swap two arms of nearly the same score: each such step moves a sum by at most 2.
    kernels = GpuKernels(world(dim, arms, parameter_norm=0.9), seed=11)
    belief = None if play == "uniform" else beliefs(rng, 2, dim, wide="wide" in play)
    full, points = 0.2 if "tempered" in play else 1.0, [20, 45, 10_000]
    stretch = Stretch(runs=range(5, 7), agents=agents, first_round=11, points=points)
    everything = kernels.fixed_epoch(belief, stretch, rounds, full=full, defer=False)
    deferred = kernels.fixed_epoch(belief, stretch, rounds, full=full, defer=True)
    for field in ("gram", "moment", "squares", "regret"):
        np.testing.assert_array_equal(getattr(everything, field), getattr(deferred, field))
    if belief is not None and arms > 1:
        assert np.all(everything.drawn == agents * rounds)
        assert np.all(deferred.drawn <= everything.drawn)
    for place in range(2):
        gram, moment, squares, regret, close = replay(
            kernels,
            belief,
            run=5 + place,
            place=place,
            agents=agents,
            first_round=11,
            rounds=rounds,
            full=full,
        )
        scale = agents * rounds
        assert close <= 2
        np.testing.assert_allclose(everything.gram[place], gram, atol=2e-6 * scale + 2 * close)
        np.testing.assert_allclose(everything.moment[place], moment, atol=2e-6 * scale + 2 * close)
        np.testing.assert_allclose(everything.squares[place], squares, atol=2e-6 * scale + 2 * close)
        interval = np.searchsorted(points, np.arange(11, 11 + rounds))
        curve = np.bincount(interval, regret, minlength=3)
        np.testing.assert_allclose(everything.regret[place], curve, atol=1e-6 * scale + close)


@needs_gpu
@pytest.mark.parametrize("full", [1.0, 0.2])
def test_results_do_not_depend_on_the_launch(rng: np.random.Generator, full: float) -> None:
    kernels = GpuKernels(world(6, 20), seed=2)
    belief = beliefs(rng, 3, 6, wide=False)
    stretch = Stretch(runs=range(3), agents=11, first_round=1, points=[100, 1000])
    whole = kernels.fixed_epoch(belief, stretch, 500, full=full)
    for blocks in (1, 7, 1000):
        again = kernels.fixed_epoch(belief, stretch, 500, full=full, blocks=blocks)
        for field in ("gram", "moment", "squares", "regret", "drawn"):
            np.testing.assert_array_equal(getattr(whole, field), getattr(again, field))
    cut = [
        kernels.fixed_epoch(belief, replace(stretch, first_round=first), rounds, full=full)
        for first, rounds in ((1, 123), (124, 377))
    ]
    np.testing.assert_allclose(cut[0].gram + cut[1].gram, whole.gram, rtol=1e-6, atol=1e-3)
    np.testing.assert_array_equal(cut[0].regret + cut[1].regret, whole.regret)
    alone = kernels.fixed_epoch(
        Belief(belief.theta[2:], belief.inverse[2:], belief.ellipsoid_width[2:], belief.euclidean_width[2:]),
        replace(stretch, runs=range(2, 3)),
        500,
        full=full,
    )
    np.testing.assert_array_equal(alone.gram[0], whole.gram[2])


@needs_gpu
@pytest.mark.parametrize("play", ["uniform", "optimistic", "tempered"])
@pytest.mark.parametrize(("others", "records"), [((0.5, 0.6), 150.0), ((0.5, 0.72), 4000.0)])
def test_records_have_the_law_of_the_reference(
    rng: np.random.Generator, play: str, others: tuple[float, float], records: float
) -> None:
    # Means of all Gram entries, moments and regret against 40,000 reference visitors: 6 standard errors, 21
    # means, 6 cases, a false alarm in 3e-7 of the seeds. In bands that overlap another arm may be the best.
    dim, arms = 5, 12
    environment = world(dim, arms, others=others)
    kernels = GpuKernels(environment, seed=4)
    belief = None if play == "uniform" else beliefs(rng, 1, dim, wide=False, records=records)
    policy = Tempered(0.1 if play == "tempered" else 1.0)
    stretch = Stretch(runs=range(1), agents=1000, first_round=1, points=[1000])
    sums = kernels.fixed_epoch(belief, stretch, 1000, full=policy.full)
    if belief is not None:
        assert 10_000 < sums.drawn[0] < 990_000  # both ways are taken
    actions, means = reference_arms(environment, 40_000, seed=9)
    index = rng.integers(0, arms, 40_000)
    if belief is not None:
        index, _ = policy.decide(pick(belief, 0), actions, rng.random(40_000))
    x, p = actions[np.arange(40_000), index], means[np.arange(40_000), index]
    rows, columns = np.tril_indices(dim)
    reference = np.concatenate(
        [x[:, rows] * x[:, columns], p[:, None] * x, (means.max(axis=1) - p)[:, None]], axis=1
    )
    found = np.concatenate([sums.gram[0][rows, columns], sums.moment[0], sums.regret[0]]) / 1e6
    error = reference.std(axis=0) / np.sqrt(40_000)
    # The kernels' own error: fewer than 1/25 of the variance, rewards' noise of at most ½ included.
    margin = 6.0 * np.sqrt(error**2 * (1.0 + 1.0 / 25.0) + 0.25 / 1e6) + 1e-6
    assert np.all(np.abs(found - reference.mean(axis=0)) < margin)


# Play on own data


def paper_rule(problem: Problem, threshold: float | None, rho: float = 50.0) -> OwnDataPlay:
    bound = PaperBound(
        problem=problem,
        alpha=0.1,
        agents=5,
        releases=300,
        rho_min=rho,
        root_rho_max=np.sqrt(3.0 * rho),
        kappa=1.0,
    )
    trigger = None if threshold is None else Trigger(threshold=threshold, offset=2.0 * rho)
    return OwnDataPlay(bound=bound, prior=rho, trigger=trigger)


def play_by_the_rule(
    kernels: GpuKernels, rule: OwnDataPlay, *, run: int, agents: int, rounds: int, exploration: float
) -> tuple[int | None, Array, Array, Array, NDArray[np.bool_]]:
    """When an agent asked, own Gram and moment sums, regret of each round and agent, in double precision.

    And for which agents to expect the same of the kernels: not where two arms came too close.
    """
    dim = kernels.dim
    actions, means = kernels.draw_arms(run=run, agents=agents, first_round=1, rounds=rounds)
    knowledge = rule.start((1, agents))
    gram, moment, regret = np.zeros((agents, dim, dim)), np.zeros((agents, dim)), np.zeros((rounds, agents))
    everyone, sure = np.arange(agents), np.ones(agents, dtype=np.bool_)
    for t in range(rounds):
        assert knowledge.belief is not None
        index = best_by_bound(knowledge.belief, actions[t][None, :, None], exploration=exploration)[0, :, 0]
        sure &= ~undecided(
            upper_confidence_bounds(knowledge.belief, actions[t][None], exploration=exploration)[0]
        )
        x, p = actions[t, everyone, index], means[t, everyone, index]
        rewards, _ = kernels.draw_rewards(p[None], run=run, first_round=t + 1)
        regret[t] = means[t].max(axis=-1) - p
        knowledge = rule.observe(knowledge, x[None], rewards)
        gram += x[:, :, None] * x[:, None, :]
        moment += rewards[0][:, None] * x
        if np.any(rule.wants_sync(knowledge)):
            return t + 1, gram, moment, regret, sure
    return None, gram, moment, regret, sure


@needs_gpu
@pytest.mark.parametrize("rho", [2.0, 50.0])
@pytest.mark.parametrize(
    ("dim", "arms", "agents", "rounds", "group"),
    [
        (1, 2, 2, 40, 8),
        (3, 7, 5, 600, 4),
        (3, 7, 5, 300, 8),
        (10, 100, 5, 300, 16),
        (10, 40, 3, 60, 32),
        (20, 50, 3, 300, 32),
        (32, 9, 2, 40, 32),
        (33, 20, 2, 40, 128),
        (50, 300, 2, 10, 512),
        (128, 6, 2, 12, 128),
    ],
)
def test_own_data_play_follows_the_rule(
    rho: float, dim: int, arms: int, agents: int, rounds: int, group: int
) -> None:
    kernels = GpuKernels(world(dim, arms), seed=3)
    rule = paper_rule(kernels.environment.problem, None, rho)
    stretch = Stretch(runs=range(4, 6), agents=agents, first_round=1, points=[rounds // 2, rounds])
    state = OwnDataRuns(kernels, rule, stretch, exploration=0.7, group=group)
    assert len(state.advance(np.full(2, rounds))) == 0
    assert state.next_round.tolist() == [rounds + 1] * 2
    grams, moments = state.pending(np.arange(2))
    for place in range(2):
        asked, gram, moment, regret, sure = play_by_the_rule(
            kernels, rule, run=4 + place, agents=agents, rounds=rounds, exploration=0.7
        )
        assert asked is None
        assert sure.any()
        np.testing.assert_allclose(grams[place][sure], gram[sure], atol=1e-6 * rounds)
        np.testing.assert_allclose(moments[place][sure], moment[sure], atol=1e-6 * rounds)
        if sure.all():
            halves = [regret[: rounds // 2].sum(), regret[rounds // 2 :].sum()]
            np.testing.assert_allclose(state.regret[place], halves, atol=1e-5)


@needs_gpu
@pytest.mark.parametrize(
    ("dim", "arms", "threshold"), [(3, 7, 300.0), (10, 30, 5000.0), (5, 10, 10.0), (40, 5, 60.0)]
)
def test_the_trigger_ends_an_epoch_where_the_rule_does(dim: int, arms: int, threshold: float) -> None:
    agents = 5
    kernels = GpuKernels(world(dim, arms), seed=8)
    rule = paper_rule(kernels.environment.problem, threshold)
    runs = range(2, 5)

    def start() -> OwnDataRuns:
        stretch = Stretch(runs=runs, agents=agents, first_round=1, points=[1000])
        return OwnDataRuns(kernels, rule, stretch)

    long, short = start(), start()
    np.testing.assert_array_equal(long.advance(np.full(3, 1000)), np.arange(3))
    left = np.ones(3, dtype=np.int64)
    while left.any():  # round by round
        left[short.advance(left)] = 0
    everyone = np.arange(3)
    for place, run in enumerate(runs):
        asked, gram, _, _, sure = play_by_the_rule(
            kernels, rule, run=run, agents=agents, rounds=1000, exploration=1.0
        )
        assert asked is not None
        if sure.all():
            assert long.regret[place] == short.regret[place]
        for state in (long, short):
            assert abs(asked - state.waited[place]) <= (not sure.all())
            if asked == state.waited[place]:
                found = state.pending(everyone)[0][place]
                np.testing.assert_allclose(found[sure], gram[sure], atol=1e-6 * asked)


@needs_gpu
def test_synchronisations_restart_a_run_and_leave_the_others_alone() -> None:
    kernels = GpuKernels(world(4, 9), seed=8)
    rule = paper_rule(kernels.environment.problem, 200.0)

    def play(chunk: int, group: int) -> tuple[list[list[int]], Array]:
        stretch = Stretch(runs=range(3), agents=6, first_round=1, points=[100, 500])
        state = OwnDataRuns(kernels, rule, stretch, group=group)
        total_gram, total_moment = np.zeros((3, 4, 4)), np.zeros((3, 4))
        syncs: list[list[int]] = [[], [], []]
        while (state.next_round <= 500).any():
            asked = state.advance(np.minimum(chunk, 501 - state.next_round))
            gram, moment = state.pending(asked)
            total_gram[asked] += gram.sum(axis=1)
            total_moment[asked] += moment.sum(axis=1)
            for place in asked:
                syncs[place].append(int(state.next_round[place]) - 1)
            state.restart(asked, total_gram[asked] + rule.prior * np.eye(4), total_moment[asked])
        return syncs, state.regret

    syncs, regret = play(500, 8)
    assert all(len(rounds) >= 3 for rounds in syncs)
    for chunk, group in ((37, 8), (64, 16), (500, 32), (500, 4)):
        again, regret_again = play(chunk, group)
        assert again == syncs
        np.testing.assert_allclose(regret_again, regret, atol=1e-5)
