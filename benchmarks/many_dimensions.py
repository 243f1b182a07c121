"""One decision of an agent that has learnt from so many records, against plain numpy: d = 50, K = 100.

    python benchmarks/many_dimensions.py [--json docs/figures/many-dimensions.json]

Processor time of one thread, blocks of 256 visitors in turn; ratios are medians of 15 rounds. Plain numpy
plays LinUCB, the fastest of three ways (`feducb bench`). The tempered decision, which is the default, is held
against that too, though it also tells the chance of what it chose; the policy's own numpy does the same.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from feducb.policies import Tempered
from feducb_lab.bench.rivals import Feducb, NumpyTuned
from feducb_lab.experiments.measured import write_tables

DIM, ARMS, VISITORS, PAIRS = 50, 100, 256, 15


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    drawn = rng.standard_normal(shape)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=-1, keepdims=True))


def microseconds(decide: Callable[[Any], object], visitors: Sequence[Any]) -> float:
    begun = time.process_time()
    for visitor in visitors:
        decide(visitor)
    return 1e6 * (time.process_time() - begun) / len(visitors)


def compare(records: int) -> dict[str, float]:
    """Microseconds, and how many times as fast as plain numpy."""
    rng = np.random.default_rng(0)
    theta, ours, numpy = unit(rng, DIM), Feducb(), NumpyTuned()
    visitors = [unit(rng, ARMS, DIM) for _ in range(VISITORS)]
    for peer in (ours, numpy):
        peer.start(DIM, ARMS)
    for _ in range(records):
        actions = unit(rng, ARMS, DIM)
        for peer in (ours, numpy):
            index = peer.decide(actions)
            peer.learn(actions, index, float(actions[index] @ theta))
    decider, policy = ours._decider, Tempered()
    coins = list(zip(visitors, rng.random(VISITORS).tolist(), strict=True))
    rounds = [
        (
            microseconds(numpy.decide, visitors),
            microseconds(decider.decide, visitors),
            microseconds(lambda one: decider.temper(one[0], one[1], policy), coins),
            microseconds(
                lambda one: policy.decide(decider.belief, one[0][None], np.array([one[1]])), coins[:32]
            ),
        )
        for _ in range(PAIRS)
    ]
    plain, best, tempered, policys = (statistics.median(one) for one in zip(*rounds, strict=True))
    as_fast = [statistics.median(one[0] / one[other] for one in rounds) for other in (1, 2)]
    print(
        f"{records:5} records: numpy {plain:.1f} µs; optimistic {best:.1f} µs, {as_fast[0]:.2f} times; "
        f"tempered {tempered:.1f} µs, {as_fast[1]:.2f} times (in numpy {policys:.0f} µs)"
    )
    found = {"optimistic": as_fast[0], "tempered": as_fast[1], "optimistic, µs": best}
    found |= {"tempered, µs": tempered, "tempered in numpy, µs": policys, "numpy, µs": plain}
    return {name: float(f"{value:.3g}") for name, value in found.items()}


def main() -> None:
    """Printed, and written if asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    with threadpool_limits(1):
        for count in (10, 30, 100, 300, 1000, 3000):
            for name, value in compare(count).items():
                rows.setdefault(name, {})[f"{count:,}"] = value
    if asked.json:
        write_tables(
            asked.json, {"after so many records": rows}, ["feducb.policies", "feducb_lab.bench.rivals"]
        )


if __name__ == "__main__":
    main()
