"""`feducb agent init`: asks for what it needs on a terminal, and writes down every setting."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import click
import typer
from click.core import ParameterSource

from feducb.agent import Agent, AgentSettings
from feducb.agent.agent_file import read_agent_file, read_budgets
from feducb.cli.options import option, takes_options
from feducb.cli.recipe import parse_range
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError, StoreInUseError
from feducb.service.api_keys import add_key
from feducb.trust import SELF, Keepers, trust_with
from feducb.worlds.features import Recipe
from feducb.worlds.features.bounds import derive_bounds
from feducb.worlds.features.explain import refuses

__all__ = ["DEFAULT", "PRACTICAL", "budget_table", "init", "make_file"]

DEFAULT = Path("agent.toml")
HOLDOUT = 0.05

_TEMPLATE = """\
version = 2
# What begins with # is left at its default.

[agent]
name = "{name}"
store = "{name}.db"            # private: holds what waits. Never put an old copy back (see `agent backup`)

[problem]                      # public bounds, the same at all agents
{problem}

[privacy]                      # what a person is promised, over all that ever leaves in a season
{budget}
records_per_person = {per_person}         # more needs a `person` with every decision
spacing = {spacing}                    # above 0: a person's records are so many releases apart; less noise
trust = {trust:22} # who adds the noise: nobody (each agent), controller or keepers; self: nothing leaves
{keepers}# agents_per_person = 1        # unless trust is "nobody": people visit one agent each. Left out: all
contexts = {contexts:19} # public: what visitors are and are shown is NOT protected, rewards are
# mechanism = "auto"           # how noise is spread over releases

[federation]                   # the same at all agents
agents = {agents}
decisions = {decisions}            # of one agent in a season, roughly
history = {history}                    # records of one agent from before, roughly: `feducb agent warm-start`
{quorum}
# groups = 1                   # more than one only among peers
# alpha = 0.1                  # the chance that the confidence bound ever fails

[releases]                     # the same at all agents
season = "{season}"
{start}
{schedule}
[rewards]
window = "{window}"                  # a reward may come so long after its decision; public and fixed
default_reward = {default!r:13} # what counts if none came

[decisions]                    # stay as they are for a season
play = {play:23} # own: after the last release own records are looked at too; the same at all agents
{distance}
{policy}
uniform_share = {uniform_share!r:14} # above 0: logs can judge other policies
holdout = {holdout!r:20} # decided as the agent alone would, to see what the others are worth; docs/service.md
shadow = {shadow:16}      # true: follow the application's own choice
follow_policy = "learning"     # of the application; "fixed": public, and never learns from rewards

[seasons]                      # the same at all agents; stay as they are for a season
remember = "all"               # earlier seasons whose sums are read too: all, how many, or none
# discount = 1.0               # below 1: what was learnt counts so much less with each season
drift = "none"                 # or a half-life, such as "90d": in so long what was learnt counts half
# first_season = 1             # the number of the one that starts at `start`; the clock opens the others
# most_epsilon                 # the most that all seasons together may cost a person; left out: no limit
# most_delta                   # at this delta; that of [privacy] if left out

[retention]
keep_events = {keep:16} # raw events are gone once they are in the sums; longer for `agent export`

