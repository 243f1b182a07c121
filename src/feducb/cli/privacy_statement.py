"""`feducb privacy statement`: a page to sign, about options or about a store."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click
import typer
from click.core import ParameterSource

from feducb.cli.options import Dim, option, takes_options
from feducb.cli.output import note, require_writable
from feducb.cli.promised import VISITED, Promised, as_json
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError, FeducbError
from feducb.models import with_contexts
from feducb.privacy.circumstances import Kept, Signed
from feducb.privacy.statement import Circumstances, statement, to_markdown
from feducb.privacy.terms import Terms
from feducb.protocol.federation import Play
from feducb.trust import require_trust, trust_with

__all__ = ["write_statement"]

_LEFT = "## What has left so far"  # the heading under which the page lists seasons
_WITH_A_STORE = {"store", "out", "keepers", "purpose", "party", "signer", "date"}  # which it does not say


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stated(Promised):
    """The options of `statement`."""

    releases: int = option(64, "How many releases the budget must cover.")
    dim: Dim = 10
    agents_per_person: int | None = option(None, f"{VISITED}it must be said.", shown="1 if nobody is trusted")
    agents: int | None = option(
        None, "M, agents in the federation: under --trust keepers noise is divided between them.", shown=False
    )
    keepers: str | None = option(None, "Names of the keepers, for the page: a,b,c.", shown=False)
    groups: int = option(1, "Estimators an agent keeps, γ if decentralised.")
    contexts: str = option("private", "public: rewards alone are protected, actions and contexts are not.")
    play: str = option("released", "own: after the last release decisions look at raw records.")
    purpose: str | None = option(None, "What decisions are made for, in a few words.", shown="a blank")
    party: str | None = option(None, "Who is responsible for the data.", shown="a blank")
    signer: str | None = option(None, "Whose signature it is.", shown="a blank")
    date: str | None = option(None, "Of the signature, such as 2027-01-31.", shown="a blank")
    store: Path | None = option(
        None, "Take all terms, and what has left, from an agent's or a controller's file; it may be running."
    )
    out: Path = option(
        Path("privacy-statement"),
        "Where to write; .md and .json are appended. - for Markdown on standard output.",
    )


def _terms(asked: _Stated, agents_per_person: int) -> Terms:
    return Terms(
        problem=Problem(dim=asked.dim),
        budget=Budget(epsilon=asked.epsilon, delta=asked.delta),
        releases=asked.releases,
        records_per_person=asked.per_person,
        spacing=asked.spacing,
        agents_per_person=agents_per_person,
        trust=trust_with(asked.trust, away=asked.away, colluding=asked.colluding),
        agents=asked.agents or 0,
        groups=asked.groups,
    )


@takes_options
def write_statement(asked: _Stated) -> None:
    """Write a page to sign, in Markdown and JSON: who is protected, against whom, how much, by what."""
    terms, known = _of_options(asked) if asked.store is None else _of_store(asked, asked.store)
    keepers, clique = _keepers(asked.keepers, terms), known.get("clique", ())
    if keepers and clique:
        expected = "nothing for an agent on a graph: there are none"
        raise ConfigurationError("--keepers", asked.keepers, expected)
    if known["play"] not in get_args(Play):
        raise ConfigurationError("--play", known["play"], "released or own")
    known |= {"keepers": keepers, "signed": _signed(asked)}
    plain = statement(terms, **known)
    page, out = _with_lost(to_markdown(plain), plain["ledger"]), asked.out
    if str(out) == "-":
        typer.echo(page)
        return
    require_writable("--out", out)
    out.with_name(out.name + ".md").write_text(page, encoding="utf-8")
    out.with_name(out.name + ".json").write_text(as_json(plain), encoding="utf-8")
    typer.echo(f"wrote {out}.md and {out}.json")


def _with_lost(page: str, ledger: dict[str, Any] | None) -> str:
    """The page, with a word on seasons that may have gone on in a file that was lost."""
    lost = [
        account["season"] for account in (ledger or {}).get("seasons", ()) if account["continued_elsewhere"]
    ]
    if not lost:
        return page
    named = f"Season {lost[0]}" if len(lost) == 1 else f"Seasons {', '.join(map(str, lost))}"
    words = (
        f"{named}: this file was restored from a backup, and the one that was lost may have released more "
        "than is listed. All of that counts as spent."
    )
    return page.replace(_LEFT, f"{_LEFT}\n\n{words}", 1)


def _signed(asked: _Stated) -> Signed:
    """What only the signer knows, checked: a page has one line for each."""
    for name in ("purpose", "party", "signer"):
        text = getattr(asked, name)
        if text is not None and (not text.strip() or "\n" in text or "|" in text):
            raise ConfigurationError(f"--{name}", text, "a few words in one line, without |")
    if asked.date is not None:
        try:
            date.fromisoformat(asked.date)
        except ValueError:
            raise ConfigurationError("--date", asked.date, "a day, such as 2027-01-31") from None
    return Signed(purpose=asked.purpose, party=asked.party, signer=asked.signer, date=asked.date)


def _of_options(asked: _Stated) -> tuple[Terms, Circumstances]:
    """Terms as they are asked for."""
    if asked.agents_per_person is None and require_trust(asked.trust).joint:
        raise ConfigurationError(
            "--agents-per-person",
            None,
            "how many agents one person visits at most, since one noise covers them: the number of "
            "agents, or 1 if people do not visit several",
        )
    _require_agents(asked)
    _note_an_agent_here()
    terms = _terms(asked, 1 if asked.agents_per_person is None else asked.agents_per_person)
    terms = replace(terms, model=with_contexts(terms.model, asked.contexts))  # type: ignore[arg-type]
    return terms, {"play": asked.play}


def _of_store(asked: _Stated, path: Path) -> tuple[Terms, Circumstances]:
    """Terms of a file, and what else it says; an option that it says is refused."""
    terms, ledger, found = _read_store(path)
    sayable = _WITH_A_STORE | ({"play"} if found.play is None else set())
    said = click.get_current_context().get_parameter_source
    for name in (one.name for one in fields(asked) if one.name not in sayable):
        if said(name) is not ParameterSource.DEFAULT:
            setting = f"--{name.replace('_', '-')}"
            raise ConfigurationError(setting, getattr(asked, name), "nothing beside --store, which says it")
    return terms, {
        "ledger": ledger,
        "followed": found.followed,
        "others": found.others,
        "clique": found.clique,
        "play": found.play or asked.play,
        "holdout": found.holdout,
        "kept": found.kept,
    }


def _require_agents(asked: _Stated) -> None:
    """The number of agents is said where noise follows from it, and nowhere else."""
    if require_trust(asked.trust).padded:
        if asked.agents is None:
            expected = "how many agents there are: noise is divided between them"
            raise ConfigurationError("--agents", None, expected)
    elif asked.agents is not None:
        expected = "nothing but with --trust keepers: no other noise depends on it"
        raise ConfigurationError("--agents", asked.agents, expected)


def _keepers(names: str | None, terms: Terms) -> list[str]:
    """Whom the page names as keepers."""
    if names is None:
        return []
    listed = [name.strip() for name in names.split(",") if name.strip()]
    if not terms.trust.padded:
        raise ConfigurationError("--keepers", names, "nothing but with --trust keepers")
    if len(set(listed)) < 2 or len(set(listed)) < len(listed):
        raise ConfigurationError("--keepers", names, "two or more different names, separated by commas")
    return listed


def _note_an_agent_here() -> None:
    """Whoever stands in an agent's folder may think that the page is about it."""
    if Path("agent.toml").exists() or Path("agent.db").exists():
        typer.echo(
            "note: this describes the options given and their defaults; --store agent.db (the file that "
            "agent.toml names) describes the agent here",
            err=True,
        )


