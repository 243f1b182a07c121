"""The simulation keeps its promises: reproducible, regret as published, memory flat."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest

import feducb
from feducb.simulation.reference import Step

SMALL: dict[str, Any] = {"agents": 4, "dim": 3, "arms": 6, "horizon": 150, "runs": 12, "seed": 3}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"mode": "paper"},
    {"mode": "paper", "schedule": "periodic:10"},
    {"baseline": "no-privacy"},
    {"baseline": "alone"},
    {"baseline": "uniform"},
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_seed_gives_the_same_json_on_any_number_of_threads(variant: dict[str, Any]) -> None:
    texts = []
    for threads in (1, 2, 5):
        result = json.loads(feducb.simulate(**SMALL, **variant, threads=threads).to_json())
        assert result.pop("seconds") > 0
        assert result.pop("agent_steps_per_second") > 0
        texts.append(json.dumps(result))
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_does_not_depend_on_the_runs_beside_it(variant: dict[str, Any]) -> None:
    many = feducb.simulate(**SMALL, **variant)
    few = feducb.simulate(**(SMALL | {"runs": 5}), **variant)
    np.testing.assert_allclose(few.regret, many.regret[:5], rtol=1e-9)


def test_another_seed_gives_another_result() -> None:
    assert feducb.simulate(**SMALL).mean != feducb.simulate(**(SMALL | {"seed": 4})).mean


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("dim", "arms"), [(1, 1), (1, 3), (2, 1)])
def test_the_smallest_problems_run(variant: dict[str, Any], dim: int, arms: int) -> None:
    result = feducb.simulate(agents=1, dim=dim, arms=arms, horizon=30, runs=1, **variant)
    assert np.isfinite(result.mean)
    if arms == 1:
        assert result.mean == pytest.approx(0.0, abs=1e-12)
    assert result.stderr is None


def test_uniform_play_loses_a_fifth_a_round() -> None:
    # Best mean 0.75, others 0.55, K = 20: 0.19 a round; 12,000 draws put the mean within 0.3 % (6 s.e.).
    result = feducb.simulate(agents=6, dim=4, arms=20, horizon=1000, runs=2, baseline="uniform")
    assert result.mean / 1000 == pytest.approx(0.2 * 19 / 20, rel=0.01)


def test_learning_orders_as_it_should() -> None:
    setting: dict[str, Any] = {"agents": 30, "dim": 4, "arms": 16, "horizon": 1500, "runs": 2, "seed": 1}
    uniform = feducb.simulate(**setting, baseline="uniform").mean
    paper = feducb.simulate(**setting, mode="paper", epsilon=4).mean
    private = feducb.simulate(**setting, epsilon=4).mean
    strong = feducb.simulate(**setting, epsilon=0.5).mean
    free = feducb.simulate(**setting, baseline="no-privacy").mean
    assert free < private < strong < uniform
    assert private < 0.3 * uniform  # it learns …
    assert paper > 0.9 * uniform  # … and the printed constants do not


def test_a_single_private_agent_is_a_federation_of_one() -> None:
    result = feducb.simulate(agents=1, dim=2, arms=4, horizon=400, runs=2, epsilon=50.0)
    assert result.privacy["epsilon"] == 50.0
    assert result.mean < 0.75 * 0.15 * 400


def test_budgets_of_their_own_add_their_variances() -> None:
    totals: list[float] = []

    def look(step: Step) -> None:
        if step.total is not None:
            totals.append(float(step.total.variance[0]))

    common: dict[str, Any] = {"dim": 2, "horizon": 20, "runs": 1, "schedule": "explicit:5", "observer": look}
    tight, loose = feducb.Budget(epsilon=0.5, delta=1e-6), feducb.Budget(epsilon=5.0, delta=1e-5)
    mixed = feducb.simulate(agents=3, budgets=[tight, loose, loose], **common)
    for budget in (tight, loose):
        feducb.simulate(agents=1, budgets=[budget], **common)
    assert totals[0] == pytest.approx(totals[1] + 2 * totals[2])
    assert (mixed.privacy["epsilon"], mixed.privacy["delta"]) == (5.0, 1e-5)
    assert [entry["epsilon"] for entry in mixed.privacy["budgets"]] == [0.5, 5.0, 5.0]


def test_messages_and_bytes_are_counted() -> None:
    result = feducb.simulate(agents=4, dim=3, horizon=100, runs=1, schedule="explicit:10,20,90")
    assert (result.releases, result.messages) == (3, 2 * 4 * 3)
    assert result.bytes == 24 * (40 + 8 * 9)
    assert result.release_rounds == ((10, 20, 90),)
    assert feducb.simulate(agents=4, dim=3, horizon=100, runs=1, baseline="alone").messages == 0


def test_the_result_is_plain_json_with_the_promised_keys() -> None:
    for variant in VARIANTS:
        data = json.loads(feducb.simulate(**SMALL, **variant).to_json())
        assert set(data) >= {
            "per_agent_regret",
            "curve",
            "releases",
            "messages",
            "bytes",
            "seconds",
            "agent_steps_per_second",
            "config",
            "privacy",
        }
        assert set(data["per_agent_regret"]) == {"mean", "stderr"}
        assert set(data["privacy"]) >= {"epsilon", "delta", "mu", "mechanism", "unit", "adversary", "trust"}
        assert data["curve"][-1]["round"] == 150
        assert data["curve"][-1]["mean"] == data["per_agent_regret"]["mean"]
        means = [point["mean"] for point in data["curve"]]
        assert means == sorted(means)


def test_paper_mode_says_what_it_is_not_and_sets_theory_beside_measurement() -> None:
    result = feducb.simulate(**SMALL, mode="paper")
    assert "NOT private against an interactive adversary" in result.privacy["adversary"]
    assert result.privacy["holds"] is False
    theory = result.theory
    assert theory is not None
    assert theory["syncs"] <= theory["sync_bound"]
    assert theory["group_regret"] == pytest.approx(result.mean * 4)
    assert theory["group_regret"] <= theory["regret_bound_theorem_1"]
    assert feducb.simulate(**SMALL).theory is None


def test_exploration_below_the_bound_is_said() -> None:
    assert feducb.simulate(**SMALL, exploration=0.5).config["proven_bound"] is False
    assert feducb.simulate(**SMALL).config["proven_bound"] is True


def test_memory_does_not_grow_with_the_horizon() -> None:
    peaks = []
    for horizon in (1_000, 20_000):
        tracemalloc.start()
        feducb.simulate(agents=16, dim=4, arms=16, horizon=horizon, runs=1, threads=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


def test_a_plot_is_written(tmp_path: Any) -> None:
    feducb.simulate(**SMALL).plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
