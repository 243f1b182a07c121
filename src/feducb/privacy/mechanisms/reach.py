"""How far several records of one person move a stream, if no two of them share a batch.

Records in batches J, of moves D_i, move E·b by (Σ_ij (EᵀE)_ij ⟨D_i, D_j⟩)^½: at most Δ(Σ_ij |EᵀE|_ij)^½ if
none is longer than Δ (docs/theory.md, 2). With p records anywhere that is pΔ; apart, their columns point
different ways, and it is less. Here is the largest Σ over all J of at most p batches, any two at least ℓ
apart.
"""

from __future__ import annotations

import heapq
import math
from functools import lru_cache

import numpy as np

from feducb.privacy.mechanisms.mechanism import Mechanism
from feducb.types import Array

__all__ = ["largest_sum", "person_reach"]

_MOST_RELEASES = 1024  # columns of E are compared in pairs; beyond, p stands
_MOST_NODES = 20_000  # of the search; a second or two
_MARGIN = 1e-9  # for rounding here, and for an encoder in whole numbers or computed elsewhere


@lru_cache(maxsize=64)
def person_reach(mechanism: Mechanism, records: int, spacing: int) -> float:
    """How far p records of one person move the stream at most, in moves of one record: from 1 to p.

    Args:
        mechanism: E.
        records: p.
        spacing: ℓ, any two of them are in batches at least so many apart; 0: they are anywhere.

    Guarantees:
        Never less than the true maximum. Columns count as 1 long, so that what else a batch shows at the
        price of its own column is covered too (`privacy.tally`).
    """
    if records == 1 or spacing == 0 or mechanism.releases > _MOST_RELEASES:
        return float(records)
    encoder = mechanism.encoder()
    products = np.abs(encoder.T @ encoder)
    np.fill_diagonal(products, 1.0)
    return min(float(records), math.sqrt(largest_sum(products, records, spacing)) * (1.0 + _MARGIN))


def largest_sum(products: Array, records: int, spacing: int, *, nodes: int = _MOST_NODES) -> float:
    """The largest Σ_{i,j∈J} products_ij over sets J of at most p places, any two at least ℓ apart.

    Best first: sets are built from left to right, and the one whose bound is largest is built on. The first
    complete set that comes up is the best. If too many were looked at before, the largest bound is returned,
    which no set exceeds.

    Args:
        products: (n, n), symmetric, no entry negative.
        records: p ≥ 1.
        spacing: ℓ ≥ 1.
        nodes: how many sets are looked at, at most, but for the last one's children.
    """
    count = len(products)
    spacing, records = min(spacing, count), min(records, count)
    partners = _best_partners(products, records, spacing)
    # (−bound, −size, what the set has, its places, whether it is complete); larger sets first among equals
    waiting: list[tuple[float, int, float, tuple[int, ...], bool]] = [(-math.inf, 0, 0.0, (), False)]
    seen = 0
    while not waiting[0][4] and seen <= nodes:
        _, _, total, places, _ = heapq.heappop(waiting)
        if places:
            heapq.heappush(waiting, (-total, -len(places), total, places, True))
        left = records - len(places) - 1
        gains = np.diag(products) + 2.0 * products[list(places)].sum(axis=0)
        for place in range(places[-1] + spacing if places else 0, count):
            added, following = total + float(gains[place]), place + spacing
            more = 0.0
            if left and following < count:
                more = _most(gains + 2.0 * products[place], partners, left, following, spacing)
            node = (-added - more, -len(places) - 1, added, (*places, place), more == 0.0)
            heapq.heappush(waiting, node)
            seen += 1
    return -waiting[0][0]


def _best_partners(products: Array, records: int, spacing: int) -> Array:
    """(p, n): by m and place i, the largest Σ_j products_ij over at most m places after i, all ℓ apart."""
    count = len(products)
    own, best = np.arange(count), np.zeros((records, count))
    fewer = np.zeros((count, count + spacing))  # by row and first place that may be taken
    for most in range(1, records):
        layer = np.zeros_like(fewer)
        for place in range(count - 1, -1, -1):
            taken = products[:, place] + fewer[:, place + spacing]
            layer[:, place] = np.maximum(layer[:, place + 1], taken)
        best[most] = layer[own, np.minimum(own + spacing, count)]
        fewer = layer
    return best


def _most(gains: Array, partners: Array, left: int, first: int, spacing: int) -> float:
    """No ``left`` places from ``first`` on add more than this.

    Each place adds its gain and, twice, its products with those after it: at most those with its own best
    partners. So pairs are bounded place by place, and the best sequence of places follows from the right.
    """
    count = len(gains)
    best = np.zeros(count + spacing)  # by first place that may be taken
    for after in range(left):
        taken = gains + 2.0 * partners[after] + best[spacing:]
        best[:count] = np.maximum.accumulate(taken[::-1])[::-1]
    return float(best[first])
