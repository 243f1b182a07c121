"""`feducb evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from feducb.cli.comparison import progress, show
from feducb.cli.output import require_writable
from feducb.errors import ConfigurationError, UnfitSettingError
from feducb.evaluation.question import are_exports
from feducb.evaluation.question import evaluate as run_evaluation
from feducb.evaluation.study import Online, Study
from feducb.policies import POLICIES
from feducb.trust import TRUSTS, require_trust
from feducb.worlds.data import DATA_SETS
from feducb.worlds.data.data_set import Spread

__all__ = ["evaluate"]

_SOURCE_HELP = (
    f"A data set ({', '.join(DATA_SETS)}); or a log of decisions, LOG.csv or LOG.parquet; or what "
    "`feducb agent export` wrote, one EXPORT.jsonl per agent."
)


def evaluate(
    source: Annotated[list[str], typer.Argument(metavar="NAME|LOG|EXPORT...", help=_SOURCE_HELP)],
    agent_column: Annotated[str | None, typer.Option(help="Of a log: who decided.")] = None,
    context: Annotated[
        str | None,
        typer.Option(
            help="Of a log: what was known, as columns: age:0:120,region:north|south,zip:hash:64. Of a name "
            "alone, range or levels are read off the log, and a note says so."
        ),
    ] = None,
    action: Annotated[str | None, typer.Option(help="Of a log: the column with what was done.")] = None,
    reward: Annotated[str | None, typer.Option(help="Of a log: the column with what came of it.")] = None,
    propensity: Annotated[
        str | None, typer.Option(help="Of a log: the column with the probability of what was done.")
    ] = None,
    person_column: Annotated[
        str | None, typer.Option(help="Of a log or a trial: records of one person stay in one fold.")
    ] = None,
    actions: Annotated[
        str | None, typer.Option(help="Of a log: all actions, a,b,c.", show_default="those in the log")
    ] = None,
    reward_range: Annotated[
        str | None,
        typer.Option(
            help="Of a log: public range of rewards, LOW:HIGH. Of exports: -B:B.",
            show_default="0:1; of exports what they say, or -1:1",
        ),
    ] = None,
    action_bound: Annotated[
        float | None,
        typer.Option(help="Of exports: L, no candidate is longer.", show_default="what they say, or 1"),
    ] = None,
    terms: Annotated[
        str | None,
        typer.Option(
            help="Of a log: what enters the vectors: offer,age,offer*age; 1 is an intercept.",
            show_default="the action, each column, and action × column",
        ),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Of a log: how vectors are made, as --save-recipe wrote it.")
    ] = None,
    save_recipe: Annotated[
        Path | None, typer.Option(help="Write how vectors are made, for an agent to use.")
    ] = None,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="ε of a federation; may be repeated.", show_default="1 and 8")
    ] = None,
    delta: Annotated[float, typer.Option(help="δ.")] = 1e-6,
    trust: Annotated[
        list[str] | None,
        typer.Option(help=f"{' or '.join(TRUSTS)}; may be repeated.", show_default="both"),
    ] = None,
    agents: Annotated[
        int | None, typer.Option(help="Of a data set: split into so many agents, where they are dealt.")
    ] = None,
    releases: Annotated[
        int | None,
        typer.Option(help="Releases of an agent.", show_default="8 on a log; played online up to 64"),
    ] = None,
    folds: Annotated[int, typer.Option(help="Parts of a log; each is valued by what the others teach.")] = 5,
    repeats: Annotated[
        int | None,
        typer.Option(help="Draws of folds and noise.", show_default="20, from 200,000 rows on 1"),
    ] = None,
    runs: Annotated[int, typer.Option(help="Where all rewards are known: runs, played online.")] = 10,
    horizon: Annotated[
        int | None, typer.Option(help="Where all rewards are known: rounds.", show_default="all")
    ] = None,
    policy: Annotated[
        str, typer.Option(help=f"How agents choose in played rows: {', '.join(POLICIES)}.")
    ] = "optimistic",
    exploration: Annotated[
        float,
        typer.Option(help="Where all rewards are known: part of the proven bonus in practical play."),
    ] = 0.1,
    spread: Annotated[
        str | None,
        typer.Option(
            help="Intervals from the spread over records or over agents.",
            show_default="records; star: agents",
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of folds, orders and simulated noise.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the result as JSON; - for standard output.")
    ] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Draw values and intervals (PNG, SVG, PDF).")
    ] = None,
) -> None:
    """Would federating, privately, have beaten each agent alone on these data? A table and a yes or no.

    Of a data set by name, of a log with columns, or of what agents export, one file each. Decisions must have
    been drawn with known probabilities: agents need keep_events and uniform_share for that. Nothing leaves
    this machine, and the simulated noise protects nobody: this is a study, made where the data are.
    """
    require_writable("--json", json_file)
    require_writable("--plot", plot_file, picture=True)
    require_writable("--save-recipe", save_recipe)
    if save_recipe is not None and are_exports(source):
        expected = "nothing beside exports: they do not say how vectors are made"
        raise ConfigurationError("--save-recipe", str(save_recipe), expected)
    study = Study(
        epsilons=tuple(epsilon or (1.0, 8.0)),
        delta=delta,
        trusts=tuple(require_trust(one) for one in trust or ("nobody", "controller")),
        releases=releases,
        folds=folds,
        repeats=repeats,
        level=level,
        policy=policy,
        seed=seed,
        spread=cast(Spread | None, spread),
    )
    with progress() as tell:
        try:
            compared = run_evaluation(
                source,
                study=study,
                online=Online(runs=runs, horizon=horizon, exploration=exploration),
                progress=tell,
                agent_column=agent_column,
                action=action,
                reward=reward,
                propensity=propensity,
                person_column=person_column,
                context=context,
                actions=actions,
                terms=terms,
                recipe=recipe,
                reward_range=reward_range,
                action_bound=action_bound,
                agents=agents,
            )
        except UnfitSettingError as error:
            option = f"--{error.setting.replace('_', '-')}"
            raise ConfigurationError(option, error.value, error.expected) from None
    if save_recipe is not None and compared.recipe is not None:
        save_recipe.write_text(compared.recipe.to_json(), encoding="utf-8")
    show(compared, json_file, plot_file)