[service]
host = "127.0.0.1"
port = {port}
keys = "{name}.keys"
# largest_body = 1048576       # bytes of a request
# certificate = "{name}.pem"
# private_key = "{name}.key"
# client_ca = "ca.pem"         # callers must show a certificate that it signed
"""

_NOTHING_TO_READ = (
    "at this traffic and budget nothing that is released within a season is worth reading, so that all "
    "decisions will be drawn uniformly; it takes more agents, a larger epsilon or a longer season with more "
    "decisions"
)
_KEEPERS = """\
away = {away:<23} # how many agents may miss a row
colluding = {colluding:<18} # how many may tell the controller what they sent
"""
_POLICY = """\
policy = "tempered"            # how the agent chooses; `feducb simulate --policy` has the list
# exploration = 1.0            # part of the bonus of the optimistic policy; 1 is the proven one"""
_PRACTICAL = """\
policy = "optimistic"          # how the agent chooses; "tempered" plays the proven bonus, and explores more
exploration = {exploration!r:16} # part of the proven bonus: less is explored, and no regret is proven"""
PRACTICAL: dict[str, Any] = {
    "policy": "optimistic",
    "exploration": 0.1,
}  # as `feducb evaluate` judges: practical play
_BUDGET = "epsilon = {epsilon!r}\ndelta = {delta!r}"
_NO_BUDGET = (
    "# epsilon, delta              # none under trust self: nothing leaves. Needed to join others later"
)
_NO_KEEPERS = "# away, colluding             # of trust keepers: how many may miss a row, or tell on others\n"
_NO_RECIPE = '# recipe = "recipe.json"       # visitors and actions in words; `feducb recipe init` writes one'
_ROOM = (
    "# reserve, added, retired       # beside actions: room for more in a season, names that came, that went"
)
_NO_ACTIONS = f"""# actions = ["a", "b", "c"]    # in place of a recipe, for offers without features
{_ROOM}"""
_NUMBERS = f"""\
dim = {{dim:<24}} # d, numbers per candidate; in its place:
{_NO_RECIPE}
{_NO_ACTIONS}
# reward_range = [0.0, 1.0]    # in place of reward_bound and reward_centre
action_bound = 1.0             # L, no candidate is longer
reward_bound = {{bound!r:15}} # B, the most that a reward may differ from its centre: noise is made for it
reward_centre = {{centre!r:14}} # taken off each reward; other than 0, candidates need a constant number
parameter_bound = 1.0          # S, of rewards less their centre
noise_scale = {{noise!r:16}} # no more than half of the range of rewards"""
_RECIPE = """\
{recipe}
reward_range = {range:15} # of all rewards. B is half of it, since each counts less the middle: noise is for B
# What follows from the recipe; given here, it must be the same (`feducb recipe show`):
# dim = {dim}
# action_bound = {action_bound!r}
# reward_bound = {reward_bound!r}
# reward_centre = {reward_centre!r}
# parameter_bound = {parameter_bound!r}
# noise_scale = {noise_scale!r}"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _New:
    """The options of `init`: most stand in the template by the same names."""

    path: Annotated[Path, typer.Argument(help="Where to write the configuration.")] = DEFAULT
    name: str = option("agent", "The agent's name.")
    recipe: Path | None = option(
        None,
        "How visitors and actions become vectors; `feducb recipe init` writes one. Bounds follow from it.",
    )
    actions: str | None = option(None, "Offers without features, a,b,c: in place of a recipe.")
    dim: int = option(10, "d, numbers per candidate, without recipe and actions.")
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
        "Candidates need a number that is the same in all of them, as with a recipe that has the term 1.",
        shown="0:1 with a recipe or actions, else -1:1",
    )
    contexts: str = option(
        "private", "public: everybody may know visitors and what they are shown; rewards alone are protected."
    )
    trust: str = option(
        "nobody",
        "Who adds the noise: nobody (every agent its own), controller, or keepers (docs/deploy.md). self: "
        "the agent is alone, learns from its own raw records at once, and nothing leaves it.",
    )
    away: int | None = option(None, "Under keepers: agents that may miss a row.", shown="a tenth")
    colluding: int | None = option(
        None, "Under keepers: agents that may tell the controller what they sent.", shown="a fifth"
    )
    agents: int = option(1, "How many agents the federation has.")
    quorum: int | None = option(None, "How many agents a sum needs at least.", shown="all")
    decisions: int = option(100_000, "Decisions of one agent in a season, roughly.")
    history: int = option(
        0, "Records of one agent from before, roughly, that `feducb agent warm-start` will load."
    )
    releases: int | None = option(None, "Releases in a season.", shown="as planned; 64 with other schedules")
    schedule: str | None = option(
        None,
        "When they are due: planned (few, once a sum is worth reading), geometric or periodic.",
        shown="planned, or geometric with --releases",
    )
    season: str = option("30d", "How long a season lasts, such as 30d.")
    start: str | None = option(
        None,
        "When season 1 starts, such as 2027-01-01T00:00:00Z; the same at all agents.",
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
        shown="0.28 is assumed",
    )
    exploration: float | None = option(
        None,
        "Part of the proven bonus that the agent explores by; 1 plays tempered, the proven rule.",
        shown="0.1 with a recipe or actions, but under own play; else 1",
    )
    uniform_share: float = option(
        0.0, "Share of decisions drawn uniformly, so that logs can judge other policies."
    )
    holdout: float | None = option(
        None,
        "Share of decisions made as the agent alone would make them, to see what the others are worth. Under "
        "released play whoever sets it states that what these visitors are shown moves nobody else's record.",
        shown="0.05 after the close under own play, else 0",
    )
    keep_events: str | None = option(
        None, "How long raw events are kept for `agent export`.", shown="0s; in shadow mode a season"
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
        of_all = {} if self.budgets is None else _read_budgets(self.budgets)
        own = of_all.get(self.name, Budget(epsilon=1.0, delta=1e-6))
        problem, bounds = self._problem()
        low, high = bounds.reward_range
        trust, keepers = self._trust()
        words = asdict(self) | {
            "budget": self._budget(own),
            "start": self._start(),
            "schedule": self._schedule(settled),
            "trust": json.dumps(trust),
            "keepers": keepers,
            "quorum": _line("quorum", self.quorum, "how many agents a sum needs at least; left out, all"),
            "play": json.dumps("own" if self.alone else self.play),
            "holdout": self._holdout(),
            "distance": _line(
                *("distance", None if self.distance is None else float(self.distance)),
                "under own play, the same at all agents: by how much they may differ, over S",
            ),
            "policy": self._policy(),
            "contexts": json.dumps(self.contexts),
            "problem": problem,
            "default": min(max(0.0, low), high),
            "shadow": "true" if self.shadow else "false",
            "keep": json.dumps(self.keep_events or (self.season if self.shadow else "0s")),
        }
        return _TEMPLATE.format(**words) + "".join(f"\n{budget_table(*one)}\n" for one in of_all.items())

    def _policy(self) -> str:
        """The lines that say how the agent chooses."""
        exploration = self.exploration
        if exploration is None:
            described = self.recipe is not None or self.actions is not None
            exploration = PRACTICAL["exploration"] if described and self.play == "released" else 1.0
        return _POLICY if exploration == 1.0 else _PRACTICAL.format(exploration=exploration)

    @property
    def alone(self) -> bool:
        """Whether nothing leaves."""
        return self.trust == SELF.name

    def _holdout(self) -> float:
        """As given; else what costs no promise: after a close nothing leaves, before it something does."""
        if self.holdout is not None:
            return float(self.holdout)
        return HOLDOUT if self.play == "own" and not self.alone and not self.shadow else 0.0

    def _budget(self, own: Budget) -> str:
        """Its lines."""
        if self.alone:
            return _NO_BUDGET
        epsilon = own.epsilon if self.epsilon is None else self.epsilon
        return _BUDGET.format(epsilon=epsilon, delta=own.delta if self.delta is None else self.delta)

    def _problem(self) -> tuple[str, Problem]:
        """The lines of its table, and the bounds that they mean."""
        if self.recipe is None and self.actions is None:
            low, high = (-1.0, 1.0) if self.reward_range is None else parse_range(self.reward_range)
            bound, centre = (high - low) / 2.0, (low + high) / 2.0
            noise = 0.5 if self.reward_range is None else bound
            lines = _NUMBERS.format(dim=self.dim, bound=bound, centre=centre, noise=noise)
            return lines, Problem(dim=self.dim, reward_bound=bound, reward_centre=centre)
        low, high = parse_range(self.reward_range or "0:1")
        recipe, said = self._recipe()
        bounds = derive_bounds(recipe, (low, high)).problem
        return _RECIPE.format(recipe=said, range=json.dumps([low, high]), **asdict(bounds)), bounds

    def _recipe(self) -> tuple[Recipe, str]:
        """The recipe, and the line that names it."""
        if self.recipe is None:
            names = [part.strip() for part in str(self.actions).split(",") if part.strip()]
            return Recipe.of_actions(
                names
            ), f"actions = {json.dumps(names, ensure_ascii=False)}\n{_ROOM}\n{_NO_RECIPE}"
        if self.actions is not None:
            raise ConfigurationError("--actions", self.actions, "nothing beside --recipe, which has them")
        try:
            named = self.recipe.resolve().relative_to(self.path.resolve().parent)
        except ValueError:
            named = self.recipe.resolve()
        said = f"{f'recipe = {json.dumps(named.as_posix())}':30} # how visitors and actions become vectors"
        return Recipe.read(self.recipe), f"{said}\n{_NO_ACTIONS}"

    def _start(self) -> str:
        said = "common to all agents; one on its own may leave it out, and starts at once"
        if self.start is None:
            return f"# start = 2027-01-01T00:00:00Z # {said}"
        return f"start = {_instant(self.start)}   # {said}"

    def _trust(self) -> tuple[str, str]:
        """Its name, and the lines of its numbers."""
        trust = trust_with(self.trust, away=self.away, colluding=self.colluding).among(self.agents)
        name = trust.name.partition(":")[0]
        if not isinstance(trust, Keepers):
            return name, _NO_KEEPERS
        return name, _KEEPERS.format(away=trust.away, colluding=trust.colluding)

    def _schedule(self, settled: AgentSettings | None) -> str:
        """Its lines."""
        if self.alone and self.releases is None:
            return "# schedule, releases, first_release # of what leaves: nothing under trust self\n"
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
        first = last = None
        if name == "planned" and settled is not None:
            first, last = settled.first_release, settled.last_release
        lines.append(_line("first_release", first, "seconds; left out, the schedule's own"))
        closes = "seconds, under own play: all close with it. Windows of what was planned are over then"
        lines.append(_line("last_release", last, closes))
        return "\n".join(lines) + "\n"


def _line(name: str, value: object, said: str) -> str:
    """A setting's line; commented out where it is left at its default."""
    return f"{f'# {name}' if value is None else f'{name} = {value!r}':30} # {said}"


