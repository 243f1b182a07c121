"""Rows of E times integer batch sums, in whole numbers: the deployed side of a mechanism.

Floating-point sums are not linear, so their rounding would enter the sensitivity through the size of all data
together. Here E is fixed-point, every entry rounded towards zero, so that columns only get shorter; what is
rounded after that is counted in `grid.ROUNDING_STEPS`. Decoding is post-processing and may use floats.
"""

from __future__ import annotations

import json
import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from feducb.errors import ConfigurationError, PrivacyError
from feducb.privacy.grid import FINE_BITS, MAX_VALUE
from feducb.privacy.mechanisms import BufferedToeplitz, Mechanism, Memory
from feducb.privacy.mechanisms.mechanism import prefix_sums
from feducb.types import Array

__all__ = ["Decoder", "Encoder", "Wide", "make_decoder", "make_encoder", "split_joint"]

Ints = NDArray[np.int64]
Wide = NDArray[np.object_]
"""Whole numbers of any size."""

_FIXED_BITS = 40  # of a matrix entry
_EXTRA_BITS = 32  # of a buffer, beyond those of a batch sum
_WEIGHT_BITS = 60
_POLE_BITS = 50  # rates are multiples of 2^-50: decay is exact
_POWER_BITS = 128  # of a power of a pole, rounded down
_ROUNDED_OFF = 1e-9  # by which an entry of F that is 0 may be off
_LOOKED_AT = 1024  # releases of which F is looked at as a matrix
_MOST_DRIFT = 2.0**-16  # grid steps by which rounded buffers may move a row: see `grid.ROUNDING_STEPS`


class Encoder(Protocol):
    """Streams batches in and rows out; its state can be written to disk. Private."""

    def encode(self, batch: Ints | Wide) -> Ints:
        """The next row of E·b, in grid steps, from a batch sum kept FINE_BITS finer."""
        ...

    def dump(self) -> bytes:
        """The state, as bytes."""
        ...

    def load(self, data: bytes) -> None:
        """Go on from a state."""
        ...


class Decoder(Protocol):
    """Reads rows that were published, an agent's own or sums over agents; its state can be kept on disk."""

    def decode(self, row: Ints) -> Array:
        """The prefix sum (with its noise) that this and all earlier published rows tell, in grid steps."""
        ...

    def dump(self) -> bytes:
        """The state, as bytes."""
        ...

    def load(self, data: bytes) -> None:
        """Go on from a state."""
        ...


def make_encoder(mechanism: Mechanism, coordinates: int) -> Encoder:
    """The encoder of a mechanism that publishes one row per release."""
    _require_rows(mechanism)
    if isinstance(mechanism, BufferedToeplitz):
        return _BufferedEncoder(mechanism, coordinates)
    return _MatrixEncoder(mechanism, coordinates)


def make_decoder(mechanism: Mechanism, coordinates: int, *, gaps: bool = False) -> Decoder:
    """The decoder that goes with it.

    Args:
        mechanism: the encoder's.
        coordinates: q.
        gaps: whether rows may be missing, for some agents or for all: they are read as 0 then. Refused if an
            entry of F is negative. As none of E is, a batch counts in every prefix sum with a weight from 0
            to 1, whatever is missing (docs/theory.md, 9).
    """
    _require_rows(mechanism)
    if gaps:
        _require_no_negative(mechanism)
    if isinstance(mechanism, BufferedToeplitz):
        return _BufferedDecoder(mechanism)
    return _MatrixDecoder(mechanism, coordinates)


def split_joint(mechanism: Mechanism, coordinates: int, data: bytes) -> tuple[bytes, bytes]:
    """The two states in one that earlier versions kept for both."""
    if isinstance(mechanism, BufferedToeplitz):
        state = json.loads(data)
        parts = ({name: state[name] for name in names} for names in (("done", "buffers"), ("done", "memory")))
        encoder, decoder = (json.dumps(part).encode() for part in parts)
        return encoder, decoder
    size = data[0]
    cut = 1 + (len(data) - 1) * size // (size + 8)
    return data[:cut], data[cut:]


def _require_rows(mechanism: Mechanism) -> None:
    if any(mechanism.rows(release) != 1 for release in range(1, min(mechanism.releases, 8) + 1)):
        raise ConfigurationError(
            "mechanism", mechanism.name, "one that publishes one row per release when deployed"
        )


