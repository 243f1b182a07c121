"""Which releases are taken in: what a controller and peers can check without trusting anybody.

A release is refused if it could not have come from an honest agent with the public terms: wrong size, shape,
grid, weight, variance, season or number, values that could overflow a sum, or a Gram further from positive
semi-definite than its noise explains. An honest one is refused for the last reason with a probability of at
most `FALSE_REFUSAL` each. Lies that stay within the noise cannot be told from data (docs/threat-model.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from feducb.errors import RefusedError
from feducb.models import LINEAR
from feducb.privacy.grid import Certificate, entry_variance
from feducb.privacy.mechanisms import Mechanism
from feducb.privacy.terms import Terms
from feducb.protocol import messages

__all__ = [
    "REASONS",
    "Receipt",
    "RefusalCount",
    "check_release",
    "prepare",
    "read_release",
    "refusal",
    "require_definite",
]

FALSE_REFUSAL = 1e-12
REASONS = (
    "agents",  # a sum where a release was expected
    "definite",  # a Gram below what its noise explains
    "dimension",
    "exhausted",  # a trusted controller's budget is spent
    "grid",
    "group",
    "halted",  # a keeper whose file is older than the federation
    "key",  # a public key that makes no secret, or another one than before
    "list",  # an agent twice, or out of order
    "magnitude",  # values that could overflow a sum
    "malformed",
    "model",  # other entries known to be zero: of another recipe
    "number",
    "order",  # a row that is not the next
    "quorum",  # a list of too few agents
    "range",  # a sum that no honest rows add up to
    "replay",  # a number that is known with other content
    "season",
    "second list",  # for a row that was answered for another
    "sender",  # nobody of this federation
    "signature",  # not signed by whom it claims to be from
    "size",
    "terms",  # a raw upload of an agent that promises something else
    "variance",
    "weight",
)
_DEVIATIONS = math.sqrt(4.0 * math.log(1.0 / FALSE_REFUSAL))
_TOLERANCE = 1e-6  # of variances, which other machines may have rounded otherwise


class Receipt(NamedTuple):
    """What became of a message; all but ``refused`` may be taken off an outbox.

    It is ``known`` if it was here before, and ``past`` if it is of a season or a row that is over.
    """

    status: Literal["stored", "known", "past", "refused"]
    reason: str = ""  # of a refusal, one of `REASONS`
    text: str = ""  # of a refusal, in words; about the sender's own message alone
    at: float | None = None  # when it was written, by the writer's clock, in seconds since 1970


def refusal(error: RefusedError) -> Receipt:
    """The receipt that tells the sender why."""
    return Receipt("refused", error.reason, error.text)


@lru_cache(maxsize=64)
def _noise_of(terms: Terms) -> tuple[Certificate, Mechanism]:
    return terms.certificate(), terms.factors


def least_eigenvalue(dim: int, variance: float) -> float:
    """What the smallest eigenvalue of an honest Gram exceeds, but for a probability of `FALSE_REFUSAL`.

    The Gram is positive semi-definite plus √variance times a symmetric Gaussian matrix with variance 1 beside
    and 2 on the diagonal. Its smallest eigenvalue is −2√d or more on average and moves by at most √2 per unit
    of the independent normals behind it, so it is below −2√d − t with probability at most exp(−t²/4).
    """
    return -math.sqrt(variance) * (2.0 * math.sqrt(dim) + _DEVIATIONS)


def prepare(everybody: Mapping[str, Terms]) -> None:
    """Compute all noise levels now: some mechanisms take seconds, and messages should not wait."""
    for terms in set(everybody.values()):
        entry_variance(*_noise_of(terms), 1)


def read_release(payload: bytes, everybody: Mapping[str, Terms], *, agent: str) -> messages.GridSum:
    """Read a release of an agent, as the link authenticated it, or raise `RefusedError`.

    Everybody's budget may differ; dimension, bounds, releases and mechanism are common. Which season it may
    be of is left to the caller.
    """
    terms = everybody.get(agent)
    if terms is None:
        raise RefusedError("sender", f"{agent[:64]!r} is not of this federation")
    return check_release(payload, terms, agents=len(everybody))


def check_release(payload: bytes, terms: Terms, *, agents: int) -> messages.GridSum:
    """Read a release under its sender's terms, or raise `RefusedError`; sender and season are not checked."""
    model = messages.carried(terms.model)
    expected = messages.message_size(terms.problem.dim, model)
    if len(payload) != expected:
        size = f"a release of {len(payload)} bytes{_of_dimension(len(payload))}"
        of = f"dimension {terms.problem.dim}" + ("" if model == LINEAR else f", model {model.name}")
        raise RefusedError("size", f"{size}, expected {expected} ({of})")
    try:
        release = messages.decode(payload)
    except ValueError as error:
        raise RefusedError("malformed", str(error)) from None
    certificate, mechanism = _noise_of(terms)
    _require("dimension", release.dim, terms.problem.dim)
    if release.model != model:
        differing = _differing("the recipe")
        raise RefusedError("model", f"model {release.model.name}, expected {model.name}{differing}")
    _require("agents", release.agents, 1)
    _require("grid", release.exponent, certificate.exponent, differ="bounds or releases")
    # To the last bit, or it could not be added to the others.
    _require("weight", release.weight, terms.weight, differ="bounds, reward_centre or the recipe")
    if not 0 <= release.group < terms.groups:
        raise RefusedError("group", f"group {release.group}, expected 0 to {terms.groups - 1}")
    if not 1 <= release.number <= terms.releases:
        raise RefusedError("number", f"release {release.number}, expected 1 to {terms.releases}")
    variance = entry_variance(certificate, mechanism, release.number)
    if not math.isclose(release.variance, variance, rel_tol=_TOLERANCE):
        differing = _differing(
            "epsilon, delta, releases, mechanism, quiet, decay, records_per_person or spacing"
        )
        raise RefusedError("variance", f"variance {release.variance:g}, expected {variance:g}{differing}")
    largest = largest_value(agents)
    if max(int(release.values.max()), -int(release.values.min())) > largest:
        raise RefusedError("magnitude", f"a value beyond {largest}, which could overflow the sum")
    require_definite(release)
    return release


