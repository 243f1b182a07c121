"""The paper's bounds as numbers, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from feducb.config import Problem
from feducb.models import theory

PROBLEM = Problem(dim=4)
SPREAD = theory.Spread(rho_min=10.0, rho_max=30.0)
GAIN = math.log(3.0 + 1000 / 40.0)  # ln 28 = 3.3322045


def test_threshold_and_sync_bound_by_hand() -> None:
    assert theory.information_gain(PROBLEM, 1000, SPREAD) == pytest.approx(3.3322045, abs=1e-6)
    # D = 2·1000·4/(3.3322045 + 1)
    threshold = theory.default_threshold(PROBLEM, 1000, SPREAD)
    assert threshold == pytest.approx(1846.6348, abs=1e-3)
    # 2 √(4000/1846.6348 · 3.3322045) + 4 = 2 √7.2178992 + 4
    bound = theory.sync_bound(PROBLEM, 1000, SPREAD, threshold=threshold)
    assert bound == pytest.approx(9.3732297, abs=1e-4)


def test_uniform_radius_by_hand() -> None:
    # ½ √(2 ln 20 + 4·3.3322045) + 5·(√30 + 2) = ½ √19.3202826 + 5·7.4772256
    radius = theory.uniform_radius(PROBLEM, 1000, SPREAD, alpha=0.1, agents=5, kappa=2.0)
    assert radius == pytest.approx(39.5838605, abs=1e-5)
    # played with the union over M agents and n = 8 syncs: ½ √(2 ln(2·5·8/0.1) + 13.3288180) + 37.3861279
    played = theory.uniform_radius(PROBLEM, 1000, SPREAD, alpha=0.1, agents=5, kappa=2.0, releases=8)
    assert played == pytest.approx(39.9700, abs=1e-3)


def test_decentralised_bound_by_hand() -> None:
    # cliques of 2 and 3, γ = 2, T = 1000: gain ln(3 + 500/40) = ln 15.5 = 2.7408400; at ν = e each clique has
    # 2 · 4e β̄ √(2 (|C| · 500) · 4 · 3.7408400), with β̄ = 1: 21.7462546 · (√29926.72 + √44890.08)
    at_e = 2 * 4 * math.e * (math.sqrt(29926.72) + math.sqrt(44890.08))
    found = theory.regret_bound_decentralised(PROBLEM, 1000, SPREAD, cliques=[2, 3], ttl=2, radius=1.0)
    assert 0.7 * at_e < found <= at_e
    # the best ν, by a fine grid of the same formula
    best = min(
        8 * nu * sum(math.sqrt(2 * size * 500 * 4 * (math.log(15.5) / math.log(nu) + 1)) for size in (2, 3))
        for nu in (1.2 + 0.0005 * step for step in range(6000))
    )
    assert found == pytest.approx(best, rel=1e-5)


def test_regret_bounds_are_minimal_over_the_base() -> None:
    at = {
        base: 2
        * base
        * (
            math.sqrt(2 * 5 * 1000 * 4 * GAIN / math.log(base))
            + 5 * math.sqrt(1800.0) * (4 * GAIN / math.log(base) + 1)
        )
        for base in (1.5, 2.0, 2.5, math.e, 3.0, 4.0)
    }
    found = theory.regret_bound_centralised(PROBLEM, 1000, SPREAD, agents=5, threshold=1800.0, radius=1.0)
    assert 0.9 * min(at.values()) < found <= min(at.values())


def test_one_clique_and_no_delay_is_the_centralised_last_line() -> None:
    # 4ν β̄ √(2 M T d (log_ν(…) + 1)) with β̄ = 2, M = 5, T = 1000, d = 4, at the best ν
    centralised = min(
        8 * nu * math.sqrt(40_000 * (GAIN / math.log(nu) + 1)) for nu in np.linspace(1.2, 4.2, 6000)
    )
    decentralised = theory.regret_bound_decentralised(PROBLEM, 1000, SPREAD, cliques=[5], ttl=1, radius=2.0)
    assert centralised == pytest.approx(decentralised, rel=1e-5)
    apart = theory.regret_bound_decentralised(PROBLEM, 1000, SPREAD, cliques=[1] * 5, ttl=1, radius=2.0)
    assert apart == pytest.approx(math.sqrt(5) * decentralised)  # the factor √χ̄ of Theorem 2
