"""The compiled loops follow the reference: same choices from the same candidates, same law from their own.

Seeded. A false-alarm rate is the chance that kernels without a fault would have failed under their seed.
"""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import feducb
from feducb.models.confidence import PaperBound
from feducb.models.play import OwnDataPlay, Trigger
from feducb.models.ridge import factorise, update
from feducb.policies import Tempered
from feducb.policies.optimistic import best_by_bound, upper_confidence_bounds
from feducb.simulation.backends import own_data as own
from feducb.simulation.backends.backend import OwnDataSettings, Stretch, Sums
from feducb.simulation.backends.cpu_kernels import draw_arms as draw_arms_of
from feducb.simulation.backends.cpu_kernels import draw_parts, score_actions
from feducb.simulation.backends.epochs import fixed_epoch
from feducb.simulation.backends.own_data import OwnDataResult, OwnDataState, _look_up, own_data_steps
from feducb.simulation.backends.parallel import all_here, kept_on_disk
from feducb.simulation.backends.pruning import align
from feducb.simulation.backends.tiles import World
from feducb.types import Belief
from feducb.worlds.streams import Streams
from feducb.worlds.synthetic import PaperEnvironment

Array = NDArray[np.float64]

RARE = 1e-7  # the false-alarm rate of one look
FAR = float(stats.norm.isf(RARE / 2))


def learnt(dim: int, records: float, *, b: float = 0.0, seed: int = 0, beta: float = 1.5) -> Belief:
    """A belief as it is after about so many records of uniform play: θ̂ near e₁, V known better along it."""
    rng = np.random.default_rng([seed, dim, int(records)])
    basis = rng.standard_normal((dim, 2 * dim))
    across = records * 0.6 / dim * (0.7 + 0.3 * (basis @ basis.T) / (2 * dim))
    across[0, 0] += 0.3 * records
    inverse = np.asarray(np.linalg.inv(across + np.eye(dim)), np.float64)
    theta = 0.3 * np.linalg.cholesky(inverse) @ rng.standard_normal(dim)
    theta[0] += 1.0
    return Belief(theta, inverse, np.array(beta), np.array(b))


def explored(belief: Belief, exploration: float) -> Belief:
    """With both widths scaled."""
    widths = exploration * belief.ellipsoid_width, exploration * belief.euclidean_width
    return Belief(belief.theta, belief.inverse, *widths)


def of_runs(belief: Belief, runs: int = 1) -> Belief:
    """The same belief in each of some runs."""
    parts = (belief.theta, belief.inverse, belief.ellipsoid_width, belief.euclidean_width)
    return Belief(*(np.tile(part, (runs,) + (1,) * part.ndim) for part in parts))


def stretch(changed: dict[str, Any]) -> Stretch:
    """Who plays and from when on, taken out of the keywords of a call."""
    setting: dict[str, Any] = {"runs": range(1), "agents": 1, "first_round": 1, "points": [10**9]}
    return Stretch(**{name: changed.pop(name, usual) for name, usual in setting.items()})


def play(world: World, belief: Belief | None, rounds: int, **changed: Any) -> Sums:
    who = stretch(changed)
    shared = None if belief is None else of_runs(belief, len(who.runs))
    return fixed_epoch(world._replace(seed=3), shared, who, rounds, **changed)


def draw_arms(world: World, *, seed: int, **whose: Any) -> tuple[Array, Array]:
    return draw_arms_of(world._replace(seed=seed), **whose)


def reference_arms(world: World, rounds: int) -> tuple[Array, Array]:
    """The reference's candidates, turned so that θ* points along e₁."""
    problem = feducb.Problem(dim=world.dim, action_bound=world.action_bound, parameter_bound=2.0)
    environment = PaperEnvironment(
        problem=problem,
        arms=world.arms,
        best=world.best,
        others=world.others,
        parameter_norm=world.parameter_norm,
    )
    visits = environment.open(Streams(11), range(1), range(1))
    contexts = visits.arrive(rounds)
    unit = visits.theta[0] / np.linalg.norm(visits.theta[0])
    mirror = np.eye(world.dim)
    if world.dim > 1:  # the reflection that swaps û and e₁
        normal = unit - mirror[0]
        mirror -= 2.0 * np.outer(normal, normal) / (normal @ normal)
    elif unit[0] < 0:
        mirror *= -1.0
    return contexts.actions[0, 0] @ mirror, contexts.means[0, 0]


