"""How large the noise of a stream of releases gets, over all releases; free of data, so it can be simulated.

At release k the sum carries Gram noise H_k and moment noise h_k. Over k they are F·z, so that the residual
h_k − H_kθ* of the true parameter is, for all k together, √w_k D^{1/2} g_k with unit Gaussian vectors g_k
whose correlation over k is that of F's rows; the model says how large D gets. Proofs: docs/theory.md.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from feducb.privacy.mechanisms import Mechanism
from feducb.types import Array

__all__ = ["joint_threshold", "mixture_threshold"]

_SEED = 20_201_206
_MISTRUST = 1e-9  # chance, counted into α, that the simulated threshold lies below the true one
_MOST_DRAWS = 32_768
_FEWEST_DRAWS = 1024
_WORK = 4e9  # multiplications: seconds
_MOST_RELEASES = 1024  # F is dense in here


@lru_cache(maxsize=64)
def mixture_threshold(
    mechanism: Mechanism, scales: tuple[float, ...], alpha: float, *, first: int, scale: float, prior: float
) -> float:
    """ln x of `MixtureBound`: E min(1, Σ_k M_k/x) ≤ α over the releases k = ``first`` … n that are read.

    M_k = (1 + w_k D̄/Λ_k)^(−d/2) exp(½‖e_k‖²/(w_k D̄ + Λ_k)) is where the k-th mixture starts, given the noise
    e_k = h_k − H_kθ* at its largest; Ville's inequality, given the noise, does the rest (docs/theory.md, 6).
    Simulated: the mean of N draws in [0, 1] lies below m when its expectation is α with a chance of at most
    exp(−N kl(m, α)) (Chernoff and Hoeffding), so that x is taken where the mean falls below the m of 1e-9,
    which is counted into α. Where simulating would take more than seconds: ln(m/α), as E M_k ≤ 1.

    Args:
        mechanism: whose F correlates the releases.
        scales: of d entries of e_k, variances over w_k, the largest, D̄, first (`Model.residual_scales`).
        alpha: the chance that any of the releases breaks it.
        first: the first release that is read.
        scale: √v of the sum's fresh noise.
        prior: Λ_k − ½ w_k D̄, the part of Λ_k that is not the noise's own: ρσ².
    """
    active, dim = mechanism.releases - first + 1, len(scales)
    if mechanism.releases > _MOST_RELEASES or _draws(active, dim) < _FEWEST_DRAWS or alpha <= 2.0 * _MISTRUST:
        return math.log(active / alpha)
    return _simulated(mechanism.decoder()[first - 1 :], scales, alpha, scale=scale, prior=prior)


def joint_threshold(
    rows: Array, scales: tuple[float, ...], alpha: float, *, scale: float, prior: float
) -> float:
    """`mixture_threshold` for readings whose noise is any mixture of fresh noises, not a mechanism's own.

    Args:
        rows: (m, r), a row for each reading: what it takes of r independent noises of variance ``scale``².
        scales: as above.
        alpha: as above.
        scale: as above.
        prior: as above.
    """
    return _joint_threshold(rows.tobytes(), len(rows), scales, alpha, scale, prior)


@lru_cache(maxsize=64)
def _joint_threshold(
    rows: bytes, active: int, scales: tuple[float, ...], alpha: float, scale: float, prior: float
) -> float:
    if active > _MOST_RELEASES or _draws(active, len(scales)) < _FEWEST_DRAWS or alpha <= 2.0 * _MISTRUST:
        return math.log(active / alpha)
    table = np.frombuffer(rows).reshape(active, -1)
    return _simulated(table, scales, alpha, scale=scale, prior=prior)


def _draws(active: int, dim: int) -> int:
    """How many there is time for."""
    return min(_MOST_DRAWS, int(_WORK / (active**2 * dim)))


def _simulated(rows: Array, scales: tuple[float, ...], alpha: float, *, scale: float, prior: float) -> float:
    (active, _), dim = rows.shape, len(scales)
    draws = _draws(active, dim)
    lengths = np.linalg.norm(rows, axis=1)
    mixing = _triangular(rows / lengths[:, None])
    variances, spread = (scale * lengths) ** 2, scales[0]
    priors = 0.5 * variances * spread + prior
    generator = np.random.Generator(np.random.PCG64(_SEED))
    starts = np.empty(draws)  # ln Σ_k M_k
    at_once = max(1, 2**18 // (mixing.shape[1] * dim))
    for start in range(0, draws, at_once):
        stop = min(start + at_once, draws)
        unit = (mixing @ generator.standard_normal((mixing.shape[1], (stop - start) * dim))).reshape(
            active, stop - start, dim
        )
        squared = variances[:, None] * ((unit * unit) @ np.array(scales))  # ‖e_k‖²
        logs = 0.5 * squared / (variances * spread + priors)[:, None]
        logs -= 0.5 * dim * np.log1p(variances * spread / priors)[:, None]
        starts[start:stop] = np.logaddexp.reduce(logs, axis=0)
    target, low, high = _safe_mean(draws, alpha - _MISTRUST), 0.0, math.log(active / alpha)
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = float(np.exp(np.minimum(starts - middle, 0.0)).mean()) <= target
        low, high = (low, middle) if below else (middle, high)
    return high


def _triangular(rows: Array) -> Array:
    """The lower triangular L with L Lᵀ = rows rowsᵀ and no negative entry on the diagonal.

    The last makes it the only one. A QR decomposition gives columns of either sign; where a tree's rows meet
    at right angles rounding decides which, and another machine would simulate another threshold.
    """
    lower = np.asarray(np.linalg.qr(rows.T, mode="r")).T
    return lower * np.where(np.diagonal(lower) < 0.0, -1.0, 1.0)


def _safe_mean(draws: int, alpha: float) -> float:
    """The m < α with N·kl(m, α) = ln(1/1e-9): a mean of N draws below it speaks for less than α."""
    needed, low, high = -math.log(_MISTRUST) / draws, 0.0, alpha
    for _ in range(60):
        m = 0.5 * (low + high)
        kl = (m * math.log(m / alpha) if m else 0.0) + (1.0 - m) * math.log((1.0 - m) / (1.0 - alpha))
        low, high = (m, high) if kl > needed else (low, m)
    return low
