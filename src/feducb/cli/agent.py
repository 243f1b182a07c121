"""`feducb agent`: run an agent, and look after it."""

from __future__ import annotations

import csv
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import click
import typer
from numpy.typing import ArrayLike
from rich.console import Console
from typer.core import TyperCommand

from feducb.agent import Agent, AgentSettings, upkeep
from feducb.agent.agent_file import read_agent_file
from feducb.agent.kept import edited, misfit, require_place
from feducb.agent.noted import view_log
from feducb.agent.own_logs import read_rows, require_header
from feducb.agent.view import look
from feducb.cli.agent_init import init, make_file
from feducb.cli.agent_options import DEFAULT
from feducb.cli.agent_text import budget_table
from feducb.cli.csv_file import open_csv
from feducb.cli.options import option
from feducb.cli.output import counted, facts_table, require_writable, show_keys, write_json
from feducb.cli.watch_frames import agent_facts
from feducb.errors import ConfigurationError, StoreError, StoreInUseError
from feducb.protocol.trouble import TROUBLE, exit_status
from feducb.service.api_keys import add_key, revoke_key
from feducb.storage import agent_tables
from feducb.system import optional
from feducb.trust import Keepers
from feducb.worlds.features import Recipe

__all__ = ["app"]

app = typer.Typer(
    name="agent",
    help="Run an agent beside an application: decisions now, rewards later, nothing lost.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
key_app = typer.Typer(
    help="API keys: make, list, revoke. Rotate by making the new one first.", no_args_is_help=True
)
app.add_typer(key_app, name="key")

Config = Annotated[Path, typer.Option("--config", "-c", help="The agent's configuration.")]
app.command()(init)


@app.command()
def create(
    config: Config = DEFAULT,
    first_season: int | None = option(
        None, "In place of a lost file: a season that it never opened. Left out: the running one."
    ),
) -> None:
    """Make the agent's file (`init` does so too)."""
    file = read_agent_file(config)
    if file.store.exists():
        raise ConfigurationError("store", str(file.store), "a file that does not exist yet")
    opened = make_file(file.store, file.agent, first_season)
    typer.echo(f"made {file.store}, in season {opened}")


@app.command()
def serve(config: Config = DEFAULT) -> None:
    """Serve decisions until SIGTERM; logs go to standard error, one JSON object per line."""
    with optional("the service", "service"):
        from feducb.service.server import serve as run
    from feducb.carriers.engine_choice import engine_of

    file = read_agent_file(config)
    with ExitStack() as beside:
        if file.keeper is not None and file.engine.get("kind") == "nats":
            from feducb.carriers import keeper_process

            beside.enter_context(keeper_process.beside(file))
        run(file, *engine_of(file))


class _Status(TyperCommand):
    """`--json` used to be a flag here: without a file it means standard output, and a note says so."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """With `-` where the file is missing."""
        if "--json" in args:
            after = args.index("--json") + 1
            if after == len(args) or (args[after].startswith("-") and args[after] != "-"):
                typer.echo(
                    "note: --json takes a file now, or - for standard output: write --json -", err=True
                )
                args = [*args[:after], "-", *args[after:]]
        return super().parse_args(ctx, args)


@app.command(cls=_Status)
def status(
    config: Config = DEFAULT,
    json_file: Path | None = option(None, "Write it as JSON; - for standard output.", "--json"),
) -> None:
    """How the agent stands; it may be running. Status 0: all is green, 1: it does not run, 3: trouble."""
    require_writable("--json", json_file)
    read = read_agent_file(config)
    reason = misfit(read.store, read.agent)
    stands_at = partial(
        look,
        read.store,
        keepers=read.keepers(),
        keeper=read.keeper_state(),
        misfit=reason,
        joins=read.joins(),
        settings=read.agent,
    )
    write_json(lambda: json.dumps(stands_at(), indent=1) + "\n", json_file)
    stands = stands_at(over_time=True)
    if str(json_file) != "-":
        counts = sorted(stands["counts"].items())
        counted_rows = ((f"  {name.replace('_', ' ')}", f"{count:,}") for name, count in counts)
        title = f"agent {stands['name']}{', shadow mode' if stands['shadow'] else ''}"
        Console(markup=False).print(facts_table(title, [*agent_facts(stands), *counted_rows]))
        if reason is None and (changed := edited(read.store, read.agent)):
            typer.echo(f"{config} was edited and is taken when the agent starts next: {', '.join(changed)}")
    raise typer.Exit(exit_status(stands["trouble"]))


@app.command()
def export(
    config: Config = DEFAULT,
    out: Path = option(Path("-"), "Where to write JSON lines; - is standard output.", "--out", "-o"),
) -> None:
    """Write retained events as JSON lines, for off-policy evaluation; the agent may be running."""
    file = read_agent_file(config)
    if file.agent.keep_events == 0:
        typer.echo("note: retention.keep_events is 0, so that only decisions that wait are there", err=True)
    count = foreign = 0
    with ExitStack() as stack:
        target = sys.stdout
        if str(out) != "-":  # raw data: for the owner alone
            descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            target = stack.enter_context(open(descriptor, "w", encoding="utf-8"))
        for row in upkeep.export(file.store):
            target.write(json.dumps(row) + "\n")
            count, foreign = count + 1, foreign + (row.get("recipe", "") is None)
    typer.echo(counted(count, "event"), err=True)
    if foreign:
        was = "was decided" if foreign == 1 else "were decided"
        typer.echo(
            f"note: {foreign:,} of them {was} by the recipe of an earlier season, whose names this agent no "
            "longer has: as numbers alone, and without features",
            err=True,
        )


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="The copy; must not exist.")], config: Config = DEFAULT
) -> None:
    """Copy the agent's file while it runs. Only `restore` opens the copy."""
    upkeep.backup(read_agent_file(config).store, target)
    typer.echo(f"wrote {target}; it holds raw data, and only `feducb agent restore` opens it")


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(help="Made by `feducb agent backup`.")],
    season: int | None = option(
        None, "A new one, which the agent never opened.", shown="that of the backup, if it still runs"
    ),
    lost: bool = option(
        False,
        "Needed: states that the file is gone that was backed up, so that no copy of it is opened any more; "
        "and without --season, that no season was opened by hand since.",
        "--lost",
    ),
    never_opened: bool = option(
        False,
        "With --season, where agent.toml has another start, length or numbering of seasons than the backup: "
        "state that the lost file never opened this one, whatever it had in between.",
        "--never-opened",
    ),
    config: Config = DEFAULT,
) -> None:
    """Make the agent's file out of a backup, so that nothing is released twice.

    If nothing of the season can have left since the backup, the agent goes on in it. If something can, it
    sends nothing more in this season, and plays by the others' sums until the next.
    """
    if not lost:
        expected = "your word that the file is gone that was backed up: else both would release"
        raise ConfigurationError("--lost", None, expected)
    file = read_agent_file(config)
    store = file.store
    opened = upkeep.restore(source, store, settings=file.agent, season=season, never_opened=never_opened)
    typer.echo(f"{store} is open in season {opened.season}")
    if between := opened.between:
        one = len(between) == 1
        named = f"season {between[0]}" if one else f"seasons {between[0]} to {between[-1]}"
        typer.echo(
            f"{named} count{'s' * one} as spent: the lost file may have released in {'it' if one else 'them'}"
        )
    if season is None and opened.sends:
        typer.echo("nothing of it has left since the backup: it goes on in its season")
    elif season is None:
        hours = (opened.next_at - datetime.now(UTC).timestamp()) / 3600
        typer.echo(
            "something of this season may have left since the backup: until the next one starts, in "
            f"{hours:,.1f} hours, it sends nothing, and plays by the sums of the others"
        )