WORLDS = [
    World(dim=1, arms=3),
    World(dim=2, arms=5),
    World(dim=3, arms=4),
    World(dim=4, arms=2),
    World(dim=10, arms=20),
    World(dim=7, arms=6, best=(0.4, 0.5), others=(0.0, 0.4), parameter_norm=1.5, action_bound=2.0),
]


@pytest.mark.parametrize("world", WORLDS)
def test_candidates_have_the_environments_law(world: World) -> None:
    # Up to 12 looks in each of 6 worlds: false-alarm rate below 1e-5.
    rounds = 4000
    actions, means = draw_arms(world, seed=1, run=2, agent=3, first_round=1, rounds=rounds)
    expected, expected_means = reference_arms(world, rounds)
    np.testing.assert_allclose(actions[..., 0] * world.parameter_norm, means, rtol=1e-6)
    for ours, theirs, band in (
        (means[:, 0], expected_means[:, 0], world.best),
        (means[:, 1:].ravel(), expected_means[:, 1:].ravel(), world.others),
    ):
        assert stats.kstest(ours, "uniform", (band[0], band[1] - band[0])).pvalue > RARE
        assert stats.ks_2samp(ours, theirs).pvalue > RARE
    left_over = np.sqrt(world.action_bound**2 - actions[..., 0] ** 2)
    across = actions[..., 1:] / left_over[..., None]
    length = np.linalg.norm(across, axis=-1).ravel()
    assert np.linalg.norm(actions, axis=-1).max() <= world.action_bound * (1.0 + 1e-6)
    if world.dim == 1:
        return
    assert stats.kstest(length ** (world.dim - 1), "uniform").pvalue > RARE
    for row in {0, 1, world.dim - 2} & set(range(world.dim - 1)):
        assert stats.ks_2samp(actions[..., 1 + row].ravel(), expected[..., 1 + row].ravel()).pvalue > RARE
    flat = across.reshape(-1, world.dim - 1)
    products = flat[:, :, None] * flat[:, None, :]
    off = products.mean(axis=0) - np.eye(world.dim - 1) / (world.dim + 1)  # E y yᵀ = I/(n + 2)
    z = off / products.std(axis=0) * math.sqrt(len(flat))
    assert np.abs(z).max() < float(stats.norm.isf(RARE / world.dim**2))
    # Neighbours in the tile know nothing of each other, and neither do neighbouring rounds.
    for one, other in ((across[:, 0], across[:, 1]), (across[1:, 0], across[:-1, 0])):
        inner = (one * other).sum(axis=-1)
        assert abs(inner.mean() / inner.std() * math.sqrt(len(inner))) < FAR


@pytest.mark.parametrize("dim", [1, 2, 3, 6, 10, 33])
@pytest.mark.parametrize("b", [0.0, 3.0])
def test_scores_and_choices_are_the_references(dim: int, b: float) -> None:
    world = World(dim=dim, arms=50)
    actions, _ = draw_arms(world, seed=1, run=0, agent=0, first_round=1, rounds=200)
    for records in (1.0, 100.0, 1e6):
        belief = learnt(dim, records, b=b)
        exact = upper_confidence_bounds(belief, actions, exploration=0.7)
        for dense in (False, True):
            shared = of_runs(explored(belief, 0.7))
            ours = score_actions(shared, actions.reshape(-1, dim), dense=dense)
            np.testing.assert_allclose(ours.reshape(exact.shape), exact, rtol=3e-6)
            chosen = best_by_bound(belief, actions, exploration=0.7)
            tied = np.take_along_axis(exact, chosen[:, None], axis=1) - np.sort(exact, axis=1)[:, -2:-1]
            differs = ours.reshape(exact.shape).argmax(axis=1) != chosen
            assert not (differs & (tied[:, 0] > 1e-5)).any()


def coins_of(world: World, full: float, *, seed: int, **whose: Any) -> Array:
    """(rounds,), coins by which `Tempered` scales the bonus as the kernels do."""
    parts = draw_parts(world._replace(seed=seed), full, **whose)
    return np.where(parts == 1.0, 0.0, full + parts * (1.0 - full))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("records", [3.0, 300.0, 3e4])
