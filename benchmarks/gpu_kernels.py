"""How fast the CUDA kernels play, in agent-steps per second; needs a CUDA device and CuPy.

    python benchmarks/gpu_kernels.py [--rounds 10000000 --paper-rounds 200000] [--json docs/figures/gpu.json]

First each kernel alone, the median of three calls, then whole simulations of the paper's setting (M = 100
agents, d = 10, K = 100, 100 runs): calibrated up to ``--rounds``, and the printed algorithm with its
determinant trigger up to ``--paper-rounds``.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import feducb
from feducb.config import Problem
from feducb.models.confidence import PaperBound
from feducb.models.play import OwnDataPlay, Trigger
from feducb.simulation.backends.backend import Stretch
from feducb.simulation.backends.gpu_kernels import GpuKernels, OwnDataRuns
from feducb.simulation.reference import checkpoints
from feducb.types import Belief
from feducb.worlds.synthetic import PaperEnvironment
from feducb_lab.experiments.measured import write_tables

_RHO = 6.5e6  # Mρ_min at (1, 0.1), T = 1e7, M = 100


def world(dim: int, arms: int) -> PaperEnvironment:
    return PaperEnvironment(problem=Problem(dim=dim), arms=arms)


def belief(runs: int, dim: int, *, records: float, width: float = 0.0) -> Belief:
    """Beliefs as after so many records."""
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((runs, dim, 4 * dim))
    gram = factor @ np.swapaxes(factor, -1, -2) / (4 * dim * dim) * records + np.eye(dim)
    theta = np.eye(dim)[0] + rng.standard_normal((runs, dim)) / np.sqrt(records)
    inverse = np.asarray(np.linalg.inv(gram), dtype=np.float64)
    return Belief(theta, inverse, np.full(runs, 3.0), np.full(runs, width))


def rate(play: Callable[[], object], steps: float, label: str) -> float:
    """Million steps a second."""
    play()  # compile
    times = []
    for _ in range(3):
        started = time.perf_counter()
        play()
        times.append(time.perf_counter() - started)
    seconds = median(times)
    print(f"{label:55s} {seconds:8.3f} s {steps / seconds / 1e6:10.1f} M steps/s", flush=True)
    return steps / seconds / 1e6


def fixed(dim: int, arms: int, rounds: int, kind: str) -> float:
    kernels, runs, agents = GpuKernels(world(dim, arms), seed=1), 100, 100
    records = 1e8 if "late" in kind else 1e3
    known = belief(runs, dim, records=records, width=1.0 if kind == "wide" else 0.0)

    points = checkpoints(rounds).tolist()
    stretch = Stretch(runs=range(runs), agents=agents, first_round=1, points=points)

    def play() -> object:
        full = 0.1 if "tempered" in kind else 1.0
        return kernels.fixed_epoch(
            None if kind == "uniform" else known, stretch, rounds, full=full, defer="late" in kind
        )

    return rate(play, runs * agents * rounds, f"fixed beliefs, d = {dim}, K = {arms}, {kind}")


def own_data(dim: int, arms: int, rounds: int, group: int | None = None) -> float:
    kernels, runs, agents = GpuKernels(world(dim, arms), seed=1), 100, 100
    bound = PaperBound(
        problem=kernels.environment.problem,
        alpha=0.1,
        agents=agents,
        releases=10**7,
        rho_min=_RHO,
        root_rho_max=np.sqrt(agents * 3 * _RHO),
        kappa=4000.0,
    )
    rule = OwnDataPlay(bound=bound, prior=_RHO, trigger=Trigger(threshold=1e12, offset=2 * _RHO))
    points = checkpoints(10**7).tolist()
    stretch = Stretch(runs=range(runs), agents=agents, first_round=1, points=points)
    state = OwnDataRuns(kernels, rule, stretch, group=group)
    return rate(
        lambda: state.advance(np.full(runs, rounds)),
        runs * agents * rounds,
        f"own data, d = {dim}, K = {arms}",
    )


def whole(horizon: int, **setting: Any) -> dict[str, Any]:
    """A simulation of the paper's size, from the first round to the last, through `feducb.simulate`."""
    result = feducb.simulate(
        agents=100, runs=100, dim=10, arms=100, horizon=horizon, backend="gpu", epsilon=1.0, **setting
    )
    name = setting.get("mode", "calibrated")
    print(
        f"{name}, M = 100, 100 runs, T = {horizon:g}, {setting}: {result.seconds:.1f} s, "
        f"{result.agent_steps_per_second / 1e6:.0f} M steps/s, regret {result.mean:,.1f} ± "
        f"{result.stderr or 0.0:.1f}, {result.releases:g} releases per run",
        flush=True,
    )
    return {"seconds": result.seconds, "regret": {"mean": result.mean, "stderr": result.stderr}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10_000_000)
    parser.add_argument("--paper-rounds", type=int, default=200_000)
    parser.add_argument("--scale", type=float, default=1.0, help="of the rounds that kernels are timed on")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rates: dict[str, dict[str, float]] = {}
    runtime: Any = importlib.import_module("cupy").cuda.runtime
    print(runtime.getDeviceProperties(0)["name"].decode())
    scale = options.scale
    for dim, arms, rounds, kind in (
        (10, 100, 10_000, "all arms"),
        (10, 100, 10_000, "all arms, tempered"),
        (10, 100, 10_000, "wide"),
        (20, 100, 5_000, "all arms"),
        (32, 100, 2_000, "all arms"),
        (64, 100, 3_000, "all arms"),
        (128, 100, 2_000, "all arms"),
        (10, 10_000, 100, "all arms"),
        (10, 100, 1_000_000, "late"),
        (10, 100, 1_000_000, "late, tempered"),
        (20, 100, 500_000, "late"),
        (10, 100, 1_000_000, "uniform"),
    ):
        found = fixed(dim, arms, max(1, int(rounds * scale)), kind)
        rates[f"{kind}, d = {dim}, K = {arms}"] = {"million steps/s": found}
    for dim, arms, rounds in (
        (10, 100, 10_000),
        (20, 100, 4_000),
        (32, 100, 1_000),
        (64, 100, 512),
        (128, 100, 64),
        (3, 9, 50_000),
    ):
        found = own_data(dim, arms, max(1, int(rounds * scale)))
        rates[f"own data, d = {dim}, K = {arms}"] = {"million steps/s": found}
    point = {
        "(1, 0.1)": whole(options.rounds, delta=0.1),
        "(1, 1e-6)": whole(options.rounds, delta=1e-6),
        "printed constants": whole(options.paper_rounds, delta=0.1, mode="paper"),
    }
    if options.json:
        tables = {"kernels": rates, "the paper's point": point}
        write_tables(options.json, tables, ["feducb.simulation.runner"])


if __name__ == "__main__":
    main()
