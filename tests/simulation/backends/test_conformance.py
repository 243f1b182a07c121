"""Every backend plays every plan that it does not refuse by the same law as the readable reference.

Mean regrets of independent runs are compared by z tests. With at least 24 runs a side, |z| > 6.5 has a chance
below 1e-6 a comparison even under the heavier tails of Student's law; there are about 200 comparisons.
Whatever is not random (release rounds, messages, bytes, privacy) must be equal.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import feducb
from devices import MISSING_GPU, needs_gpu
from feducb.simulation.backends.cpu import CpuBackend

LIMIT = 6.5
BASE: dict[str, Any] = {"agents": 6, "dim": 4, "arms": 12, "horizon": 400, "runs": 24}
OVERLAP = feducb.PaperEnvironment(problem=feducb.Problem(dim=4), arms=12, best=(0.55, 0.8), others=(0.4, 0.7))
CASES: dict[str, dict[str, Any]] = {
    "calibrated": {"epsilon": 20.0},
    "calibrated, blind to the end": {"epsilon": 0.5},
    "controller": {"epsilon": 8.0, "trust": "controller"},
    "keepers": {"epsilon": 8.0, "trust": "keepers:1:1"},
    "keepers, a fifth away": {"epsilon": 20.0, "trust": "keepers:1:1", "absence": 0.2},
    "keepers on a graph": {"topology": "complete:5", "trust": "keepers", "epsilon": 20.0},
    "several records of a person": {"epsilon": 40.0, "records_per_person": 2},
    "budgets of their own": {"budgets": [feducb.Budget(epsilon=e, delta=1e-5) for e in (5, 9, 20, 40, 8, 9)]},
    "no privacy": {"baseline": "no-privacy"},
    "no privacy, every round": {"baseline": "no-privacy", "schedule": "every-round"},
    "periodic": {"epsilon": 20.0, "schedule": "periodic:37"},
    "explicit": {"epsilon": 20.0, "schedule": "explicit:3,50,51,300"},
    "buffered Toeplitz": {"epsilon": 20.0, "mechanism": "blt"},
    "tree": {"epsilon": 20.0, "mechanism": "tree"},
    "alone": {"baseline": "alone"},
    "uniform": {"baseline": "uniform"},
    "own play": {"epsilon": 20.0, "play": "own"},
    "own play, keepers": {"epsilon": 8.0, "trust": "keepers:1:1", "play": "own"},
    "own play, alike": {"epsilon": 20.0, "trust": "controller", "play": "own", "distance": 0.0},
    "own play, its own rounds": {"epsilon": 50.0, "play": "own", "schedule": "explicit:20,60,110"},
    "own play, optimistic": {"epsilon": 20.0, "play": "own", "policy": "optimistic"},
    "own play, stays alone": {"epsilon": 0.2, "play": "own"},
    "own play, agents differ": {"epsilon": 20.0, "play": "own", "trust": "controller", "heterogeneity": 0.4},
    "own play, d = 2": {"dim": 2, "agents": 9, "epsilon": 40.0, "play": "own", "heterogeneity": 1.0},
    "agents differ": {"epsilon": 20.0, "heterogeneity": 0.3},
    "agents differ, alone": {"baseline": "alone", "heterogeneity": 1.2},
    "agents differ, ring": {"topology": "ring:6", "ttl": 2, "baseline": "no-privacy", "heterogeneity": 0.5},
    "paper": {"mode": "paper", "epsilon": 1e4},
    "paper, many syncs": {"mode": "paper", "epsilon": 1e5, "schedule": "determinant:60"},
    "paper, public schedule": {"mode": "paper", "epsilon": 1e4, "schedule": "geometric"},
    "other exploration": {"baseline": "no-privacy", "exploration": 0.3},
    "tempered": {"epsilon": 20.0, "policy": "tempered"},
    "tempered, no privacy": {"baseline": "no-privacy", "policy": "tempered:0.02"},
    "tempered, alone": {"baseline": "alone", "policy": "tempered:0.3"},
    "tempered, any arm may be best": {"baseline": "no-privacy", "environment": OVERLAP, "policy": "tempered"},
    "tempered, d = 33": {"dim": 33, "arms": 40, "horizon": 90, "epsilon": 1e3, "policy": "tempered"},
    "tempered, ring": {"topology": "ring:8", "ttl": 2, "baseline": "no-privacy", "policy": "tempered"},
    "other regulariser": {"baseline": "alone", "regularizer": 4.0},
    "no gap": {"baseline": "no-privacy", "gap": 0.0},
    "any arm may be best": {"baseline": "no-privacy", "environment": OVERLAP},
    "any arm may be best, alone": {"baseline": "alone", "environment": OVERLAP},
    "alone for long": {"baseline": "alone", "agents": 2, "horizon": 3000},
    "alone, other exploration": {"baseline": "alone", "exploration": 0.3},
    "wide gap": {"baseline": "alone", "gap": 0.4},
    "d = 1": {"dim": 1, "epsilon": 20.0, "arms": 3},
    "d = 2, one agent": {"dim": 2, "agents": 1, "baseline": "alone"},
    "K = 1": {"arms": 1, "epsilon": 20.0},
    "K = 2": {"arms": 2, "baseline": "no-privacy"},
    "K = 10,000": {"arms": 10_000, "agents": 2, "horizon": 40, "baseline": "no-privacy"},
    "d = 33": {"dim": 33, "arms": 40, "horizon": 90, "baseline": "alone"},
    "d = 128": {"dim": 128, "arms": 16, "agents": 2, "horizon": 100, "baseline": "no-privacy"},
    "d = 128, own data": {"dim": 128, "arms": 16, "agents": 2, "horizon": 30, "baseline": "alone"},
    "ring": {"topology": "ring:8", "ttl": 2, "baseline": "no-privacy"},
    "ring, one estimator": {"topology": "ring:8", "ttl": 3, "estimators": "one", "epsilon": 40.0},
    "ring, private": {"topology": "ring:6", "ttl": 2, "epsilon": 100.0},
    "paper on a graph": {"topology": "line:5", "ttl": 2, "mode": "paper", "schedule": "periodic:20"},
    "γ does not divide T": {"topology": "ring:7", "ttl": 3, "baseline": "no-privacy", "horizon": 101},
    "T = 1": {"horizon": 1, "baseline": "no-privacy", "first_release": 1},
    "T = 1, alone": {"horizon": 1, "baseline": "alone"},
}  # fmt: skip
OWN_ROUNDS = ("paper", "paper, many syncs", "keepers, a fifth away")


@lru_cache(maxsize=len(CASES))
def _reference(case: str) -> feducb.SimulationResult:
    return feducb.simulate(**_setting(case), seed=1, backend="reference")


def _setting(case: str) -> dict[str, Any]:
    setting = BASE | CASES[case]
    if "topology" in setting:
        del setting["agents"]
    return setting


@pytest.mark.parametrize("backend", ["cpu", pytest.param("gpu", marks=needs_gpu)])
@pytest.mark.parametrize("case", CASES)
def test_the_law_is_the_reference_s(case: str, backend: Any) -> None:
    expected = _reference(case)
    notes: list[str] = []
    found = feducb.simulate(**_setting(case), seed=2, backend=backend, note=notes.append)
    assert (found.config["backend"], notes) == (backend, [])
    assert found.privacy == expected.privacy
    if case in OWN_ROUNDS:  # then data move the rounds, or who is away does
        for read in (len, min):
            _alike(*([float(read(rounds)) for rounds in one.release_rounds] for one in (found, expected)))
    else:
        assert found.release_rounds == expected.release_rounds
        assert (found.messages, found.bytes) == (expected.messages, expected.bytes)
    np.testing.assert_array_equal(found.rounds, expected.rounds)
    for point in {len(found.rounds) // 20, len(found.rounds) // 4, len(found.rounds) - 1}:
        _alike(found.regret[:, point], expected.regret[:, point])
    if expected.clique_regret is not None:
        assert found.clique_regret is not None
        assert found.clique_regret.shape == expected.clique_regret.shape


def _alike(ours: Any, theirs: Any) -> None:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    error = np.hypot(*(part.std(ddof=1) / np.sqrt(len(part)) for part in (ours, theirs)))
    assert abs(ours.mean() - theirs.mean()) <= LIMIT * error + 1e-6, (ours.mean(), theirs.mean(), error)


@pytest.mark.parametrize(
    "case", ["calibrated", "tempered", "alone", "own play", "paper", "ring", "any arm may be best"]
)
def test_threads_change_no_number(case: str) -> None:
    from feducb.simulation.runner import simulate

    one = simulate(**_setting(case), backend="cpu", threads=1)
    two = simulate(**_setting(case), backend="cpu", threads=2)
    np.testing.assert_array_equal(one.regret, two.regret)


def test_a_backend_that_cannot_says_so_and_the_next_one_plays() -> None:
    notes: list[str] = []
    setting = BASE | {"horizon": 40, "runs": 2}
    del setting["agents"]
    graph: dict[str, Any] = {"topology": "ring:6", "mode": "paper", "epsilon": 1e3}
    result = feducb.simulate(**setting, **graph, backend="cpu", note=notes.append)
    assert result.config["backend"] == "reference"
    assert len(notes) == 1
    assert "trigger on a graph" in notes[0]
    own = feducb.OwnEnvironment(
        problem=feducb.Problem(dim=2),
        arms=2,
        theta=np.array([0.3, 0.4]),
        draw=lambda generator, agent, rounds: np.tile(np.eye(2), (rounds, 1, 1)),
        pay=lambda generator, actions, means: means,
    )
    assert feducb.simulate(environment=own, horizon=30, runs=1).config["backend"] == "reference"
    if MISSING_GPU is not None:
        notes.clear()
        result = feducb.simulate(agents=2, dim=2, horizon=30, runs=1, backend="gpu", note=notes.append)
        assert result.config["backend"] == "cpu"
        assert notes == [f"gpu: {MISSING_GPU}: playing on cpu"]


@pytest.mark.parametrize("policy", ["optimistic", "tempered"])
def test_deferred_and_drawn_candidates_lead_to_the_same_choices(policy: Any) -> None:
    from feducb.simulation.plan import make_plan

    world = feducb.PaperEnvironment(problem=feducb.Problem(dim=4), arms=12)
    budget = feducb.Budget(epsilon=20.0, delta=1e-6)
    federation = feducb.Federation(problem=world.problem, agents=6, budget=budget, policy=policy)
    plan = make_plan(federation, world, horizon=2000, runs=2, seed=0)
    regrets = [
        CpuBackend(defer=defer).play(plan, threads=1, progress=lambda steps: None, checkpoint=None)[0].regret
        for defer in (True, False)
    ]
    np.testing.assert_allclose(regrets[0], regrets[1], rtol=1e-9)