@pytest.mark.parametrize("full", [1.0, 0.2])
def test_an_epoch_chooses_as_the_reference_would(world: World, records: float, full: float) -> None:
    rounds = 300
    belief = explored(learnt(world.dim, records, b=0.5), 0.8)
    result = play(world, belief, rounds, full=full, traced=True, first_round=17)
    assert result.trace is not None
    whose: dict[str, Any] = {"seed": 3, "run": 0, "agent": 0, "first_round": 17, "rounds": rounds}
    actions, means = draw_arms(world, **whose)
    actions = actions @ align(of_runs(belief)).frame[0].T
    index = best_by_bound(belief, actions)
    if full < 1.0:
        index = Tempered(full).decide(belief, actions, coins_of(world, full, **whose))[0]
    ours = result.trace[0, 0, :, 0].astype(np.int64)
    assert (ours != index).sum() <= 1  # a tie within single precision
    at = np.arange(rounds)
    np.testing.assert_allclose(result.trace[0, 0, :, 1], means[at, ours])
    np.testing.assert_allclose(result.trace[0, 0, :, 3:], actions[at, ours], atol=1e-7)
    x, y = result.trace[0, 0, :, 3:], result.trace[0, 0, :, 2]
    np.testing.assert_allclose(result.gram[0, 0], x.T @ x, atol=1e-9)
    np.testing.assert_allclose(result.moment[0, 0], x.T @ y, atol=1e-9)
    np.testing.assert_allclose(result.squares[0, 0], y @ y, rtol=1e-9)
    lost = means.max(axis=1) - means[at, ours]
    assert result.regret.sum() == pytest.approx(lost.sum(), abs=1e-6)
    assert ((y >= 0.0) & (y <= 1.0)).all()


@pytest.mark.parametrize("world", WORLDS)
def test_without_a_belief_every_candidate_is_as_likely(world: World) -> None:
    # 1 look at coins, 1 at each of d(d + 3)/2 sums in 6 worlds: false-alarm rate below 3e-5.
    rounds = 20_000
    result = play(world, None, rounds, traced=True)
    assert result.trace is not None
    trace = result.trace[0, 0]
    index = trace[:, 0].astype(np.int64)
    assert stats.chisquare(np.bincount(index, minlength=world.arms)).pvalue > RARE
    actions, means = draw_arms(world, seed=3, run=0, agent=0, first_round=1, rounds=rounds)
    at = np.arange(rounds)
    np.testing.assert_array_equal(trace[:, 3:], actions[at, index])
    assert result.regret.sum() == pytest.approx((means.max(axis=1) - means[at, index]).sum(), rel=1e-9)
    # Sums of records against the reference's, with rewards of mean p.
    expected, expected_means = reference_arms(world, rounds)
    rng = np.random.default_rng(5)
    coins = rng.integers(0, world.arms, rounds)
    theirs, paid = expected[at, coins], expected_means[at, coins]
    paid = rng.beta(np.maximum(paid, 1e-9), np.maximum(1.0 - paid, 1e-9))
    for ours, other in (
        (trace[:, 3:, None] * trace[:, None, 3:], theirs[:, :, None] * theirs[:, None, :]),
        (trace[:, 3:] * trace[:, 2:3], theirs * paid[:, None]),
    ):
        z = (ours.mean(axis=0) - other.mean(axis=0)) / np.sqrt(
            (ours.var(axis=0) + other.var(axis=0)) / rounds
        )
        assert np.abs(z).max() < FAR


@pytest.mark.parametrize("full", [0.02, 0.1, 0.7])
def test_the_part_of_the_bonus_is_the_policys(full: float) -> None:
    # 1 look at how often it is whole, 1 at the rest, 6 at what it must not depend on, for 3 chances:
    # false-alarm rate 2.4e-6. Missed: a chance of 0.1 that is off by less than 0.005, or a correlation below
    # 0.02 with arms, rewards or the round before; one random word for two purposes is far above.
    world, rounds = World(dim=3, arms=4), 100_000
    whose: dict[str, Any] = {"run": 2, "agent": 3, "first_round": 1, "rounds": rounds}
    parts = draw_parts(world._replace(seed=3), full, **whose)
    assert parts.min() >= 0.0
    assert parts.max() == 1.0
    whole = parts == 1.0
    assert stats.binomtest(int(whole.sum()), rounds, full).pvalue > RARE
    assert stats.kstest(parts[~whole], "uniform").pvalue > RARE
    actions, means = draw_arms(world, seed=3, **whose)
    known = play(world, learnt(3, 1e6), rounds, full=full, runs=range(2, 3), agents=4, traced=True)
    assert known.trace is not None
    assert not known.trace[..., 0].any()  # so rewards are those of candidate 0
    for other in (means[:, 0], means[:, 1], actions[:, 0, 1], actions[:, 1, 2], known.trace[0, 3, :, 2]):
        assert stats.spearmanr(parts, other).pvalue > RARE
    assert stats.spearmanr(parts[1:], parts[:-1]).pvalue > RARE


