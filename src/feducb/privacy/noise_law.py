"""How large the noise of a stream of releases gets, over all releases; free of data, so it can be simulated.

At release k the sum carries Gram noise H_k and moment noise h_k. Over k they are F·z, so that the residual
h_k − H_kθ* of the true parameter is, for all k together, √w_k D^{1/2} g_k with unit Gaussian vectors g_k
whose correlation over k is that of F's rows, and D = (1/s² + ‖θ*‖²) I + θ*θ*ᵀ. Proofs: docs/theory.md.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from feducb.privacy.mechanisms import Mechanism

__all__ = ["closed_residual_radius", "gram_radius", "mixture_threshold", "residual_radius", "safe_rank"]

_SEED = 20_201_206
_MISTRUST = 1e-9  # chance, counted into α, that the simulated quantile lies below the true one
_MOST_DRAWS = 8192
_FEWEST_DRAWS = 1024
_WORK = 4e9  # multiplications: seconds
_MOST_RELEASES = 1024  # F is dense in here


def closed_residual_radius(dim: int, releases: int, alpha: float, *, bound: float, weight: float) -> float:
    """r with ‖h_k − H_kθ*‖ ≤ r√w_k for all k, but for a chance α: Gaussian concentration and a union."""
    across = 1.0 / weight**2 + bound**2
    return math.sqrt(dim * across + bound**2) + math.sqrt(
        2.0 * (across + bound**2) * math.log(releases / alpha)
    )


def gram_radius(dim: int, releases: int, alpha: float) -> float:
    """λ with −H_k ⪯ λ√w_k I for all k, but for a chance α: E λ_max ≤ 2√d, √2-Lipschitz, a union."""
    return 2.0 * math.sqrt(dim) + 2.0 * math.sqrt(math.log(releases / alpha))


def safe_rank(draws: int, alpha: float) -> int:
    """Which of ``draws`` sorted draws is above the (1 − α)-quantile, but for a chance counted into α.

    The least j such that at least j of the draws lie below the true quantile with chance at most 1e-9; above
    ``draws`` if there is none.
    """
    if alpha <= _MISTRUST:
        return draws + 1
    from scipy.stats import binom  # slow to import

    return int(binom.isf(_MISTRUST, draws, 1.0 - (alpha - _MISTRUST))) + 1


@lru_cache(maxsize=64)
def residual_radius(
    mechanism: Mechanism, dim: int, alpha: float, *, first: int = 1, bound: float = 1.0, weight: float = 1.0
) -> float:
    """The same r as a simulated joint quantile over k = ``first`` … n, safe by an order-statistic margin.

    Takes the closed form where simulating would take more than seconds.

    Args:
        mechanism: whose F correlates the releases.
        dim: d.
        alpha: the chance that any of the releases breaks it, the margin's own chance included.
        first: the first release that counts.
        bound: S.
        weight: s, by which rewards are scaled before noise (`calibration.reward_weight`).
    """
    active = mechanism.releases - first + 1
    draws = min(_MOST_DRAWS, int(_WORK / (active**2 * dim)))
    rank = safe_rank(draws, alpha)
    if draws < _FEWEST_DRAWS or mechanism.releases > _MOST_RELEASES or rank > draws:
        return closed_residual_radius(dim, active, alpha, bound=bound, weight=weight)
    rows = mechanism.decoder()[first - 1 :]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    mixing = np.asarray(np.linalg.qr(rows.T, mode="r")).T  # mixing · mixingᵀ = rows · rowsᵀ, at most square
    across = 1.0 / weight**2 + bound**2
    scales = np.full(dim, across)
    scales[0] += bound**2
    generator = np.random.Generator(np.random.PCG64(_SEED))
    largest = np.empty(draws)
    at_once = max(1, 2**18 // (mixing.shape[1] * dim))
    for start in range(0, draws, at_once):
        stop = min(start + at_once, draws)
        fresh = generator.standard_normal((mixing.shape[1], (stop - start) * dim))
        unit = (mixing @ fresh).reshape(active, stop - start, dim)
        largest[start:stop] = np.sqrt(((unit * unit) @ scales).max(axis=0))
    return float(np.sort(largest)[rank - 1])


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
    draws = min(_MOST_DRAWS * 4, int(_WORK / (active**2 * dim)))
    if draws < _FEWEST_DRAWS or mechanism.releases > _MOST_RELEASES or alpha <= 2.0 * _MISTRUST:
        return math.log(active / alpha)
    rows = mechanism.decoder()[first - 1 :]
    lengths = np.linalg.norm(rows, axis=1)
    mixing = np.asarray(np.linalg.qr((rows / lengths[:, None]).T, mode="r")).T
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


def _safe_mean(draws: int, alpha: float) -> float:
    """The m < α with N·kl(m, α) = ln(1/1e-9): a mean of N draws below it speaks for an expectation below α."""
    needed, low, high = -math.log(_MISTRUST) / draws, 0.0, alpha
    for _ in range(60):
        m = 0.5 * (low + high)
        kl = (m * math.log(m / alpha) if m else 0.0) + (1.0 - m) * math.log((1.0 - m) / (1.0 - alpha))
        low, high = (m, high) if kl > needed else (low, m)
    return low
