"""The deployed door out of an agent: records in, grid integers out, noise from OpenDP.

The same mechanism as `privatizer.Privatizer`, which serves simulations; here nothing can be seeded,
everything is a whole number, and the state can be written to disk before anything leaves.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from feducb.config import Budget, Problem, require_integer
from feducb.errors import (
    ConfigurationError,
    PrivacyError,
    RecordOutOfBoundsError,
    ReleasesExhaustedError,
    UnsealedReleaseError,
)
from feducb.interfaces import Trust, require_trust
from feducb.privacy.accounting import Neighbours
from feducb.privacy.calibration import record_radius, reward_weight
from feducb.privacy.encoders import make_encoder
from feducb.privacy.grid import FINE_BITS, Certificate, GridNoise, certify, total
from feducb.privacy.mechanisms import Dense, Mechanism, choose_mechanism
from feducb.privacy.noise import coordinate_count
from feducb.privacy.privatizer import Excess, within_bounds

__all__ = [
    "DeployedPrivatizer",
    "GridRelease",
    "RawUpload",
    "Terms",
    "decode_upload",
    "encode_upload",
    "entry_variance",
    "to_gram_and_moment",
]

Ints = NDArray[np.int64]
Wide = NDArray[np.object_]
Array = NDArray[np.float64]

_SEAL = object()
# mark, dimension, season, number, exponent, digest of the agent's promise; then int64 batch sums
_RAW = struct.Struct("<4sIIIi8s")
_RAW_MARK = b"RAW2"
_EARLIER_RAW = struct.Struct("<4sIIIi")  # it did not say what its agent promises
_EARLIER_MARK = b"RAW1"
_LARGEST_UPLOAD = 2**60  # a coordinate; with so many uploads a sum is below 2^77, and fits the grid (2^78)
_MOST_UPLOADS = 2**17
_GRID_SLACK = 1.0 + 2.0**-9  # on variances: what grid noise and rounding add to a Gaussian (docs/theory.md)


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What an agent or a trusted controller promises about its releases. Public.

    Attributes:
        problem: the public bounds.
        budget: (ε, δ) of a person.
        releases: n, in each group.
        mechanism: the mechanism's name; ``auto`` takes the best for n.
        quiet: how many releases at the start nobody will read (`Dense.quiet`).
        records_per_person: p, how many records of one person may enter at an agent, over all its groups.
        agents_per_person: how many agents one person visits at most; 1 says that people do not visit several.
            Where the controller is trusted, its noise covers p records at each of so many. Where nobody is,
            noise does not depend on it: the promise is about what one agent lets out, and `mu_at` says what a
            person at several pays.
        trust: who adds the noise; its name will do.
        groups: estimators an agent keeps, over disjoint records; each has its own stream of ``releases``
            releases. What is promised does not depend on how many there are.
        excess: what happens to a record beyond the bounds. ``clip`` (default) shortens it, and takes what is
            not finite for nothing; ``refuse`` raises and takes in none of the records that came with it, so
            use it only where the caller sends records one by one.
    """

    problem: Problem
    budget: Budget
    releases: int
    mechanism: str = "auto"
    quiet: int = 0
    records_per_person: int = 1
    agents_per_person: int = 1
    trust: Trust = field(default_factory=lambda: require_trust("nobody"))
    groups: int = 1
    excess: Excess = "clip"

    def __post_init__(self) -> None:
        require_integer("releases", self.releases, at_least=1)
        require_integer("records_per_person", self.records_per_person, at_least=1)
        require_integer("agents_per_person", self.agents_per_person, at_least=1)
        require_integer("groups", self.groups, at_least=1)
        object.__setattr__(self, "trust", require_trust(self.trust))
        if self.groups > 1:
            self.trust.refuse("groups", "groups", self.groups)
        if self.excess not in ("clip", "refuse"):
            raise ConfigurationError("excess", self.excess, "clip or refuse")
        require_integer("quiet", self.quiet, at_least=0)
        if self.quiet and not isinstance(self.factors, Dense):
            raise ConfigurationError("quiet", self.quiet, f"0 with the mechanism {self.factors.name}")

    @property
    def factors(self) -> Mechanism:
        """The mechanism."""
        chosen = choose_mechanism(self.mechanism, self.releases)
        return Dense(self.releases, self.quiet) if self.quiet and isinstance(chosen, Dense) else chosen

    @property
    def weight(self) -> float:
        """s, by which rewards are multiplied before noise: it follows from the public bounds."""
        return reward_weight(self.problem)

    @property
    def neighbours(self) -> Neighbours:
        """Which two worlds must look alike."""
        return Neighbours.ONE_RECORD if self.records_covered == 1 else Neighbours.ONE_PERSON

    @property
    def records_covered(self) -> int:
        """How many records of one person the noise covers: p, or under a trusted controller p at each agent.

        A person's records move the rows by at most the sum of their moves (docs/theory.md, 2).
        """
        return self.trust.records_covered(self.records_per_person, self.agents_per_person)

    def mu_at(self, agents: int) -> float:
        """μ of a person with p records at each of so many agents (`Trust.spend`)."""
        return self.trust.mu_at(self.certificate().mu, agents, agents_per_person=self.agents_per_person)

    def certificate(self) -> Certificate:
        """The noise, and the proof that it suffices."""
        return certify(
            self.budget,
            sensitivity=math.sqrt(2.0) * record_radius(self.problem, self.weight),
            coordinates=coordinate_count(self.problem.dim),
            releases=self.releases,
            records=self.records_covered,
        )

    def digest(self) -> bytes:
        """8 bytes that tell promises apart: of all that noise follows from, as it was stated.

        Of what was stated, not of the noise: other machines may round that otherwise.
        """
        problem, budget = self.problem, self.budget
        real = (problem.action_bound, problem.reward_bound, problem.parameter_bound)
        counts = (problem.dim, self.releases, self.quiet, self.records_per_person, self.agents_per_person)
        plain = [
            *(float(value) for value in (*real, budget.epsilon, budget.delta)),
            *(int(value) for value in counts),
            self.factors.name,
            self.trust.name,
        ]
        return hashlib.sha256(json.dumps(plain).encode()).digest()[:8]

    def to_json(self) -> str:
        """As text, for the store."""
        problem = {name: getattr(self.problem, name) for name in self.problem.__slots__}
        plain = {
            "problem": problem,
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "releases": int(self.releases),
            "mechanism": self.factors.name,
            "quiet": self.quiet,
            "records_per_person": int(self.records_per_person),
            "agents_per_person": int(self.agents_per_person),
            "trust": self.trust.name,
            "groups": int(self.groups),
            "excess": self.excess,
        }
        return json.dumps(plain, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """Back from text."""
        plain = json.loads(text)
        return cls(
            problem=Problem(**plain["problem"]),
            budget=Budget(epsilon=plain["epsilon"], delta=plain["delta"]),
            releases=plain["releases"],
            mechanism=plain["mechanism"],
            quiet=plain["quiet"],
            records_per_person=plain["records_per_person"],
            agents_per_person=plain.get("agents_per_person", 1),  # absent where noise was for p records alone
            trust=require_trust(plain["trust"]),
            groups=plain.get("groups", 1),  # absent in files from before there were groups
            excess=plain["excess"],
        )


class GridRelease:
    """What leaves: cumulative noisy sums as grid integers. Only a `DeployedPrivatizer` can build one.

    Attributes:
        number: k, counted from 1. Release k replaces release k − 1.
        dim: d.
        exponent: the grid is 2^exponent.
        weight: s, of rewards.
        values: (q,), coordinates in grid steps: diagonal and √2 × off-diagonal of the Gram, √2 s × moment.
        variance: of one off-diagonal entry of the Gram; public.
    """

    __slots__ = ("dim", "exponent", "number", "values", "variance", "weight")

    def __init__(
        self,
        *,
        number: int,
        dim: int,
        exponent: int,
        weight: float,
        values: Ints,
        variance: float,
        seal: object,
    ) -> None:
        if seal is not _SEAL:
            raise UnsealedReleaseError(
                "only a DeployedPrivatizer builds a GridRelease: raw sums must not leave"
            )
        self.number = number
        self.dim = dim
        self.exponent = exponent
        self.weight = weight
        self.values = values
        self.variance = variance


class RawUpload:
    """Raw batch sums on their way to a trusted controller; only a trust with raw sums lets one out.

    Attributes:
        dim: d.
        values: (q,), batch sums, FINE_BITS finer than the grid.
        exponent: the grid is 2^exponent.
        promise: `Terms.digest` of its agent; None in uploads of an earlier version.
    """

    __slots__ = ("dim", "exponent", "promise", "values")

    def __init__(self, *, dim: int, exponent: int, promise: bytes | None, values: Ints, seal: object) -> None:
        if seal is not _SEAL:
            raise UnsealedReleaseError("only an agent that trusts the controller builds a RawUpload")
        self.promise = promise
        self.dim = dim
        self.exponent = exponent
        self.values = values


class DeployedPrivatizer:
    """One stream of releases, from its first record to its last release; an agent has one a group.

    Guarantees:
        Everything `release` ever returns is, together, (ε, δ)-private for a person with at most
        `Terms.records_covered` records, against an adversary who chooses records by earlier releases,
        provided that each returned release is stored before it is sent and never made again from an older
        state (`store.AgentStore` sees to it). Bounds are enforced in here.

    Attributes:
        terms: what is promised.
        certificate: the noise.
        released: how many releases have been made.
        pending: how many records wait for the next one. Private.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.certificate = terms.certificate()
        self.released = 0
        self.pending = 0
        self._coordinates = coordinate_count(terms.problem.dim)
        self._mechanism = terms.factors
        self._encoder = make_encoder(self._mechanism, self._coordinates)
        self._noise = GridNoise(self.certificate)
        self._batch: Wide = np.zeros(self._coordinates, dtype=object)
        self._uploads = 0

    def record(self, actions: Array, rewards: Array) -> None:
        """Take records in: actions (n, d), rewards (n,)."""
        actions = np.atleast_2d(np.asarray(actions, dtype=np.float64))
        rewards = np.atleast_1d(np.asarray(rewards, dtype=np.float64))
        if (
            actions.ndim != 2
            or actions.shape[1] != self.terms.problem.dim
            or rewards.shape != actions.shape[:1]
        ):
            raise RecordOutOfBoundsError(
                f"records have shapes {actions.shape} and {rewards.shape}, "
                f"expected (n, {self.terms.problem.dim}) and (n,)"
            )
        actions, rewards = within_bounds(self.terms.problem, self.terms.excess, actions, rewards)
        real = _coordinates_of(actions, self.terms.weight * rewards)
        fine = np.rint(np.ldexp(real, FINE_BITS - self.certificate.exponent)).astype(np.int64)
        self._batch = self._batch + _exact_sum(fine)
        self.pending += len(actions)

    def receive(self, upload: RawUpload, records: int = 0) -> None:
        """Take a trusting agent's batch in (the controller, where it is trusted).

        An upload has no name: who may get one twice keeps count (`store.ControllerStore` does). One whose
        agent promises anything else than this controller does not enter: the noise here might be too small
        for it.
        """
        if not self.terms.trust.raw or not isinstance(upload, RawUpload):
            raise UnsealedReleaseError("only a trusted controller receives raw uploads")
        if upload.promise is None:
            raise ConfigurationError(
                "terms of an upload", None, "what its agent promises: it is of an earlier version of feducb"
            )
        if upload.promise != self.terms.digest():
            raise ConfigurationError(
                "terms of an upload",
                upload.promise.hex(),
                f"{self.terms.digest().hex()}, the controller's: bounds, epsilon, delta, releases, "
                "mechanism, quiet, records_per_person and agents_per_person must be the same (`feducb agent "
                "terms`)",
            )
        if (upload.dim, upload.exponent) != (self.terms.problem.dim, self.certificate.exponent):
            raise ConfigurationError(
                "upload", (upload.dim, upload.exponent), "the controller's dimension and grid"
            )
        # Refused for what it is and for how many came before, never for what others sent: that would tell.
        _require_admissible(upload.values)
        if self._uploads >= _MOST_UPLOADS:
            raise ConfigurationError("uploads", self._uploads + 1, f"at most {_MOST_UPLOADS} in one season")
        self._batch = self._batch + upload.values.astype(object)
        self._uploads += 1
        self.pending += records

    def upload(self) -> RawUpload:
        """Hand the pending batch over raw (an agent that trusts the controller), and forget it."""
        if not self.terms.trust.raw:
            raise UnsealedReleaseError("raw sums leave an agent only if its terms trust the controller")
        _require_admissible(self._batch)
        values = self._batch.astype(np.int64)
        self._batch, self.pending = np.zeros_like(self._batch), 0
        return RawUpload(
            dim=self.terms.problem.dim,
            exponent=self.certificate.exponent,
            promise=self.terms.digest(),
            values=values,
            seal=_SEAL,
        )

    def release(self) -> GridRelease:
        """Publish everything recorded so far, under noise; raises `ReleasesExhaustedError` after the last."""
        number = self.released + 1
        if number > self.terms.releases:
            raise ReleasesExhaustedError(
                f"release {number} was asked for, but the budget covers {self.terms.releases}"
            )
        fresh = self._noise.draw(self._coordinates)
        row = self._encoder.encode(self._batch)
        told = self._encoder.decode(total((row, fresh)))
        self.released, self.pending, self._batch = number, 0, np.zeros_like(self._batch)
        return GridRelease(
            number=number,
            dim=self.terms.problem.dim,
            exponent=self.certificate.exponent,
            weight=self.terms.weight,
            values=np.rint(told).astype(np.int64),
            variance=entry_variance(self.certificate, self._mechanism, number),
            seal=_SEAL,
        )

    def dump(self) -> bytes:
        """The state, as bytes: to be on disk before a release is sent. Private."""
        batch = [int(value) for value in self._batch]
        plain = {"released": self.released, "pending": self.pending, "uploads": self._uploads, "batch": batch}
        parts = [json.dumps(plain).encode(), self._encoder.dump()]
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)

    def load(self, data: bytes) -> None:
        """Go on from a state."""
        parts = []
        while data:
            size = int.from_bytes(data[:8], "little")
            parts.append(data[8 : 8 + size])
            data = data[8 + size :]
        head = json.loads(parts[0])
        self.released, self.pending = head["released"], head["pending"]
        self._uploads, self._batch = head["uploads"], np.array(head["batch"], dtype=object)
        self._encoder.load(parts[1])

    def dump_batch(self) -> bytes:
        """What waits for the next release, as sums alone. Private."""
        plain = {"pending": self.pending, "batch": [int(value) for value in self._batch]}
        return json.dumps(plain).encode()

    def load_batch(self, data: bytes) -> None:
        """Put what waits back, after `load`."""
        plain = json.loads(data)
        self.pending, self._batch = plain["pending"], np.array(plain["batch"], dtype=object)

    def __copy__(self) -> NoReturn:
        raise PrivacyError("a privatizer is not copied: two of them would draw two noises for one release")

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("a privatizer is not copied: two of them would draw two noises for one release")


def entry_variance(certificate: Certificate, mechanism: Mechanism, number: int) -> float:
    """Variance of an off-diagonal entry of the Gram in release ``number``: public, and the same for all."""
    entry = certificate.scale / math.sqrt(2.0)  # an off-diagonal entry is its coordinate over √2
    return (entry * float(mechanism.error(number))) ** 2 * _GRID_SLACK


def _coordinates_of(actions: Array, rewards: Array) -> Array:
    """(n, q): diagonal and √2 × off-diagonal of x xᵀ, then √2 y x: Euclidean length is Frobenius length.

    ``rewards`` come scaled by s already.
    """
    rows, columns = np.triu_indices(actions.shape[1])
    weights = np.where(rows == columns, 1.0, math.sqrt(2.0))
    gram = actions[:, rows] * actions[:, columns] * weights
    return np.hstack([gram, math.sqrt(2.0) * rewards[:, None] * actions])


def _exact_sum(values: Ints) -> Wide:
    """Column sums that cannot wrap: high and low halves are added apart."""
    high, low = values >> 32, values & 0xFFFFFFFF
    halves = zip(high.sum(axis=0), low.sum(axis=0), strict=True)
    return np.array([(int(upper) << 32) + int(lower) for upper, lower in halves], dtype=object)


def _require_admissible(values: Ints | Wide) -> None:
    """Small enough that no number of admitted uploads can overflow a sum."""
    largest = max((abs(int(value)) for value in values), default=0)
    if largest > _LARGEST_UPLOAD:
        raise ConfigurationError("upload", f"up to 2^{largest.bit_length()}", "at most 2^60 a coordinate")


def encode_upload(upload: RawUpload, *, season: int, number: int) -> bytes:
    """A raw upload as bytes, for the controller alone; `messages.decode` refuses them."""
    if upload.promise is None:
        raise ConfigurationError("upload", None, "one that says what its agent promises")
    head = _RAW.pack(_RAW_MARK, upload.dim, season, number, upload.exponent, upload.promise)
    return head + upload.values.astype("<i8").tobytes()


def decode_upload(payload: bytes, terms: Terms) -> tuple[int, int, RawUpload]:
    """Season, number and content of an upload, for a controller with these terms.

    One of an earlier version is read too, so that it is known again; it never enters a sum.
    """
    if not terms.trust.raw:
        raise UnsealedReleaseError("only a trusted controller reads raw uploads")
    earlier = payload.startswith(_EARLIER_MARK)
    head = _EARLIER_RAW if earlier else _RAW
    size = head.size + 8 * coordinate_count(terms.problem.dim)
    if len(payload) != size or not payload.startswith((_RAW_MARK, _EARLIER_MARK)):
        raise ConfigurationError("upload", f"{len(payload)} bytes", f"RAW2 and {size} bytes in all")
    _, dim, season, number, exponent, *promise = head.unpack_from(payload)
    values = np.frombuffer(payload, dtype="<i8", offset=head.size).astype(np.int64)
    upload = RawUpload(
        dim=dim, exponent=exponent, promise=None if earlier else promise[0], values=values, seal=_SEAL
    )
    return season, number, upload


def to_gram_and_moment(values: Ints, *, dim: int, exponent: int, weight: float) -> tuple[Array, Array]:
    """Read grid integers: gram (d, d) and moment (d,)."""
    real = np.ldexp(values.astype(np.float64), exponent)
    place = _places(dim)
    gram = real[place] * (1.0 / math.sqrt(2.0))
    np.fill_diagonal(gram, real[place.diagonal()])
    return gram, real[dim * (dim + 1) // 2 :] / (math.sqrt(2.0) * weight)


@lru_cache(maxsize=1)
def _places(dim: int) -> NDArray[np.int32]:
    """(d, d): where an entry of the Gram stands among the coordinates."""
    rows, columns = np.triu_indices(dim)
    place = np.empty((dim, dim), dtype=np.int32)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    place.setflags(write=False)
    return place