@app.command()
def terms(config: Config = DEFAULT) -> None:
    r"""What this agent promises, as `\[seasons]` and `\[terms]` of a controller's configuration.

    Where agents have budgets of their own, everybody's `\[budgets.NAME]` follow: the same at every agent.
    """
    settings = read_agent_file(config).agent
    if not settings.trust.leaves:
        raise ConfigurationError("privacy.trust", settings.trust.name, "one under which something leaves")
    promised = json.loads(settings.terms.to_json())
    plain = promised.pop("problem") | promised
    for name in ("groups", "excess", *(("epsilon", "delta") if settings.budgets else ())):
        plain.pop(name)
    if isinstance(settings.trust, Keepers):  # how many agents there are, the controller's roster says
        plain.pop("agents")
        plain |= {"trust": "keepers", "away": settings.trust.away, "colluding": settings.trust.colluding}
    if settings.agents_per_person is None:  # not stated: the controller takes as many as its roster has
        plain.pop("agents_per_person")
    if settings.start is not None and settings.rolls:
        typer.echo(f"{settings.common_calendar.to_table()}\n")
    typer.echo("[terms]")
    for name, value in plain.items():
        typer.echo(f"{name} = {json.dumps(value)}")
    for name, budget in sorted(settings.budgets.items()):
        typer.echo(budget_table(name, budget))


