"""Would a federation have done better on this log? Policies learnt on part of it, valued on the rest.

Cross-fitting: the log falls into folds, by record or by person; each policy is learnt on all folds but one
and valued on that one, so that no record judges what it taught. With repeats the folds and the noise are
drawn again, and the value is that of the mixture. A log is read three times and never held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from feducb.errors import ConfigurationError
from feducb.evaluation.crossfit import Sums, draw_folds, instability
from feducb.evaluation.learning import Alone, FederatedLearner, Learner, choices, release_rounds
from feducb.evaluation.off_policy import overlap_warnings, weights_off
from feducb.evaluation.sources import Facts, Progress, Rows, Source, Survey, silent
from feducb.evaluation.study import Study, describe_model
from feducb.evaluation.teaching import Teaching
from feducb.evaluation.verdicts import ALONE, Comparison, Play, Row
from feducb.evaluation.weighted_sums import Tally
from feducb.models.play import JointPlay
from feducb.policies import Greedy, Policy, parse_policy
from feducb.protocol.estimators import plan_rounds
from feducb.protocol.federation import Federation
from feducb.protocol.schedules import Planned
from feducb.system import counted
from feducb.types import Array, Belief, Indices
from feducb.worlds.features import model_of
from feducb.worlds.logs import Log

__all__ = ["compare_on_log", "compare_source"]

_RELEASES = 8
_LARGE = 200_000  # rows from which one repeat is enough


@dataclass(frozen=True, slots=True)
class _Fitted:
    """All that was learnt without one fold of one repeat."""

    beliefs: tuple[Belief | None, ...]
    best_action: int | None  # None where actions have no names
    model: Array  # (d,), pooled ridge regression: judges only, no agent has it


def compare_on_log(
    log: Log,
    surveyed: Survey,
    *,
    study: Study | None = None,
    notes: Sequence[str] = (),
    progress: Progress = silent,
) -> Comparison:
    """Compare as `compare_source` does, on a log of randomised decisions and its survey."""
    return compare_source(replace(surveyed, log=log), study=study, notes=notes, progress=progress)


def compare_source(
    source: Source, *, study: Study | None = None, notes: Sequence[str] = (), progress: Progress = silent
) -> Comparison:
    """Compare agents alone, federations and fixed policies on whatever gives facts and blocks of rows.

    Args:
        source: the rows.
        study: how to compare.
        notes: of whoever made them.
        progress: hears a stage and how many more rows of it are done.
    """
    facts = source.facts
    study = study or Study()
    repeats = study.repeats or (1 if facts.rows >= _LARGE else 20)
    study = replace(study, repeats=repeats, spread=study.spread or "records")
    if facts.rows < 2 * study.folds:
        raise ConfigurationError("folds", study.folds, f"at most half of the {counted(facts.rows, 'row')}")
    agents, arms = len(facts.agents), len(facts.actions or ())
    teaching = Teaching.of(source, study, progress)
    learners = _learners(facts, study, teaching)
    sums = Sums.empty(repeats, study.folds, agents, arms, facts.problem.dim)
    for rows in source.blocks():
        sums.add(rows, teaching.folds(rows.keys, rows.agents, study, repeats))
        progress("learning", len(rows.rewards))
    fitted = {
        (repeat, fold): _fit(sums, repeat, fold, learners, run=repeat * study.folds + fold)
        for repeat in range(repeats)
        for fold in range(study.folds)
    }
    clusters = agents if study.spread == "agents" else None
    tally = Tally(len(_policies(facts, learners)), clusters=clusters, draws=repeats, level=study.level)
    coins, played = np.random.default_rng([study.seed, 1]), parse_policy(study.policy)
    for rows in source.blocks():
        _judge(tally, rows, draw_folds(rows.keys, study, repeats), fitted, facts, coins, played)
        progress("valuing", len(rows.rewards))
    horizon, releases, _ = _rounds(facts, study, teaching)
    training = {"rounds_of_training": horizon, "releases": releases}
    return _comparison(facts, study, learners, tally, training, notes)


_LOGGED, _UNIFORM, _CONSTANT = "the logged policy", "uniform", "the best single action"


def _policies(facts: Facts, learners: Sequence[Learner]) -> list[tuple[str, Play]]:
    plays: tuple[Play, ...] = ("greedy", "played")
    names = (_LOGGED, _UNIFORM) if facts.actions is None else (_LOGGED, _UNIFORM, _CONSTANT)
    fixed: list[tuple[str, Play]] = [(name, "fixed") for name in names]
    return fixed + [(learner.name, play) for learner in learners for play in plays]


def _rounds(facts: Facts, study: Study, teaching: Teaching) -> tuple[int, int, tuple[int, ...]]:
    """Rounds of training, releases that are asked for, and their rounds: fewer where some fall together.

    A round is one record of the average agent's training part. Under own play a log is a shared phase that
    is over: what was logged does not depend on releases, so that one of everything, at the close, is best.
    """
    horizon = max(1, teaching.rows * (study.folds - 1) // (study.folds * len(facts.agents)))
    if study.play == "own" and isinstance(study.schedule, Planned):
        return horizon, 1, (horizon,)
    if study.federation is not None and study.releases is None:
        asked = _federations(facts, study)[1][0]
        rounds = plan_rounds(asked, range(asked.agents), horizon, alpha=asked.alpha)
        return horizon, len(rounds), rounds
    releases = min(study.releases or _RELEASES, horizon)
    return horizon, releases, release_rounds(horizon, releases)


def _federations(facts: Facts, study: Study) -> tuple[Federation, list[Federation]]:
    return study.federations(facts.problem, len(facts.agents), model=model_of(facts.recipe))


def _learners(facts: Facts, study: Study, teaching: Teaching) -> list[Learner]:
    """Alone, the federation without privacy, and every private one."""
    open_federation, private = _federations(facts, study)
    _, _, rounds = _rounds(facts, study, teaching)
    federated = [
        FederatedLearner.of(one, rounds, seed=study.seed, recipe=facts.recipe)
        for one in (open_federation, *private)
    ]
    return [Alone(open_federation), *federated]


def _fit(sums: Sums, repeat: int, fold: int, learners: Sequence[Learner], *, run: int) -> _Fitted:
    train, records = sums.without(repeat, fold)
    gram, moment = train.gram.sum(axis=0), train.moment.sum(axis=0)
    return _Fitted(
        beliefs=tuple(learner.learn(train, run, records) for learner in learners),
        best_action=sums.best_action(repeat, fold),
        model=np.linalg.solve(gram + np.eye(len(moment)), moment),
    )


def _judge(
    tally: Tally,
    rows: Rows,
    folds: Indices,
    fitted: dict[tuple[int, int], _Fitted],
    facts: Facts,
    coins: np.random.Generator,
    played: Policy,
) -> None:
    """Add a block's records to the tally, each valued by what was learnt without it."""
    count, arms = len(rows.actions), rows.candidates.shape[1]
    policies, repeats = tally.policies, len(folds)
    weights, robust = np.zeros((count, policies)), np.zeros((count, policies))
    draws, squares = np.zeros((repeats, policies)), np.zeros((policies, policies))
    for (repeat, fold), fit in fitted.items():
        (some,) = np.nonzero(folds[repeat] == fold)
        if not len(some):
            continue
        candidates, agents = rows.candidates[some], rows.agents[some]
        model = np.asarray(candidates @ fit.model)
        chances = [np.full((len(some), arms), 1.0 / arms)]
        if fit.best_action is not None:
            chances.append(np.tile(np.eye(arms)[fit.best_action], (len(some), 1)))
        for belief in fit.beliefs:
            chances += [choices(belief, candidates, agents, policy) for policy in (Greedy(), played)]
        taken = (np.arange(len(some)), rows.actions[some])
        surprise = rows.scaled[some] - model[taken]
        worth = np.zeros((len(some), policies))
        for policy, chance in enumerate(chances, start=1):
            weight = chance[taken] / rows.propensities[some]
            weights[some, policy] += weight / repeats
            worth[:, policy] = (chance * model).sum(axis=1) + weight * surprise
        robust[some] += worth / repeats
        draws[repeat] += worth.sum(axis=0)
        squares += worth.T @ worth
    unstable = facts.scale**2 * _unstable(robust, squares, repeats, folds=len(fitted) // repeats)
    robust *= facts.scale
    robust += facts.shift
    weights[:, 0], robust[:, 0] = 1.0, rows.rewards
    accepted = coins.random(count)[:, None] < weights * facts.least_propensity
    accepted[:, 0] = True
    draws *= facts.scale
    draws += facts.shift * count
    draws[:, 0] = rows.rewards.sum()
    tally.add(
        rows.rewards,
        weights,
        doubly_robust=robust,
        accepted=accepted,
        agents=rows.agents,
        draws=draws,
        unstable=unstable,
    )


def _unstable(worth: Array, squares: Array, repeats: int, *, folds: int) -> Array:
    """(P, P), scatter to add because records judge policies that other records of the log have taught.

    What a record says of a policy varies over repeats as far as the policy depends on its teachers: that part
    counts `instability` times. A single repeat cannot tell, so there it is all that is not said of uniform.

    Args:
        worth: (n, P), what records say, averaged over repeats; of the logged policy 0, then of uniform.
        squares: (P, P), the same multiplied out, summed over records and repeats.
        repeats: R.
        folds: K.
    """
    if repeats > 1:
        varying = (squares - repeats * worth.T @ worth) / (repeats - 1)
        return np.asarray(instability(folds, repeated=True) * varying)
    learnt = worth - worth[:, 1:2]
    learnt[:, 0] = 0.0
    return np.asarray((instability(folds, repeated=False) - 1.0) * learnt.T @ learnt)


def _comparison(
    facts: Facts,
    study: Study,
    learners: Sequence[Learner],
    tally: Tally,
    training: dict[str, int],
    notes: Sequence[str],
) -> Comparison:
    place = {policy: index for index, policy in enumerate(_policies(facts, learners))}
    federated = {one.name: one for one in learners if isinstance(one, FederatedLearner)}
    held_against = _LOGGED if facts.actions is None else _CONSTANT
    fixed = place[held_against, "fixed"]
    rows, valued, reliable = [], {}, True
    for (name, play), index in place.items():
        value, learner = tally.value(index), federated.get(name)
        alone = place.get((ALONE, play))
        rows.append(
            Row(
                name=name,
                play=play,
                value=value.doubly_robust,
                over_alone=None if alone in (None, index) else tally.difference(index, alone),
                over_fixed=None if index == fixed else tally.difference(index, fixed),
                private=learner is not None and learner.federation.baseline is None,
                reads=learner is None or learner.reads,
                own_play=learner is not None and isinstance(learner.estimator.rule, JointPlay),
                details=value,
            )
        )
        reliable = reliable and not (play in ("greedy", "fixed") and weights_off(value))
        valued[name if play == "fixed" else f"{name} ({play})"] = value
    ways_out = [one.estimator.privatizer for one in federated.values() if one.federation.baseline is None]
    models = {way_out.model: way_out.problem.dim for way_out in ways_out if way_out is not None}
    settings = {
        "rows": facts.rows,
        "agents": len(facts.agents),
        "actions": None if facts.actions is None else list(facts.actions),
        "dim": facts.problem.dim,
        "reward_range": list(facts.reward_range),
        **study.describe_records(),
        **training,
        "delta": study.delta,
        "folds": study.folds,
        "repeats": study.repeats,
        "alpha": study.alpha,
        "level": study.level,
        "spread": study.spread,
        "seed": study.seed,
        **study.describe_play(),
        **describe_model(list(models), next(iter(models.values()), 0)),
        **facts.settings,
    }
    return Comparison(
        source=facts.name,
        measure="reward a decision, doubly robust",
        rows=rows,
        fixed=held_against,
        primary="greedy",
        notes=(*notes, *facts.notes),
        warnings=overlap_warnings(valued),
        reliable=reliable,
        settings=settings,
        recipe=facts.recipe,
    )
