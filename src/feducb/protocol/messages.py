"""What travels: releases up to the controller, their sum back down, as whole numbers.

Both are one 40-byte header (format, agents in it, dimension, season, number, group, grid, weight, variance)
and little-endian int64: the coordinates of `GridRelease`, contexts public or not. Where some entries are
known to be zero (`models.KnownZeros`) another format has the model's name between the two, after its length;
any other model than these and the linear one needs a format of its own. Whole numbers add exactly, so a sum
does not depend on the order of its parts.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError, UnsealedReleaseError
from feducb.formats import MESSAGE
from feducb.models import LINEAR, KnownZeros, Model, PublicContexts, require_model
from feducb.models.products import LONGEST_LAYOUT, MOST_ENTRIES
from feducb.privacy.deployed import GridRelease
from feducb.privacy.grid import total
from feducb.types import ReleasedSum

__all__ = ["MAX_DIM", "GridSum", "carried", "combine", "decode", "encode", "message_size"]

# format, agents, dimension, season, number, group, exponent, weight, variance
_HEADER = struct.Struct("<HHIIIIidd")
_FORMAT = 3  # without known zeros, so that earlier versions read it
_FORMAT_WITHOUT_GROUP = (
    MESSAGE.oldest
)  # its number had 8 bytes, the upper 4 of them 0: the same bytes, read as group 0
_FORMAT_WITH_MODEL = MESSAGE.number
_NAME = struct.Struct("<H")
MAX_DIM = 10_000
_LONGEST_NAME = LONGEST_LAYOUT + 16
_SEAL = object()


@dataclass(frozen=True, kw_only=True, slots=True)
class GridSum:
    """A sum of releases as it travels; a single release reads as the sum over one agent.

    Only `decode` and `combine` build one, from messages that were releases.

    Attributes:
        season: which season the releases belong to.
        number: k.
        group: g, the estimator they are of; a controller's is 0.
        dim: d.
        model: what reads it: the linear model, or one that knows some entries to be zero.
        exponent: the grid is 2^exponent.
        weight: s, of rewards.
        values: (q,), grid steps.
        variance: w.
        agents: how many are in it.
    """

    season: int
    number: int
    group: int
    dim: int
    model: Model
    exponent: int
    weight: float
    values: NDArray[np.int64]
    variance: float
    agents: int
    seal: InitVar[object] = None

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise UnsealedReleaseError("only releases add up to a GridSum: raw sums do not travel")

    def read(self) -> ReleasedSum:
        """The sum in real numbers, off the grid."""
        real = np.ldexp(self.values.astype(np.float64), self.exponent)
        gram, moment = self.model.read(real, dim=self.dim, weight=self.weight)
        return ReleasedSum(self.number, gram, moment, np.asarray(self.variance), self.agents)


def carried(model: Model) -> Model:
    """By what coordinates are read, contexts public or not; raises if no message carries the model."""
    inner = _inner(model)
    if inner != LINEAR and not isinstance(inner, KnownZeros):
        expected = f"{LINEAR.name}, or one of known zeros: no message carries another"
        raise ConfigurationError("model", model.name, expected)
    return inner


def message_size(dim: int, model: Model = LINEAR) -> int:
    """Bytes of one message, either way."""
    return _HEADER.size + len(_named(_inner(model))) + 8 * model.coordinates(dim)


def _inner(model: Model) -> Model:
    return model.inner if isinstance(model, PublicContexts) else model


def _named(model: Model) -> bytes:
    """What says the model; nothing where it is the linear one."""
    name = b"" if model == LINEAR else model.name.encode()
    return _NAME.pack(len(name)) + name if name else b""


def encode(message: GridRelease | GridSum, *, season: int = 0, group: int = 0) -> bytes:
    """Write a release (of this season and group) or a sum as bytes; nothing else can be written."""
    if isinstance(message, GridSum):
        agents, season, group, model = message.agents, message.season, message.group, message.model
    elif isinstance(message, GridRelease):
        agents, model = message.agents, carried(require_model(message.model))
    else:
        raise UnsealedReleaseError(f"a {type(message).__name__} is no message, expected a release or a sum")
    name = (season, message.number, group)
    numbers = (message.exponent, message.weight, message.variance)
    kind = _FORMAT if model == LINEAR else _FORMAT_WITH_MODEL
    header = _HEADER.pack(kind, agents, message.dim, *name, *numbers) + _named(model)
    return header + message.values.astype("<i8").tobytes()


def decode(data: bytes) -> GridSum:
    """Read a message; raises ``ValueError`` on anything but one."""
    if len(data) < _HEADER.size:
        raise ValueError(f"message has {len(data)} bytes, expected at least {_HEADER.size}")
    kind, agents, dim, season, number, group, exponent, weight, variance = _HEADER.unpack_from(data)
    if kind not in (_FORMAT, _FORMAT_WITHOUT_GROUP, _FORMAT_WITH_MODEL):
        raise ValueError(f"message has format {kind}, expected {MESSAGE.expected(kind)}")
    if kind == _FORMAT_WITHOUT_GROUP and group != 0:
        raise ValueError(f"message has group {group}, expected none in format {kind}")
    model = _model_of(data) if kind == _FORMAT_WITH_MODEL else LINEAR
    if not 1 <= dim <= MAX_DIM or len(data) != _size_of(dim, model):
        raise ValueError(f"message has {len(data)} bytes, which does not fit its dimension {dim}")
    for name, value in (("variance", variance), ("weight", weight)):
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"message has {name} {value}, expected a positive number")
    return GridSum(
        season=season,
        number=number,
        group=group,
        dim=dim,
        model=model,
        exponent=exponent,
        weight=weight,
        values=np.frombuffer(data, dtype="<i8", offset=_HEADER.size + len(_named(model))).astype(np.int64),
        variance=variance,
        agents=agents,
        seal=_SEAL,
    )


def _model_of(data: bytes) -> Model:
    """The model of a message that names one: of known zeros, as only they are named."""
    start = _HEADER.size + _NAME.size
    size = _NAME.unpack_from(data, _HEADER.size)[0] if len(data) >= start else 0
    name = data[start : start + size]
    if not 1 <= size <= _LONGEST_NAME or len(name) < size:
        raise ValueError(f"message has {len(data)} bytes, and a model's name of {size}")
    try:
        model = require_model(name.decode("ascii"))
    except (UnicodeDecodeError, ConfigurationError):
        raise ValueError(f"message has a model {name[:64]!r}, expected one of known zeros") from None
    if not isinstance(model, KnownZeros) or model.name.encode() != name:
        raise ValueError(f"message has a model {name[:64]!r}, expected one of known zeros")
    return model


def _size_of(dim: int, model: Model) -> int:
    """`message_size`, of what came in: -1 where the model does not fit the dimension."""
    if model != LINEAR and dim > MOST_ENTRIES:  # of all pairs of so many entries no pattern is made
        return -1
    try:
        return message_size(dim, model)
    except ConfigurationError:
        return -1


def combine(parts: Sequence[GridSum]) -> GridSum:
    """Add releases of the same season, number, group, dimension, model and grid: exactly, in any order."""
    kinds = {
        (part.season, part.number, part.group, part.dim, part.model.name, part.exponent, part.weight)
        for part in parts
    }
    if len(kinds) != 1:
        names = "(season, number, group, dimension, model, grid, weight)"
        raise ValueError(f"releases differ in {names}: {sorted(kinds)}, expected one kind")
    return replace(
        parts[0],
        values=total(part.values for part in parts),
        variance=math.fsum(part.variance for part in parts),
        agents=sum(part.agents for part in parts),
        seal=_SEAL,
    )
