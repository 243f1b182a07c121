"""How large rows get that leave under pads, and sums of them: by counts, which are public, never by values.

Pads are added modulo 2^64, so a sum must not wrap; and an agent that refused a row for what is in it would
show its data. So the number of records is capped, and what a row can be follows from that.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError, RefusedError
from feducb.privacy.terms import Terms

__all__ = ["MOST_RECORDS", "largest_sum", "require_in_range"]

MOST_RECORDS = 10_000_000
"""That an agent takes in in a season, where rows leave under pads; further ones are counted as excluded."""

_NOISE_TAIL = 64  # deviations: a discrete Gaussian is beyond that with a chance of exp(−2048) at most
_LARGEST = 2**62


def largest_sum(terms: Terms) -> int:
    """|entry| of a sum of honest rows, in grid steps, whoever is in it.

    A record's flat vector is at most √2 R² long, rounded to the grid on entry; entries of E are at most 1.
    """
    certificate = terms.certificate()
    record = math.sqrt(2.0) * terms.radius / math.ldexp(1.0, certificate.exponent) + 2.0
    largest = terms.agents * (MOST_RECORDS * math.ceil(record) + _NOISE_TAIL * certificate.sigma)
    if largest >= _LARGEST:
        expected = "a smaller one: rows of so many numbers could wrap where they are added up"
        raise ConfigurationError("dim", terms.problem.dim, expected)
    return largest


def require_in_range(row: NDArray[np.int64], terms: Terms) -> None:
    """Raise `RefusedError` for a sum that no honest rows add up to, such as one whose pads do not cancel."""
    most = max(int(row.max()), -int(row.min()))
    if most > largest_sum(terms):
        raise RefusedError(
            "range", f"an entry of 2^{most.bit_length()} steps, which no honest rows add up to"
        )