def _fixed(mechanism: Mechanism) -> Ints:
    """E in whole numbers."""
    # Shrunk by 2^-32: computed again elsewhere, E may differ by 1e-12, and a stream may see rows of both.
    return np.floor(mechanism.encoder() * (2.0**_FIXED_BITS - 2.0**8)).astype(np.int64)


class _MatrixEncoder:
    """All batches so far, and E as a matrix of whole numbers."""

    def __init__(self, mechanism: Mechanism, coordinates: int) -> None:
        self._fixed = _fixed(mechanism)
        if self._fixed.min() < 0:
            raise PrivacyError(
                "an encoder with a negative entry: several records could cost more than their sum"
            )
        exact = self._fixed.astype(object)
        if max(sum(int(entry) ** 2 for entry in column) for column in exact.T) > 1 << (2 * _FIXED_BITS):
            raise PrivacyError(
                "an encoder with a column longer than 1: a record would move more than its size"
            )
        self._batches = np.empty((0, coordinates), dtype=object)  # of any size: sums must not wrap

    def encode(self, batch: Ints | Wide) -> Ints:
        batches = np.vstack([self._batches, np.asarray(batch).astype(object)])
        weights = self._fixed[len(batches) - 1, : len(batches)]
        row = _round(weights.astype(object) @ batches, _FIXED_BITS + FINE_BITS)
        self._batches = batches  # last: a row that does not fit leaves no trace
        return row

    def dump(self) -> bytes:
        wide = max((abs(int(value)) for value in self._batches.flat), default=0) >= 2**62
        if not wide:
            return bytes([8]) + self._batches.astype("<i8").tobytes()
        return bytes([16]) + b"".join(
            int(value).to_bytes(16, "little", signed=True) for value in self._batches.flat
        )

    def load(self, data: bytes) -> None:
        size, body, coordinates = data[0], data[1:], self._batches.shape[1]
        places = range(0, len(body), size)
        values = [int.from_bytes(body[place : place + size], "little", signed=True) for place in places]
        self._batches = np.array(values, dtype=object).reshape(-1, coordinates)


class _MatrixDecoder:
    """All rows so far, and F = prefix sums · E⁻¹."""

    def __init__(self, mechanism: Mechanism, coordinates: int) -> None:
        encoder = _fixed(mechanism) / 2.0**_FIXED_BITS
        self._decoder = solve_triangular(encoder, prefix_sums(mechanism.releases).T, trans="T", lower=True).T
        self._rows = np.empty((0, coordinates), dtype=np.int64)

    def decode(self, row: Ints) -> Array:
        self._rows = np.vstack([self._rows, row])
        return np.asarray(
            self._decoder[len(self._rows) - 1, : len(self._rows)] @ self._rows.astype(np.float64)
        )

    def dump(self) -> bytes:
        return self._rows.astype("<i8").tobytes()

    def load(self, data: bytes) -> None:
        coordinates = self._rows.shape[1]
        self._rows = np.frombuffer(data, dtype="<i8").astype(np.int64).reshape(-1, coordinates)


