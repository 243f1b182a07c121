"""Policies played online on data whose rewards are all known, by the code of every simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feducb.config import require_finite, require_integer
from feducb.evaluation.learning import Federation
from feducb.evaluation.results import ALONE, Comparison, Play, Row
from feducb.evaluation.study import Study
from feducb.evaluation.tally import Estimate
from feducb.protocol.schedules import Geometric
from feducb.simulation.runner import simulate
from feducb.worlds.replay import KnownRewards
from feducb.worlds.streams import Streams

__all__ = ["compare_online"]

Array = NDArray[np.float64]
Progress = Callable[[str, int], None]

_PRACTICAL = 0.1  # of the proven bonus


def compare_online(
    world: KnownRewards,
    *,
    source: str,
    fixed: tuple[str, Array],
    study: Study | None = None,
    runs: int = 10,
    horizon: int | None = None,
    exploration: float = _PRACTICAL,
    notes: Sequence[str] = (),
    progress: Progress = lambda stage, steps: None,
) -> Comparison:
    """Play agents alone, federations and fixed policies on the same records.

    Args:
        world: the data.
        source: its name.
        fixed: a policy that learns nothing: its name, and its reward on each record (N,).
        study: budgets, trust, releases, α, level and seed; folds and repeats are not needed here.
        runs: orders of the records, and draws of the noise.
        horizon: rounds; as many as every agent has records for if not given.
        exploration: the part of the proven bonus in ``practical`` play; ``played`` has all of it.
        notes: of whoever made the data.
        progress: told a stage and how many more agent-steps of it are done.
    """
    study = study or Study()
    require_integer("runs", runs, at_least=2)
    horizon = world.horizon if horizon is None else require_integer("horizon", horizon, at_least=1)
    require_finite("exploration", exploration, at_least=0)
    plays: tuple[tuple[Play, dict[str, Any]], ...] = (
        ("practical", {"exploration": exploration}),
        ("played", {"policy": study.policy}),
    )
    agents, streams = len(world.records), Streams(study.seed)
    best = np.array([world.best(streams, run, horizon) for run in range(runs)])
    values: dict[tuple[str, Play], Array] = {}
    values[fixed[0], "fixed"] = np.array(
        [
            np.mean([fixed[1][world.order(streams, run, one)[:horizon]] for one in range(agents)])
            for run in range(runs)
        ]
    )
    blind = _blind(world, study, horizon)
    for name, setting in _policies(study):
        if setting.get("baseline") == "uniform":
            values[name, "fixed"] = (
                best - _play(world, study, runs, horizon, name, setting, progress) / horizon
            )
            continue
        for play, way in plays:
            if name in blind:  # it plays uniformly, with the same coins
                values[name, play] = values["uniform", "fixed"]
                continue
            regret = _play(world, study, runs, horizon, name, setting | way, progress)
            values[name, play] = best - regret / horizon
    rows = []
    for (name, play), value in values.items():
        alone, constant = values.get((ALONE, play)), values[fixed[0], "fixed"]
        rows.append(
            Row(
                name=name,
                play=play,
                value=_estimate(value, study.level),
                over_alone=None if alone is None or name == ALONE else _estimate(value - alone, study.level),
                over_fixed=None if name == fixed[0] else _estimate(value - constant, study.level),
                private=name.startswith("private"),
                reads=name not in blind,
            )
        )
    settings = {
        "records": len(world.rewards),
        "agents": agents,
        "arms": world.arms,
        "dim": world.problem.dim,
        "horizon": horizon,
        "runs": runs,
        "exploration": exploration,
        "releases": len(Geometric(releases=study.releases).rounds(horizon)),
        "delta": study.delta,
        "alpha": study.alpha,
        "level": study.level,
        "seed": study.seed,
        **study.describe_policy(),
        "best_possible": float(best.mean()),
    }
    return Comparison(
        source=source,
        measure="reward a decision, from the first to the last",
        rows=rows,
        fixed=fixed[0],
        primary="practical",
        notes=tuple(notes),
        warnings=(),
        settings=settings,
    )


def _policies(study: Study) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = [
        ("uniform", {"baseline": "uniform"}),
        (ALONE, {"baseline": "alone"}),
        ("federation without privacy", {"baseline": "no-privacy"}),
    ]
    for budget, trust in study.budgets():
        name = f"private federation, ε = {budget.epsilon:g}, {trust.name} trusted"
        found.append((name, {"epsilon": budget.epsilon, "delta": budget.delta, "trust": trust}))
    return found


def _blind(world: KnownRewards, study: Study, horizon: int) -> set[str]:
    """The private federations in which no release is worth reading."""
    rounds = Geometric(releases=study.releases).rounds(horizon)
    made = [
        Federation.of(world.problem, rounds, agents=len(world.records), budget=budget, trust=trust)
        for budget, trust in study.budgets()
    ]
    return {one.name for one in made if not one.reads}


def _play(
    world: KnownRewards,
    study: Study,
    runs: int,
    horizon: int,
    name: str,
    setting: dict[str, Any],
    progress: Progress,
) -> Array:
    """Per-agent regret of each run."""
    before = 0

    def tell(done: int, total: int) -> None:
        nonlocal before
        progress(name, done - before)
        before = done

    result = simulate(
        environment=world,
        agents=len(world.records),
        horizon=horizon,
        runs=runs,
        seed=study.seed,
        alpha=study.alpha,
        releases=study.releases,
        backend="reference",
        progress=tell,
        **setting,
    )
    return np.asarray(result.regret[:, -1])


def _estimate(values: Array, level: float) -> Estimate:
    return Estimate(
        float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))), level, len(values) - 1
    )
