"""What compiled decisions share: how they are compiled, and how a belief is laid out for them.

A state is one array, since passing one is faster than passing six: a header, θ̂, V⁻¹, and for `sieves` a lower
triangle L with xᵀLx = xᵀV⁻¹x in single precision, two numbers in the room of one, its side made even.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import float64, njit, types

__all__ = ["HEADER", "LARGEST", "SMALLEST", "UNDECIDED", "compiled", "kept"]

HEADER = 7
"""Numbers before θ̂, the last four of them at ‖x‖ = 1:

    0  d
    1  β
    2  b
    3  the rounding of a score
    4  the most that a width can be
    5  what single precision moves xᵀV⁻¹x by; 0 without sieves
    6  what a width is like
"""
UNDECIDED = -1
SMALLEST, LARGEST = 1e-200, 1e200  # of the sum of squares: neither underflow nor overflow on the way


def compiled(function: Callable[..., Any], result: Any, dimensions: int, *more: Any) -> Any:
    """Compile for actions with this many axes, the state, and arguments of more types.

    What may be written to may be read, so that one form of it does for both kinds of actions.
    """
    actions, state = types.Array(float64, dimensions, "C", readonly=True), types.Array(float64, 1, "C")
    return kept(function, [result(actions, state, *more)])


def kept(function: Callable[..., Any], signatures: list[Any] | None = None) -> Any:
    """Compile, for given types or when it is first called, and keep the result on disk if possible."""
    fast = {"contract", "reassoc"}  # not "nnan" or "ninf": what is not finite must be seen
    try:
        return njit(signatures, cache=True, fastmath=fast)(function)
    except RuntimeError:  # nowhere to write
        return njit(signatures, fastmath=fast)(function)
