"""`feducb figure`, `feducb report` and `feducb bench`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
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
    processes: int = option(
        1, "Play points in so many processes, each on one thread if nothing else is said."
    ),
    ray: str | None = option(
        None, "Play points on Ray: local, or the address of a cluster (needs the extra ray)."
    ),
    seed: int = option(0, "Added to the seed of every point: other runs of the same points."),
    runs: int | None = option(None, "Runs of every point.", shown="as the scale has it"),
) -> None:
    """Play an experiment's points and write its picture, its numbers and what they say.

    1a, 1b, 1c and gap are the paper's; each says which of its claims held. Points are kept in OUT/points: the
    same command goes on where it was stopped, and plays nothing twice.
    """
    from feducb_lab.experiments.on_ray import play_on_ray
    from feducb_lab.experiments.run import make_figure
    from feducb_lab.experiments.sweep import play_apart, play_here

    _require_scale(scale)
    if backend not in get_args(BackendName):
        raise ConfigurationError("--backend", backend, f"one of {', '.join(get_args(BackendName))}")
    require_integer("--at-once", at_once, at_least=1)
    require_integer("--processes", processes, at_least=1)
    require_integer("--seed", seed, at_least=0)
    if threads is not None:
        require_integer("--threads", threads, at_least=1)
    if runs is not None:
        require_integer("--runs", runs, at_least=2)
    play = partial(play_here, backend=backend, at_once=at_once, threads=threads)
    if processes > 1:
        play = partial(play_apart, backend=backend, processes=processes, threads=threads or 1)
    if ray is not None:
        play = partial(play_on_ray, backend=backend, address=None if ray == "local" else ray)
    for one in NAMES if name == "all" else [name]:
        made = figure_of(one)
        errors_to.print(f"{one}: {made.title}", highlight=False)
        with steps_progress(f"figure {one}, points") as progress:
            results = make_figure(one, cast(Scale, scale), out, play, progress, seed=seed, runs=runs)
        typer.echo(made.text(results))
        typer.echo(f"\n{out / f'{one}-{scale}'}.md, .json, .png, .svg\n")


def _require_scale(scale: str) -> None:
    if scale not in get_args(Scale):
        raise ConfigurationError("--scale", scale, f"one of {', '.join(get_args(Scale))}")


def report(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Where figures are, or are to be made.")
    ] = None,
    out: Path | None = option(None, "The page to write.", shown="DIR/report.html"),
    everything: bool = option(False, "First make all figures and tables, into DIR (report).", "--everything"),
    scale: str = option("quick", "With --everything: quick (minutes) or full (hours, and a GPU)."),
    docs: Path | None = option(None, "Write the numbers of this folder's JSON files into its pages instead."),
) -> None:
    """Put all figures of a folder on one HTML page: pictures, texts, tables, settings; nothing is fetched.

    With --everything all of them are made first, and the paper's claims judged by them. What the code that is
    here has made is not made again, so that the same command goes on where it was stopped. --docs docs brings
    the documentation's tables and sentences up to date with docs/figures and docs/real-data, and says which
    of their files are older than the code.
    """
    from feducb_lab.experiments.everything import make_everything
    from feducb_lab.experiments.report import make_report
    from feducb_lab.experiments.sweep import play_here
    from feducb_lab.pages.documentation import older, write_pages

    require_writable("--out", out)
    _require_scale(scale)
    if docs is not None:
        for path in write_pages(docs):
            typer.echo(f"written: {path}")
        for name in older(docs):
            errors_to.print(f"older than the code, all or in part: {name}", highlight=False)
        return
    if everything:
        folder = folder or Path("report")
        with ExitStack() as shown:

            def watch(name: str) -> Callable[[int, int], None]:
                shown.close()
                errors_to.print(name, highlight=False)
                return shown.enter_context(steps_progress(name))

            _, left_out = make_everything(cast(Scale, scale), folder, play_here, watch)
        for name, reason in left_out.items():
            errors_to.print(f"left out: {name}: {reason}", highlight=False)
    elif folder is None:
        raise ConfigurationError("DIR", None, "a folder with figures, or --everything")
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
