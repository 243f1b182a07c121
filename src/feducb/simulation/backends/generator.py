"""Random numbers for compiled loops: a function of (seed, run, agent, round, purpose), no state.

Philox 4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a counter of four
words and a key of two into four random words. Any number of a simulation can be drawn again, alone and in any
order, so that results depend neither on threads nor on what was drawn before.

Words become uniform, exponential, normal and Beta numbers in single precision, by polynomials without
branches: compilers then do eight or sixteen loop passes at once. `fma` rounds once, on every machine alike.
Never for deployed noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

__all__ = [
    "beta_attempt",
    "exponential",
    "fma",
    "high_product",
    "normal_pair",
    "philox",
    "power",
    "uniform",
]

ROUNDS = 7  # the fewest that pass BigCrush (same paper)

# A number in a compiled loop: numba gives it its type, from the arguments.
Word = Any  # np.uint32
Real = Any  # np.float32

# A call, or a check for zero before a division, would keep a loop from being vectorised. There is no way in
# from Python: a call from there is a crash.
inlined = njit(forceinline=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)

_u32, _i32, _f32 = np.uint32, np.int32, np.float32

_MULTIPLIERS = (_u32(0xD2511F53), _u32(0xCD9E8D57))
_WEYL = (_u32(0x9E3779B9), _u32(0xBB67AE85))

_ONE, _TWO, _HALF = _f32(1.0), _f32(2.0), _f32(0.5)
_LN2, _LOG2_E = _f32(math.log(2.0)), _f32(1.0 / math.log(2.0))
_ROOT_HALF_BITS = _i32(0x3F3504F3)  # √½ as a float32
_MANTISSA_BITS, _EXPONENT_BIAS = _i32(23), _i32(127)
_SIGN, _SWAP = _u32(1 << 31), _u32(1 << 30)
_TO_UNIT = _f32(2.0**-31)
_HALF_STEP = _f32(2.0**-32)
_TO_OCTANT = _f32(math.pi / 2.0 * 2.0**-32)
_SMALLEST_LOG = _f32(-87.0)  # e⁻⁸⁷ is the last normal float32

# Polynomials of the least largest relative error, constant term first.
# log(1 + z)/z for √½ ≤ 1 + z ≤ √2, off by at most 1.7e-7:
_LOG = tuple(map(_f32, (0.9999999453, -0.5000036512, 0.3333505895, -0.2496990906)))
_LOG += tuple(map(_f32, (0.1990016542, -0.1725082972, 0.1622258091, -0.1010689603)))
# (sin x − x)/x³ in x² for |x| ≤ π/4, sin x off by at most 4e-9; cos x in x², 3e-8; 2^z for |z| ≤ ½, 7e-8:
_SIN = tuple(map(_f32, (-0.1666665461, 0.0083321608, -0.0001951528)))
_COS = tuple(map(_f32, (0.9999999674, -0.4999984243, 0.0416544195, -0.0013579404)))
_EXP2 = tuple(map(_f32, (1.0000000717, 0.6931469671, 0.2402211972, 0.0555071327)))
_EXP2 += tuple(map(_f32, (0.0096755413, 0.0013276472)))


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """``a·b + c`` in single precision, rounded once."""
    real = types.float32
    return real(real, real, real), lambda _context, builder, _signature, args: builder.fma(*args)


@intrinsic
def _bits(typing: Any, number: Any) -> Any:
    return types.int32(types.float32), lambda context, builder, _signature, args: builder.bitcast(
        args[0], context.get_value_type(types.int32)
    )


@intrinsic
def _from_bits(typing: Any, bits: Any) -> Any:
    return types.float32(types.int32), lambda context, builder, _signature, args: builder.bitcast(
        args[0], context.get_value_type(types.float32)
    )


@intrinsic
def _low_product(typing: Any, a: Any, b: Any) -> Any:
    word = types.uint32
    return word(word, word), lambda _context, builder, _signature, args: builder.mul(*args)


@intrinsic
def high_product(typing: Any, a: Any, b: Any) -> Any:
    """The upper word of the product of two words."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        word, wide = context.get_value_type(types.uint32), context.get_value_type(types.uint64)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, wide(32)), word)

    return types.uint32(types.uint32, types.uint32), generate


