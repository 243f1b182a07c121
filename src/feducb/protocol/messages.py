"""What travels: releases up to the controller, their sum back down, as whole numbers.

Both are one 40-byte header (format, agents in it, dimension, season, number, group, grid, weight, variance)
and little-endian int64: the coordinates of `GridRelease`, of the linear model, contexts public or not;
another model needs a format of its own. Whole numbers add exactly, so a sum does not depend on the order of
its parts.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from feducb.errors import ConfigurationError, UnsealedReleaseError
from feducb.models import LINEAR, PublicContexts
from feducb.privacy.deployed import GridRelease
from feducb.privacy.grid import total
from feducb.types import ReleasedSum

__all__ = ["MAX_DIM", "GridSum", "combine", "decode", "encode", "message_size"]

# format, agents, dimension, season, number, group, exponent, weight, variance
_HEADER = struct.Struct("<HHIIIIidd")
_FORMAT = 3
_FORMAT_WITHOUT_GROUP = 2  # its number had 8 bytes, the upper 4 of them 0: the same bytes, read as group 0
MAX_DIM = 10_000
_CARRIED = (LINEAR.name, PublicContexts(LINEAR).name)  # the same coordinates, read alike
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
        gram, moment = LINEAR.read(real, dim=self.dim, weight=self.weight)
        return ReleasedSum(self.number, gram, moment, np.asarray(self.variance), self.agents)


def message_size(dim: int) -> int:
    """Bytes of one message, either way."""
    return _HEADER.size + 8 * LINEAR.coordinates(dim)


def encode(message: GridRelease | GridSum, *, season: int = 0, group: int = 0) -> bytes:
    """Write a release (of this season and group) or a sum as bytes; nothing else can be written."""
    if isinstance(message, GridSum):
        agents, season, group = message.agents, message.season, message.group
    elif isinstance(message, GridRelease):
        agents = message.agents
        if message.model not in _CARRIED:
            raise ConfigurationError("model", message.model, f"{LINEAR.name}: no message carries another")
    else:
        raise UnsealedReleaseError(f"a {type(message).__name__} is no message, expected a release or a sum")
    name = (season, message.number, group)
    numbers = (message.exponent, message.weight, message.variance)
    header = _HEADER.pack(_FORMAT, agents, message.dim, *name, *numbers)
    return header + message.values.astype("<i8").tobytes()


def decode(data: bytes) -> GridSum:
    """Read a message; raises ``ValueError`` on anything but one."""
    if len(data) < _HEADER.size:
        raise ValueError(f"message has {len(data)} bytes, expected at least {_HEADER.size}")
    kind, agents, dim, season, number, group, exponent, weight, variance = _HEADER.unpack_from(data)
    if kind not in (_FORMAT, _FORMAT_WITHOUT_GROUP):
        raise ValueError(f"message has format {kind}, expected {_FORMAT}")
    if kind == _FORMAT_WITHOUT_GROUP and group != 0:
        raise ValueError(f"message has group {group}, expected none in format {kind}")
    if not 1 <= dim <= MAX_DIM or len(data) != message_size(dim):
        raise ValueError(f"message has {len(data)} bytes, which does not fit its dimension {dim}")
    for name, value in (("variance", variance), ("weight", weight)):
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"message has {name} {value}, expected a positive number")
    return GridSum(
        season=season,
        number=number,
        group=group,
        dim=dim,
        exponent=exponent,
        weight=weight,
        values=np.frombuffer(data, dtype="<i8", offset=_HEADER.size).astype(np.int64),
        variance=variance,
        agents=agents,
        seal=_SEAL,
    )


def combine(parts: Sequence[GridSum]) -> GridSum:
    """Add releases of the same season, number, group, dimension and grid: exactly, in any order."""
    kinds = {(part.season, part.number, part.group, part.dim, part.exponent, part.weight) for part in parts}
    if len(kinds) != 1:
        names = "(season, number, group, dimension, grid, weight)"
        raise ValueError(f"releases differ in {names}: {sorted(kinds)}, expected one kind")
    return replace(
        parts[0],
        values=total(part.values for part in parts),
        variance=math.fsum(part.variance for part in parts),
        agents=sum(part.agents for part in parts),
        seal=_SEAL,
    )
