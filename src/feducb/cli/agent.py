"""`feducb agent`: run an agent, and look after it."""

from __future__ import annotations

import csv
import json
import math
import os
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import click
import typer
from rich.console import Console
from typer.core import TyperCommand

from feducb.agent import Agent, AgentSettings, upkeep
from feducb.agent.agent_file import read_agent_file, read_budgets
from feducb.agent.kept import edited, misfit, require_place
from feducb.agent.view import look
from feducb.cli.options import option, takes_options
from feducb.cli.output import counted, facts_table, require_writable, show_keys, write_json
from feducb.cli.watch_frames import agent_facts
from feducb.config import Budget
from feducb.errors import ConfigurationError, StoreError, StoreInUseError
from feducb.service.api_keys import add_key, revoke_key
from feducb.system import optional
from feducb.trust import NOBODY, Keepers, trust_with

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
DEFAULT = Path("agent.toml")

_TEMPLATE = """\
version = 2

[agent]
name = "{name}"
store = "{name}.db"            # private: holds what waits. Never put an old copy back (see `agent backup`)

[problem]                      # public bounds, the same at all agents
dim = {dim}                       # d, numbers per candidate
action_bound = 1.0             # L, no candidate is longer
{rewards}

[privacy]                      # what a person is promised, over all that ever leaves in a season
epsilon = {epsilon!r}
delta = {delta!r}
records_per_person = {per_person}         # more needs a `person` with every decision
spacing = {spacing}                    # above 0: a person's records are so many releases apart; less noise
{trust}# agents_per_person = 1        # unless trust is "nobody": people visit one agent each. Left out: all
{contexts}
[federation]                   # the same at all agents
agents = {agents}
decisions = {decisions}            # of one agent in a season, roughly

[releases]                     # the same at all agents
season = "{season}"
{start}{schedule}
[rewards]
window = "{window}"                  # a reward may come so long after its decision; public and fixed
default_reward = 0.0           # what counts if none came

[decisions]                    # stay as they are for a season
{play}policy = "tempered"            # how the agent chooses; `feducb simulate --policy` has the list
uniform_share = 0.0            # above 0: logs can judge other policies
shadow = {shadow:16}      # true: follow the application's own choice
follow_policy = "learning"     # of the application; "fixed": public, and never learns from rewards

[retention]
keep_events = {keep:16} # raw events are gone once they are in the sums; longer for `agent export`

[service]
host = "127.0.0.1"
port = {port}
keys = "{name}.keys"
# certificate = "{name}.pem"
# private_key = "{name}.key"
"""