class _BufferedEncoder:
    """One buffer of whole numbers per pole.

    Column j of E is 2^-60 × `_inverse` times (1, c_0, c_1, …), c_t = Σ_i weight_i pole_i^t: no entry is
    negative, and `_inverse` is one over the column's length, both in whole numbers, rounded down. So no
    column is longer than 1, whatever `BufferedToeplitz.column_norms`, which decodes, says in floats.

    A buffer loses at most two units of 2^-48 grid steps a release to rounding and forgets at its rate, so it
    is off by at most 2/rate units; a row is off by that times the weights, less than `_MOST_DRIFT` in all.
    """

    def __init__(self, mechanism: BufferedToeplitz, coordinates: int) -> None:
        rates = mechanism.rates
        self._mechanism = mechanism
        self._decay = [round((1.0 - rate) * 2**_POLE_BITS) for rate in rates.poles]
        self._weights = [int(weight * 2.0**_WEIGHT_BITS) for weight in rates.weights]
        if min(self._weights) < 0 or min(self._decay) < 0:
            raise PrivacyError(
                "an encoder with a negative entry: several records could cost more than their sum"
            )
        drift = 2.0 + float(np.sum(2.0 * rates.weights / rates.poles))
        if drift > _MOST_DRIFT * 2.0 ** (_EXTRA_BITS + FINE_BITS):
            raise PrivacyError("an encoder that forgets too slowly: rounding would move its rows too far")
        self._buffers = [[0] * coordinates for _ in rates.poles]
        self._done = 0

    def _inverse(self, column: int) -> int:
        """⌊2^60/length⌋ of a column, counted from 0, before it is stretched.

        Its squared length is 1 + Σ_ij weight_i weight_j (1 − (pole_i pole_j)^m)/(1 − pole_i pole_j) with m
        rows below the diagonal: powers are rounded down, and quotients up.
        """
        rows = self._mechanism.releases - 1 - column
        powers = [_power(decay, rows) for decay in self._decay]
        unit = 1 << (2 * _POWER_BITS)
        squared = unit
        for weight, decay, power in zip(self._weights, self._decay, powers, strict=True):
            for other, slower, below in zip(self._weights, self._decay, powers, strict=True):
                above = weight * other * (unit - power * below) << (2 * _POLE_BITS)
                left = (1 << (2 * _POLE_BITS)) - decay * slower
                squared += -(-above // (left << (2 * _WEIGHT_BITS)))
        return math.isqrt((unit << (2 * _WEIGHT_BITS)) // squared)

    def encode(self, batch: Ints | Wide) -> Ints:
        inverse = self._inverse(self._done)
        items = [(int(value) << _EXTRA_BITS) * inverse >> _WEIGHT_BITS for value in batch]
        row = [
            item
            + (
                sum(w * held[place] for w, held in zip(self._weights, self._buffers, strict=True))
                >> _WEIGHT_BITS
            )
            for place, item in enumerate(items)
        ]
        rounded = _round(np.array(row, dtype=object), _EXTRA_BITS + FINE_BITS)
        self._buffers = [
            [(value * decay >> _POLE_BITS) + item for value, item in zip(held, items, strict=True)]
            for held, decay in zip(self._buffers, self._decay, strict=True)
        ]
        self._done += 1  # last: a row that does not fit leaves no trace
        return rounded

    def dump(self) -> bytes:
        return json.dumps({"done": self._done, "buffers": self._buffers}).encode()

    def load(self, data: bytes) -> None:
        state = json.loads(data)
        self._done, self._buffers = state["done"], state["buffers"]


class _BufferedDecoder:
    """The mechanism's own stream of F·rows, which counts for itself."""

    def __init__(self, mechanism: BufferedToeplitz) -> None:
        self._mechanism = mechanism
        self._done = 0
        self._memory: Memory = ()

    def decode(self, row: Ints) -> Array:
        self._done += 1
        self._memory, read = self._mechanism.correlate(self._memory, self._done, row.astype(np.float64)[None])
        return read

    def dump(self) -> bytes:
        memory = [None if part is None else part.tolist() for part in self._memory]
        return json.dumps({"done": self._done, "memory": memory}).encode()

    def load(self, data: bytes) -> None:
        state = json.loads(data)
        self._done = state["done"]
        self._memory = tuple(None if part is None else np.array(part) for part in state["memory"])


def _require_no_negative(mechanism: Mechanism) -> None:
    """Of F as a matrix where it is small; else of its first column, the longest, as it streams."""
    if mechanism.releases <= _LOOKED_AT:
        least = float(mechanism.decoder().min())
    else:
        memory: Memory = ()
        entries = []
        for release in range(1, _LOOKED_AT + 1):
            memory, row = mechanism.correlate(memory, release, np.array([[float(release == 1)]]))
            entries.append(float(row[0]))
        least = min(entries)
    if least < -_ROUNDED_OFF:
        expected = (
            "one whose decoder has no negative entry: a batch could count more than once, or less than 0"
        )
        raise ConfigurationError("mechanism", mechanism.name, expected)


def _power(decay: int, times: int) -> int:
    """(decay / 2^50)^times, in units of 2^-128, rounded down."""
    result, base = 1 << _POWER_BITS, decay << (_POWER_BITS - _POLE_BITS)
    while times:
        if times & 1:
            result = result * base >> _POWER_BITS
        base = base * base >> _POWER_BITS
        times >>= 1
    return result


def _round(exact: Wide, bits: int) -> Ints:
    """Nearest whole numbers of exact / 2^bits; raises if one does not fit."""
    half = 1 << (bits - 1)
    rounded = [(int(value) + half) >> bits for value in exact]
    if max(map(abs, rounded), default=0) > MAX_VALUE:
        raise OverflowError("a sum does not fit the grid: too many records for one stream")
    return np.array(rounded, dtype=np.int64)
