"""A person whose records are spaced: all that she can do, tried out, against the noise that is to cover it.

She is in a few releases, with records at the bounds, or in others with other records, or not there at all.
All pairs of such worlds are compared, through the deployed code and in whole numbers (docs/theory.md, 2).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, pairwise, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from feducb.audit.bounds import gaussian_epsilon
from feducb.audit.canary import Batch, background, canary_pair, deviation
from feducb.audit.doors import (
    UNIT_BITS,
    Make,
    ScaleOf,
    entries,
    measure_encoder,
    row_to_come,
    rows_before_noise,
)
from feducb.audit.findings import Check
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.grid import SMOOTHING, Certificate
from feducb.privacy.tally import ONE_IN
from feducb.privacy.terms import Terms
from feducb.storage import AgentStore

__all__ = ["admissible", "check_spaced", "check_spaced_tally", "check_spacing", "tried_reach"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def admissible(terms: Terms) -> Iterator[tuple[int, ...]]:
    """All sets of releases, counted from 0, that a person's records may be in; none of them too."""
    for size in range(terms.records_per_person + 1):
        for places in combinations(range(terms.releases), size):
            if all(later - one >= terms.spacing for one, later in pairwise(places)):
                yield places


def tried_reach(rows: Ints, terms: Terms) -> float:
    """How far a person's records move the stream, in moves of one, by trying all sets of releases.

    From E as `measure_encoder` read it off. Where records are anywhere, all may be in the longest column.
    """
    columns = rows.astype(np.float64) / 2.0**UNIT_BITS
    if not terms.spacing:
        return terms.records_covered * float(np.linalg.norm(columns, axis=0).max())
    products = np.abs(columns.T @ columns)
    sets = (list(places) for places in admissible(terms))
    largest = max(float(products[np.ix_(places, places)].sum()) for places in sets)
    return terms.trust.records_covered(1, terms.agents_per_person) * math.sqrt(largest)


def check_spaced(make: Make, terms: Terms) -> Check:
    """Replace, move, add and remove a person's records: the noise of the privatizer covers each of them.

    The check also fails if the worst that can be is not reached, since it would be idle.
    """
    door = make(terms)
    fresh, others = door.dump(), background(terms.problem, terms.releases)
    one, other = canary_pair(terms)
    records = (one, other, Batch(one.actions, -one.rewards))
    seen = [
        rows_before_noise(door, fresh, _with(others, dict(zip(places, hers, strict=True))))
        for places in admissible(terms)
        for hers in product(records, repeat=len(places))
    ]
    door.load(fresh)
    worst = tried_reach(measure_encoder(door)[0], terms) * math.sqrt(2.0) * terms.radius
    variant = f"n={terms.releases} quiet={terms.quiet} decay={terms.decay}"
    return _verdict(f"spaced records {variant}", door.certificate, terms, np.array(seen), worst)


def check_spacing(kind: type[AgentStore], terms: Terms) -> Check:
    """She comes twice to each of two or more releases, or never: her agent's file lets in what it may.

    So that the check also fails where a file lets in more than the noise covers.
    """
    worst = tried_reach(measure_encoder(DeployedPrivatizer(terms))[0], terms) * math.sqrt(2.0) * terms.radius
    numbers = range(terms.releases)
    visits = chain.from_iterable(combinations(numbers, size) for size in range(2, terms.releases + 1))
    tried = [((), canary_pair(terms)[0]), *product(visits, canary_pair(terms))]
    seen = [_season(kind, terms, some, record) for some, record in tried]
    name = f"spacing p={terms.records_per_person} spacing={terms.spacing}"
    return _verdict(name, terms.certificate(), terms, np.array(seen), worst)


def check_spaced_tally(scale_of: ScaleOf, terms: Terms) -> Check:
    """Releases and tallies of rewards out of range together, for all that such a person can do."""
    door, bound = DeployedPrivatizer(terms), terms.problem.reward_bound
    columns = measure_encoder(door)[0].astype(np.float64) / 2.0**UNIT_BITS
    one, other = canary_pair(terms)
    worst = 0.0
    for default in (0.0, -0.9 * bound):
        scale = scale_of(terms, default)
        if scale is None:
            continue
        refused = [Batch(batch.actions, np.array([default])) for batch in (one, other)]
        within = [one, other, Batch(one.actions, -one.rewards), Batch(one.actions, 0.0 * one.rewards)]
        points = entries(door, [*refused, *within]) / door.certificate.scale
        tallies = np.array([ONE_IN - 1.0] * len(refused) + [-1.0] * len(within)) / scale
        worlds = [
            np.concatenate([_moved(columns, points, places, hers), _tallied(terms, tallies, places, hers)])
            for places in admissible(terms)
            for hers in product(range(len(points)), repeat=len(places))
        ]
        worst = max(worst, float(pdist(np.array(worlds)).max()))
    step = math.ldexp(1.0, door.certificate.exponent) / door.certificate.scale
    rounding = step * math.sqrt(door.certificate.coordinates * terms.releases)
    epsilon = gaussian_epsilon(worst + rounding, terms.budget.delta)
    return Check(
        "tally beside spaced records",
        0.0 < epsilon <= terms.budget.epsilon,
        f"epsilon of releases and tally, accounted anew {epsilon:.6f} of {terms.budget.epsilon:g}",
    )


def _moved(columns: Array, points: Array, places: Sequence[int], hers: Sequence[int]) -> Array:
    """(n·q,), rows that her records make up, in deviations."""
    return np.asarray(columns[:, list(places)] @ points[list(hers)]).ravel()


def _tallied(terms: Terms, tallies: Array, places: Sequence[int], hers: Sequence[int]) -> Array:
    """(n,), what her records add to the tally of each release, in deviations."""
    told = np.zeros(terms.releases)
    told[list(places)] = tallies[list(hers)]
    return told


def _with(others: Sequence[Batch], hers: Mapping[int, Batch]) -> list[Batch]:
    return [batch + hers[place] if place in hers else batch for place, batch in enumerate(others)]


def _season(kind: type[AgentStore], terms: Terms, visits: Sequence[int], record: Batch) -> Ints:
    """(n·q,), what the releases of a season are made of, in which she comes twice to each of some."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, kind.open(Path(folder) / "agent.db", terms) as store:
        for number, other in enumerate(background(terms.problem, terms.releases)):
            store.record(other.actions, other.rewards, [f"somebody else, {number}"])
            for _ in range(2 if number in visits else 0):
                store.record(record.actions, record.rewards, ["she"])
            rows.append(row_to_come(store._privatizers[0]))
            store.release()
    return np.concatenate(rows)


def _verdict(name: str, certificate: Certificate, terms: Terms, seen: Ints, worst: float) -> Check:
    """Whether the noise covers the farthest two of what was seen, and they are as far apart as can be."""
    farthest = math.ldexp(float(pdist(seen).max()), certificate.exponent)
    epsilon = gaussian_epsilon(farthest / deviation(certificate, terms, less=SMOOTHING), terms.budget.delta)
    return Check(
        name,
        epsilon <= terms.budget.epsilon and abs(farthest / worst - 1.0) < 1e-3,
        f"one person moves all rows together by {farthest:.6f} (the worst there is: {worst:.6f}), the noise "
        f"covers {certificate.sensitivity:.6f}; epsilon accounted anew {epsilon:.6f} of "
        f"{terms.budget.epsilon:g}",
    )
