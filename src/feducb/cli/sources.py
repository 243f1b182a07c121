"""What `feducb evaluate` may be asked about: a data set by name, a log with columns, exports of agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from feducb.errors import ConfigurationError
from feducb.evaluation.compare import compare_on_log, compare_source
from feducb.evaluation.exports import open_exports
from feducb.evaluation.lines import ENDING
from feducb.evaluation.online import compare_online
from feducb.evaluation.results import Comparison
from feducb.evaluation.study import Study
from feducb.evaluation.survey import parse_context, parse_terms, survey
from feducb.worlds.data import DATA_SETS, Known, Trial
from feducb.worlds.data.data_set import Spread
from feducb.worlds.features import Recipe
from feducb.worlds.logs import FrameLog, LogColumns, open_log

__all__ = ["Online", "Question", "are_exports"]

Tell = Callable[[str, int], None]

_COLUMNS = ("--agent-column", "--action", "--reward", "--propensity")
_OF_A_LOG = (*_COLUMNS, "--context", "--actions", "--terms", "--recipe")


def are_exports(sources: list[str]) -> bool:
    """Whether they are files that agents exported; several sources must be."""
    found = [Path(one).suffix == ENDING for one in sources]
    if len(found) > 1 and not all(found):
        expected = f"one data set or log, or exports of agents (*{ENDING}), of which there may be several"
        raise ConfigurationError("source", " ".join(sources), expected)
    return found[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Online:
    """How a data set is played whose rewards are all known."""

    runs: int
    horizon: int | None
    exploration: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What was asked, whatever it is asked about.

    Attributes:
        options: those that are for some sources only, by name; None: not given.
        study: settings of the study.
        spread: of the intervals; None: as usual for the source.
        tell: told how far it is.
    """

    options: Mapping[str, Any]
    study: Mapping[str, Any]
    spread: str | None
    tell: Tell

    def about_data_set(self, name: str, online: Online) -> tuple[Comparison, Recipe]:
        """Of a data set by name: a trial, or one whose rewards are all known."""
        self._refuse((*_OF_A_LOG, "--action-bound"), f"nothing beside the data set {name}")
        loaded = DATA_SETS[name].load(self.options["--agents"])
        if isinstance(loaded, Trial):
            return self._about_trial(name, loaded), loaded.recipe
        self._refuse(("--person-column",), "nothing: there are no folds")
        return self._about_known(name, loaded, online), loaded.recipe

    def about_log(self, path: str) -> tuple[Comparison, Recipe]:
        """Of a log with columns."""
        if not Path(path).suffix and not Path(path).exists():
            expected = f"a data set ({', '.join(DATA_SETS)}), LOG.csv, LOG.parquet, or exports of agents"
            raise ConfigurationError("source", path, expected)
        self._refuse(("--agents",), "nothing beside a log: its agents are in its column")
        self._refuse(("--action-bound",), "nothing beside a log: its vectors are made here")
        log = open_log(path)
        given = self.options
        for name in _COLUMNS:
            if given[name] is None:
                raise ConfigurationError(name, None, "the name of a column: a log must say what is what")
        agent, action, reward, propensity = (str(given[name]) for name in _COLUMNS)
        columns = LogColumns(
            agent=agent,
            action=action,
            reward=reward,
            propensity=propensity,
            person=given["--person-column"],
        )
        study = self._study("records")
        context, actions, terms = given["--context"], given["--actions"], given["--terms"]
        recipe = given["--recipe"]
        if recipe is not None and (context, actions, terms) != (None, None, None):
            raise ConfigurationError("--recipe", str(recipe), "no --context, --actions or --terms beside it")
        seen = survey(
            log,
            columns,
            context=parse_context([part for part in (context or "").split(",") if part]),
            actions=None if actions is None else actions.split(","),
            reward_range=self._reward_range() or (0.0, 1.0),
            terms=None if terms is None else parse_terms(terms),
            recipe=None if recipe is None else Recipe.from_json(recipe.read_text(encoding="utf-8")),
            progress=self.tell,
        )
        return compare_on_log(log, seen, study=study, progress=self.tell), seen.recipe

    def about_exports(self, paths: list[str]) -> Comparison:
        """Of what agents exported."""
        nothing = "nothing beside exports: their lines hold agents, vectors, rewards and propensities"
        self._refuse((*_OF_A_LOG, "--person-column", "--agents"), nothing)
        self._refuse(("--save-recipe",), "nothing beside exports: they do not say how vectors are made")
        low, high = self._reward_range() or (None, None)
        if low is not None and high is not None and not 0.0 < high == -low:
            expected = "-B:B beside exports: agents learn from rewards as they are, unshifted"
            raise ConfigurationError("--reward-range", self.options["--reward-range"], expected)
        study = self._study("records")
        source = open_exports(
            paths, action_bound=self.options["--action-bound"], reward_bound=high, progress=self.tell
        )
        return compare_source(source, study=study, progress=self.tell)

    def _about_trial(self, name: str, loaded: Trial) -> Comparison:
        log = FrameLog(loaded.frame, name)
        study = self._study(loaded.spread)
        seen = survey(
            log,
            replace(loaded.columns, person=self.options["--person-column"]),
            recipe=loaded.recipe,
            reward_range=loaded.reward_range,
            progress=self.tell,
        )
        return compare_on_log(log, seen, study=study, notes=loaded.notes, progress=self.tell)

    def _about_known(self, name: str, loaded: Known, online: Online) -> Comparison:
        return compare_online(
            loaded.world,
            source=name,
            fixed=loaded.fixed,
            study=self._study("records"),
            runs=online.runs,
            horizon=online.horizon,
            exploration=online.exploration,
            notes=loaded.notes,
            progress=self.tell,
        )

    def _study(self, usual: Spread) -> Study:
        return Study(**self.study, spread=cast(Spread, self.spread or usual))

    def _refuse(self, names: tuple[str, ...], expected: str) -> None:
        for name in names:
            value = self.options[name]
            if value is not None:
                raise ConfigurationError(name, str(value) if isinstance(value, Path) else value, expected)

    def _reward_range(self) -> tuple[float, float] | None:
        text = self.options["--reward-range"]
        if text is None:
            return None
        try:
            low, high = (float(part) for part in text.split(":"))
        except ValueError:
            raise ConfigurationError("--reward-range", text, "LOW:HIGH") from None
        return low, high