@app.command("new-season")
def new_season(
    config: Config = DEFAULT,
    drop: bool = option(False, "Agree that what waits is lost.", "--drop-open"),
) -> None:
    """Close the season and open the next, with the configuration's settings and a fresh budget.

    Under own play the new season shares again, new records alone. Its promise covers people of earlier
    seasons only if its visitors, their candidates and rewards do not depend on what was decided after the
    last close: other people, no common stock. Where you cannot say so, one close is for ever.
    """
    with _opened(config) as (agent, _):
        file = read_agent_file(config, season=agent.store.season + 1)  # with the roster of the next
        if (member := file.member()) is not None:
            require_place(member, file.agent)
        settings = file.agent
        try:
            number = agent.new_season(settings, drop_open=drop)
        except StoreError as error:
            raise error if drop else StoreError(f"{error} with --drop-open") from None
        remembers = agent.snapshot()["memory"]["says"]
    typer.echo(f"season {number} is open. {remembers}")


@app.command()
def erase(
    person: Annotated[str, typer.Argument(help="The id under which the application knows the person.")],
    config: Config = DEFAULT,
) -> None:
    """Forget a person, as far as that can be done, and say what cannot."""
    with _opened(config) as (agent, _):
        done = upkeep.erase(agent, person)
    typer.echo(
        f"{counted(done.removed, 'decision')} taken back, content of {done.content_removed} more removed."
    )
    typer.echo(done.said)


@app.command("warm-start")
def warm_start(
    log: Annotated[
        Path,
        typer.Argument(
            help="CSV: with a recipe its columns, by name, and the reward; without, d numbers and the reward."
        ),
    ],
    config: Config = DEFAULT,
    policy: str | None = option(
        None, "Needed: 'fixed' states that the log's policy was public and did not learn from its rewards."
    ),
    reward: str = option("reward", "With a recipe: the column with what came of it."),
    never_loaded: bool = option(
        False,
        "Needed in a file from a backup: states that the lost one never loaded any of these records.",
        "--never-loaded",
    ),
) -> None:
    """Start from own logs: each record enters the next release once, at the same price as any other.

    Under own play, after the last release, they never leave, and the agent's own phase alone reads them.
    """
    recipe = read_agent_file(config).agent.recipe
    actions, rewards = _read_vectors(log) if recipe is None else _read_columns(log, recipe, reward)
    with _opened(config) as (agent, _):
        loaded = upkeep.warm_start(
            agent,
            actions,
            rewards,
            policy=policy,  # type: ignore[arg-type]  # any text: it is refused there
            never_loaded=never_loaded,
        )
    if loaded.kept:
        typer.echo(f"{counted(loaded.kept, 'record')} will not leave: the agent's own phase alone reads them")
    typer.echo(
        f"{counted(loaded.entered, 'record')} wait{'s' if loaded.entered == 1 else ''} for the next release, "
        f"{loaded.clipped} of them clipped to the public bounds; {loaded.dropped} dropped that "
        + (
            f"are not {agent.settings.problem.dim} numbers and a reward"
            if recipe is None
            else "the recipe cannot read"
        )
    )


