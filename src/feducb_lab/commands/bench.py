"""`feducb bench`."""

from __future__ import annotations

from pathlib import Path

import typer

from feducb.cli.options import option
from feducb.cli.output import errors_to, require_writable, write_json

__all__ = ["bench"]


def bench(
    dim: list[int] | None = option(None, "d; may be repeated.", shown="10 50"),
    arms: int = option(100, "K, candidates per decision."),
    rounds: int = option(9, "How many times everything is timed."),
    peers_only: bool = option(False, "Leave out growth, threads, memory and starts.", "--peers-only"),
    json_file: Path | None = option(None, "Write the report as JSON; - for standard output.", "--json"),
    plot_file: Path | None = option(None, "Draw a bar chart (PNG, SVG, PDF).", "--plot"),
) -> None:
    """Measure how fast decisions and steps are, beside other libraries and beside what this machine can do.

    All in one run, one after the other, several times; ratios are within a round. Libraries that are not
    installed (benchmarks/requirements-bench.txt names them) are reported so. Ends with status 1 if a library
    does not learn or a promise is not kept.
    """
    from feducb_lab.bench import Effort, draw_report, run_bench

    require_writable("--json", json_file)
    require_writable("--plot", plot_file, picture=True)

    def tell(doing: str) -> None:
        errors_to.print(f"… {doing}", highlight=False)

    effort = Effort(arms=arms, rounds=rounds)
    report = run_bench(dims=dim or (10, 50), effort=effort, ours=not peers_only, tell=tell)
    typer.echo(report.to_text(), err=str(json_file) == "-")
    write_json(report.to_json, json_file)
    if plot_file is not None:
        draw_report(report, plot_file)
    if not all(check.learns for check in report.checks) or not all(one.holds for one in report.verdicts):
        raise typer.Exit(1)
