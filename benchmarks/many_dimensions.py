"""One decision of an agent that has learnt from so many records, against plain numpy: d = 50, K = 100.

    python benchmarks/many_dimensions.py

Processor time of one thread, blocks of 256 visitors in turn; the ratio is the median of 15 pairs.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from threadpoolctl import threadpool_limits

from feducb_lab.bench.rivals import Feducb, NumpyTuned, Peer

DIM, ARMS, VISITORS, PAIRS = 50, 100, 256, 15


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    drawn = rng.standard_normal(shape)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=-1, keepdims=True))


def microseconds(peer: Peer, visitors: list[np.ndarray]) -> float:
    begun = time.process_time()
    for actions in visitors:
        peer.decide(actions)
    return 1e6 * (time.process_time() - begun) / len(visitors)


def compare(records: int) -> None:
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
    pairs = [(microseconds(ours, visitors), microseconds(numpy, visitors)) for _ in range(PAIRS)]
    middle = [statistics.median(one) for one in zip(*pairs, strict=True)]
    ratio = statistics.median(other / own for own, other in pairs)
    print(f"{records:5} records: {middle[0]:5.1f} µs, numpy {middle[1]:5.1f} µs, {ratio:.2f} times as fast")


if __name__ == "__main__":
    with threadpool_limits(1):
        for count in (100, 300, 1000, 3000):
            compare(count)
