"""`feducb evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from feducb.cli.output import errors_to, require_writable
from feducb.data import DATA_SETS, Known, Trial
from feducb.errors import ConfigurationError
from feducb.evaluation.compare import compare_on_log
from feducb.evaluation.logs import FrameLog, Log, LogColumns, open_log
from feducb.evaluation.online import compare_online
from feducb.evaluation.results import Comparison, Row
from feducb.evaluation.study import Spread, Study
from feducb.evaluation.survey import parse_context, parse_terms, survey
from feducb.evaluation.tally import Estimate
from feducb.features import Recipe
from feducb.privacy.accounting import require_trust

__all__ = ["evaluate"]

_LOG_HELP = f"A data set ({', '.join(DATA_SETS)}), or a log of decisions: LOG.csv or LOG.parquet."


def evaluate(
    source: Annotated[str, typer.Argument(metavar="NAME|LOG", help=_LOG_HELP)],
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
    reward_range: Annotated[str, typer.Option(help="Of a log: public range of rewards, LOW:HIGH.")] = "0:1",
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
        typer.Option(help="nobody or controller; may be repeated.", show_default="both"),
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

    A log must hold decisions that were drawn with known probabilities. Nothing leaves this machine, and the
    simulated noise protects nobody: this is a study, made where the data are.
    """
    require_writable("--json", json_file)
    require_writable("--plot", plot_file, picture=True)
    require_writable("--save-recipe", save_recipe)
    settings: dict[str, Any] = {
        "epsilons": tuple(epsilon or (1.0, 8.0)),
        "delta": delta,
        "trusts": tuple(require_trust(one) for one in trust or ("nobody", "controller")),
        "releases": releases,
        "folds": folds,
        "repeats": repeats,
        "level": level,
        "seed": seed,
    }
    columns = {
        "--agent-column": agent_column,
        "--action": action,
        "--reward": reward,
        "--propensity": propensity,
    }
    of_a_log = columns | {
        "--context": context,
        "--actions": actions,
        "--terms": terms,
        "--recipe": None if recipe is None else str(recipe),
    }
    if source in DATA_SETS:
        given = next((name for name, value in of_a_log.items() if value is not None), None)
        if given is not None:
            raise ConfigurationError(given, of_a_log[given], f"nothing beside the data set {source}")
        loaded = DATA_SETS[source].load(agents)
        made = loaded.recipe
        with _progress() as tell:
            if isinstance(loaded, Known):
                if person_column is not None:
                    raise ConfigurationError("--person-column", person_column, "nothing: there are no folds")
                study = Study(**settings, spread=cast(Spread, spread or "records"))
                found = compare_online(
                    loaded.world,
                    source=source,
                    fixed=loaded.fixed,
                    study=study,
                    runs=runs,
                    horizon=horizon,
                    exploration=exploration,
                    notes=loaded.notes,
                    progress=tell,
                )
            else:
                found = _on_trial(source, loaded, settings, spread, person_column, tell)
    else:
        if agents is not None:
            raise ConfigurationError("--agents", agents, "nothing beside a log: its agents are in its column")
        log = open_log(source)
        for name, value in columns.items():
            if value is None:
                raise ConfigurationError(name, None, "the name of a column: a log must say what is what")
        named = LogColumns(
            agent=str(agent_column),
            action=str(action),
            reward=str(reward),
            propensity=str(propensity),
            person=person_column,
        )
        study = Study(**settings, spread=cast(Spread, spread or "records"))
        with _progress() as tell:
            found, made = _on_log(log, named, context, actions, reward_range, terms, recipe, study, tell)
    if save_recipe is not None:
        save_recipe.write_text(made.to_json(), encoding="utf-8")
    _show(found, json_file, plot_file)


def _on_trial(
    name: str,
    loaded: Trial,
    settings: dict[str, Any],
    spread: str | None,
    person: str | None,
    tell: Callable[[str, int], None],
) -> Comparison:
    log = FrameLog(loaded.frame, name)
    study = Study(**settings, spread=cast(Spread, spread or loaded.spread))
    seen = survey(
        log,
        replace(loaded.columns, person=person),
        recipe=loaded.recipe,
        reward_range=loaded.reward_range,
        progress=tell,
    )
    return compare_on_log(log, seen, study=study, notes=loaded.notes, progress=tell)