class _Found(NamedTuple):
    """What a file says besides terms and ledger; how agents play is not known at a controller."""

    kept: Kept | None
    followed: str | None = None  # by an agent in shadow mode
    others: tuple[Budget, ...] = ()  # budgets, where agents have their own
    clique: tuple[str, ...] = ()
    play: str | None = None
    holdout: float = 0.0


def _read_store(path: Path) -> tuple[Terms, dict[str, Any], _Found]:
    """Terms, ledger and the rest of an agent's file, or of a controller's; its process may be running."""
    from feducb.storage import AgentStore, ControllerStore, StoreError, StoreInUseError, agent_tables, sqlite
    from feducb.storage.store import read_ledger

    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    kind = sqlite.kind_at(path)
    if kind == "releases":
        raise StoreError(
            f"{path} is the file of a controller that nobody has to trust: it only adds up what agents "
            "release, each with noise of its own, and promises nothing; ask each agent's file"
        )
    if kind not in (AgentStore.kind, ControllerStore.kind):  # opened, it would be made one
        what = "not a store, or was never used" if kind is None else f"a store of kind {kind}"
        raise StoreError(f"{path} is {what}, expected an agent's file, or a trusted controller's")
    with suppress(StoreInUseError):  # one that does not run may be of an earlier version
        (ControllerStore if kind == ControllerStore.kind else AgentStore).open(path).close()
    with closing(agent_tables.look_into(path)) as db:
        db.execute("BEGIN")  # all as of one moment: a season may end meanwhile
        terms, ledger = Terms.from_json(agent_tables.open_terms(db)), read_ledger(db).as_dict()
        found = _stated_in(db, path)
    for account in ledger["seasons"]:
        del account["pending"]  # private, and no part of what is promised
    return terms, ledger, found


def _stated_in(db: sqlite3.Connection, path: Path) -> _Found:
    from feducb.agent.kept import season_to_begin
    from feducb.storage import StoreError, agent_tables, sqlite
    from feducb.storage.store import read_ledger

    try:
        season, settings, started_at = season_to_begin(db, path, None, time.time())
    except StoreError:  # a controller's; or an agent's that no agent ever opened, which keeps nothing yet
        return _Found(Kept(of="controller") if sqlite.kind_of(db, path) == "controller" else None)
    joins = _joins(path)
    if agent_tables.is_unused(db):
        note(f"nothing has happened in season {season} yet: until then agent.toml may still change it")
    due = settings.release_times[-1:] if joins is None else ()  # none where nothing leaves
    kept = Kept(
        name=settings.name,
        agents=settings.agents,
        season=season,
        starts=started_at,
        ends=started_at + settings.season,
        last_release=started_at + due[0] if due else None,
        window=settings.window,
        keep_events=settings.keep_events,
        joins=joins,
        has_released=read_ledger(db).mu_of_a_regular > 0.0,
    )
    return _Found(
        kept,
        settings.follow_policy if settings.shadow else None,
        tuple(budget for name, budget in settings.budgets.items() if name != settings.name),
        settings.clique,
        settings.play,
        settings.holdout,
    )


def _joins(store: Path) -> int | None:
    """With which later season an agent comes in, as an agent.toml says that names its file."""
    from feducb.agent.agent_file import read_agent_file

    for config in {store.resolve().with_name("agent.toml"), Path("agent.toml").resolve()}:
        try:
            if config.is_file() and (file := read_agent_file(config)).store.resolve() == store.resolve():
                return file.joins()
        except (FeducbError, OSError) as error:
            note(f"{config} does not say whether the agent is one of the federation's already: {error}")
    return None
