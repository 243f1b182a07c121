"""`evaluate`: would a federation have done better on these data? Behind Python and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from feducb.errors import ConfigurationError, UnfitSettingError
from feducb.evaluation.compare import compare_source
from feducb.evaluation.exports import open_exports
from feducb.evaluation.lines import ENDING
from feducb.evaluation.online import compare_online
from feducb.evaluation.sources import Progress, Survey, silent
from feducb.evaluation.study import Online, Study
from feducb.evaluation.survey import parse_context, parse_terms, survey
from feducb.evaluation.verdicts import Comparison
from feducb.protocol.federation import Federation
from feducb.worlds.data import DATA_SETS, Trial
from feducb.worlds.features import Column, Recipe
from feducb.worlds.logs import FrameLog, LogColumns, open_log

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Reading", "are_exports", "evaluate"]

Where = str | Path

_COLUMNS = ("agent_column", "action", "reward", "propensity")
_OF_A_LOG = (*_COLUMNS, "context", "actions", "terms", "recipe")


class Reading(TypedDict, total=False):
    """How a source is read: `evaluate` explains each."""

    agent_column: str | None
    action: str | None
    reward: str | None
    propensity: str | None
    person_column: str | None
    context: str | Mapping[str, Column | str] | None
    actions: str | Sequence[str] | None
    terms: str | tuple[tuple[str, ...], ...] | None
    recipe: Recipe | Path | None
    personal: str | tuple[tuple[str, ...], ...] | None
    reward_range: str | tuple[float, float] | None
    action_bound: float | None
    agents: int | None


def evaluate(
    source: Where | Sequence[Where] | pd.DataFrame,
    federation: Federation | None = None,
    *,
    study: Study | None = None,
    online: Online | None = None,
    progress: Progress = silent,
    **reading: Unpack[Reading],
) -> Comparison:
    """Compare agents alone, federations and fixed policies on your own data, or on a data set by name.

    Decisions must have been drawn with known probabilities. Nothing leaves this machine, and the simulated
    noise protects nobody: this is a study, made where the data are.

    Args:
        source: a data set by name (`DATA_SETS`); a log of decisions, as a path (.csv, .parquet) or as a data
            frame; or what agents export (.jsonl), one path or several.
        federation: the one to compare, of the source's agents and problem (of a log, `problem_for` its
            recipe); if not given, those of ``study``.
        study: budgets, trust, folds, repeats and intervals.
        online: how data are played whose rewards are all known.
        progress: hears a stage and how many more rows of it are done.
        reading: how the source is read, as follows.

    Keyword Args:
        agent_column: of a log: who decided.
        action: of a log: the column with what was done.
        reward: of a log: the column with what came of it.
        propensity: of a log: the column with the probability of what was done.
        person_column: of a log or a trial: records of one person stay in one fold.
        context: of a log: what was known, as columns (``age:0:120,region:north|south,zip:hash:64``), or by
            name. Of a name alone, range or levels are read off the log, and a note says so.
        actions: of a log: all that there can be; those in the log if not given.
        terms: of a log: what enters the vectors (``offer,age,offer*age``; 1 is an intercept).
        recipe: of a log, instead of context, actions and terms: how vectors are made, or a file that says it.
            Of exports of agents that have one: another, by which vectors are made anew from what they kept.
        personal: of a log or a trial: terms that never leave an agent (``offer*age``); needs own play.
        reward_range: of a log: the public range of rewards (0 to 1). Of exports: what they say,
            or -1 to 1, if not given; agents learn from rewards less its middle.
        action_bound: of exports: L, no candidate is longer; what they say, or 1, if not given.
        agents: of a data set: split into so many agents, where they are dealt.

    Returns:
        The comparison; ``recipe`` is how its vectors were made.

    Raises:
        ConfigurationError: a setting or a row cannot be.
    """
    unknown = reading.keys() - Reading.__annotations__.keys()
    if unknown:
        raise TypeError(f"evaluate() got an unexpected keyword argument {min(unknown)!r}")
    study = study or Study()
    if federation is not None:
        study = replace(study, federation=federation)
    if not isinstance(source, str | Path | Sequence):
        return _about_log(source, reading, study, progress)
    paths = [source] if isinstance(source, str | Path) else list(source)
    if are_exports(paths):
        return _about_exports(paths, reading, study, progress)
    if str(paths[0]) in DATA_SETS:
        return _about_data_set(str(paths[0]), reading, study, online or Online(), progress)
    path = Path(paths[0])
    if not path.suffix and not path.exists():
        expected = f"a data set ({', '.join(DATA_SETS)}), LOG.csv, LOG.parquet, or exports of agents"
        raise ConfigurationError("source", str(paths[0]), expected)
    return _about_log(path, reading, study, progress)


def are_exports(sources: Sequence[Where]) -> bool:
    """Whether they are files that agents exported; several sources must be."""
    exported = [Path(one).suffix == ENDING for one in sources]
    if not exported or (len(exported) > 1 and not all(exported)):
        expected = f"one data set or log, or exports of agents (*{ENDING}), of which there may be several"
        raise ConfigurationError("source", " ".join(map(str, sources)), expected)
    return exported[0]


def _refuse(given: Reading, names: Sequence[str], expected: str) -> None:
    """What does not go with the source must not have been given."""
    for name in names:
        value = given.get(name)
        if value is not None:
            raise UnfitSettingError(name, str(value) if isinstance(value, Path) else value, expected)


def _columns(given: Reading) -> LogColumns:
    """Which column of a log is what."""
    for name in _COLUMNS:
        if given.get(name) is None:
            raise UnfitSettingError(name, None, "the name of a column: a log must say what is what")
    agent, action, reward, propensity = (str(given.get(name)) for name in _COLUMNS)
    person = given.get("person_column")
    return LogColumns(agent=agent, action=action, reward=reward, propensity=propensity, person=person)


def _vectors(given: Reading) -> dict[str, Any]:
    """How vectors of a log are made, as `survey` takes it."""
    context, actions, terms = given.get("context"), given.get("actions"), given.get("terms")
    recipe = given.get("recipe")
    if recipe is not None:
        if (context, actions, terms) != (None, None, None):
            path = str(recipe) if isinstance(recipe, Path) else "given"
            raise UnfitSettingError("recipe", path, "no context, actions or terms beside it")
        if isinstance(recipe, Path):
            recipe = Recipe.read(recipe)
        return {"context": recipe}
    if context is None or isinstance(context, str):
        context = parse_context([part for part in (context or "").split(",") if part])
    return {
        "context": context,
        "actions": actions.split(",") if isinstance(actions, str) else actions,
        "terms": parse_terms(terms) if isinstance(terms, str) else terms,
    }


def _rewards(given: Reading) -> tuple[float, float] | None:
    """The range of rewards."""
    text = given.get("reward_range")
    if not isinstance(text, str):
        return text
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError:
        raise UnfitSettingError("reward_range", text, "LOW:HIGH") from None
    return low, high


def _about_log(source: Where | pd.DataFrame, given: Reading, study: Study, progress: Progress) -> Comparison:
    """Of a log with columns."""
    _refuse(given, ["agents"], "nothing beside a log: its agents are in its column")
    _refuse(given, ["action_bound"], "nothing beside a log: its vectors are made here")
    log = open_log(source) if isinstance(source, str | Path) else FrameLog(source)
    columns, vectors = _columns(given), _vectors(given)
    surveyed = survey(log, columns, reward_range=_rewards(given) or (0.0, 1.0), progress=progress, **vectors)
    return compare_source(_with_personal(surveyed, given), study=study, progress=progress)


def _with_personal(surveyed: Survey, given: Reading) -> Survey:
    """Marked in its recipe: terms that never leave an agent."""
    personal = given.get("personal")
    if personal is None:
        return surveyed
    terms = parse_terms(personal) if isinstance(personal, str) else personal
    return replace(surveyed, recipe=replace(surveyed.recipe, personal=terms))


def _about_exports(paths: Sequence[Where], given: Reading, study: Study, progress: Progress) -> Comparison:
    """Of what agents exported."""
    nothing = "nothing beside exports: their lines hold agents, vectors, rewards and propensities"
    of_a_log = tuple(name for name in _OF_A_LOG if name != "recipe")
    _refuse(given, (*of_a_log, "person_column", "personal", "agents"), nothing)
    rewards = _rewards(given)
    if rewards is not None and not rewards[0] < rewards[1]:
        raise UnfitSettingError("reward_range", given.get("reward_range"), "LOW:HIGH, the lower one first")
    recipe = given.get("recipe")
    if recipe is not None:
        _refuse(given, ("action_bound",), "nothing beside a recipe, which says it")
    source = open_exports(
        paths,
        action_bound=given.get("action_bound"),
        reward_range=rewards,
        recipe=Recipe.read(recipe) if isinstance(recipe, Path) else recipe,
        progress=progress,
    )
    return compare_source(source, study=study, progress=progress)


def _about_data_set(
    name: str, given: Reading, study: Study, online: Online, progress: Progress
) -> Comparison:
    """Of a data set by name: a trial, or one whose rewards are all known."""
    _refuse(given, (*_OF_A_LOG, "action_bound"), f"nothing beside the data set {name}")
    loaded = DATA_SETS[name].load(given.get("agents"))
    if isinstance(loaded, Trial):
        columns = loaded.columns
        if given.get("person_column") is not None:
            columns = replace(columns, person=given.get("person_column"))
        study = replace(study, spread=study.spread or loaded.spread)
        log, bounds = FrameLog(loaded.frame, name), loaded.reward_range
        surveyed = survey(log, columns, context=loaded.recipe, reward_range=bounds, progress=progress)
        surveyed = _with_personal(surveyed, given)
        return compare_source(surveyed, study=study, notes=loaded.notes, progress=progress)
    _refuse(given, ("person_column",), "nothing: there are no folds")
    _refuse(given, ("personal",), "nothing: it is for logs and trials")
    return compare_online(loaded, source=name, study=study, online=online, progress=progress)
