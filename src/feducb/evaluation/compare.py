"""Would a federation have done better on this log? Policies learnt on part of it, valued on the rest.

Cross-fitting: the log falls into folds, by record or by person; each policy is learnt on all folds but one
and valued on that one, so that no record judges what it taught. With repeats the folds and the noise are
drawn again, and the value is that of the mixture. A log is read three times and never held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError
from feducb.evaluation.crossfit import LogSource, Sums, draw_folds
from feducb.evaluation.learning import Alone, FederatedLearner, Learner, Learnt, release_rounds
from feducb.evaluation.off_policy import overlap_warnings, weights_off
from feducb.evaluation.sources import Facts, Rows, Source
from feducb.evaluation.study import Study
from feducb.evaluation.survey import Survey
from feducb.evaluation.verdicts import Comparison, Play, Row
from feducb.evaluation.weighted_sums import Tally
from feducb.policies import Greedy, Policy, parse_policy
from feducb.worlds.logs import Log

__all__ = ["compare_on_log", "compare_source"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Progress = Callable[[str, int], None]

_RELEASES = 8
_LARGE = 200_000  # rows from which one repeat is enough


@dataclass(frozen=True, slots=True)
class _Fitted:
    """All that was learnt without one fold of one repeat."""

    learnt: tuple[Learnt, ...]
    best_action: int | None  # None where actions have no names
    model: Array  # (d,), pooled ridge regression: judges only, no agent has it


def compare_on_log(
    log: Log,
    found: Survey,
    *,
    study: Study | None = None,
    notes: Sequence[str] = (),
    progress: Progress = lambda stage, rows: None,
) -> Comparison:
    """Compare agents alone, federations and fixed policies on a log of randomised decisions.

    Args:
        log: the log.
        found: its survey.
        study: how to compare.
        notes: of whoever made the log.
        progress: told a stage and how many more rows of it are done.
    """
    return compare_source(LogSource(log, found), study=study, notes=notes, progress=progress)


def compare_source(
    source: Source,
    *,
    study: Study | None = None,
    notes: Sequence[str] = (),
    progress: Progress = lambda stage, rows: None,
) -> Comparison:
    """Compare them on whatever gives facts and blocks of rows: `compare_on_log` says what with.

    Args:
        source: the rows.
        study: how to compare.
        notes: of whoever made them.
        progress: told a stage and how many more rows of it are done.
    """
    facts = source.facts
    study = study or Study()
    repeats = study.repeats or (1 if facts.rows >= _LARGE else 20)
    study = replace(study, repeats=repeats, spread=study.spread or "records")
    if facts.rows < 2 * study.folds:
        raise ConfigurationError("folds", study.folds, f"at most half of the {facts.rows} rows")
    agents, arms = len(facts.agents), len(facts.actions or ())
    sums = Sums.empty(repeats, study.folds, agents, arms, facts.problem.dim)
    for rows in source.blocks():
        sums.add(rows, draw_folds(rows.keys, study, repeats))
        progress("learning", len(rows.rewards))
    learners = _learners(facts, study)
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
    return _comparison(facts, study, learners, tally, notes)


_LOGGED, _UNIFORM, _CONSTANT = "the logged policy", "uniform", "the best single action"


def _policies(facts: Facts, learners: Sequence[Learner]) -> list[tuple[str, Play]]:
    plays: tuple[Play, ...] = ("greedy", "played")
    names = (_LOGGED, _UNIFORM) if facts.actions is None else (_LOGGED, _UNIFORM, _CONSTANT)
    fixed: list[tuple[str, Play]] = [(name, "fixed") for name in names]
    return fixed + [(learner.name, play) for learner in learners for play in plays]


def _horizon(facts: Facts, study: Study) -> int:
    """Rounds of training: a round is one record of the average agent's training part."""
    return max(1, facts.rows * (study.folds - 1) // (study.folds * len(facts.agents)))


def _releases(facts: Facts, study: Study) -> int:
    """How many releases are asked for; rounds that fall together are fewer."""
    horizon = _horizon(facts, study)
    if study.federation is not None and study.releases is None:
        return len(study.schedule.rounds(horizon))
    return min(study.releases or _RELEASES, horizon)


def _learners(facts: Facts, study: Study) -> list[Alone | FederatedLearner]:
    """Alone, the federation without privacy, and every private one."""
    horizon = _horizon(facts, study)
    open_federation, private = study.federations(facts.problem, len(facts.agents))
    if study.federation is not None and study.releases is None:
        rounds = study.schedule.rounds(horizon)
    else:
        rounds = release_rounds(horizon, _releases(facts, study))
    federated = [FederatedLearner.of(one, rounds, seed=study.seed) for one in (open_federation, *private)]
    return [Alone(facts.problem, study.alpha), *federated]


def _fit(sums: Sums, repeat: int, fold: int, learners: Sequence[Learner], *, run: int) -> _Fitted:
    train = sums.without(repeat, fold)
    gram, moment = train.gram.sum(axis=0), train.moment.sum(axis=0)
    return _Fitted(
        learnt=tuple(learner.learn(train, run) for learner in learners),
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
    draws = np.zeros((repeats, policies))
    for (repeat, fold), fit in fitted.items():
        (some,) = np.nonzero(folds[repeat] == fold)
        if not len(some):
            continue
        candidates, agents = rows.candidates[some], rows.agents[some]
        model = np.asarray(candidates @ fit.model)
        chances = [np.full((len(some), arms), 1.0 / arms)]
        if fit.best_action is not None:
            chances.append(np.tile(np.eye(arms)[fit.best_action], (len(some), 1)))
        for learnt in fit.learnt:
            chances += [learnt.choices(candidates, agents, policy) for policy in (Greedy(), played)]
        taken = (np.arange(len(some)), rows.actions[some])
        surprise = rows.scaled[some] - model[taken]
        for policy, chance in enumerate(chances, start=1):
            weight = chance[taken] / rows.propensities[some]
            weights[some, policy] += weight / repeats
            worth = (chance * model).sum(axis=1) + weight * surprise
            robust[some, policy] += worth / repeats
            draws[repeat, policy] += worth.sum()
    robust *= facts.scale
    robust += facts.shift
    weights[:, 0], robust[:, 0] = 1.0, rows.rewards
    accepted = coins.random(count)[:, None] < weights * facts.least_propensity
    accepted[:, 0] = True
    draws *= facts.scale
    draws += facts.shift * count
    draws[:, 0] = rows.rewards.sum()
    tally.add(rows.rewards, weights, doubly_robust=robust, accepted=accepted, agents=rows.agents, draws=draws)


def _comparison(
    facts: Facts,
    study: Study,
    learners: Sequence[Alone | FederatedLearner],
    tally: Tally,
    notes: Sequence[str],
) -> Comparison:
    place = {policy: index for index, policy in enumerate(_policies(facts, learners))}
    by_name = {learner.name: learner for learner in learners}
    held_against = _LOGGED if facts.actions is None else _CONSTANT
    fixed = place[held_against, "fixed"]
    rows, valued, reliable = [], {}, True
    for (name, play), index in place.items():
        value, learner = tally.value(index), by_name.get(name)
        alone = place.get((learners[0].name, play))
        federated = learner if isinstance(learner, FederatedLearner) else None
        rows.append(
            Row(
                name=name,
                play=play,
                value=value.doubly_robust,
                over_alone=None if alone in (None, index) else tally.difference(index, alone),
                over_fixed=None if index == fixed else tally.difference(index, fixed),
                private=federated is not None and federated.federation.baseline is None,
                reads=federated is None or federated.reads,
                details=value,
            )
        )
        reliable = reliable and not (play in ("greedy", "fixed") and weights_off(value))
        valued[f"{name} ({play})" if learner else name] = value
    settings = {
        "rows": facts.rows,
        "agents": len(facts.agents),
        "actions": None if facts.actions is None else list(facts.actions),
        "dim": facts.problem.dim,
        "reward_range": list(facts.reward_range),
        "rounds_of_training": _horizon(facts, study),
        "releases": _releases(facts, study),
        "delta": study.delta,
        "folds": study.folds,
        "repeats": study.repeats,
        "alpha": study.alpha,
        "level": study.level,
        "spread": study.spread,
        "seed": study.seed,
        **study.describe_policy(),
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
    )
