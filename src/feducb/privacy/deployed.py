"""The deployed door out of an agent: records in, grid integers out, noise from OpenDP.

The same steps as in simulations (`privatizer.WayOut`); here nothing can be seeded, everything is a whole
number, and the state can be written to disk before anything leaves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from feducb.errors import (
    ConfigurationError,
    PrivacyError,
    RecordOutOfBoundsError,
    RefusedError,
    ReleasesExhaustedError,
    UnsealedReleaseError,
)
from feducb.privacy.encoders import Decoder, Encoder, Wide, make_decoder, make_encoder, split_joint
from feducb.privacy.grid import FINE_BITS, GridNoise, entry_variance, total
from feducb.privacy.privatizer import _SEAL, Sealed, State, WayOut, placed, within_bounds
from feducb.privacy.terms import Terms
from feducb.privacy.uploads import RawUpload, require_admissible, require_same_promise
from feducb.types import Array

__all__ = ["DeployedPrivatizer", "GridRelease", "NoisyRow"]

Ints = NDArray[np.int64]

_LARGEST_READ = 2.0**62  # of what opened rows tell, before it is cast
_MOST_UPLOADS = 2**17  # in one season: see `uploads._LARGEST_UPLOAD`


@dataclass(kw_only=True, slots=True, eq=False, repr=False)
class GridRelease(Sealed):
    """What leaves: cumulative noisy sums as grid integers. Only a `DeployedPrivatizer` can build one.

    Attributes:
        number: k, counted from 1. Release k replaces release k − 1.
        dim: d.
        exponent: the grid is 2^exponent.
        weight: s, of rewards.
        values: (q,), a sum of flat vectors (`Model.flatten`) in grid steps.
        variance: of one off-diagonal entry of the Gram; public.
        model: the name of what reads it.
        agents: how many are in it: 1, or those in a row that was opened as a sum.
    """

    forged: ClassVar[str] = "only a DeployedPrivatizer builds a GridRelease: raw sums must not leave"
    number: int
    dim: int
    exponent: int
    weight: float
    values: Ints
    variance: float
    model: str = "linear"
    agents: int = 1


@dataclass(kw_only=True, slots=True, eq=False, repr=False)
class NoisyRow(Sealed):
    """A row under one agent's share of noise, which alone does not hide it: it leaves under pads.

    Attributes:
        number: k, counted from 1.
        values: (q,), in grid steps. Private.
    """

    forged: ClassVar[str] = "only a DeployedPrivatizer builds a NoisyRow: raw sums must not leave"
    number: int
    values: Ints


class _Coder(NamedTuple):
    """What a stream carries from one release to the next."""

    encoder: Encoder
    decoder: Decoder


class _OnGrid(WayOut[Wide, _Coder, GridNoise, GridRelease]):
    """Whole numbers: the batch in fine grid steps, kept apart from what was released before."""

    def __init__(self, terms: Terms) -> None:
        self.problem, self.model, self.excess = terms.problem, terms.model, terms.excess
        self.mechanism, self.certificate, self.weight = terms.factors, terms.certificate(), terms.weight

    def _add(self, batch: Wide, actions: Array, rewards: Array) -> Wide:
        real = self.model.flatten(actions, rewards, self.weight)
        fine = np.rint(np.ldexp(real, FINE_BITS - self.certificate.exponent)).astype(np.int64)
        return np.asarray(batch + _exact_sum(fine))

    def _publish(
        self, state: State[Wide, _Coder], number: int, source: GridNoise
    ) -> tuple[Wide, _Coder, GridRelease]:
        encoder, decoder = state.memory
        row = encoder.encode(state.total)
        release = self.read(decoder.decode(total((row, self.draw(source)))), number)
        return np.zeros_like(state.total), state.memory, release

    def draw(self, source: GridNoise) -> Ints:
        """(q,), the noise of one row."""
        noisy = self.model.noisy(self.problem.dim)
        return placed(source.draw(int(noisy.sum())), noisy)

    def read(self, decoded: Array, number: int, *, agents: int = 1, noises: int = 1) -> GridRelease:
        """Release ``number``: (q,), what rows up to it tell, under so many agents' noises."""
        return GridRelease(
            number=number,
            dim=self.problem.dim,
            exponent=self.certificate.exponent,
            weight=self.weight,
            values=np.rint(decoded).astype(np.int64),
            variance=noises * entry_variance(self.certificate, self.mechanism, number),
            model=self.model.name,
            agents=agents,
            seal=_SEAL,
        )