def test_rewards_have_their_law() -> None:
    # Kolmogorov–Smirnov up to where single precision cannot tell a reward from 1: false-alarm rate 2e-7.
    for mean in (0.55, 0.75):
        world = World(dim=3, arms=1, best=(mean, mean), others=(0.1, 0.2))
        result = play(world, learnt(3, 1e4), 50_000, traced=True)
        assert result.trace is not None
        rising = np.sort(result.trace[0, 0, :, 2])
        gap = np.abs(stats.beta(mean, 1 - mean).cdf(rising) - np.arange(1, len(rising) + 1) / len(rising))
        assert stats.kstwo.sf(gap[rising < 1.0 - 1e-6].max() - 1.0 / len(rising), len(rising)) > RARE


@pytest.mark.parametrize("dim", [1, 2, 5, 10, 21])
@pytest.mark.parametrize("b", [0.0, 2.0])
@pytest.mark.parametrize("full", [1.0, 0.1])
def test_candidates_that_are_not_drawn_change_nothing(dim: int, b: float, full: float) -> None:
    world, rounds = World(dim=dim, arms=30), 1500
    shares = []
    for records in (10.0, 300.0, 1000.0, 3000.0, 1e4, 1e6):
        belief = learnt(dim, records, b=b)
        some = play(world, belief, rounds, full=full, agents=2)
        everything = play(world, belief, rounds, full=full, agents=2, defer=False)
        np.testing.assert_array_equal(some.gram, everything.gram)
        np.testing.assert_array_equal(some.moment, everything.moment)
        np.testing.assert_array_equal(some.squares, everything.squares)
        np.testing.assert_array_equal(some.regret, everything.regret)
        assert (everything.drawn == rounds).all()
        shares.append(some.drawn.mean() / rounds)
    assert shares[-1] == 0.0  # once θ* is known nothing but the best is drawn …
    assert shares[0] > 0.5 or dim == 1  # … and before it almost everything


@pytest.mark.parametrize("full", [1.0, 0.1])
def test_epochs_have_the_references_regret(full: float) -> None:
    # A belief that is wrong now and then; one z test each: false-alarm rate 2e-7.
    world, rounds = World(dim=5, arms=12), 20_000
    belief = learnt(5, 1000.0 if full == 1.0 else 500.0)
    result = play(world, belief, rounds, full=full, points=list(range(1, rounds + 1)))
    actions, means = reference_arms(world, rounds)
    index = best_by_bound(belief, actions)
    if full < 1.0:
        index = Tempered(full).decide(belief, actions, np.random.default_rng(6).random(rounds))[0]
    theirs = means.max(axis=1) - means[np.arange(rounds), index]
    ours = result.regret[0, 0]
    assert 0.01 < theirs.mean() < 0.15
    z = (ours.mean() - theirs.mean()) / math.sqrt((ours.var() + theirs.var()) / rounds)
    assert abs(z) < FAR


def test_bands_that_overlap_are_searched_for_the_best_mean() -> None:
    world = World(dim=4, arms=8, best=(0.5, 0.7), others=(0.4, 0.8))
    _, means = draw_arms(world, seed=3, run=0, agent=0, first_round=1, rounds=400)
    for belief in (None, learnt(4, 1e5)):
        result = play(world, belief, 400, traced=True)
        assert result.trace is not None
        index = result.trace[0, 0, :, 0].astype(np.int64)
        lost = means.max(axis=1) - means[np.arange(400), index]
        assert result.regret.sum() == pytest.approx(lost.sum(), abs=1e-6)
        assert belief is None or (result.drawn == 400).all()