@inlined
def philox(first: Word, second: Word, third: Word, fourth: Word, seed: Word, run: Word) -> Any:
    """Four random words, for the counter (first, …, fourth) under the key (seed, run)."""
    for _ in range(ROUNDS):
        first_high, first_low = high_product(first, _MULTIPLIERS[0]), _low_product(first, _MULTIPLIERS[0])
        third_high, third_low = high_product(third, _MULTIPLIERS[1]), _low_product(third, _MULTIPLIERS[1])
        first, second = _u32(third_high ^ second ^ seed), third_low
        third, fourth = _u32(first_high ^ fourth ^ run), first_low
        seed, run = _u32(seed + _WEYL[0]), _u32(run + _WEYL[1])
    return first, second, third, fourth


@inlined
def uniform(word: Word) -> Real:
    """In (0, 1], in steps of 2⁻³¹ near 0 and 2⁻²⁴ near 1."""
    return fma(_f32(_i32(word >> _u32(1))), _TO_UNIT, _HALF_STEP)


@inlined
def _log(number: Real) -> Real:
    """The logarithm of a positive normal number."""
    bits = _bits(number)
    exponent = _i32(_i32(bits - _ROOT_HALF_BITS) >> _MANTISSA_BITS)
    z = _from_bits(_i32(bits - _i32(exponent << _MANTISSA_BITS))) - _ONE
    upper = fma(fma(fma(_LOG[7], z, _LOG[6]), z, _LOG[5]), z, _LOG[4])
    series = fma(fma(fma(fma(upper, z, _LOG[3]), z, _LOG[2]), z, _LOG[1]), z, _LOG[0])
    return fma(_f32(exponent), _LN2, series * z)


@inlined
def _exp(number: Real) -> Real:
    """The exponential of a number that is not positive; nothing is below e⁻⁸⁷."""
    scaled = max(number, _SMALLEST_LOG) * _LOG2_E
    whole = _i32(scaled - _HALF)  # truncation: the nearest whole number, since scaled ≤ 0
    z = scaled - _f32(whole)
    upper = fma(fma(_EXP2[5], z, _EXP2[4]), z, _EXP2[3])
    series = fma(fma(fma(upper, z, _EXP2[2]), z, _EXP2[1]), z, _EXP2[0])
    return series * _from_bits(_i32(_i32(whole + _EXPONENT_BIAS) << _MANTISSA_BITS))


@inlined
def power(base: Real, exponent: Real) -> Real:
    """``base^exponent`` for a base in (0, 1] and a positive exponent."""
    return _exp(_log(base) * exponent)


@inlined
def exponential(word: Word) -> Real:
    """Exp(1), up to 22.2."""
    return -_log(uniform(word))


@inlined
def normal_pair(radius_word: Word, angle_word: Word) -> Any:
    """Two N(0, 1), by Box and Muller: an exponential squared radius and a uniform angle.

    The angle is a uniform number of [−π/4, π/4) and, by two bits that this number does not use, one of the
    four quarter turns.
    """
    x = _f32(_i32(angle_word << _u32(2))) * _TO_OCTANT
    squared = x * x
    sine = fma(fma(fma(_SIN[2], squared, _SIN[1]), squared, _SIN[0]) * squared, x, x)
    cosine = fma(fma(fma(_COS[3], squared, _COS[2]), squared, _COS[1]), squared, _COS[0])
    cosine = _from_bits(_i32(_bits(cosine) ^ _i32(angle_word & _SIGN)))
    swap = (angle_word & _SWAP) != _u32(0)
    radius = _f32(math.sqrt(_TWO * exponential(radius_word)))
    return radius * (sine if swap else cosine), radius * (cosine if swap else sine)


@inlined
def beta_attempt(mean: Real, first_word: Word, second_word: Word) -> Real:
    """Beta(p, 1 − p), or −1 if this attempt failed.

    M. D. Jöhnk (1964): X = U^{1/p} and Y = V^{1/(1−p)} given X + Y ≤ 1; then X/(X + Y). At least π/4 of the
    attempts succeed.
    """
    x = power(uniform(first_word), _ONE / mean)
    y = power(uniform(second_word), _ONE / (_ONE - mean))
    total = x + y
    return x / total if total <= _ONE else -_ONE
