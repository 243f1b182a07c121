"""`feducb simulate`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from feducb.cli.output import errors_to, require_writable, result_table, steps_progress, warnings_for
from feducb.config import Budget, Mode
from feducb.errors import ConfigurationError
from feducb.policies import POLICIES
from feducb.protocol.federation import Baseline, EstimatorsKept
from feducb.simulation import runner
from feducb.simulation.results import SimulationResult
from feducb.trust import require_trust

__all__ = ["read_budgets", "simulate"]


def simulate(
    agents: Annotated[
        int | None,
        typer.Option(help="M, agents in the federation.", show_default="10, or the topology's"),
    ] = None,
    dim: Annotated[int, typer.Option(help="d, length of an action vector.")] = 10,
    arms: Annotated[int | None, typer.Option(help="K, candidates a visitor.", show_default="d²")] = None,
    horizon: Annotated[int, typer.Option(help="T, rounds.")] = 10_000,
    runs: Annotated[int, typer.Option(help="Independent repetitions.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    mode: Annotated[
        str, typer.Option(help="calibrated (private, proven) or paper (printed constants, to compare).")
    ] = "calibrated",
    epsilon: Annotated[float | None, typer.Option(help="ε of every agent.", show_default="1")] = None,
    delta: Annotated[float | None, typer.Option(help="δ of every agent.", show_default="1e-6")] = None,
    budgets: Annotated[
        Path | None,
        typer.Option(help="Per-agent budgets: CSV with columns epsilon,delta or a JSON list of objects."),
    ] = None,
    alpha: Annotated[float, typer.Option(help="α, chance that the confidence bound fails.")] = 0.1,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="geometric[:GROWTH], periodic[:EVERY], every-round, explicit:ROUND,ROUND,… or "
            "determinant[:D] (paper mode only).",
            show_default="geometric; determinant in paper mode",
        ),
    ] = None,
    releases: Annotated[
        int | None,
        typer.Option(
            help="Releases of a geometric or periodic schedule.",
            show_default="64, without privacy 256, or as many as fit",
        ),
    ] = None,
    first_release: Annotated[int, typer.Option(help="First round of a geometric schedule.")] = 8,
    gap: Annotated[
        float, typer.Option(help="Distance between the reward bands of the best and the other arms.")
    ] = 0.1,
    policy: Annotated[str, typer.Option(help=f"How agents choose: {', '.join(POLICIES)}.")] = "optimistic",
    exploration: Annotated[
        float, typer.Option(help="Scales the bonus of the optimistic policy; 1 is the proven bound.")
    ] = 1.0,
    mechanism: Annotated[
        str,
        typer.Option(help="Spreads noise over releases: auto, dense, blt, toeplitz, optimal-tree or tree."),
    ] = "auto",
    trust: Annotated[
        str,
        typer.Option(help="nobody: each agent adds noise; controller: it sees raw sums, adds noise once."),
    ] = "nobody",
    records_per_person: Annotated[
        int | None,
        typer.Option(
            help="Records that one person may have: at an agent, or under --trust controller at all of them "
            "together. Noise is so many times larger.",
            show_default="1",
        ),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            help="A graph of agents in place of a controller: complete:8, ring:16, line:16, star:9, "
            "grid:4x4, tree:2:4, erdos:64:0.1, smallworld:64:4:0.1, or an edge-list file.",
            show_default="none: a controller adds up",
        ),
    ] = None,
    ttl: Annotated[
        int | None,
        typer.Option(help="γ, hops that a message lives; at most the diameter.", show_default="1"),
    ] = None,
    estimators: Annotated[
        str,
        typer.Option(help="On a topology: paper (γ an agent, used in turn) or one (beyond the paper)."),
    ] = "paper",
    backend: Annotated[
        str,
        typer.Option(help="auto (the fastest that can), gpu, cpu, or reference (the readable one)."),
    ] = "auto",
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Keep what is done in this folder; the same command goes on from there."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Worker threads.", show_default="all processors")
    ] = None,
    no_privacy: Annotated[bool, typer.Option("--no-privacy", help="Baseline: raw sums are shared.")] = False,
    alone: Annotated[bool, typer.Option("--alone", help="Baseline: each agent learns by itself.")] = False,
    uniform: Annotated[bool, typer.Option("--uniform", help="Baseline: actions drawn at random.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the result as JSON; - for standard output.")
    ] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Write the regret curve (PNG, SVG, PDF).")
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option(help="Draw each agent alone and uniform play beside it: one run each, for --plot."),
    ] = True,
) -> None:
    """Simulate a federation on one machine and report regret, communication and privacy."""
    require_writable("--json", json_file)
    require_writable("--plot", plot_file, picture=True)
    if budgets is not None and (epsilon is not None or delta is not None):
        raise ConfigurationError("--budgets", str(budgets), "no --epsilon or --delta beside it")
    baseline = _baseline(no_privacy=no_privacy, alone=alone, uniform=uniform)
    promised = (budgets, epsilon, delta, records_per_person)
    if baseline is not None and any(given is not None for given in promised):
        raise ConfigurationError(
            f"--{baseline}", "given", "no --epsilon, --delta, --budgets or --records-per-person beside it"
        )
    settings: dict[str, Any] = {}
    if budgets is not None:
        settings["budgets"] = read_budgets(budgets)
    world: dict[str, Any] = {
        "agents": agents,
        "dim": dim,
        "arms": arms,
        "horizon": horizon,
        "seed": seed,
        "alpha": alpha,
        "gap": gap,
        "backend": backend,
        "threads": threads,
    }
    with steps_progress("simulating") as progress:
        result = runner.simulate(
            **world,
            runs=runs,
            mode=cast(Mode, mode),
            baseline=baseline,
            epsilon=1.0 if epsilon is None else epsilon,
            delta=1e-6 if delta is None else delta,
            schedule=schedule,
            releases=releases,
            first_release=first_release,
            policy=policy,
            exploration=exploration,
            mechanism=mechanism,
            trust=require_trust(trust),
            records_per_person=1 if records_per_person is None else records_per_person,
            topology=topology,
            ttl=ttl,
            estimators=cast(EstimatorsKept, estimators),
            checkpoint=checkpoint,
            note=lambda line: errors_to.print(f"note: {line}", style="yellow", highlight=False),
            progress=progress,
            **settings,
        )
    to_standard_output = json_file is not None and str(json_file) == "-"
    (errors_to if to_standard_output else Console(markup=False)).print(result_table(result))
    for warning in warnings_for(result):
        errors_to.print(f"note: {warning}", style="yellow", highlight=False)
    if to_standard_output:
        typer.echo(result.to_json(), nl=False)
    elif json_file is not None:
        result.to_json(json_file)
    if plot_file is not None:
        result.plot(
            plot_file, beside=_beside(world | {"agents": result.config["agents"]}) if baselines else ()
        )


def _beside(world: dict[str, Any]) -> list[SimulationResult]:
    """What a federation must beat, in the same world: agents alone, and uniform play; one run is enough."""
    with steps_progress("baselines") as progress:
        names: tuple[Baseline, ...] = ("alone", "uniform")
        return [runner.simulate(**world, runs=1, baseline=name, progress=progress) for name in names]


def _baseline(*, no_privacy: bool, alone: bool, uniform: bool) -> Baseline | None:
    asked = {"--no-privacy": no_privacy, "--alone": alone, "--uniform": uniform}
    given = [flag for flag, on in asked.items() if on]
    if len(given) > 1:
        raise ConfigurationError("baseline", " ".join(given), "at most one of " + ", ".join(asked))
    return cast(Baseline, given[0].removeprefix("--")) if given else None


def read_budgets(path: Path) -> list[Budget]:
    """Read one (epsilon, delta) an agent from CSV (with a header) or from a JSON list."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else list(csv.DictReader(text.splitlines(), skipinitialspace=True))
        )
        return [Budget(epsilon=float(row["epsilon"]), delta=float(row["delta"])) for row in rows]
    except ConfigurationError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            "--budgets", str(path), f"CSV with the columns epsilon,delta or a JSON list of objects ({error})"
        ) from None
