"""`feducb evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from feducb.cli.comparison import progress, show
from feducb.cli.options import JsonFile, option, picked, takes_options
from feducb.cli.output import require_writable
from feducb.errors import ConfigurationError, UnfitSettingError
from feducb.evaluation.question import Reading, are_exports
from feducb.evaluation.question import evaluate as run_evaluation
from feducb.evaluation.study import Online, Study
from feducb.policies import POLICIES
from feducb.trust import TRUSTS
from feducb.worlds.data import DATA_SETS

__all__ = ["evaluate"]

_SOURCE_HELP = (
    f"A data set ({', '.join(DATA_SETS)}); or a log of decisions, LOG.csv or LOG.parquet; or what "
    "`feducb agent export` wrote, one EXPORT.jsonl per agent."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """The options: most are of `Reading`, `Study` and `Online`, by the same names."""

    source: Annotated[list[str], typer.Argument(metavar="NAME|LOG|EXPORT...", help=_SOURCE_HELP)]
    agent_column: str | None = option(None, "Of a log: who decided.")
    context: str | None = option(
        None,
        "Of a log: what was known, as columns: age:0:120,region:north|south,new:bool,zip:hash:64. Of a name "
        "alone, range or levels are read off the log, and a note says so.",
    )
    action: str | None = option(None, "Of a log: the column with what was done.")
    reward: str | None = option(None, "Of a log: the column with what came of it.")
    propensity: str | None = option(None, "Of a log: the column with the probability of what was done.")
    person_column: str | None = option(None, "Of a log or a trial: records of one person stay in one fold.")
    actions: str | None = option(None, "Of a log: all actions, a,b,c.", shown="those in the log")
    reward_range: str | None = option(
        None,
        "Public range of rewards, LOW:HIGH; agents learn from them less its middle.",
        shown="0:1; of exports what they say, or -1:1",
    )
    action_bound: float | None = option(
        None, "Of exports: L, no candidate is longer.", shown="what they say, or 1"
    )
    terms: str | None = option(
        None,
        "Of a log: what enters the vectors: offer,age,offer*age; 1 is an intercept.",
        shown="the action, each column, and action × column",
    )
    personal: str | None = option(
        None, "Of a log or a trial: terms that never leave an agent, offer,offer*age; with --play own alone."
    )
    recipe: Path | None = option(
        None,
        "Of a log: how vectors are made, as `feducb recipe init` or --save-recipe wrote it. Of exports with "
        "names and context: make their vectors anew by it.",
    )
    save_recipe: Path | None = option(None, "Write how vectors are made, for an agent to use.")
    epsilon: list[float] | None = option(None, "ε of a federation; may be repeated.", shown="1 and 8")
    delta: float = option(1e-6, "δ.")
    trust: list[str] | None = option(None, f"{' or '.join(TRUSTS)}; may be repeated.", shown="both")
    agents: int | None = option(None, "Of a data set: split into so many agents, where they are dealt.")
    records_per_agent: int | None = option(
        None, "Learn from about so many records of each agent; value on all.", shown="all"
    )
    releases: int | None = option(None, "Releases of an agent.", shown="8 on a log, as planned online")
    folds: int = option(5, "Parts of a log; each is valued by what the others teach.")
    repeats: int | None = option(None, "Draws of folds and noise.", shown="20, from 200,000 rows on 1")
    runs: int = option(10, "Where all rewards are known: runs, played online.")
    horizon: int | None = option(None, "Where all rewards are known: rounds.", shown="all")
    policy: str = option("tempered", f"How agents choose in played rows: {', '.join(POLICIES)}.")
    play: str = option(
        "released",
        "What federations look at: released sums, or after their last release own records as well.",
    )
    distance: float | None = option(
        None,
        "Under own play, how far θ* of two agents may be apart, over S.",
        shown="0.28 is assumed",
    )
    exploration: float = option(
        0.1, "Where all rewards are known: part of the proven bonus in practical play."
    )
    spread: str | None = option(
        None, "Intervals from the spread over records or over agents.", shown="records; star: agents"
    )
    level: float = option(0.95, "Of the intervals.")
    seed: int = option(0, "Seed of folds, orders and simulated noise.")
    json_file: JsonFile = None
    plot_file: Path | None = option(None, "Draw values and intervals (PNG, SVG, PDF).", "--plot")


@takes_options
def evaluate(asked: _Asked) -> None:
    """Would federating, privately, have beaten each agent alone on these data? A table and a yes or no.

    Of a data set by name, of a log with columns, or of what agents export, one file each. Decisions must have
    been drawn with known probabilities: agents need keep_events and uniform_share for that. Nothing leaves
    this machine, and the simulated noise protects nobody: this is a study, made where the data are.
    """
    require_writable("--json", asked.json_file)
    require_writable("--plot", asked.plot_file, picture=True)
    require_writable("--save-recipe", asked.save_recipe)
    if asked.save_recipe is not None and are_exports(asked.source):
        expected = "nothing beside exports: they do not say how vectors are made"
        raise ConfigurationError("--save-recipe", str(asked.save_recipe), expected)
    settings = picked(asked, Study)
    if asked.epsilon:
        settings["epsilons"] = tuple(asked.epsilon)
    if asked.trust:
        settings["trusts"] = tuple(asked.trust)
    study, online = Study(**settings), Online(**picked(asked, Online))
    with progress() as tell:
        try:
            compared = run_evaluation(
                asked.source, study=study, online=online, progress=tell, **picked(asked, Reading)
            )
        except UnfitSettingError as error:
            option_name = f"--{error.setting.replace('_', '-')}"
            raise ConfigurationError(option_name, error.value, error.expected) from None
    if asked.save_recipe is not None and compared.recipe is not None:
        asked.save_recipe.write_text(compared.recipe.to_json(), encoding="utf-8")
    show(compared, asked.json_file, asked.plot_file)
