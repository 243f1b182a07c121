"""How often is something said for sure of a log in which nothing matters? At most 5 % is promised.

    python benchmarks/evaluate_nothing.py                    200 logs (some minutes)
    python benchmarks/evaluate_nothing.py --effect 0.12      logs in which something does: what is found

2 to 5 actions, 200 to 5,000 rows, 2 to 20 agents, one or two numbers of context, rewards of two values or of
many, propensities constant or varying. Exits with 1 if the 99.9 % interval of the rate lies above 5 %.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from feducb.evaluation import FrameLog, LogColumns, Study, compare_on_log, survey
from feducb.evaluation.survey import parse_context
from feducb_lab.experiments.measured import write_tables

PROMISED = 0.05
COLUMNS = LogColumns(agent="agent", action="action", reward="reward", propensity="p")
ACTIONS = "abcde"
SURE = {
    "the highest surely above the fixed policy": ", surely more than",
    "the highest surely below it": ", surely less than",
    "a private federation wins": ", wins (",
    "a private federation loses": ", loses (",
    "no privacy earns more": "federation without privacy earns more than",
    "no privacy earns less": "federation without privacy earns less than",
    "Federate": "Federate:",
}


def make(seed: int, effect: float) -> tuple[pd.DataFrame, list[str], tuple[str, ...]]:
    """A log, its context as `parse_context` takes it, and its actions.

    With an effect the first action earns so much more than one half where the context is above one half, and
    so much less elsewhere; for the other actions it is the other way round.
    """
    rng = np.random.default_rng([17, seed])
    arms, agents = int(rng.integers(2, 6)), int(rng.integers(2, 21))
    rows = round(math.exp(rng.uniform(math.log(200), math.log(5000))))
    varying, numbers = rng.random() < 0.5, int(rng.integers(1, 3))
    chances = np.full((rows, arms), 1.0 / arms)
    if varying:
        chances = 0.1 / arms + 0.9 * rng.dirichlet(np.full(arms, 3.0), rows)
    context = rng.random((rows, numbers))
    action = (rng.random(rows)[:, None] > chances.cumsum(axis=1)).sum(axis=1).clip(0, arms - 1)
    right = np.where((context[:, 0] > 0.5) == (action == 0), 1.0, -1.0)
    mean = 0.5 + effect * right if effect else np.full(rows, rng.uniform(0.2, 0.8))
    reward = (rng.random(rows) < mean).astype(float)
    if rng.random() < 0.5:
        reward = np.clip(mean + 0.2 * rng.standard_normal(rows), 0.0, 1.0)
    columns = {
        "agent": [f"agent {one}" for one in rng.integers(0, agents, rows)],
        "action": np.array(list(ACTIONS))[action],
        "reward": reward,
        "p": chances[np.arange(rows), action],
    }
    numbered = {f"x{one}": context[:, one] for one in range(numbers)}
    return pd.DataFrame(columns | numbered), [f"{name}:0:1" for name in numbered], tuple(ACTIONS[:arms])


def said(seed: int, effect: float) -> list[str]:
    """What is said for sure of one log."""
    frame, context, actions = make(seed, effect)
    log = FrameLog(frame)
    found = survey(log, COLUMNS, context=parse_context(context), actions=actions)
    verdict = compare_on_log(log, found, study=Study(seed=seed)).verdict()
    return [name for name, words in SURE.items() if words in verdict]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first log")
    parser.add_argument("--effect", type=float, default=0.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = [said(arguments.first + one, arguments.effect) for one in range(arguments.logs)]
    some = sum(bool(one) for one in found)
    test = binomtest(some, len(found))
    low, high = test.proportion_ci(0.95)
    print(f"something is sure in {some} of {len(found)} logs ({100 * low:.1f} to {100 * high:.1f} %)")
    for name, count in Counter(name for one in found for name in one).most_common():
        print(f"{count:6}  {name}")
    if arguments.json:
        found_in = {"logs": len(found), "sure": some, "low, %": 100 * low, "high, %": 100 * high}
        tables = {"something is sure": {f"effect {arguments.effect:g}": found_in}}
        write_tables(arguments.json, tables, ["feducb.evaluation"])
    if not arguments.effect and test.proportion_ci(0.999).low > PROMISED:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
