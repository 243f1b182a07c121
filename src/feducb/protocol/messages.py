"""What travels: releases up to the controller, their sum back down.

Both are the same 24-byte header (format, dimension, number, variance) and d(d+3)/2 little-endian float64:
the Gram's upper triangle and the moment.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.errors import PrivacyError
from feducb.privacy.noise import coordinate_count
from feducb.privacy.privatizer import Release

__all__ = ["ReleasedSum", "decode", "encode", "message_size"]

Array = NDArray[np.float64]

_HEADER = struct.Struct("<HHIQd")  # format, agents in it, dimension, number, variance
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ReleasedSum:
    """The sum of all agents' newest releases. It replaces the sum before it, and is never added to it.

    Attributes:
        number: k, of the releases in it.
        gram: (..., d, d).
        moment: (..., d).
        variance: (...), w = Σ v_i ‖row_k(F_i)‖² over the agents in it.
        agents: how many took part.
    """

    number: int
    gram: Array
    moment: Array
    variance: Array
    agents: int


def message_size(dim: int) -> int:
    """Bytes of one message, either way."""
    return _HEADER.size + 8 * coordinate_count(dim)


def encode(message: Release | ReleasedSum) -> bytes:
    """Write a release of one agent, or a sum, as bytes; a release without noise is refused."""
    agents = 1
    if isinstance(message, ReleasedSum):
        agents = message.agents
    elif not message.noised:
        raise PrivacyError("a release without noise must not become a message")
    dim = message.moment.shape[-1]
    header = _HEADER.pack(_FORMAT, agents, dim, message.number, float(message.variance))
    upper = message.gram[np.triu_indices(dim)]
    return header + upper.astype("<f8").tobytes() + message.moment.astype("<f8").tobytes()


def decode(data: bytes) -> ReleasedSum:
    """Read a message; a single release reads as the sum over one agent."""
    if len(data) < _HEADER.size:
        raise ValueError(f"message has {len(data)} bytes, expected at least {_HEADER.size}")
    kind, agents, dim, number, variance = _HEADER.unpack_from(data)
    if kind != _FORMAT:
        raise ValueError(f"message has format {kind}, expected {_FORMAT}")
    if len(data) != message_size(dim):
        raise ValueError(f"message has {len(data)} bytes, expected {message_size(dim)}")
    values = np.frombuffer(data, dtype="<f8", offset=_HEADER.size).astype(np.float64)
    gram = np.zeros((dim, dim))
    rows, columns = np.triu_indices(dim)
    gram[rows, columns] = values[:-dim]
    gram[columns, rows] = values[:-dim]
    return ReleasedSum(number, gram, values[-dim:], np.asarray(variance), agents)
