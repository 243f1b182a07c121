"""What `feducb privacy plan` predicts from: simulated seasons, a table fitted to them, and its error.

    python benchmarks/plan_table.py [--minutes 6] [--processes N] [--seasons 400]
        [--json docs/figures/plan-points.json]

A season is d, K, visitors, agents, ε and a trust, log-uniform within `RANGE`, in the paper's world; one in
which nothing released is worth reading is drawn again, since a plan needs no simulation to say so. Each
is played by `plan_privacy`, as `feducb privacy plan` does. 30 further ones, drawn from another
stream and looked at once the table was fitted, say how far off it is: each at its own number of agents, and,
as time allows, at others by bisection, so that the least number of agents with which federating pays is known
from simulation too. What is in the
JSON file is not played again.

`python benchmarks/plan_fit.py` fits the table to them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import chain, islice
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import numpy as np

from feducb.simulation import planning
from feducb.simulation.planning import plan_privacy
from feducb.simulation.predicting import RANGE
from feducb.simulation.public_numbers import numbers_of, season_of
from feducb.system import write_atomically
from feducb_lab.experiments.provenance import made_by

HELD_OUT = 30
TRUSTS = ("nobody", "keepers", "controller")
LADDER = [round(2 ** (step / 2)) for step in range(3, 21)]  # 3, 4, 6, 8, … 1,024 agents
# Core-seconds of own play: of a season that is fitted to, of one that is not, of a decision at d K = 1,000.
FITTED_S, HELD_S, OWN_S = 10.0, 10.0, 6e-6
POINTS = Path("docs/figures/plan-points.json")


def drawn(stream: str, number: int) -> dict[str, Any]:
    """A season: the same for the same stream and number, whatever was drawn before."""
    rng = np.random.default_rng([sum(stream.encode()), number])
    while True:
        setting: dict[str, Any] = {
            name: round(math.exp(rng.uniform(*np.log(RANGE[name]))))
            for name in ("dim", "arms", "visitors", "agents")
        }
        setting["epsilon"] = float(f"{math.exp(rng.uniform(*np.log(RANGE['epsilon']))):.2g}")
        setting |= {"delta": 1e-6, "trust": TRUSTS[rng.integers(3)]}
        if readable(setting):
            return setting


def readable(setting: dict[str, Any]) -> bool:
    """Whether there is something to simulate."""
    numbers = numbers_of(season_of(**setting))
    return numbers.readable or bool(numbers.closes)


def play(name: str, setting: dict[str, Any], budget: float) -> tuple[str, dict[str, Any]]:
    """A plan of this season; own play only where it fits into so many seconds."""
    started, size = time.process_time(), setting["dim"] * setting["arms"] / 1000.0
    one = OWN_S * max(size, 0.3) * setting["agents"] * setting["visitors"]
    afforded = 5 * one <= budget
    runs = int(min(max(budget / one, 5), 20)) if afforded else 10
    season = season_of(**setting, play=None if afforded else "released")
    lasts = {"seed": int(name.split("-")[1]), "runs": runs}
    planned = plan_privacy(season, runs=runs, seed=lasts["seed"])
    regret = planned["regret"]
    kept: dict[str, Any] = {
        "setting": setting,
        **lasts,
        "both": afforded,
        "pays_after": planned["pays_after"],
    }
    kept |= {"play": planned["play"], "seconds": round(time.process_time() - started, 2)}
    if regret is not None:
        kept |= {key: round(regret[key], 4) for key in ("alone", "alone_stderr", "saved", "saved_margin")}
        kept["by_play"] = {
            who: [round(one["mean"], 4), round(one["stderr"], 4)] for who, one in regret["by_play"].items()
        }
    return name, kept


def pays(point: dict[str, Any]) -> bool:
    """Whether the better play loses less than an agent alone, by their means."""
    return "by_play" in point and min(mean for mean, _ in point["by_play"].values()) < point["alone"]


def next_step(number: int, found: dict[str, Any]) -> tuple[str, dict[str, Any], float] | None:
    """What is to be played next of a season that is not fitted to; None if its crossing is known."""
    setting = drawn("held out", number)
    if (name := f"held-{number}") not in found:
        return name, setting, HELD_S
    low, high = -1, len(LADDER)  # the last that does not pay, the first that does
    while high - low > 1:
        middle = (low + high) // 2
        more = setting | {"agents": LADDER[middle]}
        key = f"held-{number}-{LADDER[middle]}"
        if key not in found:
            return key, more, HELD_S
        low, high = (low, middle) if pays(found[key]) else (middle, high)
    return None


def fitted_steps(seasons: int, found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Those that the table is fitted to."""
    for number in range(seasons):
        if (name := f"fit-{number}") not in found:
            yield name, drawn("fitted", number), FITTED_S


def one_core(free: SimpleQueue[int]) -> None:
    """A process keeps to a processor, so that its simulations take one thread."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {free.get()})


def play_all(found: dict[str, Any], asked: argparse.Namespace) -> None:
    """Until time is up; a season that is held out goes on as its steps come in."""
    end, pending = time.monotonic() + 60.0 * asked.minutes, set[Future[Any]]()
    first = [step for number in range(HELD_OUT) if (step := next_step(number, found)) is not None]
    left = chain(first, fitted_steps(asked.seasons, found))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # many small simulations: a processor each is faster
    free: SimpleQueue[int] = get_context("spawn").SimpleQueue()
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    for number in range(asked.processes):
        free.put(cores[number % len(cores)])
    with ProcessPoolExecutor(asked.processes, get_context("spawn"), one_core, (free,)) as pool:
        pending |= {pool.submit(play, *step) for step in islice(left, asked.processes + 2)}
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                name, found[name] = future.result()[0], future.result()[1]
                if name.startswith("held-"):
                    more = next_step(int(name.split("-")[1]), found)
                    left = left if more is None else chain(left, [more])
                if time.monotonic() < end and (step := next(left, None)) is not None:
                    pending.add(pool.submit(play, *step))
            write(asked.json, found)


def write(path: Path, found: dict[str, Any]) -> None:
    made = made_by("python benchmarks/plan_table.py", [planning.__name__])
    rows = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(found[name], ensure_ascii=False)}" for name in sorted(found)
    )
    write_atomically(path, f'{{"made": {json.dumps(made)},\n"points": {{\n{rows}\n}}}}\n')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seasons", type=int, default=400)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--json", type=Path, default=POINTS)
    asked = parser.parse_args()
    found = json.loads(asked.json.read_text(encoding="utf-8"))["points"] if asked.json.exists() else {}
    play_all(found, asked)
    print(f"{len(found)} points, {sum(one['seconds'] for one in found.values()) / 60:.1f} core-minutes")


if __name__ == "__main__":
    main()
