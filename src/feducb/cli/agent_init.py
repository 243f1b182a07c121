"""`feducb agent init`: asks for what it needs on a terminal, and writes down every setting."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click
import typer
from click.core import ParameterSource

from feducb.agent import Agent, AgentSettings
from feducb.agent.agent_file import read_agent_file
from feducb.cli.agent_options import NewAgent
from feducb.cli.agent_text import agent_text, now
from feducb.cli.options import takes_options
from feducb.errors import ConfigurationError, StoreInUseError
from feducb.service.api_keys import add_key
from feducb.worlds.features.explain import refuses

__all__ = ["init", "make_file"]

_NOTHING_TO_READ = (
    "at this traffic and budget nothing that is released within a season is worth reading, so that all "
    "decisions will be drawn uniformly; it takes more agents, a larger epsilon or a longer season with more "
    "decisions"
)


class _Question(NamedTuple):
    """What is asked on a terminal, where no option said it."""

    option: str
    text: str
    read: Callable[[str], Any]
    needed: Callable[[NewAgent], bool] = lambda new: True


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
    _Question(
        *("start", "when the season starts, the same at all agents (now is {now})", str),
        lambda new: new.agents > 1,
    ),
    _Question(
        *("quorum", "how many agents a sum needs at least (empty: all)", int),
        lambda new: new.agents > 1 and new.trust == "nobody",
    ),
    _Question(
        "uniform_share", "share of decisions drawn uniformly, to judge other policies by the log", float
    ),
    _Question("keep_events", "how long raw events are kept for export, such as 7d", str),
)
_WHAT = {"recipe", "actions", "dim"}  # one of them says what there is to choose from
# Where the default is to be worked out
_SHOWN = {"dim": "10", "epsilon": "1", "keep_events": "0s", "start": None}


def _asked(new: NewAgent) -> NewAgent:
    """With what is answered on a terminal; options that were given are not asked for."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return new
    source = click.get_current_context().get_parameter_source
    given = {one.option for one in _QUESTIONS if source(one.option) is not ParameterSource.DEFAULT}
    if given & _WHAT:
        given |= _WHAT
    for question in _QUESTIONS:
        if question.option in given or not question.needed(new):
            continue
        value = getattr(new, question.option)
        shown = _SHOWN.get(question.option, "" if value is None else str(value))
        answer = typer.prompt(question.text.format(now=now()), default=shown).strip()
        if answer and answer != str(value):
            try:
                new = replace(new, **{question.option: question.read(answer)})
            except ValueError:
                raise ConfigurationError(question.option, answer, "a number") from None
    return new


@takes_options
def init(new: NewAgent) -> None:
    """Write a configuration, with one key for the application and one for the operator.

    On a terminal it asks for what no option says.
    """
    path = new.path
    if path.exists():
        raise ConfigurationError("config", str(path), "a file that does not exist yet")
    for flag, value in (("--epsilon", new.epsilon), ("--delta", new.delta), ("--budgets", new.budgets)):
        if new.alone and value is not None:
            raise ConfigurationError(flag, value, "nothing with --trust self: nothing leaves")
    new = _asked(new)
    if new.alone:  # also where it was answered last
        new = replace(new, epsilon=None)
    _require_fitting(new)
    text = agent_text(new)
    path.write_text(text, encoding="utf-8")
    try:
        path.write_text(agent_text(new, read_agent_file(path).agent), encoding="utf-8")
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


def _require_fitting(new: NewAgent) -> None:
    """Raise unless the options go together, and nothing of another agent is in the way."""
    if new.agents > 1 and new.start is None:
        raise ConfigurationError(
            "--start", None, f"when the season starts, the same at all {new.agents} agents; now is {now()}"
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
    for left in (new.path.parent / f"{new.name}.keys", new.path.parent / f"{new.name}.db"):
        if left.exists():
            raise ConfigurationError("name", new.name, f"another one, or {left} moved away")


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
