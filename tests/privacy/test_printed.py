"""The paper's constants, worked out by hand from section 4.3."""

from __future__ import annotations

import pytest

from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.privacy.printed import printed_constants, tree_depth


@pytest.mark.parametrize(
    ("releases", "depth"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (64, 7), (10_000, 15)]
)
def test_depth_is_one_plus_log_rounded_up(releases: int, depth: int) -> None:
    assert tree_depth(releases) == depth


def test_constants_by_hand() -> None:
    # d = 4, L = 1, M = 2, n = 8, α = 0.1, ε = 2, δ = 0.1: m = 4, ln(2nM/α) = ln 320 = 5.7683210
    found = printed_constants(Problem(dim=4), Budget(epsilon=2.0, delta=0.1), agents=2, releases=8, alpha=0.1)
    assert found.depth == 4
    # σ_N = 4 √4 · 2 · ln 20 / 2 = 8 · 2.9957323
    assert found.noise_scale == pytest.approx(23.9658582, abs=1e-6)
    # Λ = √32 · 4 · 2 · ln 40 · (4·2 + 2·5.7683210) / 2 = 22.6274170 · 3.6888795 · 19.5366420
    assert found.operator_bound == pytest.approx(1630.7199, abs=1e-3)
    assert found.rho_min == found.operator_bound
    assert found.rho_max == pytest.approx(3 * found.operator_bound)
    assert found.shift == pytest.approx(2 * found.operator_bound)
    # κ = √(4 · 2 · (2 + 11.5366420) / (√2 · 2)) = √38.2874056
    assert found.kappa == pytest.approx(6.1876817, abs=1e-5)


def test_the_printed_sensitivity_refuses_rewards_beyond_one() -> None:
    with pytest.raises(ConfigurationError, match=r"reward_bound is 2\.0"):
        printed_constants(
            Problem(dim=2, reward_bound=2.0), Budget(epsilon=1, delta=0.1), agents=1, releases=2, alpha=0.1
        )
