"""Checks that need no chance: what records can move, as the deployed code moves it, in whole numbers."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, pdist

from feducb.audit.bounds import gaussian_epsilon
from feducb.audit.canary import Batch, background, canary_pair, deviation
from feducb.audit.doors import (
    UNIT_BITS,
    Make,
    ScaleOf,
    entries,
    measure_encoder,
    publish,
    rows_before_noise,
)
from feducb.audit.findings import Check
from feducb.audit.spaced import tried_reach
from feducb.errors import RecordOutOfBoundsError, ReleasesExhaustedError
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.grid import FINE_BITS, Certificate
from feducb.privacy.tally import ONE_IN
from feducb.privacy.terms import Terms

__all__ = [
    "check_clipping",
    "check_encoder",
    "check_horizon",
    "check_noisy",
    "check_presence",
    "check_sensitivity",
    "check_tally",
]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def check_encoder(make: Make, terms: Terms) -> Check:
    """Touched rows, columns at most 1 long, EᵀE ≥ 0, F·E = P: as docs/theory.md, 2, asks."""
    rows, decoded = measure_encoder(make(terms))
    exact = rows.astype(object)
    # Each row is rounded once, by half a step at most; that is counted in the certificate's sensitivity.
    allowed = ((1 << UNIT_BITS) + math.isqrt(terms.releases) + 1) ** 2
    longest = max(sum(entry * entry for entry in column) for column in exact.T)
    touches_past = bool(np.triu(rows, 1).any())
    least_angle = 0.0 if rows.min() >= 0 else float((rows.T @ rows.astype(np.float64)).min())
    off = float(np.abs(decoded - np.tri(terms.releases)).max())
    norm = math.sqrt(longest) / 2.0**UNIT_BITS
    angle = "at least 0" if least_angle >= 0.0 else f"{least_angle:.3g}"
    return Check(
        f"encoder {_variant(terms)}",
        longest <= allowed and not touches_past and least_angle >= 0.0 and off < 1e-9,
        f"longest column {norm:.12f}, records touch earlier rows: {'yes' if touches_past else 'no'}, "
        f"least entry of EᵀE {angle}, |F·E − P| {off:.1e}",
    )


def _variant(terms: Terms) -> str:
    decay = "" if terms.decay is None else f" decay={terms.decay:g}"
    return f"{terms.factors.name} n={terms.releases} quiet={terms.quiet}{decay}"


def check_sensitivity(make: Make, terms: Terms) -> Check:
    """No two records are further apart than √2 R²; the extreme pair is; and the noise covers it.

    ε is accounted for anew: largest move × how far a person's records reach (by trying all sets of releases
    that they may be in) + rounding of n rows, over the noise that the privatizer itself certifies.
    """
    door = make(terms)
    problem, certificate = terms.problem, door.certificate
    rows, _ = measure_encoder(door)
    rng = np.random.default_rng(0)  # which records are tried; the noise is not seeded
    directions = rng.normal(size=(24, 1, problem.dim))
    directions *= problem.action_bound * (1.0 - 1e-12) / np.linalg.norm(directions, axis=2, keepdims=True)
    tried = [Batch(one, np.array([end])) for one in directions for end in problem.reward_range]
    points = entries(door, (*canary_pair(terms), *tried))
    distances = _apart(terms, points)
    farthest, extreme = float(distances.max()), float(distances[0])
    bound = math.sqrt(2.0) * terms.radius
    slack = math.ldexp(math.sqrt(certificate.coordinates), certificate.exponent - FINE_BITS)
    mu = (farthest * tried_reach(rows, terms) + _rounding(certificate)) / deviation(certificate, terms)
    epsilon = gaussian_epsilon(mu, terms.budget.delta)
    tight = extreme >= bound * (1.0 - 1e-6) or problem.dim == 1
    return Check(
        f"sensitivity epsilon={terms.budget.epsilon:g} trust={terms.trust}",
        farthest <= bound + slack and tight and epsilon <= terms.budget.epsilon,
        f"largest move {farthest:.9f} of {bound:.9f}, extreme pair {extreme:.9f}, "
        f"epsilon accounted anew {epsilon:.6f} of {terms.budget.epsilon:g}",
    )


def _apart(terms: Terms, points: Array) -> Array:
    """How far neighbours are apart, the first two points first; rewards alone differ from one to the next."""
    return np.linalg.norm(points[::2] - points[1::2], axis=1) if terms.contexts == "public" else pdist(points)


def check_noisy(make: Make, terms: Terms) -> Check:
    """Whatever a neighbour can move carries noise: all that a release shows, or rewards' share of it.

    Seen in three releases of nothing: noise is 0 in all of them, in one coordinate, with a chance of 1e-15.
    """
    door, problem = make(terms), terms.problem
    extreme = [one.actions[0] for one in canary_pair(terms)]
    actions = np.vstack([problem.action_bound * np.eye(problem.dim), extreme])
    tried = [Batch(one[None], np.array([end])) for one in actions for end in problem.reward_range]
    points = entries(door, tried)
    moved = points[::2] - points[1::2] if terms.contexts == "public" else points
    released = np.array([publish(door).values for _ in range(min(3, terms.releases))])
    bare = np.asarray(moved.any(axis=0) & ~released.any(axis=0))
    return Check(
        "noise on what moves",
        not bare.any(),
        f"{int(moved.any(axis=0).sum())} of {len(bare)} coordinates move, {int(bare.sum())} of them bare",
    )


def _rounding(certificate: Certificate) -> float:
    """How far rounding moves n rows at most: a grid step in every coordinate."""
    steps = math.sqrt(certificate.coordinates * certificate.releases)
    return math.ldexp(steps, certificate.exponent)


def check_presence(make: Make, terms: Terms) -> Check:
    """A record that is there or not, in one batch or in another, as itself or as another: at most Δ.

    All pairs of (record, batch), and no record at all, through the deployed encoder beside the same other
    records, rounding included (docs/theory.md, 2).
    """
    door, certificate, count = make(terms), terms.certificate(), terms.releases
    fresh = door.dump()
    others = background(terms.problem, count)
    one, other = canary_pair(terms)
    centre = terms.problem.reward_centre
    records = [one, other, *(one.stretched(1.0, larger, centre) for larger in (-1.0, 0.0))]
    worlds = [rows_before_noise(door, fresh, others)]
    for record, place in itertools.product(records, range(count)):
        batches = [*others[:place], others[place] + record, *others[place + 1 :]]
        worlds.append(rows_before_noise(door, fresh, batches))
    farthest = math.ldexp(float(pdist(np.array(worlds)).max()), certificate.exponent)
    return Check(
        f"presence mechanism={_variant(terms)}",
        farthest <= certificate.sensitivity,
        f"a record that is added, removed, moved to another batch or replaced moves all rows together by at "
        f"most {farthest:.6f} of {certificate.sensitivity:.6f}",
    )


def check_tally(scale_of: ScaleOf, terms: Terms) -> Check:
    """Releases and the noisy tally of rewards out of range together stay at the claim.

    ε is accounted for anew, for a record that counts with the default reward because its own was refused, and
    any other: how far apart they are in releases, over their noise, and in the tally, over its own; and for
    two records within the range in different batches, which move the tallies of both.
    """
    door, bound, centre = DeployedPrivatizer(terms), terms.problem.reward_bound, terms.problem.reward_centre
    noise, rounding = door.certificate.scale, _rounding(door.certificate)
    length = terms.problem.action_bound * (1.0 - 1e-12)
    angles = np.linspace(0.0, math.pi, 25)
    actions = np.zeros((len(angles), 1, terms.problem.dim))
    actions[:, 0, 0] = length * np.cos(angles)
    actions[:, 0, -1] += length * np.sin(angles) if terms.problem.dim > 1 else 0.0
    others = [Batch(one, np.array([sign])) for one in actions for sign in terms.problem.reward_range]
    within = entries(door, (*canary_pair(terms), *others))
    moved = _moved_and_replaced(measure_encoder(door)[0], within)
    worst = 0.0
    for default in (centre, centre + 0.5 * bound, centre - 0.9 * bound):
        scale = scale_of(terms, default)
        if scale is None:
            continue
        refused = entries(door, [Batch(one, np.array([default])) for one in actions[::4]])
        farthest = float(cdist(refused, within).max())
        worst = max(
            worst,
            math.hypot((moved + rounding) / noise, math.sqrt(2.0) / scale),
            math.hypot((farthest + rounding) / noise, ONE_IN / scale),
        )
    epsilon = gaussian_epsilon(terms.records_per_person * worst, terms.budget.delta)
    return Check(
        "tally of rewards out of range",
        0.0 < epsilon <= terms.budget.epsilon,
        f"epsilon of releases and tally, accounted anew {epsilon:.6f} of {terms.budget.epsilon:g}",
    )


def _moved_and_replaced(rows: Ints, records: Array) -> float:
    """How far all rows move at most if one of the records is in a batch, or another one in another batch."""
    columns = rows.astype(np.float64) / 2.0**UNIT_BITS
    products, inner = columns.T @ columns, records @ records.T
    (i, j), (k, m) = np.triu_indices(len(inner), 1), np.triu_indices(len(products), 1)
    squares = np.outer(inner[i, i], products[k, k]) + np.outer(inner[j, j], products[m, m])
    return math.sqrt((squares - 2.0 * np.outer(inner[i, j], products[k, m])).max(initial=0.0))


def check_clipping(make: Make, terms: Terms) -> Check:
    """Oversized records move nothing beyond the bound; ``refuse`` refuses; nonsense counts as nothing."""
    problem = terms.problem
    oversized = itertools.product(canary_pair(terms), (1.0, 1e3, 1e200, math.nan), (1.0, 50.0, 1e6, math.inf))
    centre = problem.reward_centre
    records = [one.stretched(longer, larger, centre) for one, longer, larger in oversized]
    farthest = float(pdist(entries(make(replace(terms, excess="clip")), records)).max())
    bound = math.sqrt(2.0) * terms.radius * (1.0 + 1e-6)
    strict = make(replace(terms, excess="refuse"))
    length, reward = problem.action_bound, centre + 2.0 * problem.reward_bound
    hostile = [(2.0 * length, centre), (0.0, reward), (math.nan, centre), (0.0, math.inf), (1e200, centre)]
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
        publish(door)
    refused = 0
    for restart in (False, True):
        if restart:
            state, door = door.dump(), make(terms)
            door.load(state)
        try:
            publish(door)
        except ReleasesExhaustedError:
            refused += 1
    return Check("horizon", refused == 2, f"release {terms.releases + 1} refused {refused} times of 2")