def test_regret_goes_to_its_point_and_epochs_can_be_cut() -> None:
    world, belief, points = World(dim=3, arms=6), learnt(3, 100.0), [40, 100, 170, 300]
    runs = range(4, 10, 5)
    whole = play(world, belief, 300, points=points, agents=3, runs=runs)
    pieces = [
        play(world, belief, stop - start, points=points, agents=3, runs=runs, first_round=start + 1)
        for start, stop in ((0, 40), (40, 41), (41, 290), (290, 300))
    ]
    np.testing.assert_allclose(whole.regret, sum(piece.regret for piece in pieces), atol=1e-12)
    np.testing.assert_allclose(whole.gram, sum(piece.gram for piece in pieces), atol=1e-10)
    np.testing.assert_allclose(whole.moment, sum(piece.moment for piece in pieces), atol=1e-10)
    np.testing.assert_allclose(whole.squares, sum(piece.squares for piece in pieces), atol=1e-10)
    assert not pieces[3].regret[..., :3].any()
    # Runs and agents are what their numbers say, whoever is beside them.
    alone = play(world, belief, 300, points=points, agents=2, runs=range(9, 10))
    np.testing.assert_array_equal(alone.gram[0], whole.gram[1, :2])
    assert len(np.unique(whole.regret.sum(axis=-1))) == 6


def test_each_run_holds_a_belief_of_its_own() -> None:
    world, beliefs = World(dim=4, arms=9), [learnt(4, 50.0, seed=run) for run in range(2)]
    who: dict[str, Any] = {"agents": 3, "first_round": 1, "points": [200]}
    parts = zip(*(astuple(of_runs(one))[:4] for one in beliefs), strict=True)
    stacked = Belief(*(np.concatenate(part) for part in parts))
    together = fixed_epoch(world._replace(seed=3), stacked, Stretch(runs=range(2), **who), 200)
    for run in range(2):
        single = play(world, beliefs[run], 200, runs=range(run, run + 1), **who)
        np.testing.assert_allclose(together.gram[run], single.gram[0], atol=1e-12)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads: int) -> None:
    world = World(dim=6, arms=7)
    for belief in (None, learnt(6, 200.0)):
        for agents, rounds in ((1, 20_000), (5, 1000)):
            one = play(world, belief, rounds, agents=agents, threads=1)
            many = play(world, belief, rounds, agents=agents, threads=threads)
            np.testing.assert_array_equal(one.gram, many.gram)
            np.testing.assert_array_equal(one.moment, many.moment)
            np.testing.assert_array_equal(one.regret, many.regret)
    results = []
    for workers in (1, threads):
        state = own_data(np.tile(np.eye(6), (5, 1, 1)), np.zeros((5, 6)))
        result = own_steps(world, state, 1500, agents=5, threads=workers)
        results.append((state.matrices, state.vectors, state.numbers, result.regret))
    for one_part, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one_part, other)


@pytest.mark.parametrize(("dim", "arms"), [(1, 1), (1, 2), (2, 1), (3, 10_000), (128, 2), (128, 300)])
def test_sizes_from_the_smallest_to_the_largest(dim: int, arms: int) -> None:
    world = World(dim=dim, arms=arms)
    for belief in (None, learnt(dim, 50.0), learnt(dim, 1e7)):
        result = play(world, belief, 3)
        assert np.isfinite(result.gram).all()
        assert np.trace(result.gram[0, 0]) <= 3.0 * (1.0 + 1e-5)
        if arms == 1:
            assert result.regret.sum() == 0.0
    state = own_data(np.eye(dim)[None], np.zeros((1, dim)), USUAL._replace(threshold=1e9, offset=1.0))
    assert own_steps(world, state, 3).rounds == 3
    assert np.isfinite(state.inverse).all()


# Agents that act on their own data.


USUAL = OwnDataSettings(0.5, 2.0 * math.log(10.0), 0.0, 1.0)


def own_data(gram: Array, moment: Array, settings: OwnDataSettings = USUAL) -> OwnDataState:
    return own.own_data(settings, gram, moment)


def own_steps(world: World, state: OwnDataState, rounds: int, **changed: Any) -> OwnDataResult:
    return own_data_steps(world._replace(seed=3), state, stretch(changed), rounds, **changed)