_NOTHING_TO_READ = (
    "note: at this traffic and budget nothing that is released within a season is worth reading, so that all "
    "decisions will be drawn uniformly; it takes more agents, a larger epsilon or a longer season with more "
    "decisions"
)
_PLAY = "play = {:23} # the same at all agents; after the last release own records are looked at too\n"
_DISTANCE = "distance = {!r:19} # the same at all agents: by how much they may differ, over S\n"
_TRUST = "trust = {:22} # who adds the noise: docs/deploy.md\n"
_KEEPERS = """\
away = {away:<23} # how many agents may miss a row
colluding = {colluding:<18} # how many may tell the controller what they sent
"""
_CONTEXTS = "contexts = {:22}# what visitors are and are shown is NOT protected, rewards are\n"
_REWARDS = """\
reward_bound = 1.0             # B, rewards from -B to B
parameter_bound = 1.0          # S
noise_scale = 0.5              # 0.5 for rewards in [0, 1]"""
_CENTRED = """\
reward_bound = {bound!r:16}  # B, half of the range of rewards
reward_centre = {centre!r:15}  # its middle, taken off each reward: candidates need a constant number
parameter_bound = 1.0          # S, of rewards less their centre
noise_scale = {bound!r:16}   # no more than half of the range"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _New:
    """The options of `init`: most stand in the template by the same names."""

    path: Annotated[Path, typer.Argument(help="Where to write the configuration.")] = DEFAULT
    name: str = option("agent", "The agent's name.")
    dim: int = option(10, "d, numbers per candidate.")
    epsilon: float | None = option(None, "ε of a person.", shown="1, or as in --budgets")
    delta: float | None = option(None, "δ of a person.", shown="1e-06, or as in --budgets")
    budgets: Path | None = option(
        None, r"Where agents have budgets of their own: a file with a \[budgets.NAME] for each."
    )
    per_person: int = option(1, "Records that one person may have; more needs a person with every decision.")
    spacing: int = option(
        0, "Releases by which a person's records are apart at least: less noise is enough. 0: anywhere."
    )
    reward_range: str | None = option(
        None,
        "LOW:HIGH, such as 0:1: rewards are taken less the middle, with less noise than from -1 to 1. "
        "Candidates need a number that is the same in all of them.",
        shown="-1:1",
    )
    contexts: str = option(
        "private", "public: everybody may know visitors and what they are shown; rewards alone are protected."
    )
    trust: str = option(
        "nobody", "Who adds the noise: nobody (every agent its own), controller, or keepers (docs/deploy.md)."
    )
    away: int | None = option(None, "Under keepers: agents that may miss a row.", shown="a tenth")
    colluding: int | None = option(
        None, "Under keepers: agents that may tell the controller what they sent.", shown="a fifth"
    )
    agents: int = option(1, "How many agents the federation has.")
    decisions: int = option(100_000, "Decisions of one agent in a season, roughly.")
    releases: int | None = option(None, "Releases in a season.", shown="as planned; 64 with other schedules")
    schedule: str | None = option(
        None,
        "When they are due: planned (few, once a sum is worth reading), geometric or periodic.",
        shown="planned, or geometric with --releases",
    )
    season: str = option("30d", "How long a season lasts, such as 30d.")
    start: str | None = option(
        None,
        "When the season starts, such as 2027-01-01T00:00:00Z; the same at all agents.",
        shown="now, for an agent on its own",
    )
    window: str = option("1h", "How long a reward may take, such as 1h.")
    play: str = option(
        "released",
        "What decisions look at: released (sums under noise alone, to the end of the season), or own (share "
        "first; once all have closed, own records and the others' sum, and nothing leaves any more).",
    )
    distance: float | None = option(
        None,
        "Under own play: by how much agents may differ, as a share of parameter_bound; 0 says that all are "
        "alike, so that sharing goes on for longer.",
        shown="not known",
    )
    port: int = option(8750, "Port of the service.")
    shadow: bool = option(
        False,
        "Begin in shadow mode: follow the application's own choice, and keep events for a season.",
        "--shadow",
    )

    def text(self, settled: AgentSettings | None = None) -> str:
        """The configuration, with a word on each setting.

        Args:
            settled: what was read of it, so that the numbers of its plan are written down too.
        """
        start = "" if self.start is None else f"start = {_instant(self.start)}   # common to all agents\n"
        of_all = {} if self.budgets is None else _read_budgets(self.budgets)
        own = of_all.get(self.name, Budget(epsilon=1.0, delta=1e-6))
        words = asdict(self) | {
            "epsilon": own.epsilon if self.epsilon is None else self.epsilon,
            "delta": own.delta if self.delta is None else self.delta,
            "start": start,
            "schedule": self._schedule(settled),
            "trust": self._trust(),
            "play": self._play(),
            "contexts": "" if self.contexts == "private" else _CONTEXTS.format(json.dumps(self.contexts)),
            "rewards": _REWARDS if self.reward_range is None else _centred(self.reward_range),
            "shadow": "true" if self.shadow else "false",
            "keep": json.dumps(self.season if self.shadow else "0s"),
        }
        return _TEMPLATE.format(**words) + "".join(f"\n{_budget_table(*one)}\n" for one in of_all.items())

    def _play(self) -> str:
        """Its lines; none where decisions look at released sums alone."""
        if self.play == "released" and self.distance is None:
            return ""
        said = _PLAY.format(json.dumps(self.play))
        return said if self.distance is None else said + _DISTANCE.format(float(self.distance))

    def _trust(self) -> str:
        """Its lines; none where every agent adds its own noise."""
        trust = trust_with(self.trust, away=self.away, colluding=self.colluding).among(self.agents)
        if trust == NOBODY:
            return ""
        name = trust.name.partition(":")[0]
        said = _TRUST.format(json.dumps(name))
        if not isinstance(trust, Keepers):
            return said
        return said + _KEEPERS.format(away=trust.away, colluding=trust.colluding)

    def _schedule(self, settled: AgentSettings | None) -> str:
        """Its lines."""
        name = self.schedule or ("planned" if self.releases is None else "geometric")
        lines, releases = [f'schedule = "{name}"'], self.releases
        if settled is not None:
            releases = settled.releases
        if name == "planned" and settled is not None:
            next_ones = "The next two" if settled.last_release is None else "The next three"
            lines = [
                f"{lines[0]:30} # few, once a sum of all agents is worth reading. {next_ones} follow from",
                "# agents, decisions, season, bounds and budgets: take them out to have them planned anew",
            ]
        lines += [] if releases is None else [f"releases = {releases}"]
        if name == "planned" and settled is not None:
            lines.append(f"first_release = {settled.first_release!r:14} # seconds")
            if settled.last_release is not None:
                closes = "seconds; all close with it. Windows of what was planned are over then"
                lines.append(f"last_release = {settled.last_release!r:15} # {closes}")
        return "\n".join(lines) + "\n"


def _centred(text: str) -> str:
    """What the configuration says about rewards of the range ``text``, LOW:HIGH."""
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError:
        low, high = math.nan, math.nan
    if not -math.inf < low < high < math.inf:
        raise ConfigurationError("--reward-range", text, "LOW:HIGH, the lower one first, such as 0:1")
    return _CENTRED.format(bound=(high - low) / 2.0, centre=(low + high) / 2.0)


@app.command()
@takes_options
def init(new: _New) -> None:
    """Write a configuration, with one key for the application and one for the operator."""
    path, name = new.path, new.name
    if path.exists():
        raise ConfigurationError("config", str(path), "a file that does not exist yet")
    if new.agents > 1 and new.start is None:
        raise ConfigurationError(
            "--start", None, f"when the season starts, the same at all {new.agents} agents; now is {_now()}"
        )
    if new.play == "own" and (new.releases is not None or new.schedule not in (None, "planned")):
        flag = "--releases" if new.releases is not None else "--schedule"
        expected = (
            "nothing beside --play own, which plans its releases up to the close; to set them yourself write "
            "releases, first_release and last_release into [releases] of agent.toml afterwards, all three"
        )
        raise ConfigurationError(flag, new.releases or new.schedule, expected)
    for left in (path.parent / f"{name}.keys", path.parent / f"{name}.db"):
        if left.exists():
            raise ConfigurationError("name", name, f"another one, or {left} moved away")
    path.write_text(new.text(), encoding="utf-8")
    try:
        path.write_text(new.text(read_agent_file(path).agent), encoding="utf-8")
        written = read_agent_file(path)
        _make(written.store, written.agent)
        keys = written.service.keys
        secrets = {role: add_key(keys, role, role) for role in ("application", "operator")}
    except BaseException:
        path.unlink()
        raise
    if not written.agent.reads:
        typer.echo(_NOTHING_TO_READ, err=True)
    typer.echo(f"wrote {path} and {keys}; the keys are shown once:")
    for role, secret in secrets.items():
        typer.echo(f"  {role:12} {secret}")


def _make(store: Path, settings: AgentSettings, first_season: int = 1) -> None:
    """Make an agent's file that does not exist yet; nothing is left of one that could not be made."""
    try:
        Agent.open(store, settings, first_season=first_season).close()
    except StoreInUseError:
        raise  # another process is making it
    except BaseException:
        for left in ("", "-wal", "-shm", ".lock"):
            Path(f"{store}{left}").unlink(missing_ok=True)
        raise


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _instant(text: str) -> str:
    """A moment, as TOML writes it."""
    expected = f"a time with its zone, such as {_now()}"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError("--start", text, expected) from None
    if moment.tzinfo is None:
        raise ConfigurationError("--start", text, expected)
    return moment.isoformat()


