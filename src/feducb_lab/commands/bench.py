"""`feducb bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feducb.cli.output import errors_to, require_writable

__all__ = ["bench"]


def bench(
    dim: Annotated[list[int] | None, typer.Option(help="d; may be repeated.", show_default="10 50")] = None,
    arms: Annotated[int, typer.Option(help="K, candidates per decision.")] = 100,
    rounds: Annotated[int, typer.Option(help="How many times everything is timed.")] = 9,
    peers_only: Annotated[
        bool, typer.Option("--peers-only", help="Leave out growth, threads, memory and starts.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the report as JSON; - for standard output.")
    ] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Draw a bar chart (PNG, SVG, PDF).")
    ] = None,
) -> None:
    """Measure how fast decisions and steps are, beside other libraries and beside what this machine can do.

    All in one run, one after the other, several times; ratios are within a round. Libraries that are not
    installed (benchmarks/requirements-bench.txt names them) are reported so. Ends with status 1 if a library
    does not learn or a promise is not kept.
    """
    from feducb_lab.bench import draw_report, run_bench

    require_writable("--json", json_file)
    require_writable("--plot", plot_file, picture=True)

    def tell(doing: str) -> None:
        errors_to.print(f"… {doing}", highlight=False)

    report = run_bench(dims=dim or (10, 50), arms=arms, rounds=rounds, ours=not peers_only, tell=tell)
    to_standard_output = json_file is not None and str(json_file) == "-"
    typer.echo(report.to_text(), err=to_standard_output)
    if to_standard_output:
        typer.echo(report.to_json(), nl=False)
    elif json_file is not None:
        report.to_json(json_file)
    if plot_file is not None:
        draw_report(report, plot_file)
    if not all(check.learns for check in report.checks) or not all(one.holds for one in report.verdicts):
        raise typer.Exit(1)
