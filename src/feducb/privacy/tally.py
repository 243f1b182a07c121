"""Whether many rewards are out of range, seen through noise, at no price beyond that of the releases.

A reward beyond the public bound is refused; where none within it comes in time, the decision counts with the
default reward, which biases what is learnt. With each release an agent adds up one whole number over the
records of its batch, `ONE_IN` − 1 for one whose reward was refused and −1 for any other, and sees it under
noise alone. The sum is above zero if more than one in `ONE_IN` rewards were refused.

It costs nothing: a record that counts with the default reward y₀ is nearer to every other record than the
farthest two are, and the noise here fits into what that leaves of μ² (docs/theory.md, 3).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from feducb.interfaces import require_model
from feducb.privacy.grid import MAX_SIGMA, SMOOTHING, draw_whole
from feducb.privacy.mechanisms import Mechanism
from feducb.privacy.terms import Terms

__all__ = ["FALSE_ALARM", "ONE_IN", "exact_tally", "noisy_tally", "proven_for", "surely_many", "tally_scale"]

ONE_IN = 20
FALSE_ALARM = 1e-3  # chance, over a season, of saying "many" where they are not
_LEAST_ROOM = 1e-6  # of R⁴: where the default reward lies so near the bound, nothing is counted
_MOST_RELEASES = 1024  # columns of E are compared in pairs


def exact_tally(out_of_range: Iterable[bool]) -> int:
    """What the records of a batch add up to. Private."""
    return sum(ONE_IN * one - 1 for one in out_of_range)


def tally_scale(terms: Terms, default_reward: float) -> int | None:
    """Deviation of the noise, a whole number; None where nothing is left of μ² to count with.

    So it is where one noise is for the total of all agents: a record at another agent, and another one there,
    moves the tallies of both, and the releases by all that is covered. And so it is with other models than
    the linear one, whose records the proof is about, or a part of it under the same noise.

    Guarantees:
        For any two records, of which those out of range have the reward ``default_reward``, and also where a
        record is added, removed or put into another batch, there replaced or not,
        |move|²/τ² + |move of the tally|²/τ_t² ≤ Δ²/τ², the price of the releases alone; and so for a person's
        records together where they are spaced;
        τ² and τ_t² are the noise variances less SMOOTHING² (grid theorem).
    """
    if terms.trust.joint or terms.releases > _MOST_RELEASES or not proven_for(terms):
        return None
    certificate, problem = terms.certificate(), terms.problem
    apart = _least_spread(terms.factors) if terms.spacing else 1.0 - _closest(terms.factors)
    length, weight = problem.action_bound**2, terms.weight**2
    reward = weight * problem.reward_bound**2
    radius = terms.radius  # R²
    default = weight * (default_reward - problem.reward_centre) ** 2
    room = radius**2 - (length + default) * (length + reward)
    if room <= _LEAST_ROOM * radius**2 or apart <= _LEAST_ROOM:
        return None
    smoothed = math.ldexp(math.sqrt(float(certificate.sigma**2 - SMOOTHING**2)), certificate.exponent)
    steps = max(ONE_IN / math.sqrt(room), 1.0 / (reward * math.sqrt(apart))) * smoothed * (1.0 + 1e-7)
    scale = math.ceil(math.hypot(steps, SMOOTHING))
    return scale if scale <= MAX_SIGMA else None


def proven_for(terms: Terms) -> bool:
    """Whether the proof is about the records of these terms: R² is the linear model's, of moves no longer."""
    plain = require_model("linear").radius(terms.problem, terms.weight)
    return terms.model.part_of_linear and terms.radius == plain


@lru_cache(maxsize=8)
def _closest(mechanism: Mechanism) -> float:
    """The largest (EᵀE)_ij of two batches i ≠ j."""
    columns = mechanism.encoder()
    products = columns.T @ columns
    np.fill_diagonal(products, 0.0)
    return min(1.0, float(products.max()) + 1e-9)


@lru_cache(maxsize=8)
def _least_spread(mechanism: Mechanism) -> float:
    """The least eigenvalue of EᵀE: how far apart records in some batches are from as many in others."""
    columns = mechanism.encoder()
    return float(np.linalg.eigvalsh(columns.T @ columns)[0]) - 1e-9


def noisy_tally(exact: int, scale: int) -> int:
    """What may be seen of a tally; ask once for each, and keep the answer before it is shown."""
    return exact + draw_whole(scale)


def surely_many(total: int, batches: int, scale: int) -> bool:
    """Whether noisy tallies show that more than one in `ONE_IN` records are out of range.

    Guarantees:
        While that is not so, it says yes at any number of batches with a chance of at most `FALSE_ALARM`:
        discrete Gaussian noise is sub-Gaussian (Canonne, Kamath & Steinke 2020), and batch k gets
        1/(k(k + 1)) of the chance.
    """
    if batches == 0:
        return False
    union = math.log(batches * (batches + 1) / FALSE_ALARM)
    return total > scale * math.sqrt(2.0 * batches * union)
