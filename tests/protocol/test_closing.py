"""When all close is public, and leaves time to act on what was learnt."""

from __future__ import annotations

import pytest

from feducb.config import Budget, Problem
from feducb.protocol.closing import closing_rounds
from feducb.protocol.federation import Federation
from feducb.trust import require_trust


def _rounds(
    horizon: int, *, epsilon: float = 1.0, trust: str = "controller", distance: float | None = None
) -> tuple[int, ...]:
    federation = Federation(
        agents=40,
        problem=Problem(dim=21),
        budget=Budget(epsilon=epsilon, delta=1e-6),
        trust=require_trust(trust),
        play="own",
        distance=distance,
    )
    return closing_rounds(federation, range(federation.agents), horizon)


@pytest.mark.parametrize("trust", ["nobody", "controller", "keepers"])
@pytest.mark.parametrize("horizon", [30, 60, 100, 150, 300, 1000])
def test_at_least_half_of_the_season_comes_after_the_close(horizon: int, trust: str) -> None:
    """Own records decide nothing before it: a close at the last visitor is a season without learning."""
    for epsilon in (1.0, 8.0):
        rounds = _rounds(horizon, trust=trust, epsilon=epsilon)
        assert not rounds or rounds[-1] <= horizon / 2


def test_a_season_that_is_too_short_for_several_sums_shares_early_or_not_at_all() -> None:
    """40 sites of 100 visitors, d = 21: sums were read from visitor 66 on, and all closed at the last one."""
    assert all(at <= 15 for at in _rounds(100))
    assert _rounds(1000)[-1] > 60


def test_sites_that_are_alike_share_to_the_end() -> None:
    assert _rounds(1000, distance=0.0)[-1] > 500


@pytest.mark.parametrize("trust", ["nobody", "controller", "keepers"])
def test_many_dimensions_do_not_keep_sites_from_their_own_records(trust: str) -> None:
    """Nor an agent alone: what 21 dimensions would take to tell much costs more than it is worth."""
    for epsilon in (0.5, 1.0, 8.0):
        rounds = _rounds(10_000, trust=trust, epsilon=epsilon)
        assert not rounds or rounds[-1] <= 100
    assert _rounds(10_000, epsilon=8.0, distance=0.0)[-1] > 1000  # who is alike goes on sharing
