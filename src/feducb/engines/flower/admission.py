"""What a release must look like before it may enter a sum: one agent's mistake must not reach the others."""

from __future__ import annotations

import math

import numpy as np

from feducb.errors import ConfigurationError
from feducb.privacy.deployed import Terms
from feducb.protocol import messages
from feducb.protocol.messages import GridSum

__all__ = ["Admission"]

# On noise of d × d: its largest eigenvalue exceeds (2 √d + t) deviations with probability below 2 exp(−t²/4).
_BEYOND = 12.0
_SAME_VARIANCE = 0.01  # relative: libraries differ in the last bits of a calibration, nobody in a hundredth


class Admission:
    """Reads releases of agents that all have the same public terms.

    Args:
        terms: of the federation's season.
        agents: how many there are: none may send a value so large that their sum could wrap.
    """

    def __init__(self, terms: Terms, *, agents: int) -> None:
        if terms.trust != "nobody":
            raise ConfigurationError(
                "trust",
                terms.trust,
                "nobody: over Flower agents add their own noise, as the SuperLink keeps what passes",
            )
        if terms.groups != 1:
            raise ConfigurationError("groups", terms.groups, "1: a controller adds up a single group")
        self.terms = terms
        self._certificate = terms.certificate()
        self._size = messages.message_size(terms.problem.dim)
        self._largest = (2**63 - 1) // agents

    def read(self, payload: bytes) -> GridSum:
        """A release, checked; raises ``ValueError`` that names what is wrong with it."""
        if len(payload) != self._size:
            raise ValueError(f"release has {len(payload)} bytes, expected {self._size}")
        release = messages.decode(payload)
        expected: dict[str, object] = {
            "agents": 1,
            "group": 0,
            "dim": self.terms.problem.dim,
            "exponent": self._certificate.exponent,
            "weight": self.terms.weight,
        }
        for name, value in expected.items():
            if getattr(release, name) != value:
                raise ValueError(f"release has {name} {getattr(release, name)}, expected {value}")
        if release.season < 1 or not 1 <= release.number <= self.terms.releases:
            raise ValueError(
                f"release is number {release.number} of season {release.season}, expected at most "
                f"{self.terms.releases}, both from 1"
            )
        self._require_noise(release)
        return release

    def _require_noise(self, release: GridSum) -> None:
        """Its variance is what the terms give, and its Gram is one up to noise of that variance."""
        variance = (self._certificate.scale * self.terms.factors.error(release.number)) ** 2 / 2.0
        if not math.isclose(release.variance, variance, rel_tol=_SAME_VARIANCE):
            raise ValueError(f"release has variance {release.variance}, expected about {variance}")
        largest = max(int(release.values.max()), -int(release.values.min()))
        if largest > self._largest:
            raise ValueError(f"release has a value of {largest} grid steps, expected at most {self._largest}")
        lowest = float(np.linalg.eigvalsh(release.read().gram)[0])
        floor = -math.sqrt(variance) * (2.0 * math.sqrt(release.dim) + _BEYOND)
        if lowest < floor:
            raise ValueError(f"release has an eigenvalue {lowest}, expected none below {floor}")
