"""Policies played online on data whose rewards are all known, by the code of every simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from feducb.evaluation.learning import FederatedLearner, federation_name
from feducb.evaluation.sources import Progress, silent
from feducb.evaluation.study import Online, Study, describe_model
from feducb.evaluation.verdicts import ALONE, Comparison, Play, Row
from feducb.evaluation.weighted_sums import Estimate
from feducb.policies import Optimistic, Policy, parse_policy
from feducb.protocol.closing import closing_rounds
from feducb.protocol.estimators import plan_rounds
from feducb.protocol.federation import Federation
from feducb.simulation.runner import simulate
from feducb.types import Array
from feducb.worlds.data import Known
from feducb.worlds.features import model_of
from feducb.worlds.streams import Streams

__all__ = ["compare_online"]

_UNIFORM = "uniform"


def compare_online(
    data: Known,
    *,
    source: str,
    study: Study | None = None,
    online: Online | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Play agents alone, federations and fixed policies on the same records.

    Args:
        data: the records, and a policy that learns nothing.
        source: their name.
        study: budgets, trust, releases, α, level and seed; folds and repeats are not needed here.
        online: how long, how often, and with how much exploration.
        progress: hears a stage and how many more agent-steps of it are done.
    """
    study, online = study or Study(), online or Online()
    world, (fixed, fixed_rewards) = data.world, data.fixed
    runs, horizon = online.runs, online.horizon or world.horizon
    horizon = min(horizon, study.records_per_agent or horizon)
    practical, played = Optimistic(online.exploration), parse_policy(study.policy)
    plays: dict[Play, Policy] = {"practical": practical, "played": played}
    streams = Streams(study.seed)
    best, constant = (  # (runs,): of whoever always knows the best candidate, and of the fixed policy
        np.array([world.mean(rewards, streams, run, horizon) for run in range(runs)])
        for rewards in (world.rewards.max(axis=1), fixed_rewards)
    )
    values: dict[tuple[str, Play], Array] = {(fixed, "fixed"): constant}
    federations = _federations(data, study)
    private = {name: one for name, one in federations.items() if one.baseline is None}
    blind = {name for name, one in private.items() if one.play == "released" and not _reads(one, horizon)}
    apart = {name for name, one in private.items() if one.play == "own" and not _shares(one, horizon)}

    def play(name: str, federation: Federation) -> Array:
        before = 0

        def tell(done: int, total: int) -> None:
            nonlocal before
            progress(name, done - before)
            before = done

        result = simulate(
            federation, world, horizon=horizon, runs=runs, seed=study.seed, backend="reference", progress=tell
        )
        return np.asarray(best - result.regret[:, -1] / horizon)

    uniform = values[_UNIFORM, "fixed"] = play(_UNIFORM, federations.pop(_UNIFORM))
    for name, federation in federations.items():
        for how, policy in plays.items():
            # A blind one plays uniformly, and one that stays apart as agents alone do, with the same coins.
            if name in blind:
                values[name, how] = uniform
            elif name in apart:
                values[name, how] = values[ALONE, how]
            else:
                values[name, how] = play(name, replace(federation, policy=policy))
    rows = []
    for (name, how), value in values.items():
        alone = values.get((ALONE, how))
        rows.append(
            Row(
                name=name,
                play=how,
                value=_estimate(value, study.level),
                over_alone=None if alone is None or name == ALONE else _estimate(value - alone, study.level),
                over_fixed=None if name == fixed else _estimate(value - constant, study.level),
                private=name in private,
                reads=name not in blind,
                shares=name not in apart,
                own_play=name in private and private[name].play == "own",
            )
        )
    settings = {
        "records": len(world.rewards),
        "agents": len(world.records),
        "arms": world.arms,
        "dim": world.problem.dim,
        **study.describe_records(),
        "horizon": horizon,
        "runs": runs,
        "exploration": online.exploration,
        "releases": study.releases or "planned",
        **describe_model([one.model for one in private.values()], world.problem.dim),
        "delta": study.delta,
        "alpha": study.alpha,
        "level": study.level,
        "seed": study.seed,
        **study.describe_play(),
        "best_possible": float(best.mean()),
    }
    return Comparison(
        source=source,
        measure="reward a decision, from the first to the last",
        rows=rows,
        fixed=fixed,
        primary="practical",
        notes=data.notes,
        warnings=(),
        settings=settings,
        recipe=data.recipe,
    )


def _federations(data: Known, study: Study) -> dict[str, Federation]:
    """By name: the baselines, and the private federations."""
    world = data.world
    open_federation, private = study.federations(
        world.problem, len(world.records), model=model_of(data.recipe)
    )
    return {
        _UNIFORM: replace(open_federation, baseline="uniform"),
        ALONE: replace(open_federation, baseline="alone"),
        **{federation_name(one): one for one in (open_federation, *private)},
    }


def _reads(federation: Federation, horizon: int) -> bool:
    """Whether a release is worth reading; if not, actions are drawn uniformly."""
    rounds = plan_rounds(federation, range(federation.agents), horizon, alpha=federation.alpha)
    return FederatedLearner.of(federation, rounds).reads


def _shares(federation: Federation, horizon: int) -> bool:
    """Whether agents make a release at all under own play; if not, each is alone from the start."""
    return bool(closing_rounds(federation, range(federation.agents), horizon))


def _estimate(values: Array, level: float) -> Estimate:
    stderr = float(values.std(ddof=1) / math.sqrt(len(values)))
    return Estimate(float(values.mean()), stderr, level, len(values) - 1)
