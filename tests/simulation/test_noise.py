"""The noise that a simulation adds is the noise that its budget asks for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import feducb
from feducb.models import LINEAR
from feducb.models.mixture import MixtureBound
from feducb.models.play import ReleasedPlay
from feducb.policies import Optimistic
from feducb.privacy.calibration import noise_scale, to_epsilon, to_mu
from feducb.privacy.mechanisms import Dense
from feducb.protocol.estimators import calibrated_estimator
from feducb.protocol.federation import Federation, Tuning
from feducb.simulation.plan import make_plan
from feducb.simulation.reference import Step
from feducb.simulation.runner import run_plan
from feducb.trust import TRUSTS, Trust


def _totals(**setting: Any) -> tuple[feducb.SimulationResult, list[Step]]:
    steps: list[Step] = []

    def look(step: Step) -> None:
        if step.total is not None:
            steps.append(step)

    result = feducb.simulate(horizon=30, runs=1, schedule="explicit:5,10,20,30", observer=look, **setting)
    return result, steps


@pytest.mark.parametrize("trust", TRUSTS.values(), ids=str)
@pytest.mark.parametrize("by_use", [True, False])
def test_the_variance_of_a_sum_follows_from_the_budget(trust: Trust, by_use: bool) -> None:
    """Releases at 5, 10, 20 and 30: each is acted on (30/5)^⅓ = 1.817 times as long as the one before."""
    tuning, mechanism = Tuning(patience=0.0, by_use=by_use), Dense(4, 0, 1.817 if by_use else None)
    agents, problem = 7, feducb.Problem(dim=3)
    budget = feducb.Budget(epsilon=0.7, delta=1e-5)
    result, steps = _totals(agents=agents, dim=3, epsilon=0.7, delta=1e-5, trust=trust, tuning=tuning)
    mu = to_mu(budget)
    assert result.privacy["mu"] == pytest.approx(mu)
    scale = noise_scale(LINEAR.radius(problem, LINEAR.weight(problem)), mu)
    noises = trust.noises(agents) / trust.shares(agents)  # one noise, or one per agent, or shares of one
    for number, step in enumerate(steps, start=1):
        assert step.total is not None
        expected = noises * (scale * mechanism.error(number)) ** 2
        np.testing.assert_allclose(step.total.variance, expected)


def test_the_noise_is_really_there_and_has_that_variance() -> None:
    # 400 agents, 4 releases, d = 6: the released sums minus the true ones, in units of their deviation. The
    # last release alone: 15 off-diagonal entries, so chi-square of 15 at 1e-9 on either side.
    records: list[np.ndarray] = []
    sums: list[np.ndarray] = []

    def look(step: Step) -> None:
        records.append(step.chosen.actions[0].reshape(-1, 6))
        if step.total is not None:
            sums.append((step.total.gram[0], float(step.total.variance[0])))  # type: ignore[arg-type]

    feducb.simulate(
        agents=400, dim=6, arms=5, horizon=12, runs=1, schedule="explicit:3,6,9,12", observer=look, seed=5
    )
    gram, variance = sums[-1]
    actions = np.concatenate(records)
    noise = (gram - actions.T @ actions)[np.triu_indices(6, 1)] / math.sqrt(float(variance))
    assert 0.3 < float((noise**2).sum()) < 85.0


def test_paper_mode_tells_the_mu_of_its_own_noise() -> None:
    result = feducb.simulate(agents=2, dim=2, horizon=16, runs=1, mode="paper", epsilon=2.0, delta=0.1)
    # m = 5 levels are charged, bit_length(16) = 5 nodes are touched: μ = 2 √5/(4 √5 · 2 · ln 20/2)
    assert result.privacy["mu"] == pytest.approx(2.0 / (4.0 * math.log(20.0)))


def test_the_gram_radius_holds() -> None:
    generator, dim = np.random.default_rng(7), 5
    radius = LINEAR.gram_radius(dim, 1, 0.01)
    plain = generator.standard_normal((20_000, dim, dim))
    lowest = np.linalg.eigvalsh((plain + np.swapaxes(plain, 1, 2)) / math.sqrt(2.0))[:, 0]
    assert np.mean(-lowest > radius) <= 0.01


def test_under_a_trusted_controller_the_least_budget_rules() -> None:
    tight, loose = feducb.Budget(epsilon=0.5, delta=1e-6), feducb.Budget(epsilon=5.0, delta=1e-6)
    tuning = Tuning(patience=0.0)
    mixed, _ = _totals(agents=2, dim=2, budgets=[tight, loose], trust="controller", tuning=tuning)
    assert mixed.privacy["mu"] == pytest.approx(to_mu(tight))


@pytest.mark.parametrize("trust", TRUSTS.values(), ids=str)
def test_several_records_of_a_person_take_as_many_times_the_noise(trust: Trust) -> None:
    setting = {"agents": 3, "dim": 3, "trust": trust, "tuning": Tuning(patience=0.0)}
    (one, steps), (five, more) = _totals(**setting), _totals(**setting, records_per_person=5)
    for first, second in zip(steps, more, strict=True):
        assert first.total is not None
        assert second.total is not None
        np.testing.assert_allclose(second.total.variance, 25.0 * np.asarray(first.total.variance))
    assert five.privacy["mu"] == pytest.approx(one.privacy["mu"])  # what is promised to her is the same
    assert five.privacy["unit"].startswith("one person: up to 5 interactions")
    assert one.privacy["unit"].startswith("one interaction")
    assert (one.config["records_per_person"], five.config["records_per_person"]) == (1, 5)


@pytest.mark.parametrize("trust", TRUSTS.values(), ids=str)
def test_planning_knows_the_noise_of_several_records(trust: Trust) -> None:
    """p records at μ are planned as one record at μ/p: first sum to read, quiet start and ρ."""
    problem, rounds = feducb.Problem(dim=5), tuple(range(4, 401, 4))
    mu, delta = to_mu(feducb.Budget(epsilon=4.0, delta=1e-6)), 1e-6

    def planned(epsilon: float, records: int) -> Any:
        budget = feducb.Budget(epsilon=epsilon, delta=delta)
        federation = Federation(
            problem=problem, agents=10, budget=budget, trust=trust, records_per_person=records
        )
        return calibrated_estimator(federation, rounds, range(10), alpha=0.1)

    for records in (2, 5):
        many, one = planned(4.0, records), planned(to_epsilon(mu / records, delta), 1)
        np.testing.assert_allclose(many.privatizer.noise_scale, one.privatizer.noise_scale, rtol=1e-6)
        assert many.rule.first == one.rule.first > planned(4.0, 1).rule.first
        assert many.privatizer.mechanism.quiet == one.privatizer.mechanism.quiet == many.rule.first - 1
        assert many.rule.bound.regularizer == pytest.approx(one.rule.bound.regularizer, rel=1e-6)


@pytest.mark.parametrize("records", [2, 5])
def test_a_plan_for_several_records_loses_less_than_one_for_a_single_record(records: int) -> None:
    """Real noise, planned as for one record, against the product, where the bonus is not the proven one."""
    planned = feducb.simulate(
        agents=10, dim=5, horizon=10_000, runs=10, exploration=0.3, records_per_person=records
    )
    world = feducb.PaperEnvironment(problem=feducb.Problem(dim=5), arms=25)
    federation = Federation(problem=world.problem, agents=10, policy=Optimistic(0.3))
    plan = make_plan(federation, world, horizon=10_000, runs=10, seed=0)
    (team,) = plan.teams
    (one,) = team.estimators
    assert one.privatizer is not None
    noisy = replace(one.privatizer, noise_scale=records * np.asarray(one.privatizer.noise_scale))
    team = replace(team, estimators=(replace(one, privatizer=noisy),))
    unplanned = run_plan(replace(plan, teams=(team,)), {})
    assert planned.mean < 0.95 * unplanned.mean


def test_agents_start_to_read_when_an_even_design_would_leave_a_set_that_is_worth_it() -> None:
    """The first release after which A = (M t L²/d) I would leave half-axes of S/1.2, at 1.2√v."""
    problem, rounds, alpha = feducb.Problem(dim=4), tuple(range(10, 2001, 10)), 0.1
    federation = Federation(problem=problem, agents=20)
    found = calibrated_estimator(federation, rounds, range(20), alpha=alpha)
    assert found.privatizer is not None
    assert isinstance(found.rule, ReleasedPlay)
    noise, weight = float(np.linalg.norm(found.privatizer.noise_scale)), found.privatizer.reward_weight

    def half_axis(number: int) -> float:
        read = len(rounds) - number + 1
        bound = MixtureBound(
            problem=problem,
            log_threshold=math.log(read / (0.95 * alpha)),
            gram_radius=LINEAR.gram_radius(4, read, 0.05 * alpha),
            residual=1.0 / weight**2 + 2.0,
        )
        return bound.half_axis(20 * rounds[number - 1] / 4, (1.2 * noise) ** 2)

    assert 1 < found.rule.first < len(rounds)
    assert 1.2 * half_axis(found.rule.first) <= 1.0 < 1.2 * half_axis(found.rule.first - 1)