def _on_log(
    log: Log,
    columns: LogColumns,
    context: str | None,
    actions: str | None,
    reward_range: str,
    terms: str | None,
    recipe: Path | None,
    study: Study,
    tell: Callable[[str, int], None],
) -> tuple[Comparison, Recipe]:
    if recipe is not None and (context, actions, terms) != (None, None, None):
        raise ConfigurationError("--recipe", str(recipe), "no --context, --actions or --terms beside it")
    try:
        low, high = (float(part) for part in reward_range.split(":"))
    except ValueError:
        raise ConfigurationError("--reward-range", reward_range, "LOW:HIGH") from None
    made = None if recipe is None else Recipe.from_json(recipe.read_text(encoding="utf-8"))
    seen = survey(
        log,
        columns,
        context=parse_context([part for part in (context or "").split(",") if part]),
        actions=None if actions is None else actions.split(","),
        reward_range=(low, high),
        terms=None if terms is None else parse_terms(terms),
        recipe=made,
        progress=tell,
    )
    return compare_on_log(log, seen, study=study, progress=tell), seen.recipe


def _show(found: Comparison, json_file: Path | None, plot_file: Path | None) -> None:
    to_standard_output = json_file is not None and str(json_file) == "-"
    console = errors_to if to_standard_output else Console()
    for table in _tables(found):
        console.print(table)
    if not all(row.reads for row in found.rows):
        console.print("* no release is worth reading at this noise: plays at random\n", highlight=False)
    for note in found.notes:
        console.print(f"  {note}", style="dim", highlight=False, markup=False)
    console.print(found.verdict(), highlight=False, markup=False)
    for warning in found.warnings:
        errors_to.print(f"note: {warning}", style="yellow", highlight=False, markup=False)
    if found.settings.get("recipe_is_public") is False:
        errors_to.print(
            "note: ranges, levels or actions were read off the log; before deploying, fix them in public "
            "(--context NAME:LOW:HIGH, --actions, or --recipe): they would tell about people",
            style="yellow",
            highlight=False,
            markup=False,
        )
    if to_standard_output:
        typer.echo(found.to_json(), nl=False)
    elif json_file is not None:
        found.to_json(json_file)
    if plot_file is not None:
        found.plot(plot_file)


def _tables(found: Comparison) -> Iterator[Table]:
    """The values, and of a log what the other estimators say of the play that the verdict is about."""
    settings = found.settings
    size = f"{settings.get('rows', settings.get('records')):,} records, {settings['agents']} agents"
    table = _empty(f"{found.source}: {found.measure} ({size}, d = {settings['dim']})", "value", "− alone")
    for row in found.rows:
        over = "" if row.over_alone is None else _number(row.over_alone, sign="+")
        table.add_row(_short(row), _number(row.value), over)
    yield table
    rows = [(row, row.details) for row in found.rows if row.play in ("fixed", found.primary)]
    if any(details is None for _, details in rows):
        return
    table = _empty("the same by other estimators", "SNIPS", "IPS", "replay", "effective n")
    for row, details in rows:
        assert details is not None
        others = (details.snips, details.ips, details.replay)
        table.add_row(_short(row), *(_number(one, digits=3) for one in others), f"{details.effective:,.0f}")
    yield table


def _empty(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("policy")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _short(row: Row) -> str:
    """A name that leaves room for numbers; * if it reads no release."""
    name = row.name.replace("private federation, ", "private ").replace(" trusted", "").replace(" = ", "=")
    name = (
        name.replace("federation without privacy", "no privacy")
        .replace("each agent alone", "alone")
        .removeprefix("the ")
    )
    return f"{name}{'' if row.play == 'fixed' else f', {row.play}'}{'' if row.reads else ' *'}"


def _number(estimate: Estimate, *, sign: str = "", digits: int = 4) -> str:
    return f"{estimate.value:{sign}.{digits}f} ± {estimate.margin:.{digits}f}"


@contextmanager
def _progress() -> Iterator[Callable[[str, int], None]]:
    """A bar on standard error, one line a stage; of stages after the first the length is known."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=errors_to, transient=True)
    tasks: dict[str, Any] = {}
    done: dict[str, int] = {}

    def tell(stage: str, count: int) -> None:
        if not tasks and errors_to.is_terminal:
            bar.start()
        if stage not in tasks:
            total = done.get("checking")
            tasks[stage], done[stage] = bar.add_task(stage, total=total), 0
        done[stage] += count
        bar.update(tasks[stage], completed=done[stage])

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()