def test_own_data_steps_are_the_references(rng: np.random.Generator) -> None:
    world, rounds, alpha, rho = World(dim=4, arms=9), 1300, 0.1, 0.5
    problem = feducb.Problem(dim=4)
    bound = PaperBound(
        problem=problem, alpha=alpha, agents=1, releases=1, rho_min=rho, root_rho_max=0.3, kappa=0.2
    )
    settings = OwnDataSettings(0.5, 2.0 * math.log(2.0 / alpha) - 4 * math.log(rho), 0.3 + 0.2, 0.0, 0.5)
    state = own_data(rho * np.eye(4)[None], np.zeros((1, 4)), settings)
    result = own_steps(world, state, rounds, traced=True)
    trace = result.trace[0, 0]
    actions, means = draw_arms(world, seed=3, run=0, agent=0, first_round=1, rounds=rounds)
    ridge, differ = factorise(rho * np.eye(4), np.zeros(4)), 0
    for at in range(rounds):
        index = int(trace[at, 0])
        chosen = int(best_by_bound(bound.belief(ridge), actions[None, at], exploration=0.5)[0])
        differ += chosen != index
        np.testing.assert_array_equal(trace[at, 3:], actions[at, index])
        assert trace[at, 1] == means[at, index]
        ridge = update(ridge, trace[at, 3:], trace[at, 2])
    assert differ <= 1  # a tie within single precision
    np.testing.assert_allclose(state.inverse[0], ridge.inverse, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(state.theta[0], ridge.theta, rtol=1e-8)
    np.testing.assert_allclose(state.log_det[0], ridge.log_det, rtol=1e-10)
    np.testing.assert_allclose(state.gram[0] + rho * np.eye(4), ridge.gram, rtol=1e-10)
    np.testing.assert_allclose(state.moment[0], ridge.moment, rtol=1e-10)
    lost = (means.max(axis=1) - means[np.arange(rounds), trace[:, 0].astype(int)]).sum()
    assert result.regret.sum() == pytest.approx(lost, abs=1e-5)
    assert state.waited == rounds


def test_own_data_play_does_not_depend_on_what_is_skipped_or_on_cuts() -> None:
    world, rounds = World(dim=3, arms=8), 6000
    results = []
    for defer, cuts in ((True, (rounds,)), (False, (rounds,)), (True, (1, 700, 1024, 3000, rounds))):
        state, lost, drawn, first = own_data(np.tile(np.eye(3), (2, 1, 1)), np.zeros((2, 3))), 0.0, 0, 0
        for cut in cuts:
            result = own_steps(world, state, cut - first, agents=2, defer=defer, first_round=first + 1)
            lost, drawn, first = lost + float(result.regret.sum()), drawn + int(result.drawn.sum()), cut
        results.append((state.gram.copy(), state.moment.copy(), lost, drawn))
    for other in results[1:]:
        np.testing.assert_allclose(results[0][0], other[0], rtol=1e-13)
        np.testing.assert_allclose(results[0][1], other[1], rtol=1e-13, atol=1e-12)
        assert results[0][2] == pytest.approx(other[2], rel=1e-12)
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert results[1][3] == 2 * rounds
    assert results[0][3] < 0.8 * results[1][3]  # most of the late rounds need one candidate only


@pytest.mark.parametrize(
    ("theta", "sigma"), [((0.2, 0.9, 0.0), 0.1), ((1.0, 0.0, 0.0), 3.0)], ids=["θ̂ moved", "β grew"]
)
def test_a_ceiling_from_before_holds_for_what_was_learnt_since(
    theta: tuple[float, float, float], sigma: float
) -> None:
    # Were the change since then left out, 4 and 83 of these 200 choices would be others.
    world, agents, gram = World(dim=3, arms=8), 200, np.tile(20.0 * np.eye(3), (200, 1, 1))

    def known(estimate: Any, sigma: float) -> OwnDataState:
        settings = OwnDataSettings(sigma, 0.0, 0.0, 0.0)
        return own_data(gram, np.tile(20.0 * np.asarray(estimate), (agents, 1)), settings)

    def first_choices(state: OwnDataState) -> Array:
        return own_steps(world, state, 1, agents=agents, traced=True).trace[0, :, 0, 0]

    before, now = known((1.0, 0.0, 0.0), 0.1), known(theta, sigma)
    _look_up(before, world, all_here)
    now.numbers[:, 3:], now.vectors[:, 2] = before.numbers[:, 3:], before.vectors[:, 2]
    np.testing.assert_array_equal(first_choices(now), first_choices(known(theta, sigma)))


def triggered_rule() -> tuple[OwnDataPlay, OwnDataSettings]:
    """The printed rule with small constants, and the same as numbers."""
    problem, prior = feducb.Problem(dim=3), 2.0
    bound = PaperBound(
        problem=problem, alpha=0.1, agents=4, releases=100, rho_min=prior, root_rho_max=0.3, kappa=0.2
    )
    logarithm = 2.0 * math.log(2.0 * 4 * 100 / 0.1) - 3 * math.log(prior)
    rule = OwnDataPlay(bound=bound, prior=prior, trigger=Trigger(threshold=40.0, offset=1.5))
    return rule, OwnDataSettings(0.5, logarithm, 0.3 + 0.2, 0.0, threshold=40.0, offset=1.5)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_to_ask_ends_the_round_for_all(threads: int) -> None:
    rule, settings = triggered_rule()
    world, agents = World(dim=3, arms=5), 4

    def start() -> OwnDataState:
        return own_data(np.tile(rule.prior * np.eye(3), (agents, 1, 1)), np.zeros((agents, 3)), settings)

    state = start()
    setting: dict[str, Any] = {"agents": agents, "threads": threads}
    result = own_steps(world, state, 500, traced=True, **setting)
    assert result.asked
    assert 5 < result.rounds < 100
    # One round at a time comes to the same.
    slow, lost, rounds, asked = start(), np.zeros((1, agents, 1)), 0, False
    while not asked:
        one = own_steps(world, slow, 1, first_round=rounds + 1, **setting)
        lost, rounds, asked = lost + one.regret, rounds + 1, one.asked
    assert rounds == result.rounds == slow.waited == state.waited
    for part in ("matrices", "vectors", "numbers"):
        np.testing.assert_array_equal(getattr(state, part), getattr(slow, part))
    np.testing.assert_allclose(result.regret, lost, rtol=1e-12)
    # And so does the reference, given these records.
    knowledge = rule.start((agents,))
    for at in range(rounds):
        assert at == 0 or not rule.wants_sync(knowledge).any()
        step = result.trace[0, :, at]
        knowledge = rule.observe(knowledge, step[:, 3:], step[:, 2])
    assert rule.wants_sync(knowledge).any()
    assert knowledge.own is not None
    assert knowledge.guard is not None
    np.testing.assert_allclose(state.inverse, knowledge.own.inverse, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(state.numbers[:, 1], knowledge.guard.log_det, rtol=1e-10)
    assert knowledge.anchor is not None
    np.testing.assert_allclose(state.numbers[:, 2], knowledge.anchor)


def test_what_cannot_be_is_refused() -> None:
    world = World(dim=2, arms=2)
    for points in ([], [5], [20, 10], [10, 10]):
        with pytest.raises(ValueError, match="points must rise and reach the last round, 10"):
            play(world, None, 10, points=points)
    state = own_data(np.eye(2)[None], np.zeros((1, 2)))
    with pytest.raises(ValueError, match="is not that of these runs and agents"):
        own_steps(world, state, 5, agents=2)


def test_kernels_are_compiled_once_for_all_settings() -> None:
    from feducb.simulation.backends import epochs

    for world in (World(2, 3), World(np.int64(3), 3, (np.float64(1), 1), (0, 0), 1, 2)):  # type: ignore[arg-type]
        play(world, None, 3)
        play(world, explored(learnt(world.dim, 10.0), 2), 3, traced=True, runs=range(2))
        state = own_data(np.eye(world.dim)[None], np.zeros((1, world.dim)), USUAL._replace(exploration=1))
        own_steps(world, state, 3)
    assert len(epochs._run_epochs.signatures) == len(own._run_own_data.signatures) == 1


def test_a_kernel_without_a_place_on_disk_is_compiled_all_the_same() -> None:
    made: dict[str, Any] = {}
    exec("def double(x):\n    return 2 * x", made)  # a function without a file
    assert kept_on_disk(made["double"])(21) == 42


def test_a_trigger_takes_one_run_at_a_time() -> None:
    settings = USUAL._replace(threshold=1e9, offset=1.0)
    state = own_data(np.tile(np.eye(2), (2, 1, 1)), np.zeros((2, 2)), settings)
    with pytest.raises(ValueError, match="one run at a time"):
        own_steps(World(dim=2, arms=2), state, 5, runs=range(2))
