"""`feducb privacy plan | audit | statement`."""

from __future__ import annotations

import typer
from rich.table import Table

from feducb.cli.options import JsonFile, option
from feducb.cli.output import require_writable, screen_beside, steps_progress, write_json
from feducb.cli.privacy_plan import plan
from feducb.cli.privacy_statement import write_statement
from feducb.cli.promised import Delta, as_json

__all__ = ["app"]

app = typer.Typer(
    help="What a budget buys, whether the code keeps its promise, and a page to sign.", no_args_is_help=True
)
app.command()(plan)


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
    write_json(lambda: as_json(report.as_dict()), json_file)
    if not report.passed:
        raise typer.Exit(1)


app.command("statement")(write_statement)
