"""Paper mode against a trace worked out by hand, with scalars only.

d = 2, M = 2, T = 64, α = 0.1, ε = 1000, δ = 0.1; every visitor offers e₁ alone, every reward is ½, and the
noise is set to zero, so that all matrices are diagonal. n = T = 64, m = 7, ln(2nM/α) = ln 2560 = 7.8477625.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import feducb
from feducb.models.confidence import PaperBound
from feducb.models.play import Knowledge, OwnDataPlay
from feducb.protocol.estimators import Estimator
from feducb.protocol.federation import Federation
from feducb.protocol.schedules import Determinant
from feducb.protocol.synchronisation import add_up
from feducb.simulation.plan import make_plan

ROUNDS, AGENTS = 64, 2


class Zeros:
    def draw(self, rows: int, count: int) -> np.ndarray:
        return np.zeros((rows, AGENTS, count))


def _plan(threshold: float | None) -> Estimator:
    world = feducb.FixedArms(
        problem=feducb.Problem(dim=2), actions=np.array([[1.0, 0.0]]), theta=np.array([0.5, 0.5])
    )
    federation = Federation(
        problem=world.problem,
        agents=AGENTS,
        mode="paper",
        budget=feducb.Budget(epsilon=1000.0, delta=0.1),
        schedule=Determinant(threshold),
    )
    plan = make_plan(federation, world, horizon=ROUNDS, runs=1, seed=0)
    return plan.teams[0].estimators[0]


def _play(plan: Estimator) -> tuple[list[int], list[float], Knowledge]:
    """Sync rounds, the radius β before each round, and what is known at the end."""
    assert plan.privatizer is not None
    syncs, radii = [], []
    pending, knowledge = plan.privatizer.start((AGENTS,)), plan.rule.start((AGENTS,))
    action, reward = np.tile([1.0, 0.0], (AGENTS, 1)), np.full(AGENTS, 0.5)
    for at in range(1, ROUNDS + 1):
        assert knowledge.belief is not None
        radii.append(float(knowledge.belief.ellipsoid_width[0]))
        pending = plan.privatizer.record(pending, action[:, None], reward[:, None])
        knowledge = plan.rule.observe(knowledge, action, reward)
        if plan.rule.wants_sync(knowledge).any():
            pending, release = plan.privatizer.release(pending, Zeros())
            knowledge = plan.rule.absorb(knowledge, add_up(release))
            syncs.append(at)
    return syncs, radii, knowledge


def test_constants_by_hand() -> None:
    plan = _plan(None)
    printed = plan.printed[0]
    assert printed.depth == 7
    # σ_N = 4 √7 · 2 · ln 20 / 1000
    assert printed.noise_scale == pytest.approx(0.0634077, abs=1e-7)
    # Λ = √32 · 7 · 2 · ln 40 · (4√2 + 2 · 7.8477625) / 1000
    assert printed.operator_bound == pytest.approx(6.2379769, abs=1e-6)
    assert (printed.rho_min, printed.rho_max) == pytest.approx((6.2379769, 18.7139308), abs=1e-6)
    # κ = √(7 · 2 · (√2 + 2 · 7.8477625) / (√2 · 1000))
    assert printed.kappa == pytest.approx(0.4115553, abs=1e-7)
    # D = 2 · 64 · 2 / (ln(3 + 64/(2 · 6.2379769)) + 1) = 256 / 3.0955447
    assert plan.threshold == pytest.approx(82.6994998, abs=1e-5)
    # every node of the tree carries σ_N
    privatizer = plan.privatizer
    assert privatizer is not None
    node = np.asarray(privatizer.noise_scale) * privatizer.mechanism.error(64)
    np.testing.assert_allclose(node, 0.0634077, atol=1e-7)


# Scalars: with S = diag(s₁, s₂) and k own records, log det(V + M(ρ_max − ρ_min)I) − log det S is
# ln((s₁ + k + 24.9519077)(s₂ + 24.9519077)/(s₁ s₂)); before the first sync s₁ = s₂ = 12.4759539, after
# one at round t they are 2t + 24.9519077 and 24.9519077 (2Λ from each of two agents).
@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(None, [30]), (30.0, [13, 36, 63]), (12.0, [6, 15, 26, 38, 50, 63])],
)
def test_sync_rounds_by_hand(threshold: float | None, expected: list[int]) -> None:
    assert _play(_plan(threshold))[0] == expected


def test_radii_by_hand() -> None:
    syncs, radii, _ = _play(_plan(None))
    # β₁ = ½ √(2 · 7.8477625 [log 2Mn/α] + 0) + 2 √18.7139308 + 2 · 0.4115553
    assert radii[0] == pytest.approx(11.4559097, abs=1e-6)
    # β₂: log det V has grown by ln(1 + 1/12.4759539)
    assert radii[1] == pytest.approx(11.4607693, abs=1e-6)
    # after the sync: log det S = ln(84.9519077 · 24.9519077)
    assert radii[syncs[0]] == pytest.approx(11.6143622, abs=1e-6)


def test_after_a_sync_the_sum_replaces_everything() -> None:
    syncs, _, knowledge = _play(_plan(12.0))
    assert knowledge.own is not None
    offset, since = 4 * 6.2379769, ROUNDS - syncs[-1]
    expected = np.diag([2 * syncs[-1] + offset + since, offset])
    np.testing.assert_allclose(knowledge.own.gram[0], expected, atol=1e-5)
    np.testing.assert_allclose(knowledge.own.moment[0], [0.5 * (2 * syncs[-1] + since), 0.0])
    assert knowledge.waited == since


def test_agents_with_budgets_of_their_own_sum_their_constants() -> None:
    bound = PaperBound(
        problem=feducb.Problem(dim=2),
        alpha=0.1,
        agents=2,
        releases=8,
        rho_min=1.0 + 3.0,
        root_rho_max=2.0 + 3.0,
        kappa=0.5 + 0.25,
    )
    # ½ √(2 ln 320 + 0) + (2 + 3) + 0.75 at log det V = d log Σρ_min
    expected = 0.5 * math.sqrt(2 * math.log(320)) + 5.75
    assert float(bound.radius(np.array(2 * math.log(4.0)))) == pytest.approx(expected)


def test_the_rule_is_the_printed_one() -> None:
    rule = _plan(None).rule
    assert isinstance(rule, OwnDataPlay)
    assert rule.prior == pytest.approx(12.4759539, abs=1e-6)  # Mρ_min
    assert rule.trigger is not None
    assert rule.trigger.offset == pytest.approx(24.9519077, abs=1e-6)  # M(ρ_max − ρ_min)