@app.command()
def create(
    config: Config = DEFAULT,
    first_season: int = option(1, "In place of a lost file: a season that it never opened."),
) -> None:
    """Make the agent's file (`init` does so too)."""
    file = read_agent_file(config)
    if file.store.exists():
        raise ConfigurationError("store", str(file.store), "a file that does not exist yet")
    _make(file.store, file.agent, first_season)
    typer.echo(f"made {file.store}, in season {first_season}")


@app.command()
def serve(config: Config = DEFAULT) -> None:
    """Serve decisions until SIGTERM; logs go to standard error, one JSON object a line."""
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
    """How the agent stands; it may be running."""
    require_writable("--json", json_file)
    read = read_agent_file(config)
    store, reason = read.store, misfit(read.store, read.agent)
    stands_at = partial(look, store, keepers=read.keepers(), keeper=read.keeper_state())
    write_json(lambda: json.dumps(stands_at() | {"misfit": reason}, indent=1) + "\n", json_file)
    if str(json_file) == "-":
        return
    stands = stands_at(over_time=True)
    counts = sorted(stands["counts"].items())
    rows = [*agent_facts(stands), *((f"  {name.replace('_', ' ')}", f"{count:,}") for name, count in counts)]
    title = f"agent {stands['name']}{', shadow mode' if stands['shadow'] else ''}"
    Console(markup=False).print(facts_table(title, rows))
    if reason is None and (changed := edited(store, read.agent)):
        typer.echo(f"{config} was edited and is taken when the agent starts next: {', '.join(changed)}")
    if reason is not None:
        typer.echo(f"{config} no longer fits the open season, so no agent starts with it: {reason}")


