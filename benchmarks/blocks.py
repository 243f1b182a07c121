"""What a model with blocks costs a deployed agent: ten letters, seventeen weights each, d = 170 (`letter`).

    python benchmarks/blocks.py                          # milliseconds of processor time
    python benchmarks/blocks.py --shared                 # ten shared weights and sixteen of each letter
    python benchmarks/blocks.py --full                   # beside a full Gram, in turns
    python benchmarks/blocks.py --before ../other/src    # beside another version's source, in turns
    python benchmarks/blocks.py --json docs/figures/blocks.json   # both layouts, each beside a full Gram

An agent alone with a recipe of terms per letter: making a release, reading it (confidence set, warnings, what
was learnt, the decider), and a decision by it, durable but without waiting for the disk. "own" is reading own
records and the others' sum together, as after the close under own play: `JointBound.weigh` by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

LETTERS, COLUMNS, RELEASES, DECISIONS = 10, 16, 12, 200
RECIPE = {
    "format": "feducb-recipe",
    "version": 1,
    "context": [{"kind": "number", "name": f"x{i}", "low": 0, "high": 15} for i in range(COLUMNS)],
    "action": [{"kind": "category", "name": "letter", "levels": [chr(65 + i) for i in range(LETTERS)]}],
}
BLOCKS = ["letter", *(f"letter*x{i}" for i in range(COLUMNS))]
ARROW = [*(f"x{i}" for i in range(6, COLUMNS)), "letter", *(f"letter*x{i}" for i in range(COLUMNS - 1))]

LAYOUTS = {"ten blocks of 17": (), "ten shared, ten blocks of 16": ("--shared",)}
NAMES = {
    "numbers": "released numbers",
    "release": "making a release, ms",
    "reading": "reading it, ms",
    "decision": "a durable decision, ms",
    "own": "own records and others' sum together, ms",
}

AGENT = """
version = 1
[agent]
store = "agent.db"
[problem]
recipe = "recipe.json"
[privacy]
epsilon = 8.0
delta = 1e-6
[releases]
releases = {releases}
season = "1h"
[rewards]
window = "1s"
"""


def measure(shared: bool, full: bool) -> dict[str, float]:
    """How many numbers are released, and medians in milliseconds, by what is done."""
    from feducb.agent import Agent, promised_terms
    from feducb.agent.agent_file import read_agent_file
    from feducb.models import LINEAR
    from feducb.protocol import messages

    if full:  # as if nothing were known to be zero
        setattr(promised_terms, "model_of", lambda recipe, spaced: LINEAR)  # noqa: B010
    rng = np.random.default_rng(0)
    took: dict[str, list[float]] = {"release": [], "reading": [], "decision": [], "own": []}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "recipe.json").write_text(json.dumps(RECIPE | {"terms": ARROW if shared else BLOCKS}))
        (Path(folder) / "agent.toml").write_text(AGENT.format(releases=RELEASES))
        settings = read_agent_file(Path(folder) / "agent.toml").agent
        now = 1e9
        with Agent.open(Path(folder) / "agent.db", settings, clock=lambda: now) as agent:
            for due in settings.release_times:
                visitors = [
                    {f"x{i}": float(x) for i, x in enumerate(row)}
                    for row in rng.integers(16, size=(DECISIONS, COLUMNS))
                ]
                with agent.writing():
                    begun = time.process_time()
                    made = [agent.decide(context=one) for one in visitors]
                    took["decision"].append(1e3 * (time.process_time() - begun) / DECISIONS)
                    for one in made:
                        agent.reward(one.id, float(rng.random() < 0.5))
                now = max(now + 2.0, agent.started_at + due)
                agent.settle_some()
                begun = time.process_time()
                agent.release()
                took["release"].append(1e3 * (time.process_time() - begun))
                (parcel,) = agent.outbox()
                begun = time.process_time()
                agent.absorb(messages.decode(parcel.released()))
                took["reading"].append(1e3 * (time.process_time() - begun))
                agent.mark_sent(parcel)
            assert agent.snapshot()["learning"] == [0]
            numbers = agent.store.terms.model.coordinates(settings.problem.dim)
            took["own"] = read_own(agent.store.terms.model, settings.problem.dim)
    # Before the first sum that is worth reading nothing is learnt: the last half counts.
    medians = {name: statistics.median(times[RELEASES // 2 :]) for name, times in took.items() if times}
    return {"numbers": numbers, **medians}


def read_own(model: Any, dim: int) -> list[float]:
    """Milliseconds of reading 1,000 own records and 3,000 of others, under noise, as an agent does."""
    from feducb.config import Problem
    from feducb.models.joint import JointBound, Others
    from feducb.models.mixture import MixtureBound
    from feducb.types import Statistics

    if not hasattr(JointBound, "weigh"):  # an earlier version
        return []
    rng, problem = np.random.default_rng(0), Problem(dim=dim, noise_scale=0.5)
    actions = rng.standard_normal((4000, dim))
    if hasattr(model, "nearest"):
        actions = model.nearest(actions)
    actions /= np.linalg.norm(actions, axis=1, keepdims=True)
    rewards = actions @ np.full(dim, dim**-0.5) + 0.5 * rng.standard_normal(4000)
    own, others = (
        model.flatten(actions[some], rewards[some], 1.0).sum(axis=0)
        for some in np.split(np.arange(4000), [1000])
    )
    others += 2.0 * rng.standard_normal(len(others))
    gram, moment = model.read(own, dim=dim, weight=1.0)
    records = Statistics(gram, moment, 1000)
    total = model.read(others, dim=dim, weight=1.0)
    bound = JointBound(
        alone=MixtureBound(problem=problem, log_threshold=5.0),
        variance=4.0,
        evenly=3000 / dim,
        weight=0.5,
        distance=0.1,
        tolerance=0.1,
        looks=0,
        log_threshold=5.0,
        gram_radius=8.0,
        residual=4.0,
    )
    took = []
    for _ in range(2 * RELEASES):
        begun = time.process_time()
        bound.weigh(records, Others.of(*total))
        took.append(1e3 * (time.process_time() - begun))
    return took


def in_a_process(source: Path | None, *flags: str) -> dict[str, float]:
    """`measure` of another version, or of this one, in a process of its own."""
    paths = {} if source is None else {"PYTHONPATH": str(source)}
    command = [sys.executable, __file__, "--measure", *flags]
    told = subprocess.run(command, env=os.environ | paths, check=True, capture_output=True, text=True)
    return {name: float(value) for name, value in json.loads(told.stdout).items()}


def compare(flags: tuple[str, ...], source: Path | None, rounds: int, *, full: bool) -> dict[str, Any]:
    """Medians over rounds, and ratios of pairs: printed too."""
    compared, past = bool(source or full), flags + ("--full",) * full
    pairs = [
        (in_a_process(None, *flags), in_a_process(source, *past) if compared else {}) for _ in range(rounds)
    ]
    rows: dict[str, dict[str, float]] = {}
    for name in pairs[0][0]:
        row = rows[NAMES[name]] = {"here": statistics.median(own[name] for own, _ in pairs)}
        line = f"{name:9}{row['here']:10.3f}"
        if name in pairs[0][1]:
            row["other"] = statistics.median(other[name] for _, other in pairs)
            row["times"] = statistics.median(other[name] / own[name] for own, other in pairs)
            line += f", before {row['other']:.3f}: {row['times']:.2f} times"
        print(line, flush=True)
    return {name: {key: float(f"{value:.5g}") for key, value in row.items()} for name, row in rows.items()}


def main(asked: argparse.Namespace) -> None:
    """As asked for; what is written is all that the page has."""
    if asked.json:
        from feducb_lab.experiments.measured import write_tables  # another version may not have it

        tables = {name: compare(flags, None, asked.rounds, full=True) for name, flags in LAYOUTS.items()}
        write_tables(asked.json, tables, ["feducb.agent", "feducb.models"])
        return
    source = None if asked.before is None else asked.before.resolve()
    compare(("--shared",) * asked.shared, source, asked.rounds, full=asked.full)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="the src folder of another version")
    parser.add_argument("--full", action="store_true", help="beside a model without known zeros")
    parser.add_argument("--shared", action="store_true", help="some weights are shared by all letters")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.shared, arguments.full)))
    else:
        main(arguments)
