"""`feducb privacy plan | audit | statement`."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import click
import typer
from click.core import ParameterSource
from rich.table import Table

from feducb.cli.options import Away, Colluding, Dim, JsonFile, Seed, option, takes_options
from feducb.cli.output import (
    counted,
    facts_table,
    note,
    require_writable,
    screen_beside,
    steps_progress,
    write_json,
)
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.models import with_contexts
from feducb.privacy.statement import statement, to_markdown
from feducb.privacy.terms import Terms
from feducb.protocol.federation import Play
from feducb.simulation.planning import Season, plan_privacy
from feducb.trust import TRUSTS, require_trust, trust_with
from feducb.worlds.features import Recipe
from feducb.worlds.from_recipe import RecipeWorld
from feducb.worlds.synthetic import paper_world
from feducb.worlds.world import Environment

__all__ = ["app"]

app = typer.Typer(
    help="What a budget buys, whether the code keeps its promise, and a page to sign.", no_args_is_help=True
)

Epsilon = Annotated[float, typer.Option(help="ε of a person.")]
Delta = Annotated[float, typer.Option(help="δ.")]
TrustName = Annotated[str, typer.Option(help=f"Who adds the noise: {', '.join(TRUSTS)}.")]
PerPerson = Annotated[
    int, typer.Option(help="Records that one person may have at each agent that she visits.")
]
Spacing = Annotated[
    int,
    typer.Option(
        help="Releases by which records of one person at an agent are apart at least, so that less noise is "
        "enough; 0: they are anywhere."
    ),
]
_SHOWN = 10  # releases that are listed
_VISITED = "Agents that one person visits at most; 1: people do not visit several. Unless nobody is trusted "


@dataclass(frozen=True, kw_only=True, slots=True)
class _Promised:
    """What is to be promised."""

    epsilon: Epsilon = 1.0
    delta: Delta = 1e-6
    trust: TrustName = "nobody"
    away: Away = None
    colluding: Colluding = None
    per_person: PerPerson = 1
    spacing: Spacing = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Planned(_Promised):
    """The options of `plan`."""

    releases: int | None = option(
        None, "How many releases, in geometric progression.", shown="few, from the first worth reading"
    )
    agents: int = option(10, "M, agents in the federation; two or more.")
    visitors: int = option(2000, "Visitors of each agent over the season.")
    recipe: Path | None = option(
        None, "Plan for visitors of this shape: a file that `feducb evaluate --save-recipe` wrote."
    )
    dim: int | None = option(None, "d, length of an action vector.", shown="the recipe's, or 10")
    arms: int | None = option(None, "K, candidates per visitor.", shown="the recipe's actions, or d²")
    runs: int | None = option(None, "Runs of the simulation.", shown="5 to 20, by size")
    seed: Seed = 0
    agents_per_person: int | None = option(
        None, f"{_VISITED}the noise covers them all.", shown="1 under --trust nobody, else all"
    )
    play: str | None = option(
        None,
        "released: decisions look at released sums alone; own: after the last release at own records and the "
        "others' sum.",
        shown="both are compared",
    )
    distance: float | None = option(
        None,
        "H, under own play: by how much θ* of two sites may differ, as a part of its length; 0: all are "
        "alike.",
        shown="0.28 is assumed",
    )
    history: int = option(
        0, "Records of each agent from before the season, drawn uniformly, that enter the first release."
    )
    json_file: JsonFile = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stated(_Promised):
    """The options of `statement`."""

    releases: int = option(64, "How many releases the budget must cover.")
    dim: Dim = 10
    agents_per_person: int | None = option(
        None, f"{_VISITED}it must be said.", shown="1 if nobody is trusted"
    )
    agents: int | None = option(
        None, "M, agents in the federation: under --trust keepers noise is divided between them.", shown=False
    )
    keepers: str | None = option(None, "Names of the keepers, for the page: a,b,c.", shown=False)
    groups: int = option(1, "Estimators an agent keeps, γ if decentralised.")
    contexts: str = option("private", "public: rewards alone are protected, actions and contexts are not.")
    play: str = option("released", "own: after the last release decisions look at raw records.")
    store: Path | None = option(
        None, "Take all terms, and what has left, from an agent's or a controller's file."
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


@app.command()
@takes_options
def plan(asked: _Planned) -> None:
    """What a budget costs in noise and regret, and after how many visitors federating pays, if ever.

    Agents are simulated, in a federation and each by itself: in the paper's world, or on visitors of the
    shape that --recipe describes.
    """
    require_writable("--json", asked.json_file)
    trust = trust_with(asked.trust, away=asked.away, colluding=asked.colluding)
    visited = asked.agents_per_person
    season = Season(
        world=_world(asked),
        agents=asked.agents,
        visitors=asked.visitors,
        budget=Budget(epsilon=asked.epsilon, delta=asked.delta),
        releases=asked.releases,
        trust=trust,
        records_per_person=asked.per_person,
        agents_per_person=trust.agents_visited(asked.agents) if visited is None else visited,
        spacing=asked.spacing,
        play=cast(Play | None, asked.play),
        distance=asked.distance,
        history=asked.history,
    )
    with steps_progress("simulating") as progress:
        planned = plan_privacy(season, runs=asked.runs, seed=asked.seed, progress=progress)
    screen = screen_beside(asked.json_file)
    screen.print(_plan_table(planned))
    write_json(lambda: _as_json(planned), asked.json_file)
    screen.print(planned["verdict"], highlight=False)
    if visited is None and season.agents_per_person > 1:
        note(
            f"the noise covers a person at all {season.agents_per_person:,} agents; if people visit one "
            "each, plan with --agents-per-person 1: it takes far less"
        )


def _world(asked: _Planned) -> Environment:
    """Where a plan is simulated."""
    if asked.recipe is None:
        return paper_world(Problem(dim=10 if asked.dim is None else asked.dim), asked.arms)
    if asked.dim is not None:
        raise ConfigurationError("--dim", asked.dim, "nothing beside --recipe, which says it")
    recipe = Recipe.read(asked.recipe)
    return RecipeWorld(recipe=recipe, drawn=asked.arms)


@app.command()
def audit(
    epsilon: list[float] | None = option(None, "Claim to attack; may be repeated.", shown="1 and 8"),
    delta: Delta = 1e-6,
    trials: int | None = option(
        None, "Trials in each world.", shown="20000 for the largest ε, 4000 for others"
    ),
    self_test: bool = option(True, "Also check that deliberately broken privatizers are caught."),
    json_file: JsonFile = None,
) -> None:
    """Attack the deployed privatizer; status 0 if no claim is broken, 1 if one is."""
    from feducb.audit import run_audit  # heavy: OpenDP and worker processes

    require_writable("--json", json_file)
    with steps_progress("attacking") as progress:
        report = run_audit(
            epsilons=tuple(epsilon or (1.0, 8.0)),
            delta=delta,
            trials=trials,
            progress=progress,
            self_test=self_test,
        )
    screen = screen_beside(json_file)
    table = Table(title="Claims: the most that an attack could show", title_justify="left")
    for heading in ("trust", "ε claimed", "ε at least (Gaussian)", "ε at least (no assumption)", "holds"):
        table.add_column(heading)
    for claim in report.claims:
        table.add_row(
            claim.trust,
            f"{claim.epsilon_claimed:g}",
            f"{claim.epsilon_lower_bound_gaussian:.3f}",
            f"{claim.epsilon_lower_bound:.3f}",
            "yes" if claim.holds else "NO",
        )
    screen.print(table)
    for check in report.checks:
        screen.print(f"{'ok ' if check.passed else 'FAILED'} {check.name}: {check.detail}", highlight=False)
    for one in report.broken:
        verb = f"caught by {', '.join(one.by)}" if one.caught else "NOT CAUGHT"
        mark = "ok " if one.caught else "FAILED"
        screen.print(f"{mark} broken on purpose, {one.name}: {verb}", highlight=False)
    word = "No claim is broken" if report.passed else "A CLAIM IS BROKEN"
    screen.print(
        f"{word} ({report.seconds:.0f} s; false alarm at most {report.false_alarm:.0e}).", highlight=False
    )
    write_json(lambda: _as_json(report.as_dict()), json_file)
    if not report.passed:
        raise typer.Exit(1)


@app.command("statement")
@takes_options
def write_statement(asked: _Stated) -> None:
    """Write a page to sign, in Markdown and JSON: who is protected, against whom, how much, by what."""
    ledger: dict[str, Any] | None = None
    followed: str | None = None
    others: list[Budget] = []
    clique: tuple[str, ...] = ()
    play, holdout = asked.play, 0.0
    if asked.store is not None:
        said = click.get_current_context().get_parameter_source
        terms, ledger = _read_store(asked.store)
        followed, others, clique, own_play, holdout = _stated_in(asked.store)
        sayable = {"store", "out", "keepers"} | ({"play"} if own_play is None else set())
        for name in (one.name for one in fields(asked) if one.name not in sayable):
            if said(name) is ParameterSource.COMMANDLINE:
                setting = f"--{name.replace('_', '-')}"
                raise ConfigurationError(
                    setting, getattr(asked, name), "nothing beside --store, which says it"
                )
        play = own_play or play
    else:
        if asked.agents_per_person is None and require_trust(asked.trust).joint:
            raise ConfigurationError(
                "--agents-per-person",
                None,
                "how many agents one person visits at most, since one noise covers them: the number of "
                "agents, or 1 if people do not visit several",
            )
        _require_agents(asked)
        _note_an_agent_here()
        visited = 1 if asked.agents_per_person is None else asked.agents_per_person
        terms = _terms(asked, visited)
        terms = replace(terms, model=with_contexts(terms.model, asked.contexts))  # type: ignore[arg-type]
    keepers = _keepers(asked.keepers, terms)
    if keepers and clique:
        raise ConfigurationError(
            "--keepers", asked.keepers, "nothing for an agent on a graph: there are none"
        )
    if play not in get_args(Play):
        raise ConfigurationError("--play", play, "released or own")
    plain = statement(
        terms,
        ledger=ledger,
        followed=followed,
        others=others,
        keepers=keepers,
        clique=clique,
        play=play,
        holdout=holdout,
    )
    page, out = to_markdown(plain), asked.out
    if str(out) == "-":
        typer.echo(page)
        return
    require_writable("--out", out)
    out.with_name(out.name + ".md").write_text(page, encoding="utf-8")
    out.with_name(out.name + ".json").write_text(_as_json(plain), encoding="utf-8")
    typer.echo(f"wrote {out}.md and {out}.json")


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


def _read_store(path: Path) -> tuple[Terms, dict[str, Any]]:
    """Terms and ledger of an agent's file, or of a controller's."""
    from feducb.storage import AgentStore, ControllerStore, StoreError

    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    try:
        with AgentStore.open(path) as agent:
            return agent.terms, agent.ledger().as_dict()
    except StoreError as error:
        if "of kind releases" in str(error):
            raise StoreError(
                f"{path} is the file of a controller that nobody has to trust: it only adds up what agents "
                "release, each with noise of its own, and promises nothing; ask each agent's file"
            ) from None
        if "of kind controller" not in str(error):
            raise
    with ControllerStore.open(path) as controller:
        return controller.terms, controller.ledger().as_dict()


def _stated_in(path: Path) -> tuple[str | None, list[Budget], tuple[str, ...], str | None, float]:
    """Whom an agent in shadow mode follows, or None; others' budgets, if any; clique; play; holdout.

    A controller's file says none of it: how agents play is not known there.
    """
    from feducb.agent.kept import season_in
    from feducb.storage import StoreError, agent_tables

    with closing(agent_tables.look_into(path)) as db:
        try:
            season, settings, _ = season_in(db, path)
        except StoreError:
            return None, [], (), None, 0.0
        if agent_tables.is_unused(db):
            note(f"nothing has happened in season {season} yet: until then agent.toml may still change it")
    others = [budget for name, budget in settings.budgets.items() if name != settings.name]
    followed = settings.follow_policy if settings.shadow else None
    return followed, others, settings.clique, settings.play, settings.holdout


def _as_json(plain: dict[str, Any]) -> str:
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _plan_table(planned: dict[str, Any]) -> Table:
    grid, regret = planned["grid"], planned["regret"]
    rows = [
        ("privacy as one number", f"μ = {planned['mu']:.6g}"),
        ("re-accounted", f"ε = {planned['epsilon_reaccounted']:.6g}"),
    ]
    if planned["agents_per_person"] > 1:
        covered = require_trust(planned["trust"]).words.elsewhere
        at_several = f"ε = {planned['epsilon_at_several_agents']:.6g}, {covered}"
        rows.append((f"a person at {planned['agents_per_person']:,} agents", at_several))
    if planned["spacing"]:
        records = f"{planned['reach']:.4g} times that of one record"
        rows.append((f"noise for records {counted(planned['spacing'], 'release')} apart", records))
    if "shared_noise" in planned:
        rows += _shares_rows(planned["shared_noise"], planned["agents"])
    rows += [
        ("mechanism", f"{planned['mechanism']}, {planned['state_bytes']:,} bytes of state"),
        ("worst release", f"{planned['worst_error']:.4g} × R²/μ"),
        ("noise of one Gram entry", f"{planned['sigma']:.6g} before decoding"),
        (
            "on a grid",
            f"{grid['sigma']:.6g} ({100 * (grid['noise_over_gaussian'] - 1):.4f} % more), "
            f"certified ε = {grid['epsilon_certified']:.6g}",
        ),
    ]
    if planned.get("release_visitors"):
        at = [f"{visitor:,}" for visitor in planned["release_visitors"]]
        some = ", ".join(at if len(at) <= _SHOWN else [*at[: _SHOWN - 1], "…", at[-1]])
        read = "none is read" if planned["read_from"] is None else f"read from {planned['read_from']:,} on"
        closes = "" if planned["closes_after"] is None else "; all close after the last"
        rows.append(("released after visitor", f"{some}; {read}{closes}"))
    if regret:
        of, runs = counted(planned["agents"], "agent"), counted(regret["runs"], "run")
        alone = counted(regret["agents_alone"], "agent")
        for play, one in regret["by_play"].items():
            rows.append((f"regret, play = {play}", f"{_with_error(**one)} per agent, {of}, {runs}"))
        by_itself = _with_error(regret["alone"], regret["alone_stderr"])
        rows.append(("regret, alone", f"{by_itself} per agent, {alone}, {runs}"))
        margin = f"{regret['saved']:+,.1f}, more than chance beyond ± {regret['saved_margin']:,.1f}"
        rows.append(("saved by federating", margin))
    promise = f"(ε, δ) = ({planned['epsilon']:g}, {planned['delta']:g})"
    return facts_table(f"{promise} over {counted(planned['releases'], 'release')}", rows)


def _shares_rows(shared: dict[str, Any], agents: int) -> list[tuple[str, str]]:
    """What is said where one noise is divided between agents."""
    fewer = ", ".join(f"{one['epsilon']:.4g} at {one['shares']}" for one in shared["by_honest_shares"])
    return [
        (
            "honest shares of noise",
            f"{shared['shares']} of {counted(agents, 'agent')}: {shared['away']} may be away, "
            f"{shared['colluding']} may collude",
        ),
        (
            "noise of a sum",
            f"{shared['noise_over_controller']:.4g} times a trusted controller's "
            f"({shared['noise_if_none_away']:.4g} if none might be away, "
            f"{shared['noise_if_one_colludes']:.4g} if only one might collude)",
        ),
        ("ε with fewer honest shares", fewer),
    ]


def _with_error(mean: float, stderr: float) -> str:
    return f"{mean:,.1f} ± {stderr:,.1f}"
