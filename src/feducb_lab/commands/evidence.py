"""`feducb figure`, `feducb report` and `feducb bench`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from feducb.cli.options import Backend, option
from feducb.cli.output import errors_to, require_writable, steps_progress, write_json
from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.simulation.backends.choose import BackendName
from feducb_lab.experiments.experiment import Scale
from feducb_lab.experiments.figures import NAMES
from feducb_lab.experiments.figures import figure as figure_of

__all__ = ["bench", "figure", "report"]


def figure(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"The figure: {', '.join(NAMES)}, or all.")],
    scale: str = option("quick", "quick (about a minute each) or full (the paper's size, for a GPU)."),
    backend: Backend = "auto",
    out: Path = option(Path("figures"), "Folder for JSON, pictures and texts."),
    at_once: int = option(1, "How many points to play at the same time (several, on a GPU)."),
    threads: int | None = option(None, "Worker threads per simulation.", shown="all processors"),
    ray: str | None = option(
        None, "Play points on Ray: local, or the address of a cluster (needs the extra ray)."
    ),
) -> None:
    """Play an experiment's points and write its picture, its numbers and what they say.

    1a, 1b, 1c and gap are the paper's; each says which of its claims held. Points are kept in OUT/points: the
    same command goes on where it was stopped, and plays nothing twice.
    """
    from feducb_lab.experiments.on_ray import play_on_ray
    from feducb_lab.experiments.run import make_figure
    from feducb_lab.experiments.sweep import play_here

    if scale not in get_args(Scale):
        raise ConfigurationError("--scale", scale, f"one of {', '.join(get_args(Scale))}")
    if backend not in get_args(BackendName):
        raise ConfigurationError("--backend", backend, f"one of {', '.join(get_args(BackendName))}")
    require_integer("--at-once", at_once, at_least=1)
    play = partial(play_here, backend=backend, at_once=at_once, threads=threads)
    if ray is not None:
        play = partial(play_on_ray, backend=backend, address=None if ray == "local" else ray)
    for one in NAMES if name == "all" else [name]:
        made = figure_of(one)
        errors_to.print(f"{one}: {made.title}", highlight=False)
        with steps_progress(f"figure {one}, points") as progress:
            results = make_figure(one, cast(Scale, scale), out, play, progress)
        typer.echo(made.text(results))
        typer.echo(f"\n{out / f'{one}-{scale}'}.md, .json, .png, .svg\n")


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where `feducb figure` wrote its figures.")],
    out: Path | None = option(None, "The page to write.", shown="DIR/report.html"),
) -> None:
    """Put all figures of a folder on one HTML page: pictures, texts, tables, settings; nothing is fetched."""
    from feducb_lab.experiments.report import make_report

    require_writable("--out", out)
    typer.echo(f"report: {make_report(folder, out)}")


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
