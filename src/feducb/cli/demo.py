"""`feducb demo`: a private federation beside what it must be compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from feducb.cli.options import Seed, Threads, option
from feducb.cli.output import counted, regret_text, require_writable, steps_progress
from feducb.simulation import runner
from feducb.simulation.regret_plot import plot_curves
from feducb.simulation.results import SimulationResult

__all__ = ["demo"]

_SETTING: dict[str, Any] = {"dim": 8, "arms": 16, "runs": 2}
_VARIANTS: tuple[dict[str, Any], ...] = (
    {"mode": "paper"},
    {"baseline": "alone"},
    {},
    {"baseline": "no-privacy"},
)
_SECURE_SUMS, _SECURE = {"trust": "keepers"}, "feducb (secure sums)"
_FEWEST = 3  # agents with secure sums: one may collude, and two shares of noise are left


def demo(
    out: Path = option(Path("demo.png"), "Where to write the picture."),
    agents: int = option(200, "M, agents in the federation."),
    horizon: int = option(1500, "T, rounds."),
    epsilon: float = option(1.0, "ε of every agent."),
    delta: float = option(1e-6, "δ of every agent."),
    seed: Seed = 0,
    threads: Threads = None,
) -> None:
    """Compare private federations with the paper's constants, each agent alone, and no privacy."""
    require_writable("--out", out, picture=True)
    console = Console(markup=False)
    results: dict[str, SimulationResult] = {}
    setting = _SETTING | {"agents": agents, "horizon": horizon, "epsilon": epsilon, "delta": delta}
    setting |= {"seed": seed, "threads": threads}
    for variant in (*_VARIANTS, _SECURE_SUMS) if agents >= _FEWEST else _VARIANTS:
        with steps_progress(next(iter(variant.values()), "calibrated")) as progress:
            result = runner.simulate(**setting, **variant, progress=progress)
        label = _SECURE if variant == _SECURE_SUMS else result.label
        results[label] = result
        console.print(f"{label:>24}: regret {regret_text(result)} ({result.seconds:.1f} s)")
    console.print(_table(results))
    private, alone = results["feducb (calibrated)"], results["each agent alone"]
    better = private.mean < alone.mean
    verdict = (
        f"At ε = {epsilon:g}, δ = {delta:g} with {counted(agents, 'agent')}, federating "
        f"{'pays' if better else 'does not pay'}: the average agent loses {private.mean:,.1f} "
        f"where it would lose {alone.mean:,.1f} alone"
    )
    verdict += f", and {results[_SECURE].mean:,.1f} with secure sums." if _SECURE in results else "."
    console.print(verdict)
    plot_curves(
        results,
        title="A private federation learns",
        subtitle=f"{counted(agents, 'agent')}, d = {_SETTING['dim']}, K = {_SETTING['arms']}, "
        f"ε = {epsilon:g}, δ = {delta:g} for every agent, nobody trusted; mean of {_SETTING['runs']} runs",
        path=out,
    )
    console.print(f"picture: {out}", highlight=False)


def _table(results: dict[str, SimulationResult]) -> Table:
    table = Table(title="Regret of the average agent", title_justify="left")
    table.add_column("")
    for heading in ("regret", "releases", "messages"):
        table.add_column(heading, justify="right")
    table.add_column("private")
    for label, result in sorted(results.items(), key=lambda entry: entry[1].mean):
        private = "yes" if result.privacy["holds"] else "no"
        if result.config["baseline"] == "alone":
            private = "yes (nothing leaves)"
        table.add_row(label, regret_text(result), f"{result.releases:g}", f"{result.messages:,.0f}", private)
    return table