def _of_dimension(size: int) -> str:
    """The dimension that a message of so many bytes has, in brackets; nothing if there is none."""
    for dim in range(1, math.isqrt(size) + 1):  # a message has 4 d² bytes and more
        if messages.message_size(dim) >= size:
            return f" (dimension {dim})" if messages.message_size(dim) == size else ""
    return ""


def largest_value(agents: int) -> int:
    """|value| a release may have, so that the sum over all agents fits 64 bits."""
    return (2**63 - 1) // max(agents, 1)


def _require(reason: str, value: float, expected: float, *, differ: str = "") -> None:
    if value != expected:
        why = _differing(differ) if differ else ""
        raise RefusedError(reason, f"{reason} {value!r}, expected {expected!r}{why}")


def _differing(settings: str) -> str:
    return f": the sender's terms differ from those known here in {settings}"


def require_definite(release: messages.GridSum) -> None:
    """Raise `RefusedError` for a Gram below what its noise explains."""
    floor, shifted = least_eigenvalue(release.dim, release.variance), release.read().gram
    np.fill_diagonal(shifted, shifted.diagonal() - floor)
    try:
        np.linalg.cholesky(shifted)  # quick; exists if all eigenvalues are above the floor
        return
    except np.linalg.LinAlgError:
        least = float(np.linalg.eigvalsh(release.read().gram)[0])
    if not least >= floor:
        raise RefusedError("definite", f"an eigenvalue {least:g}, expected at least {floor:g}")


@dataclass(slots=True)
class RefusalCount:
    """Refusals by agent and reason: as many counters as there are agents and reasons, never more."""

    names: Collection[str]  # who has counters of their own; all others share one
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # by (agent, reason)

    def add(self, agent: str, reason: str) -> int:
        """Count one; returns how many of this kind there were."""
        key = (agent if agent in self.names else "(unknown)", reason if reason in REASONS else "malformed")
        self.counts[key] += 1
        return self.counts[key]

    @property
    def total(self) -> int:
        """How many there were in all."""
        return self.counts.total()

    def as_dict(self) -> dict[str, dict[str, int]]:
        """By agent, then reason."""
        plain: dict[str, dict[str, int]] = {}
        for (agent, reason), count in sorted(self.counts.items()):
            plain.setdefault(agent, {})[reason] = count
        return plain
