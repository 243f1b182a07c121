"""`feducb privacy plan | audit | statement`."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from feducb.cli.output import counted, errors_to, require_writable, steps_progress
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.privacy.statement import statement, to_markdown
from feducb.privacy.terms import Terms
from feducb.simulation.planning import plan_privacy
from feducb.trust import TRUSTS, require_trust

__all__ = ["app"]

app = typer.Typer(
    help="What a budget buys, whether the code keeps its promise, and a page to sign.", no_args_is_help=True
)

Epsilon = Annotated[float, typer.Option(help="ε of a person.")]
Delta = Annotated[float, typer.Option(help="δ.")]
Releases = Annotated[int, typer.Option(help="How many releases the budget must cover.")]
Dim = Annotated[int, typer.Option(help="d, length of an action vector.")]
TrustName = Annotated[str, typer.Option(help=f"{' or '.join(TRUSTS)}: who adds the noise.")]
PerPerson = Annotated[
    int,
    typer.Option(help="Records that one person may have at each agent that she visits."),
]
VisitedAgents = Annotated[
    int | None,
    typer.Option(
        "--agents-per-person",
        help="Agents that one person visits at most; 1: people do not visit several. Under --trust "
        "controller the noise covers them all.",
        show_default="all under --trust controller, else 1",
    ),
]
Json = Annotated[Path | None, typer.Option("--json", help="Write the result as JSON; - for standard output.")]


@app.command()
def plan(
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    releases: Releases = 64,
    dim: Dim = 10,
    agents: Annotated[int, typer.Option(help="M, agents in the federation.")] = 10,
    arms: Annotated[int | None, typer.Option(help="K, candidates a visitor.", show_default="d²")] = None,
    horizon: Annotated[int, typer.Option(help="T, rounds of the short simulation.")] = 2000,
    trust: TrustName = "nobody",
    per_person: PerPerson = 1,
    agents_per_person: VisitedAgents = None,
    json_file: Json = None,
) -> None:
    """What a budget costs in noise and regret, and a plain word on whether to federate."""
    require_writable("--json", json_file)
    trusted = require_trust(trust)
    if agents_per_person is None:
        agents_per_person = trusted.agents_visited(agents)
    terms = Terms(
        problem=Problem(dim=dim),
        budget=Budget(epsilon=epsilon, delta=delta),
        releases=releases,
        records_per_person=per_person,
        agents_per_person=agents_per_person,
        trust=trusted,
    )
    with steps_progress("simulating") as progress:
        planned = plan_privacy(terms, agents, arms=arms, horizon=horizon, progress=progress)
    _show(planned, json_file, _plan_table(planned))
    console = errors_to if _on_standard_output(json_file) else Console(markup=False)
    console.print(planned["verdict"], highlight=False)


@app.command()
def audit(
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Claim to attack; may be repeated.", show_default="1 and 8")
    ] = None,
    delta: Delta = 1e-6,
    trials: Annotated[
        int | None,
        typer.Option(help="Trials in each world.", show_default="20000 for the largest ε, 4000 for others"),
    ] = None,
    self_test: Annotated[
        bool, typer.Option(help="Also check that deliberately broken privatizers are caught.")
    ] = True,
    json_file: Json = None,
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
    found = report.as_dict()
    console = errors_to if _on_standard_output(json_file) else Console(markup=False)
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
    console.print(table)
    for check in report.checks:
        console.print(f"{'ok ' if check.passed else 'FAILED'} {check.name}: {check.detail}", highlight=False)
    for one in report.broken:
        verb = f"caught by {', '.join(one.by)}" if one.caught else "NOT CAUGHT"
        console.print(
            f"{'ok ' if one.caught else 'FAILED'} broken on purpose, {one.name}: {verb}", highlight=False
        )
    word = "No claim is broken" if report.passed else "A CLAIM IS BROKEN"
    console.print(
        f"{word} ({report.seconds:.0f} s; false alarm at most {report.false_alarm:.0e}).", highlight=False
    )
    _show(found, json_file, None)
    if not report.passed:
        raise typer.Exit(1)


@app.command("statement")
def write_statement(
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    releases: Releases = 64,
    dim: Dim = 10,
    trust: TrustName = "nobody",
    per_person: PerPerson = 1,
    agents_per_person: Annotated[
        int | None,
        typer.Option(
            help="Agents that one person visits at most; 1: people do not visit several. Under --trust "
            "controller it must be said.",
            show_default="1 if nobody is trusted",
        ),
    ] = None,
    groups: Annotated[int, typer.Option(help="Estimators an agent keeps, γ if decentralised.")] = 1,
    store: Annotated[
        Path | None,
        typer.Option(help="Take all terms, and what has left, from an agent's or a controller's file."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(help="Where to write; .md and .json are appended. - for Markdown on standard output."),
    ] = Path("privacy-statement"),
) -> None:
    """Write a page to sign, in Markdown and JSON: who is protected, against whom, how much, by what."""
    ledger: dict[str, Any] | None = None
    followed: str | None = None
    others: list[Budget] = []
    if store is not None:
        terms, ledger = _read_store(store)
        followed, others = _stated_in(store)
    else:
        if agents_per_person is None and require_trust(trust).pooled:
            raise ConfigurationError(
                "--agents-per-person",
                None,
                "how many agents one person visits at most, since one noise covers them: the number of "
                "agents, or 1 if people do not visit several",
            )
        _note_an_agent_here()
        terms = Terms(
            problem=Problem(dim=dim),
            budget=Budget(epsilon=epsilon, delta=delta),
            releases=releases,
            records_per_person=per_person,
            agents_per_person=1 if agents_per_person is None else agents_per_person,
            trust=require_trust(trust),
            groups=groups,
        )
    plain = statement(terms, ledger=ledger, followed=followed, others=others)
    page = to_markdown(plain)
    if str(out) == "-":
        typer.echo(page)
        return
    require_writable("--out", out)
    out.with_name(out.name + ".md").write_text(page, encoding="utf-8")
    out.with_name(out.name + ".json").write_text(_as_json(plain), encoding="utf-8")
    typer.echo(f"wrote {out}.md and {out}.json")


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


def _stated_in(path: Path) -> tuple[str | None, list[Budget]]:
    """Whom an agent in shadow mode follows, or None; and others' budgets, where agents have their own."""
    from feducb.agent.kept import season_in
    from feducb.storage import StoreError, agent_tables

    with closing(agent_tables.look_into(path)) as db:
        try:
            _, settings, _ = season_in(db, path)
        except StoreError:
            return None, []
    others = [budget for name, budget in settings.budgets.items() if name != settings.name]
    return settings.follow_policy if settings.shadow else None, others


