"""Checks that need no chance: what records can move, as the deployed code moves it, in whole numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from feducb.audit.bounds import gaussian_epsilon
from feducb.audit.canary import Batch, background, canary_pair
from feducb.audit.findings import Check
from feducb.errors import RecordOutOfBoundsError, ReleasesExhaustedError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.grid import FINE_BITS
from feducb.privacy.tally import ONE_IN, tally_scale
from feducb.privacy.terms import Terms

__all__ = [
    "Make",
    "check_clipping",
    "check_encoder",
    "check_horizon",
    "check_presence",
    "check_sensitivity",
    "check_tally",
    "measure_encoder",
]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Make = Callable[[Terms], DeployedPrivatizer]

_UNIT_BITS = 40  # a unit batch is 2^40 grid steps: columns are measured to 12 digits


def measure_encoder(door: DeployedPrivatizer) -> tuple[Ints, Array]:
    """Stream unit batches through a fresh privatizer's encoder: rows (n, n) and what they decode to.

    Column j is what a unit in batch j makes of every row, in steps of 2^-40. Coordinates are independent
    lanes, so as many columns as there are coordinates are measured in one pass.
    """
    count, encoder, fresh = door.terms.releases, door._encoder, door._encoder.dump()
    lanes = len(door._batch)
    rows = np.zeros((count, count), dtype=np.int64)
    decoded = np.zeros((count, count))
    for first in range(0, count, lanes):
        encoder.load(fresh)
        last = min(first + lanes, count)
        for release in range(count):
            batch = np.zeros(lanes, dtype=np.int64)
            if first <= release < last:
                batch[release - first] = 1 << (_UNIT_BITS + FINE_BITS)
            row = encoder.encode(batch)
            rows[release, first:last] = row[: last - first]
            decoded[release, first:last] = encoder.decode(row)[: last - first]
    encoder.load(fresh)
    return rows, decoded / 2.0**_UNIT_BITS


def check_encoder(make: Make, terms: Terms) -> Check:
    """Touched rows, columns at most 1 long, EᵀE ≥ 0, F·E = P: as docs/theory.md, 2, asks."""
    rows, decoded = measure_encoder(make(terms))
    exact = rows.astype(object)
    # Each row is rounded once, by half a step at most; that is counted in the certificate's sensitivity.
    allowed = ((1 << _UNIT_BITS) + math.isqrt(terms.releases) + 1) ** 2
    longest = max(sum(entry * entry for entry in column) for column in exact.T)
    touches_past = bool(np.triu(rows, 1).any())
    least_angle = 0.0 if rows.min() >= 0 else float((rows.T @ rows.astype(np.float64)).min())
    off = float(np.abs(decoded - np.tri(terms.releases)).max())
    norm = math.sqrt(longest) / 2.0**_UNIT_BITS
    angle = "at least 0" if least_angle >= 0.0 else f"{least_angle:.3g}"
    return Check(
        f"encoder {terms.factors.name} n={terms.releases} quiet={terms.quiet}",
        longest <= allowed and not touches_past and least_angle >= 0.0 and off < 1e-9,
        f"longest column {norm:.12f}, records touch earlier rows: {'yes' if touches_past else 'no'}, "
        f"least entry of EᵀE {angle}, |F·E − P| {off:.1e}",
    )


def _entered(door: DeployedPrivatizer, fresh: bytes, record: Batch) -> Array:
    """What one record adds to a batch, in real units."""
    door.load(fresh)
    door.record(record.actions, record.rewards)
    return np.ldexp(door._batch.astype(np.float64), door.certificate.exponent - FINE_BITS)


def check_sensitivity(make: Make, terms: Terms) -> Check:
    """No two records are further apart than √2 R²; the extreme pair is; and the noise covers it.

    ε is accounted for anew: largest move × longest column + rounding of n rows, over the certified noise.
    """
    problem, certificate = terms.problem, terms.certificate()
    door = make(terms)
    rows, _ = measure_encoder(door)
    longest = math.sqrt(float((rows.astype(np.float64) ** 2).sum(axis=0).max())) / 2.0**_UNIT_BITS
    fresh = door.dump()
    rng = np.random.default_rng(0)  # which records are tried; the noise is not seeded
    directions = rng.normal(size=(24, 1, problem.dim))
    directions *= problem.action_bound * (1.0 - 1e-12) / np.linalg.norm(directions, axis=2, keepdims=True)
    signs = np.where(np.arange(24) % 2, 1.0, -1.0) * problem.reward_bound
    pair = canary_pair(terms)
    tried = [Batch(one, np.array([sign])) for one, sign in zip(directions, signs, strict=True)]
    points = [_entered(door, fresh, record) for record in (*pair, *tried)]
    farthest = max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(points, 2))
    extreme = float(np.linalg.norm(points[0] - points[1]))
    bound = math.sqrt(2.0) * terms.radius
    step = math.ldexp(1.0, certificate.exponent)
    slack = math.ldexp(math.sqrt(certificate.coordinates), certificate.exponent - FINE_BITS)
    moved = farthest * longest + step * math.sqrt(certificate.coordinates * terms.releases)
    mu = terms.records_per_person * moved / certificate.scale
    epsilon = gaussian_epsilon(mu, terms.budget.delta)
    tight = extreme >= bound * (1.0 - 1e-6) or problem.dim == 1
    return Check(
        f"sensitivity epsilon={terms.budget.epsilon:g} trust={terms.trust}",
        farthest <= bound + slack and tight and epsilon <= terms.budget.epsilon,
        f"largest move {farthest:.9f} of {bound:.9f}, extreme pair {extreme:.9f}, "
        f"epsilon accounted anew {epsilon:.6f} of {terms.budget.epsilon:g}",
    )


def check_presence(make: Make, terms: Terms) -> Check:
    """A record that is there or not, in one batch or in another, as itself or as another: at most Δ.

    All pairs of (record, batch), and no record at all, through the deployed encoder beside the same other
    records, rounding included (docs/theory.md, 2).
    """
    door, certificate = make(terms), terms.certificate()
    fresh, count = door.dump(), terms.releases
    others = background(terms.problem, count)
    one, other = canary_pair(terms)
    records = [one, other, Batch(one.actions, -one.rewards), Batch(one.actions, 0.0 * one.rewards)]
    worlds = [_rows(door, fresh, others)]
    for record, place in itertools.product(records, range(count)):
        batches = list(others)
        batches[place] += record
        worlds.append(_rows(door, fresh, batches))
    farthest = math.ldexp(
        max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(worlds, 2)), certificate.exponent
    )
    return Check(
        f"presence mechanism={terms.factors.name} n={count} quiet={terms.quiet}",
        farthest <= certificate.sensitivity,
        f"a record that is added, removed, moved to another batch or replaced moves all rows together by at "
        f"most {farthest:.6f} of {certificate.sensitivity:.6f}",
    )


def _rows(door: DeployedPrivatizer, fresh: bytes, batches: Sequence[Batch]) -> Ints:
    """(n, q), what releases of these batches are made of, before noise."""
    door.load(fresh)
    rows = []
    for batch in batches:
        door.record(batch.actions, batch.rewards)
        rows.append(door._encoder.encode(door._batch))
        door._encoder.decode(rows[-1])  # it counts releases
        door._batch = np.zeros_like(door._batch)
    return np.array(rows)


def check_tally(
    make: Make, terms: Terms, scale_of: Callable[[Terms, float], int | None] = tally_scale
) -> Check:
    """Releases and the noisy tally of rewards out of range together stay at the claim.

    ε is accounted for anew, for a record that counts with the default reward because its own was refused, and
    any other: how far apart they are in releases, over their noise, and in the tally, over its own; and for
    two records within the range in different batches, which move the tallies of both.
    """
    certificate, bound = terms.certificate(), terms.problem.reward_bound
    door = make(terms)
    fresh, pair = door.dump(), canary_pair(terms)
    length = terms.problem.action_bound * (1.0 - 1e-12)
    angles = np.linspace(0.0, math.pi, 25)
    actions = np.zeros((len(angles), 1, terms.problem.dim))
    actions[:, 0, 0] = length * np.cos(angles)
    actions[:, 0, -1] += length * np.sin(angles) if terms.problem.dim > 1 else 0.0
    others = [Batch(one, np.array([sign])) for one in actions for sign in (bound, -bound)]
    beyond = [_entered(door, fresh, record) for record in (*pair, *others)]
    step = math.ldexp(1.0, certificate.exponent)
    rounding = step * math.sqrt(certificate.coordinates * terms.releases)
    moved = _moved_and_replaced(measure_encoder(door)[0], beyond)
    worst = 0.0
    for default in (0.0, 0.5 * bound, -0.9 * bound):
        scale = scale_of(terms, default)
        if scale is None:
            continue
        worst = max(worst, math.hypot((moved + rounding) / certificate.scale, math.sqrt(2.0) / scale))
        for one in actions[::4]:
            refused = _entered(door, fresh, Batch(one, np.array([default])))
            farthest = max(float(np.linalg.norm(refused - other)) for other in beyond)
            worst = max(worst, math.hypot((farthest + rounding) / certificate.scale, ONE_IN / scale))
    epsilon = gaussian_epsilon(terms.records_per_person * worst, terms.budget.delta)
    return Check(
        "tally of rewards out of range",
        0.0 < epsilon <= terms.budget.epsilon,
        f"epsilon of releases and tally, accounted anew {epsilon:.6f} of {terms.budget.epsilon:g}",
    )


def _moved_and_replaced(rows: Ints, records: Sequence[Array]) -> float:
    """How far all rows move at most if one of the records is in a batch, or another one in another batch."""
    columns = rows.astype(np.float64) / 2.0**_UNIT_BITS
    products = columns.T @ columns
    inner, lengths = np.array(records) @ np.array(records).T, products.diagonal()
    pairs, places = (list(itertools.combinations(range(len(one)), 2)) for one in (inner, products))
    squares = [
        lengths[k] * inner[i, i] + lengths[m] * inner[j, j] - 2.0 * products[k, m] * inner[i, j]
        for (i, j), (k, m) in itertools.product(pairs, places)
    ]
    return math.sqrt(max(squares, default=0.0))


def check_clipping(make: Make, terms: Terms) -> Check:
    """Oversized records move nothing beyond the bound; ``refuse`` refuses; nonsense counts as nothing."""
    problem = terms.problem
    door = make(replace(terms, excess="clip"))
    fresh = door.dump()
    points = []
    for record, longer, larger in itertools.product(
        canary_pair(terms), (1.0, 1e3, 1e200, math.nan), (1.0, 50.0, 1e6, math.inf)
    ):
        points.append(_entered(door, fresh, Batch(record.actions * longer, record.rewards * larger)))
    farthest = max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(points, 2))
    bound = math.sqrt(2.0) * terms.radius * (1.0 + 1e-6)
    strict = make(replace(terms, excess="refuse"))
    length, reward = problem.action_bound, problem.reward_bound
    hostile = [(2.0 * length, 0.0), (0.0, 2.0 * reward), (math.nan, 0.0), (0.0, math.inf), (1e200, 0.0)]
    entered = [pair for pair in hostile if _takes(strict, *pair)]
    return Check(
        "clipping",
        farthest <= bound and not entered,
        f"oversized records move at most {farthest:.6f} of {bound:.6f}; "
        f"taken in though out of bounds: {entered or 'none'}",
    )


def _takes(door: DeployedPrivatizer, entry: float, reward: float) -> bool:
    """Whether a record with this first entry and reward gets in, or leaves a trace."""
    action = np.zeros((1, door.terms.problem.dim))
    action[0, 0] = entry
    before = door.dump()
    try:
        door.record(action, np.array([reward]))
    except RecordOutOfBoundsError:
        return door.dump() != before
    return True


def check_horizon(make: Make, terms: Terms) -> Check:
    """Release n + 1 is refused, also after a restart."""
    door = make(terms)
    for _ in range(terms.releases):
        door.release()
    refused = 0
    for restart in (False, True):
        if restart:
            state, door = door.dump(), make(terms)
            door.load(state)
        try:
            door.release()
        except ReleasesExhaustedError:
            refused += 1
    return Check("horizon", refused == 2, f"release {terms.releases + 1} refused {refused} times of 2")