def _read_columns(log: Path, recipe: Recipe, reward: str) -> tuple[Sequence[ArrayLike], list[float]]:
    """What a log with the recipe's columns shows, and its rewards."""
    with open_csv(log) as opened:
        rows = csv.DictReader(opened)
        require_header(rows.fieldnames or (), recipe, reward)
        return read_rows(rows, recipe, reward)


def _read_vectors(log: Path) -> tuple[Sequence[ArrayLike], list[float]]:
    """What a log of vectors shows, and its rewards."""
    with open_csv(log) as opened:
        numbers = _numbers(list(csv.reader(opened)))
    return [row[:-1] for row in numbers], [row[-1] for row in numbers]


def _numbers(rows: list[list[str]]) -> list[list[float]]:
    """Rows as numbers, without blank ones and a header; what is no number is NaN.

    The columns of the action tell a header, never the reward: it decides about no public action.
    """
    numbers = [[_number(text) for text in row] for row in rows if row]
    return numbers[1:] if numbers and any(map(math.isnan, numbers[0][:-1])) else numbers


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@contextmanager
def _opened(config: Path) -> Iterator[tuple[Agent, AgentSettings]]:
    """The agent, for one command, and its file's settings; if it is running, an error says what to do.

    Without its place among the others: the roster may be the next season's already, and nothing leaves here.
    """
    file = read_agent_file(config)
    if not file.store.exists():
        raise StoreError(f"{file.store} does not exist; `feducb agent create` makes it")
    fits = misfit(file.store, file.agent) is None  # what was edited before anything happened
    try:
        agent = Agent.open(file.store, file.agent if fits else None)
    except StoreInUseError as error:
        raise StoreInUseError(f"{error}: stop the agent first, or ask its service") from None
    with closing(agent):
        agent.wait_for(file.joins())
        yield agent, file.agent


@app.command("log")
def show_log(
    config: Config = DEFAULT,
    holds: str | None = option(None, "A hash that was noted earlier: is it still in the chain?"),
    json_file: Path | None = option(None, "Write it as JSON; - for standard output.", "--json"),
) -> None:
    """Who changed what, and with which key; status 3 if a line was removed or changed since."""
    require_writable("--json", json_file)
    file = read_agent_file(config)
    with closing(agent_tables.look_into(file.store)) as db:
        log = view_log(db)
    write_json(lambda: json.dumps(log, indent=1) + "\n", json_file)
    if str(json_file) != "-":
        for one in log["entries"]:
            details = ", ".join(f"{name} {_plain(value)}" for name, value in one["details"].items())
            typer.echo(
                f"{one['number']:>4}  {one['at'][:19]}Z  {one['who']}: {one['what']}"
                + (f" ({details})" if details else "")
            )
    broken = log["broken"]
    if broken is None and holds is not None and holds not in {one["hash"] for one in log["entries"]}:
        broken = f"no entry has the hash {holds}, so the chain is not the one that it was noted from"
    if broken is not None:
        typer.echo(f"the log is not whole: {broken}", err=True)
        raise typer.Exit(TROUBLE)
    typer.echo(f"the log is whole; note its end elsewhere: {log['end']}", err=True)


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@key_app.command("add")
def key_add(
    name: Annotated[str, typer.Argument(help="For people, such as shop-2027.")],
    config: Config = DEFAULT,
    role: str = option(
        "application",
        "application (decides, rewards), carrier (releases and sums only), viewer (status, metrics, "
        "ledger and page, nothing that writes) or operator (everything).",
    ),
) -> None:
    """Make a key and show it once; a running service takes it within a second."""
    typer.echo(add_key(read_agent_file(config).service.keys, name, role))  # type: ignore[arg-type]


@key_app.command("list")
def key_list(config: Config = DEFAULT) -> None:
    """Names, roles and ages; never the keys."""
    show_keys(read_agent_file(config).service.keys)


@key_app.command("revoke")
def key_revoke(name: Annotated[str, typer.Argument(help="Which.")], config: Config = DEFAULT) -> None:
    """Take a key away; a running service refuses it within a second."""
    revoke_key(read_agent_file(config).service.keys, name)
    typer.echo(f"{name} is revoked")