class _Question(NamedTuple):
    """What is asked on a terminal, where no option said it."""

    option: str
    text: str
    read: Callable[[str], Any]
    needed: Callable[[_New], bool] = lambda new: True


_QUESTIONS = (
    _Question("recipe", "recipe file (empty: offers without features, or vectors of your own)", Path),
    _Question(
        "actions", "offers without features, a,b,c (empty: vectors)", str, lambda new: new.recipe is None
    ),
    _Question("dim", "numbers per vector", int, lambda new: new.recipe is None and new.actions is None),
    _Question(
        *("epsilon", "epsilon of a person: smaller is more private", float),
        lambda new: not new.budgets and not new.alone,
    ),
    _Question("agents", "how many agents learn together", int, lambda new: not new.alone),
    _Question("trust", "who adds the noise: nobody, controller or keepers (self: alone)", str),
    _Question("start", "when the season starts, the same at all agents", str, lambda new: new.agents > 1),
    _Question(
        *("quorum", "how many agents a sum needs at least (empty: all)", int),
        lambda new: new.agents > 1 and new.trust == "nobody",
    ),
    _Question(
        "uniform_share", "share of decisions drawn uniformly, to judge other policies by the log", float
    ),
    _Question("keep_events", "how long raw events are kept for export, such as 7d", str),
)
_SHOWN = {"epsilon": "1", "keep_events": "0s", "start": None}  # where the default is to be worked out


