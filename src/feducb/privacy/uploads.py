"""Raw batch sums on their way to a trusted controller, and their bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError, UnsealedReleaseError
from feducb.formats import RAW_UPLOAD
from feducb.privacy.encoders import Wide
from feducb.privacy.privatizer import _SEAL, Sealed
from feducb.privacy.terms import Terms

__all__ = ["RawUpload", "decode_upload", "encode_upload", "require_admissible", "require_same_promise"]

Ints = NDArray[np.int64]

# mark, dimension, season, number, exponent, digest of the agent's promise; then int64 batch sums
_RAW = struct.Struct("<4sIIIi8s")
_RAW_MARK = RAW_UPLOAD.mark("RAW")
_EARLIER_RAW = struct.Struct("<4sIIIi")  # it did not say what its agent promises
_EARLIER_MARK = RAW_UPLOAD.mark("RAW", 1)
_LARGEST_UPLOAD = 2**60  # a coordinate; with so many uploads a sum is below 2^77, and fits the grid (2^78)


@dataclass(kw_only=True, slots=True, eq=False, repr=False)
class RawUpload(Sealed):
    """Raw batch sums for a trusted controller; only a trust with raw sums lets one out.

    Attributes:
        dim: d.
        exponent: the grid is 2^exponent.
        promise: `Terms.digest` of its agent; None in uploads of an earlier version.
        values: (q,), batch sums, FINE_BITS finer than the grid.
    """

    forged: ClassVar[str] = "only an agent that trusts the controller builds a RawUpload"
    dim: int
    exponent: int
    promise: bytes | None
    values: Ints


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
    size = head.size + 8 * terms.model.coordinates(terms.problem.dim)
    if len(payload) != size or not payload.startswith((_RAW_MARK, _EARLIER_MARK)):
        raise ConfigurationError("upload", f"{len(payload)} bytes", f"RAW2 and {size} bytes in all")
    _, dim, season, number, exponent, *promise = head.unpack_from(payload)
    values = np.frombuffer(payload, dtype="<i8", offset=head.size).astype(np.int64)
    upload = RawUpload(
        dim=dim, exponent=exponent, promise=None if earlier else promise[0], values=values, seal=_SEAL
    )
    return season, number, upload


def require_same_promise(upload: RawUpload, terms: Terms) -> None:
    """Raise unless the upload's agent promises what these terms do: the noise might be too small for it."""
    if upload.promise is None:
        raise ConfigurationError(
            "terms of an upload", None, "what its agent promises: it is of an earlier version of feducb"
        )
    if upload.promise != terms.digest():
        raise ConfigurationError(
            "terms of an upload",
            upload.promise.hex(),
            f"{terms.digest().hex()}, the controller's: bounds, epsilon, delta, releases, "
            "mechanism, quiet, decay, records_per_person, agents_per_person and spacing must be the same "
            "(`feducb agent terms`)",
        )


def require_admissible(values: Ints | Wide) -> None:
    """Small enough that no number of admitted uploads can overflow a sum."""
    largest = max((abs(int(value)) for value in values), default=0)
    if largest > _LARGEST_UPLOAD:
        raise ConfigurationError("upload", f"up to 2^{largest.bit_length()}", "at most 2^60 a coordinate")
