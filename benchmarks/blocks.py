"""What a model with blocks costs a deployed agent: ten letters, seventeen weights each, d = 170 (`letter`).

    python benchmarks/blocks.py                          # milliseconds of processor time
    python benchmarks/blocks.py --before ../other/src    # beside another version's source, in turns

An agent alone with a recipe of terms per letter: making a release, reading it (confidence set, warnings, what
was learnt, the decider), and a decision by it, durable but without waiting for the disk.
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

import numpy as np

LETTERS, COLUMNS, RELEASES, DECISIONS = 10, 16, 12, 200
RECIPE = {
    "format": "feducb-recipe",
    "version": 1,
    "context": [{"kind": "number", "name": f"x{i}", "low": 0, "high": 15} for i in range(COLUMNS)],
    "action": [{"kind": "category", "name": "letter", "levels": [chr(65 + i) for i in range(LETTERS)]}],
    "terms": ["letter", *(f"letter*x{i}" for i in range(COLUMNS))],
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


def measure() -> dict[str, float]:
    """Medians in milliseconds, by what is done."""
    from feducb.agent import Agent
    from feducb.agent.agent_file import read_agent_file
    from feducb.protocol import messages

    rng = np.random.default_rng(0)
    took: dict[str, list[float]] = {"release": [], "reading": [], "decision": []}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "recipe.json").write_text(json.dumps(RECIPE))
        (Path(folder) / "agent.toml").write_text(AGENT.format(releases=RELEASES))
        settings = read_agent_file(Path(folder) / "agent.toml").agent
        now = 1e9
        with Agent.open(Path(folder) / "agent.db", settings, clock=lambda: now) as agent:
            for _ in range(RELEASES):
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
                now += 2.0
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
    # Before the first sum that is worth reading nothing is learnt: the last half counts.
    return {name: statistics.median(times[RELEASES // 2 :]) for name, times in took.items()}


def in_a_process(source: Path | None) -> dict[str, float]:
    """`measure` of another version, or of this one, in a process of its own."""
    paths = {} if source is None else {"PYTHONPATH": str(source)}
    command = [sys.executable, __file__, "--measure"]
    told = subprocess.run(command, env=os.environ | paths, check=True, capture_output=True, text=True)
    return {name: float(value) for name, value in json.loads(told.stdout).items()}


def main(before: Path | None, rounds: int) -> None:
    """Print medians over rounds, and ratios of pairs."""
    pairs = [(in_a_process(None), before and in_a_process(before.resolve())) for _ in range(rounds)]
    for name in pairs[0][0]:
        line = f"{name:9}{statistics.median(own[name] for own, _ in pairs):8.3f} ms"
        if before is not None:
            ratio = statistics.median(other[name] / own[name] for own, other in pairs if other)
            past = statistics.median(other[name] for _, other in pairs if other)
            line += f", before {past:.3f} ms: {ratio:.2f} times as fast"
        print(line)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="the src folder of another version")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure()))
    else:
        main(arguments.before, arguments.rounds)