def _asked(new: _New) -> _New:
    """With what is answered on a terminal; options that were given are not asked for."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return new
    context = click.get_current_context()
    for question in _QUESTIONS:
        given = context.get_parameter_source(question.option) is not ParameterSource.DEFAULT
        if given or not question.needed(new):
            continue
        value = getattr(new, question.option)
        shown = _SHOWN.get(question.option, "" if value is None else str(value))
        answer = typer.prompt(question.text, default=shown).strip()
        if answer and answer != str(value):
            try:
                new = replace(new, **{question.option: question.read(answer)})
            except ValueError:
                raise ConfigurationError(question.option, answer, "a number") from None
    return new


@takes_options
def init(new: _New) -> None:
    """Write a configuration, with one key for the application and one for the operator.

    On a terminal it asks for what no option says.
    """
    path, name = new.path, new.name
    if path.exists():
        raise ConfigurationError("config", str(path), "a file that does not exist yet")
    for flag, value in (("--epsilon", new.epsilon), ("--delta", new.delta), ("--budgets", new.budgets)):
        if new.alone and value is not None:
            raise ConfigurationError(flag, value, "nothing with --trust self: nothing leaves")
    new = _asked(new)
    if new.alone:  # also where it was answered last
        new = replace(new, epsilon=None)
    if new.agents > 1 and new.start is None:
        raise ConfigurationError(
            "--start", None, f"when the season starts, the same at all {new.agents} agents; now is {_now()}"
        )
    if (
        new.play == "own"
        and not new.alone
        and (new.releases is not None or new.schedule not in (None, "planned"))
    ):
        flag = "--releases" if new.releases is not None else "--schedule"
        expected = (
            "nothing beside --play own, which plans its releases up to the close; to set them yourself write "
            "releases, first_release and last_release into [releases] of agent.toml afterwards, all three"
        )
        raise ConfigurationError(flag, new.releases or new.schedule, expected)
    for left in (path.parent / f"{name}.keys", path.parent / f"{name}.db"):
        if left.exists():
            raise ConfigurationError("name", name, f"another one, or {left} moved away")
    text = new.text()
    path.write_text(text, encoding="utf-8")
    try:
        path.write_text(new.text(read_agent_file(path).agent), encoding="utf-8")
        written = read_agent_file(path)
        make_file(written.store, written.agent)
        keys = written.service.keys
        secrets = {role: add_key(keys, role, role) for role in ("application", "operator")}
    except BaseException:
        path.unlink()
        raise
    for note in _notes(written.agent):
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"wrote {path} and {keys}; the keys are shown once:")
    for role, secret in secrets.items():
        typer.echo(f"  {role:12} {secret}")


def _notes(settings: AgentSettings) -> list[str]:
    """What its owner should know about the settings."""
    notes = [] if settings.reads else [_NOTHING_TO_READ]
    if settings.recipe is not None and (names := refuses(settings.recipe)):
        notes.append(
            f"the recipe has no rule for values that are missing or unknown in {', '.join(names)}: such "
            "visitors are refused (`feducb recipe show`)"
        )
    return notes


def make_file(store: Path, settings: AgentSettings, first_season: int | None = None) -> int:
    """Make an agent's file that does not exist yet; its season. Nothing is left of one that cannot be."""
    try:
        with Agent.open(store, settings, first_season=first_season) as agent:
            return agent.store.season
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


def budget_table(name: str, budget: Budget) -> str:
    """An agent's own budget, as a configuration has it."""
    return f"[budgets.{name}]\nepsilon = {budget.epsilon!r}\ndelta = {budget.delta!r}"


def _read_budgets(path: Path) -> dict[str, Budget]:
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError("budgets", str(path), f"a TOML file: {error}") from None
    return read_budgets(plain.get("budgets", {}))