@app.command()
def export(
    config: Config = DEFAULT,
    out: Path = option(Path("-"), "Where to write JSON lines; - is standard output.", "--out", "-o"),
) -> None:
    """Write retained events as JSON lines, for off-policy evaluation; the agent may be running."""
    file = read_agent_file(config)
    if file.agent.keep_events == 0:
        typer.echo("note: retention.keep_events is 0, so that only decisions that wait are there", err=True)
    count = 0
    with ExitStack() as stack:
        target = sys.stdout
        if str(out) != "-":  # raw data: for the owner alone
            descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            target = stack.enter_context(open(descriptor, "w", encoding="utf-8"))
        for row in upkeep.export(file.store):
            target.write(json.dumps(row) + "\n")
            count += 1
    typer.echo(counted(count, "event"), err=True)


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="The copy; must not exist.")], config: Config = DEFAULT
) -> None:
    """Copy the agent's file while it runs. Only `restore` opens the copy, in a new season."""
    upkeep.backup(read_agent_file(config).store, target)
    typer.echo(f"wrote {target}; it holds raw data, and only `feducb agent restore` opens it")


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(help="Made by `feducb agent backup`.")],
    season: Annotated[
        int, typer.Option(help="One that the agent never opened; if you do not know, one far beyond.")
    ],
    config: Config = DEFAULT,
) -> None:
    """Make the agent's file out of a backup, in a new season, so that nothing is released twice."""
    store = read_agent_file(config).store
    opened = upkeep.restore(source, store, season=season)
    typer.echo(f"{store} is open in season {opened}")


@app.command()
def terms(config: Config = DEFAULT) -> None:
    r"""What this agent promises, as the `\[terms]` table of a controller's configuration.

    Where agents have budgets of their own, everybody's `\[budgets.NAME]` follow: the same at every agent.
    """
    settings = read_agent_file(config).agent
    promised = json.loads(settings.terms.to_json())
    plain = promised.pop("problem") | promised
    for name in ("groups", "excess", *(("epsilon", "delta") if settings.budgets else ())):
        plain.pop(name)
    if isinstance(settings.trust, Keepers):  # how many agents there are, the controller's roster says
        plain.pop("agents")
        plain |= {"trust": "keepers", "away": settings.trust.away, "colluding": settings.trust.colluding}
    if settings.agents_per_person is None:  # not stated: the controller takes as many as its roster has
        plain.pop("agents_per_person")
    if settings.start is not None:
        typer.echo(f"# season starts {datetime.fromtimestamp(settings.start, UTC).isoformat()} at all agents")
    typer.echo("[terms]")
    for name, value in plain.items():
        typer.echo(f"{name} = {json.dumps(value)}")
    for name, budget in sorted(settings.budgets.items()):
        typer.echo(_budget_table(name, budget))


def _budget_table(name: str, budget: Budget) -> str:
    return f"[budgets.{name}]\nepsilon = {budget.epsilon!r}\ndelta = {budget.delta!r}"


def _read_budgets(path: Path) -> dict[str, Budget]:
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError("budgets", str(path), f"a TOML file: {error}") from None
    return read_budgets(plain.get("budgets", {}))


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
    file = read_agent_file(config)
    if (member := file.member()) is not None:
        require_place(member, file.agent)
    with _opened(config) as (agent, settings):
        try:
            number = agent.new_season(settings, drop_open=drop)
        except StoreError as error:
            raise error if drop else StoreError(f"{error} with --drop-open") from None
    typer.echo(f"season {number} is open")


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
    log: Annotated[Path, typer.Argument(help="CSV: d columns of the shown candidate, then the reward.")],
    config: Config = DEFAULT,
    policy: str | None = option(
        None, "Needed: 'fixed' states that the log's policy was public and did not learn from its rewards."
    ),
) -> None:
    """Start from own logs: each record enters the next release once, at the same price as any other.

    Under own play, after the last release, they never leave, and the agent's own phase alone reads them.
    """
    with log.open(encoding="utf-8-sig", newline="") as opened:
        rows = list(csv.reader(opened))
    with _opened(config) as (agent, _):
        numbers = _numbers(rows)
        loaded = upkeep.warm_start(
            agent,
            [row[:-1] for row in numbers],
            [row[-1] for row in numbers],
            policy=policy,  # type: ignore[arg-type]  # any text: it is refused there
        )
    if loaded.kept:
        typer.echo(f"{counted(loaded.kept, 'record')} will not leave: the agent's own phase alone reads them")
    typer.echo(
        f"{counted(loaded.entered, 'record')} wait{'s' if loaded.entered == 1 else ''} for the next release, "
        f"{loaded.clipped} of them clipped to the public bounds; {loaded.dropped} dropped that are not "
        f"{agent.settings.problem.dim} numbers and a reward"
    )


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
        yield agent, file.agent


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