def _on_standard_output(json_file: Path | None) -> bool:
    return json_file is not None and str(json_file) == "-"


def _as_json(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _show(found: dict[str, Any], json_file: Path | None, table: Table | None) -> None:
    if table is not None:
        (errors_to if _on_standard_output(json_file) else Console(markup=False)).print(table)
    if _on_standard_output(json_file):
        typer.echo(_as_json(found), nl=False)
    elif json_file is not None:
        json_file.write_text(_as_json(found), encoding="utf-8")


def _plan_table(found: dict[str, Any]) -> Table:
    grid = found["grid"]
    table = Table(
        title=f"(ε, δ) = ({found['epsilon']:g}, {found['delta']:g}) over "
        + counted(found["releases"], "release"),
        title_justify="left",
        show_header=False,
    )
    table.add_column(style="bold")
    table.add_column()
    table.add_row("privacy as one number", f"μ = {found['mu']:.6g}")
    table.add_row("re-accounted", f"ε = {found['epsilon_reaccounted']:.6g}")
    if found["agents_per_person"] > 1:
        covered = require_trust(found["trust"]).words.elsewhere
        table.add_row(
            f"a person at {found['agents_per_person']:,} agents",
            f"ε = {found['epsilon_at_several_agents']:.6g}, {covered}",
        )
    table.add_row("mechanism", f"{found['mechanism']}, {found['state_bytes']:,} bytes of state")
    table.add_row("worst release", f"{found['worst_error']:.4g} × R²/μ")
    table.add_row("noise of one Gram entry", f"{found['sigma']:.6g} before decoding")
    table.add_row(
        "on a grid",
        f"{grid['sigma']:.6g} ({100 * (grid['noise_over_gaussian'] - 1):.4f} % more), "
        f"certified ε = {grid['epsilon_certified']:.6g}",
    )
    if found["regret"]:
        regret = found["regret"]
        table.add_row("regret, federated", f"{regret['federated']:,.1f} an agent")
        table.add_row("regret, alone", f"{regret['alone']:,.1f}")
    return table