class DeployedPrivatizer:
    """One stream of releases, from its first record to its last release; an agent has one per group.

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
        taken: how many records were taken in. Private.
        opened: how many rows were read, where sums of rows are opened.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.released = self.pending = self.taken = self.opened = 0
        self._way_out = _OnGrid(terms)
        self.certificate = self._way_out.certificate
        mechanism, coordinates = self._way_out.mechanism, self.certificate.coordinates
        self._encoder = make_encoder(mechanism, coordinates)
        self._decoder = make_decoder(mechanism, coordinates, gaps=terms.trust.padded)
        self._noise = GridNoise(self.certificate)
        self._batch: Wide = np.zeros(self.certificate.coordinates, dtype=object)
        self._uploads = 0

    def _state(self) -> State[Wide, _Coder]:
        return State(self._batch, self.released, _Coder(self._encoder, self._decoder))

    def record(self, actions: Array, rewards: Array) -> None:
        """Take records in: actions (n, d), rewards (n,)."""
        actions = np.atleast_2d(np.asarray(actions, dtype=np.float64))
        rewards = np.atleast_1d(np.asarray(rewards, dtype=np.float64))
        dim = self.terms.problem.dim
        if actions.ndim != 2 or actions.shape[1] != dim or rewards.shape != actions.shape[:1]:
            raise RecordOutOfBoundsError(
                f"records have shapes {actions.shape} and {rewards.shape}, expected (n, {dim}) and (n,)"
            )
        self._batch = self._way_out.record(self._state(), actions, rewards).total
        self.pending += len(actions)
        self.taken += len(actions)

    def sums_of(self, actions: Array, rewards: Array) -> Wide:
        """(q,), what these records come to, exactly as they would enter; nothing is taken in. Raw."""
        nothing = replace(self._state(), total=np.zeros_like(self._batch))
        return self._way_out.record(nothing, actions, rewards).total

    def squares_of(self, actions: Array, rewards: Array) -> int:
        """Σ (s y)² of these records' rewards as they would enter, on the grid of `sums_of`. Raw.

        The corner of Σ (x, s y)(x, s y)ᵀ, which no release has: it would cost privacy and help nobody.
        """
        way_out = self._way_out
        _, rewards = within_bounds(way_out.problem, way_out.excess, actions, rewards)
        fine = np.ldexp((way_out.weight * rewards) ** 2, FINE_BITS - self.certificate.exponent)
        return sum(map(round, fine.tolist()))  # each by itself: no matter what it is added up with

    def receive(self, upload: RawUpload, records: int = 0) -> None:
        """Take a trusting agent's batch in (the controller, where it is trusted).

        An upload has no name: who may get one twice keeps count (`store.ControllerStore` does).
        """
        self.require_upload(upload)
        self._batch = self._batch + upload.values.astype(object)
        self._uploads += 1
        self.pending += records

    def require_upload(self, upload: RawUpload, *, ahead: int = 0) -> None:
        """Raise unless a trusting agent's batch may enter, after so many that wait to enter before it.

        One whose agent promises anything else than this controller may not.
        """
        if not self.terms.trust.raw or not isinstance(upload, RawUpload):
            raise UnsealedReleaseError("only a trusted controller receives raw uploads")
        require_same_promise(upload, self.terms)
        if (upload.dim, upload.exponent) != (self.terms.problem.dim, self.certificate.exponent):
            raise ConfigurationError(
                "upload", (upload.dim, upload.exponent), "the controller's dimension and grid"
            )
        # Refused for what it is and for how many came before, never for what others sent: that would tell.
        require_admissible(upload.values)
        number = self._uploads + ahead + 1
        if number > _MOST_UPLOADS:
            raise ConfigurationError("uploads", number, f"at most {_MOST_UPLOADS} in one season")

    def upload(self) -> RawUpload:
        """Hand the pending batch over raw (an agent that trusts the controller), and forget it."""
        if not self.terms.trust.raw:
            raise UnsealedReleaseError("raw sums leave an agent only if its terms trust the controller")
        require_admissible(self._batch)
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
        if self.terms.trust.padded:
            raise UnsealedReleaseError("a share of noise does not hide a row: it leaves padded, by `row`")
        if not self.terms.trust.leaves:
            raise UnsealedReleaseError(f"under trust='{self.terms.trust}' nothing leaves")
        state, release = self._way_out.release(self._state(), self._noise)
        self.released, self.pending, self._batch = state.released, 0, state.total
        return release

    def row(self, *, data: bool = True) -> NoisyRow:
        """The next row of E·b under this agent's share of noise, and the end of its batch; to be padded.

        Args:
            data: whether there is any; else noise alone, and nothing moves: the row was spent before.
        """
        self._require_padded()
        fresh = self._way_out.draw(self._noise)
        if not data:
            return NoisyRow(number=self.released, values=fresh, seal=_SEAL)
        self._require_left()
        values = total((self._encoder.encode(self._batch), fresh))
        self.released, self.pending, self._batch = self.released + 1, 0, np.zeros_like(self._batch)
        return NoisyRow(number=self.released, values=values, seal=_SEAL)

    def skip(self) -> None:
        """Leave a row out: its column stays empty, and what waits enters the next row that is built."""
        self._require_padded()
        self._require_left()
        self._encoder.encode(np.zeros_like(self._batch))
        self.released += 1

    def read(self, row: Ints | None, *, agents: int) -> GridRelease:
        """What all rows so far tell, by their next sum; None if it is missing. Public.

        Its variance is stated as if all agents were in every row, which the confidence set is for
        (docs/theory.md, 9).

        Args:
            row: (q,), a sum that was opened.
            agents: whose rows are in it.
        """
        self._require_padded()
        self.opened += 1
        values = np.zeros(self.certificate.coordinates, dtype=np.int64) if row is None else row
        decoded = self._decoder.decode(values)
        if np.abs(decoded).max() >= _LARGEST_READ:
            raise RefusedError("range", "a sum that does not fit 64 bits once it is read")
        return self._way_out.read(decoded, self.opened, agents=max(1, agents), noises=self.terms.agents)

    def _require_padded(self) -> None:
        if not self.terms.trust.padded:
            raise UnsealedReleaseError("rows leave an agent one by one only where they are padded")

    def _require_left(self) -> None:
        if self.released >= self.terms.releases:
            raise ReleasesExhaustedError(
                f"row {self.released + 1} was asked for, but the budget covers {self.terms.releases}"
            )

    def dump(self, *, waiting: bool = True) -> bytes:
        """The state, as bytes: to be on disk before a release is sent. Private.

        Args:
            waiting: with what waits for the next release; else that is kept elsewhere (`dump_batch`).
        """
        batch, pending = [int(value) for value in self._batch], self.pending
        if not waiting:
            batch, pending = [0] * len(batch), 0
        plain = {"released": self.released, "pending": pending, "uploads": self._uploads, "batch": batch}
        if self.terms.trust.padded:
            plain |= {"taken": self.taken - self.pending + pending, "opened": self.opened}
        parts = [json.dumps(plain).encode(), self._encoder.dump(), self._decoder.dump()]
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)

    def load(self, data: bytes) -> None:
        """Go on from a state."""
        parts: list[bytes] = []
        while data:
            size = 8 + int.from_bytes(data[:8], "little")
            parts, data = [*parts, data[8:size]], data[size:]
        head = json.loads(parts[0])
        if len(parts) == 2:  # of an earlier version
            parts[1:] = split_joint(self._way_out.mechanism, self.certificate.coordinates, parts[1])
        self.released, self.pending = head["released"], head["pending"]
        self._uploads, self._batch = head["uploads"], np.array(head["batch"], dtype=object)
        self.taken, self.opened = head.get("taken", 0), head.get("opened", 0)
        self._encoder.load(parts[1])
        self._decoder.load(parts[2])

    def dump_batch(self) -> bytes:
        """What waits for the next release, as sums alone. Private."""
        plain = {"pending": self.pending, "batch": [int(value) for value in self._batch]}
        return json.dumps(plain).encode()

    def load_batch(self, data: bytes) -> None:
        """Put what waits back, after `load`."""
        plain = json.loads(data)
        self.taken += plain["pending"] - self.pending
        self.pending, self._batch = plain["pending"], np.array(plain["batch"], dtype=object)

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("a privatizer is not copied: two of them would draw two noises for one release")

    __copy__ = __reduce__


def _exact_sum(values: Ints) -> Wide:
    """Column sums that cannot wrap: high and low halves are added apart."""
    high, low = values >> 32, values & 0xFFFFFFFF
    halves = zip(high.sum(axis=0), low.sum(axis=0), strict=True)
    return np.array([(int(upper) << 32) + int(lower) for upper, lower in halves], dtype=object)
