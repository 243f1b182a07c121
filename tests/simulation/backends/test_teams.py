"""The protocol around compiled kernels, exactly: when sums are used, what leaves, how wide beliefs are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import feducb
from feducb.models.confidence import PaperBound
from feducb.models.play import OwnDataPlay, ReleasedPlay
from feducb.models.ridge import factorise
from feducb.protocol.federation import Federation, Tuning
from feducb.protocol.graphs import parse_topology
from feducb.protocol.schedules import parse_schedule
from feducb.protocol.synchronisation import pooled
from feducb.simulation.backends import teams
from feducb.simulation.backends.backend import OwnDataSettings, OwnPlay, Stretch, Sums
from feducb.simulation.plan import Plan, make_plan
from feducb.simulation.reference import Step
from feducb.simulation.runner import run_plan
from feducb.simulation.shortcuts import RunOptions
from feducb.trust import TRUSTS, Trust
from feducb.types import Belief


class Probe:
    """Kernels that play nothing: every record is the same, and calls are written down."""

    work_at_once = 7.0 * 3 * 2  # seven steps: cut everywhere

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.calls: list[tuple[int, int, Belief | None]] = []

    def fixed(self, belief: Belief | None, stretch: Stretch, rounds: int) -> Sums:
        runs, agents = stretch.runs, stretch.agents
        first_round, points = stretch.first_round, stretch.points
        self.calls.append((first_round, rounds, belief))
        gram = np.tile(agents * rounds * np.eye(self.dim) / self.dim, (len(runs), 1, 1))
        regret = np.zeros((len(runs), len(points)))
        for at in range(first_round, first_round + rounds):
            regret[:, np.searchsorted(points, at)] += agents
        moment, drawn = np.full((len(runs), self.dim), 0.5 * agents * rounds), np.zeros(len(runs), np.int64)
        return Sums(gram, moment, np.full(len(runs), 0.25 * agents * rounds), regret, drawn)

    def own(self, rule: OwnDataPlay, stretch: Stretch) -> OwnPlay:
        pytest.fail("agents that act on released sums only were played on their own data")


def _plan(topology: str | None, ttl: int = 1, **changes: Any) -> Plan:
    graph = None if topology is None else parse_topology(topology, ttl=ttl)
    agents = graph.agents if graph else 5
    budgets = [feducb.Budget(epsilon=40.0 + 10 * agent, delta=1e-6) for agent in range(agents)]
    settings: dict[str, Any] = {
        "baseline": "no-privacy",
        "schedule": parse_schedule("explicit:10,11,20,33,41"),
        "tuning": Tuning(patience=0.0),
    }
    lasts = {name: changes.pop(name, usual) for name, usual in (("horizon", 50), ("runs", 2), ("seed", 0))}
    world = feducb.PaperEnvironment(problem=feducb.Problem(dim=2), arms=3)
    settings |= {"agents": agents, "budget": budgets, "topology": graph}
    return make_plan(Federation(problem=world.problem, **(settings | changes)), world, **lasts)


def _used(plan: Plan) -> tuple[list[int | None], list[Any]]:
    """By own round of the first unit, how many records were in what its decision looked at; all results."""
    probe = Probe(2)
    results = teams.play_teams(plan, probe, progress=lambda steps: None, checkpoint=None)
    rule, counts = plan.estimators[0].rule, np.arange(1.0, 1000.0)
    assert isinstance(rule, ReleasedPlay)
    # What n records look like to the bound, n = 1, 2, …: the same for all of the plan's estimators.
    sums = counts[:, None, None] * np.eye(2) / 2, np.outer(counts, [0.5, 0.5])
    known = rule.bound.belief(*sums, np.zeros(len(counts)))
    seen: dict[int, int | None] = {}
    for first, rounds, belief in probe.calls:
        number = None
        if belief is not None:
            (place,) = np.flatnonzero(np.isclose(known.inverse[:, 0, 0], belief.inverse[0, 0, 0], rtol=1e-9))
            number = int(counts[place])
        seen |= dict.fromkeys(range(first, first + rounds), number)
    return [seen[at] for at in sorted(seen)], results


def test_with_a_controller_a_sum_is_used_from_the_next_round_on() -> None:
    used, (result,) = _used(_plan(None))
    expected = [None] * 10 + [50] + [55] * 9 + [100] * 13 + [165] * 8 + [205] * 9
    assert used == expected
    assert result.release_rounds == ((10, 11, 20, 33, 41),) * 2
    assert result.regret.sum(axis=1).tolist() == [50.0, 50.0]


def test_one_estimator_uses_a_sum_a_time_to_live_after_its_release() -> None:
    used, results = _used(_plan("ring:6", 3, estimators="one"))
    size = len(parse_topology("ring:6", ttl=3).cliques[0])
    versions = [None] * 12 + [10] + [11] * 9 + [20] * 13 + [33] * 8 + [41] * 7
    assert used[:50] == [None if version is None else size * version for version in versions]
    assert all(result.release_rounds == ((10, 11, 20, 33, 41),) * 2 for result in results)


def test_of_several_estimators_each_has_its_own_rounds_and_releases() -> None:
    plan = _plan("complete:4", 1)  # γ = 1: as with a controller
    assert _used(plan)[0] == [None] * 10 + [40] + [44] * 9 + [80] * 13 + [132] * 8 + [164] * 9
    used, results = _used(_plan("ring:6", 3))
    # Estimator 0 plays rounds 3, 6, …, 48 and releases in 12, 21, 33, 42: its own rounds 4, 7, 11, 14.
    size = len(parse_topology("ring:6", ttl=3).cliques[0])
    turns = [None] * 4 + [4] * 3 + [7] * 4 + [11] * 3 + [14] * 2
    assert used[:16] == [None if turn is None else size * turn for turn in turns]
    assert results[0].regret.sum(axis=1).tolist() == [50.0, 50.0]


@pytest.mark.parametrize("trust", TRUSTS.values(), ids=str)
def test_the_noise_of_a_team_is_that_of_its_agents_sum(trust: Trust) -> None:
    plan = _plan(None, baseline=None, trust=trust)
    variances: list[float] = []

    def look(step: Step) -> None:
        if step.total is not None:
            variances.append(float(step.total.variance[0]))

    run_plan(plan, {}, RunOptions(observer=look))
    privatizer = plan.estimators[0].privatizer
    assert privatizer is not None
    whole = pooled(privatizer)
    for number, expected in enumerate(variances[:5], start=1):
        assert (float(whole.noise_scale[0]) * whole.mechanism.error(number)) ** 2 == pytest.approx(expected)  # type: ignore[index]


def test_printed_shifts_add_up() -> None:
    plan = _plan(None, baseline=None, mode="paper")
    privatizer = plan.estimators[0].privatizer
    assert privatizer is not None
    assert float(pooled(privatizer).shift[0]) == pytest.approx(np.sum(privatizer.shift))  # type: ignore[index]


def test_own_data_radii_are_those_of_the_bound(rng: np.random.Generator) -> None:
    problem = feducb.Problem(dim=3, parameter_bound=1.3)
    printed = {"rho_min": 7.0, "root_rho_max": 9.0, "kappa": 0.7}
    bound = PaperBound(problem=problem, alpha=0.03, agents=4, releases=50, **printed)
    factor = rng.standard_normal((3, 9))
    ridge = factorise(factor @ factor.T + 8.0 * np.eye(3), rng.standard_normal(3))
    belief = bound.belief(ridge)
    sigma, logarithm, constant, euclidean, *_ = OwnDataSettings.of(OwnDataPlay(bound=bound, prior=1.0))
    width = sigma * math.sqrt(logarithm + float(ridge.log_det)) + constant
    assert width == pytest.approx(float(belief.ellipsoid_width))
    assert euclidean == pytest.approx(float(belief.euclidean_width))


def test_no_two_estimators_or_runs_share_random_numbers() -> None:
    plan = _plan("ring:8", 2, baseline=None)
    probe = Probe(2)
    teams.play_teams(plan, probe, progress=lambda steps: None, checkpoint=None)
    counted = [at for first, rounds, _ in probe.calls for at in range(first, first + rounds)]
    assert len(plan.estimators) == 6
    assert len(set(counted)) == len(counted) == 50 * len(plan.teams)  # kernels' numbers follow from these
    assert max(counted) <= teams.turns_in_all(plan)
    draws = set()
    for units in teams._units(plan):
        for unit in units:
            assert unit.estimator.privatizer is not None
            (out,) = teams._open_outs(plan, unit, [range(3)])
            draws |= {float(number) for number in out.noise.draw(1, 2).ravel()}
    assert len(draws) == 6 * 3 * 2


def test_runs_played_in_blocks_are_the_same_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    setting: dict[str, Any] = {"agents": 3, "dim": 3, "arms": 6, "horizon": 200, "runs": 5, "backend": "cpu"}
    for changes in ({"epsilon": 40.0}, {"baseline": "alone"}):
        whole = feducb.simulate(**setting, **changes)
        with monkeypatch.context() as patched:
            patched.setattr(teams, "_MOST_ENTRIES", 2 * 3 * 9)  # two runs at a time
            blocks = feducb.simulate(**setting, **changes)
        np.testing.assert_allclose(blocks.regret, whole.regret, rtol=1e-12)


def test_a_long_epoch_of_few_agents_is_all_there() -> None:
    from feducb.simulation.backends.epochs import fixed_epoch
    from feducb.simulation.backends.tiles import World

    world = World(dim=2, arms=3, seed=1)
    rounds = 40_000  # enough to be cut into parts for threads
    who: dict[str, Any] = {"runs": range(1), "agents": 1, "points": [rounds]}
    whole = fixed_epoch(world, None, Stretch(first_round=1, **who), rounds, threads=2)
    pieces = [
        fixed_epoch(world, None, Stretch(first_round=1 + first, **who), 1000)
        for first in range(0, rounds, 1000)
    ]
    np.testing.assert_allclose(whole.gram, sum(piece.gram for piece in pieces), rtol=1e-9)
    np.testing.assert_allclose(whole.moment, sum(piece.moment for piece in pieces), rtol=1e-9)
    np.testing.assert_allclose(whole.regret, sum(piece.regret for piece in pieces), rtol=1e-9)
