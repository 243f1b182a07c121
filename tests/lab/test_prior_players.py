"""Players of earlier work: noise as accounted for, learning without it, and moves within the sensitivity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from feducb.config import Budget, Problem
from feducb.privacy.calibration import to_mu
from feducb_lab.experiments.prior import reweighted
from feducb_lab.experiments.prior.batches import Separate
from feducb_lab.experiments.prior.by_itself import Lasting
from feducb_lab.experiments.prior.chowdhury_zhou import shuffled_batch
from feducb_lab.experiments.prior.elimination import Elimination, Phases, design, greedy_design, width
from feducb_lab.experiments.prior.fixed_set import ours_on_a_fixed_set
from feducb_lab.experiments.prior.hanna import Laplace, ShuffledBits, core_set
from feducb_lab.experiments.prior.li_zhou_ji import ClientSums, distributed_elimination
from feducb_lab.experiments.prior.shariff_sheffet import single_agent
from feducb_lab.experiments.prior.shuffling import clones_delta, local_epsilon, said_at_random, shuffled_mu
from feducb_lab.experiments.prior.zhou_chowdhury import amplified_gain, batch_rule, fixed_batch

SMALL: dict[str, Any] = {"agents": 3, "dim": 2, "arms": 4, "horizon": 100, "runs": 1}
BUDGET = Budget(epsilon=1.0, delta=1e-6)
DRAWS = 4000
# the variance of so many draws is off by more than 5 standard errors, √(2/n) (Laplace √(5/n)), in fewer than
# one run of a million of these seeds; an error of a quarter is seen in all but one of a million
OFF = 5.0 * math.sqrt(5.0 / DRAWS)


def seeded() -> np.random.Generator:
    return np.random.default_rng(11)


# ── shufflers ──


def _hockey_stick(epsilon: float, users: int, share: float) -> float:
    """δ of shuffled bits by brute force: a bit of 0 or 1 among n − 1 users whose coins are counted."""
    total = 0.0
    for coins in range(users):
        heads = np.arange(coins + 2)
        law = [binom.pmf(heads, coins, 0.5), binom.pmf(heads - 1, coins, 0.5)]  # said 0, said 1
        here = (1.0 - share / 2.0) * law[1] + share / 2.0 * law[0]
        there = (1.0 - share / 2.0) * law[0] + share / 2.0 * law[1]
        lost = np.maximum(here - math.exp(epsilon) * there, 0.0).sum()
        total += binom.pmf(coins, users - 1, share) * lost
    return float(total)


@pytest.mark.parametrize(("epsilon", "users", "share"), [(0.5, 20, 0.3), (1.0, 50, 0.2), (0.2, 7, 0.5)])
def test_shuffled_bits_are_accounted_exactly(epsilon: float, users: int, share: float) -> None:
    exact = clones_delta(epsilon, users, share, 1.0 - share / 2.0)
    assert exact == pytest.approx(_hockey_stick(epsilon, users, share), rel=1e-9)


def test_a_shuffler_never_hurts_and_helps_more_with_more_users() -> None:
    alone = to_mu(BUDGET)
    mus = [shuffled_mu(1.0, 1e-6, users) for users in (2, 100, 10_000, 1_000_000)]
    assert mus[0] == mus[1] == alone  # too few to hide among
    assert alone < mus[2] < mus[3]
    assert local_epsilon(1.0, 1e-6, 2) >= 1.0
    # all information is in the sum if noise is large: no shuffler beats one Gaussian for all
    assert all(mu <= alone * math.sqrt(users) for mu, users in zip(mus[2:], (1e4, 1e6), strict=True))


def test_the_closed_bound_by_clones_is_no_better_than_its_numbers() -> None:
    """ε is at most log(1 + (e^ε₀ − 1)/(e^ε₀ + 1)(8√(e^ε₀ log(4/δ)/n) + 8e^ε₀/n)), in closed form."""
    users, delta, local = 100_000, 1e-6, 2.0
    grown = math.exp(local)
    closed = 8.0 * math.sqrt(grown * math.log(4.0 / delta) / users) + 8.0 * grown / users
    epsilon = math.log1p((grown - 1.0) / (grown + 1.0) * closed)
    assert clones_delta(epsilon, users, 1.0 / grown, grown / (grown + 1.0)) <= delta


def test_fewer_users_say_more_at_random() -> None:
    shares = [said_at_random(1.0, 1e-6, users) for users in (1, 100, 1000, 100_000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(2.0 / (math.e + 1.0))
    for users, share in zip((100, 1000), shares[1:3], strict=True):
        assert clones_delta(1.0, users, share, 1.0 - share / 2.0) <= 1e-6
        assert clones_delta(1.0, users, 0.9 * share, 1.0 - 0.45 * share) > 1e-6


# ── batches on the library's simulator ──


def test_separate_batches_add_their_noise_and_hold_a_record_once() -> None:
    mechanism, draws = Separate(5), seeded().standard_normal((5, 1, DRAWS))
    memory: Any = ()
    for release in range(1, 6):
        memory, held = mechanism.correlate(memory, release, draws[release - 1])
        np.testing.assert_allclose(held, draws[:release, 0].sum(axis=0))
        assert mechanism.error(release) == pytest.approx(math.sqrt(release))
    assert np.linalg.norm(mechanism.encoder(), axis=0).max() <= 1.0
    np.testing.assert_allclose(mechanism.decoder() @ mechanism.encoder(), np.tri(5))


def test_a_single_agent_does_not_depend_on_how_many_there_are() -> None:
    setting = SMALL | {"runs": 3, "batch": 10, "backend": "reference"}
    few, many = (single_agent(**(setting | {"agents": agents})) for agents in (1, 50))
    assert np.array_equal(few.regret, many.regret)
    assert few.releases == 10


@pytest.mark.parametrize("bound", ["closed form", "ours"])
def test_batches_release_at_their_rounds(bound: Any) -> None:
    for play, name in ((fixed_batch, "tree"), (shuffled_batch, "separate")):
        played = play(**SMALL, batch=25, bound=bound, backend="reference")
        assert played.release_rounds == ((25, 50, 75, 100),)
        assert played.privacy["mechanism"] == name
    assert batch_rule(10_000, 100) == 10


def test_noise_of_shuffled_batches_is_what_their_users_add() -> None:
    """One user's noise has the scale R²/μ₀; that of an agent's batch √B of it, and the mean of sums none."""
    steps: list[Any] = []
    setting = SMALL | {"agents": 400, "horizon": 50, "batch": 50}
    played = shuffled_batch(**setting, protocol="amplified", observer=steps.append, backend="reference")
    (release,) = (step.release for step in steps if step.release is not None)
    own = shuffled_mu(1.0, 1e-6, 50 * 400)
    radius = 2.0  # of L = B = 1 at an even weight
    expected = 50.0 * (radius / own) ** 2
    assert release.variance == pytest.approx(expected, rel=1e-6)
    exact = np.concatenate([step.chosen.actions for step in steps], axis=2)
    noise = release.gram[0, :, 0, 1] - np.einsum("art,art->a", exact[0, ..., :1], exact[0, ..., 1:])
    assert noise.var() == pytest.approx(expected, rel=5.0 * math.sqrt(2.0 / 400))
    assert played.privacy["spent"] == 1.0


def test_shuffling_silos_pays_for_many_silos_of_single_records_only() -> None:
    assert amplified_gain(BUDGET, agents=100, batch=100, releases=100) == 1.0
    assert amplified_gain(BUDGET, agents=10_000_000, batch=1, releases=1) > 1.5


@pytest.mark.parametrize("play", [fixed_batch, shuffled_batch])
def test_batches_learn_where_there_is_hardly_noise(play: Any) -> None:
    setting: dict[str, Any] = {"agents": 10, "dim": 3, "arms": 9, "horizon": 4000, "runs": 2, "epsilon": 1e4}
    played = play(**setting, batch=50, bound="ours", protocol="vector sum")
    half = played.mean_curve[len(played.rounds) // 2 - 1]
    assert played.mean - half < 0.2 * half


# ── elimination ──


def test_designs_cover_all_directions_evenly() -> None:
    actions = seeded().standard_normal((30, 4))
    actions /= np.linalg.norm(actions, axis=1, keepdims=True)
    shares = design(actions)
    assert shares.sum() == pytest.approx(1.0)
    gram = (actions * shares[:, None]).T @ actions
    worst = np.einsum("kd,de,ke->k", actions, np.linalg.inv(gram), actions).max()
    assert worst < 1.1 * 4  # Kiefer & Wolfowitz: d at best
    counts = greedy_design(actions, 12)
    assert counts.sum() == 12
    assert np.linalg.matrix_rank(actions[counts > 0]) == 4


def test_noise_of_sums_is_what_the_accounting_says() -> None:
    counts, chances = np.array([10, 0, 30]), np.full(3, 0.5)
    generator = seeded()
    for noises in (1, 7):
        laplace = Laplace(0.5, noises).noise(generator, DRAWS)
        assert laplace.var() == pytest.approx(noises * 2.0 / 0.25, rel=OFF)
    clients = ClientSums(4, 0.25)
    # every one of 10 clients plays the first action once and the third three times
    assert clients.deviation(counts) == pytest.approx(math.sqrt(1.0 + 9.0) / 0.25)
    told = np.array([clients.tell(generator, counts, chances) for _ in range(DRAWS)])
    beta = 0.25 / 2.0  # the variance of Beta(½, ½)
    expected = counts * beta + clients.deviation(counts) ** 2
    assert told[:, [0, 2]].var(axis=0) == pytest.approx(expected[[0, 2]], rel=OFF)
    assert not told[:, 1].any()


def test_shuffled_bits_are_unbiased_and_as_noisy_as_their_widths_allow() -> None:
    telling, counts = ShuffledBits(1.0, 1e-6), np.array([400, 2000])
    told = np.array([telling.tell(seeded_at, counts, np.array([0.3, 0.6])) for seeded_at in _many()])
    expected, most = counts * [0.3, 0.6], counts / 4.0 / (1.0 - telling.random_shares(counts)) ** 2
    assert told.mean(axis=0) == pytest.approx(expected, abs=5.0 * math.sqrt(most.max() / len(told)))
    assert np.all(told.var(axis=0) < most * (1.0 + OFF))


def _many() -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in range(1000)]


@pytest.mark.parametrize(
    "telling", [Laplace(0.5), Laplace(0.5, 5), ShuffledBits(1.0, 1e-6), ClientSums(4, 0.2)]
)
def test_widths_hold(telling: Any) -> None:
    """Above a width of chance 1 % in 4,000 draws: 40 at most expected, 70 allows for 4.8 standard errors."""
    counts, chances, weights = np.array([100, 300]), np.array([0.4, 0.6]), np.array([1.0, -0.5])
    generator = seeded()
    told = np.array([telling.tell(generator, counts, chances) for _ in range(DRAWS)])
    limit = width(telling, counts, weights, math.log(100.0))
    above = (told - counts * chances) @ weights > limit
    assert above.sum() <= 70
    assert limit < 6.0 * ((told - counts * chances) @ weights).std()  # and it is not idle


def test_elimination_learns_without_noise() -> None:
    """The second half costs next to nothing: the best action is dropped in one run of ten at most."""
    setting: dict[str, Any] = {"agents": 20, "dim": 3, "arms": 10, "horizon": 2000, "runs": 20}
    phases = Phases(first=20, growth=2.0)
    for telling in (Laplace(math.inf), ClientSums(5, math.inf)):
        played = Elimination(telling, phases, Lasting(**setting)).play({})
        half = played.mean_curve[len(played.rounds) // 2 - 1]
        assert played.mean - half < 0.1 * half
    uniform = ours_on_a_fixed_set(**(setting | {"runs": 2}), baseline="uniform")
    assert played.mean < 0.1 * uniform.mean


def test_one_reward_is_in_one_sum_and_a_client_moves_all_by_what_noise_is_for() -> None:
    """Rewards in [0, 1]: one moves its sum by 1 at most, Laplace is for 1; a client by √Σ m² at most."""
    actions = np.eye(3)
    clients, plays = ClientSums(5, 1.0), 50
    counts = clients.counts(actions, plays)
    plan = counts // (plays // 5)
    assert plan.sum() == 5
    assert clients.deviation(counts) >= np.linalg.norm(plan) - 1e-12  # all of a client's rewards from 0 to 1
    assert Laplace(2.0).noise(seeded(), DRAWS).std() == pytest.approx(math.sqrt(2.0) / 2.0, rel=OFF)


@pytest.mark.parametrize("trust", ["controller", "nobody", "shuffler"])
def test_players_on_fixed_actions_are_repeatable(trust: Any) -> None:
    setting: dict[str, Any] = {"agents": 20, "dim": 3, "arms": 6, "horizon": 200, "runs": 2, "first": 20}
    one, two = (core_set(**setting, growth=2.0, trust=trust, threads=threads) for threads in (1, 2))
    assert np.array_equal(one.regret, two.regret)
    if trust != "shuffler":
        played = distributed_elimination(**setting, growth=2.0, records_per_person=5, trust=trust)
        assert played.release_rounds[0] == (20, 60, 140)


# ── weighted regression ──


SHAPES = [[1.0, 1.0, 1.0], [1.0, 1.5, 1.5], [1.0, 3.0, 10.0]]  # axes of W


def _rows(weighting: reweighted.Weighting, actions: Any, rewards: Any, problem: Problem) -> Any:
    """(u xᵀ, κ u y) of records, as rows."""
    damped, weight = weighting.damped(actions), weighting.reward_weight(problem)
    grams = (damped[:, :, None] * actions[:, None]).reshape(len(actions), -1)
    return np.concatenate([grams, weight * rewards[:, None] * damped], axis=1)


@pytest.mark.parametrize("axes", SHAPES)
@pytest.mark.parametrize("damping", [0.01, 1.0, 1000.0])
def test_weighted_sums_move_by_no_more_than_their_noise_is_for(axes: list[float], damping: float) -> None:
    """Over a million pairs of records, long and short, beginning with those that are farthest apart."""
    generator = seeded()
    problem = Problem(dim=3, action_bound=1.3, reward_bound=0.7, parameter_bound=0.9)
    weighting = reweighted.Weighting(np.diag(axes), damping, math.inf)
    actions = generator.standard_normal((1000, 3))
    actions[::2, 1:] = 0.0 if len(set(axes)) == 1 else actions[::2, 1:]
    actions *= problem.action_bound / np.linalg.norm(actions, axis=1, keepdims=True)
    actions[::3] *= generator.uniform(size=(len(actions[::3]), 1)) ** 3
    rewards = problem.reward_bound * generator.choice([-1.0, 1.0], 1000)
    rows = _rows(weighting, actions, rewards, problem)
    apart = np.sqrt(np.maximum((rows**2).sum(1)[:, None] + (rows**2).sum(1) - 2.0 * rows @ rows.T, 0.0))
    assert apart.max() <= weighting.move(problem) <= 2.0 * weighting.longest(problem) * (1.0 + 1e-9)
    grams = rows[:, :9]
    apart = np.linalg.norm(grams[:, None] - grams, axis=2)
    assert apart.max() <= weighting.move(problem, rewarded=False)


@pytest.mark.parametrize("damping", [0.01, 6.0, 1000.0])
def test_the_move_of_evenly_weighted_sums_is_exact(damping: float) -> None:
    """W = I: two records that are as far apart as the noise is for, less the width of its intervals."""
    problem = Problem(dim=2)
    weighting = reweighted.Weighting(np.eye(2), damping, math.inf)
    weight = weighting.reward_weight(problem)
    angles = np.linspace(0.0, math.pi, 400)
    turned = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    lengths = np.concatenate([[1.0], np.geomspace(1e-4, 1.0, 60)])
    other = _rows(
        weighting, np.concatenate([length * turned for length in lengths]), -np.ones(24_400), problem
    )
    one = _rows(weighting, np.eye(2)[:1], np.ones(1), problem)
    assert np.linalg.norm(other - one, axis=1).max() == pytest.approx(weighting.move(problem), rel=5e-3)
    if damping <= 6.0:
        expected = math.sqrt(2.0) * (1.0 + weight**2 / 2.0) / (1.0 + damping)
        assert weighting.move(problem) == pytest.approx(expected, rel=1e-6)
    assert weighting.move(problem, rewarded=False) == pytest.approx(math.sqrt(2.0) / (1.0 + damping))


@pytest.mark.parametrize("squared", [1.0, 1.5, 4.0, 100.0, 1e6])
@pytest.mark.parametrize("b", [0.0, 0.3, 1.0, 3.0])
def test_the_closed_form_of_the_worst_angle_is_that_of_a_search(squared: float, b: float) -> None:
    product, z = np.array([1e-8, 0.1, 0.5, 1.0]), np.append(0.0, np.geomspace(1e-9, 1e9, 100_001))
    values = (squared - z) / (squared + z) * (b - product[:, None] * (1.0 - z) / (1.0 + z))
    assert reweighted._crossed(squared, b, product) == pytest.approx(values.max(axis=1), abs=1e-6)


def test_noise_of_weighted_sums_is_what_the_accounting_says() -> None:
    problem, generator = Problem(dim=2), seeded()
    weighting = reweighted.Weighting(np.diag([1.0, 2.0]), 0.5, 0.25, noises=9)
    none = np.zeros((0, 2))
    told = [reweighted.told(weighting, problem, none, np.zeros(0), generator) for _ in range(DRAWS)]
    grams, moments = (np.array(part) for part in zip(*told, strict=True))
    deviation = 3.0 * weighting.move(problem) / 0.25
    assert grams.std(axis=0) == pytest.approx(np.full((2, 2), deviation), rel=OFF)
    weight = weighting.reward_weight(problem)
    assert moments.std(axis=0) == pytest.approx(np.full(2, deviation / weight), rel=OFF)


def test_weighted_epochs_learn_where_there_is_hardly_noise() -> None:
    setting: dict[str, Any] = {"agents": 10, "dim": 3, "arms": 9, "horizon": 640, "runs": 2}
    played = reweighted.reweighted_epochs(**setting, first=20, epsilon=1e4)
    assert played.release_rounds[0] == (20, 60, 140, 300)
    half = played.mean_curve[len(played.rounds) // 2 - 1]
    assert played.mean - half < 0.1 * half
