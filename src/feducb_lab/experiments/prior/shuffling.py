"""What a shuffler is worth: exact numbers for bits, and the bound by clones for any local randomiser.

Feldman, McMillan & Talwar 2021 ("Hiding among the clones"): n users apply an ε₀-private randomiser, and a
shuffler forgets who said what. One user's two neighbouring inputs are then no easier to tell apart than
(A + Δ, C − A + 1 − Δ) and (A + 1 − Δ, C − A + Δ), with C ~ Bin(n − 1, e^−ε₀), A ~ Bin(C, ½) and Δ a coin of
e^ε₀/(e^ε₀ + 1). For randomised response of a bit that is what happens, with C ~ Bin(n − 1, γ), γ the chance
that a user says a fair coin in place of the bit (Balle, Bell, Gascón & Nissim 2019): exact there.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.stats import binom

from feducb.config import Budget
from feducb.privacy.calibration import to_mu

__all__ = ["clones_delta", "local_epsilon", "said_at_random", "shuffled_mu"]

_SHARES = (0.02, 0.05, 0.1, 0.2, 0.4)  # of δ for the tails of a local Gaussian: the best is taken


def clones_delta(epsilon: float, users: int, clone: float, truth: float) -> float:
    """The least δ such that the two counts above are (ε, δ)-close.

    Args:
        epsilon: ε.
        users: n.
        clone: the chance that another user is a clone, of which half look like either input.
        truth: the chance of Δ = 1.
    """
    mean, deviation = (users - 1) * clone, math.sqrt(users * clone) + 1.0
    low, high = max(0, int(mean - 12.0 * deviation)), min(users - 1, int(mean + 40.0 * deviation))
    clones = np.arange(low, high + 1)  # others have a chance of less than 1e-30
    chance = binom.pmf(clones, users - 1, clone)
    grown = math.exp(epsilon)
    up, down = truth - grown * (1.0 - truth), grown * truth - (1.0 - truth)
    if up <= 0.0:  # ε is at least what one user's own coin spends
        return 0.0
    # The likelihood ratio rises in the first count: it is above e^ε from here on.
    first = np.floor((clones + 1) * down / (up + down)).astype(np.int64) + 1
    one_less, as_many = binom.sf(first - 2, clones, 0.5), binom.sf(first - 1, clones, 0.5)
    here = truth * one_less + (1.0 - truth) * as_many
    there = (1.0 - truth) * one_less + truth * as_many
    return float(chance @ np.maximum(here - grown * there, 0.0))


@lru_cache(maxsize=512)
def said_at_random(epsilon: float, delta: float, users: int) -> float:
    """γ, the least share of answers that must be fair coins for shuffled bits to be (ε, δ)-private.

    Without a shuffler, or with one user, it is 2/(e^ε + 1).
    """
    low, high = math.log(1e-12), math.log(2.0 / (math.exp(epsilon) + 1.0))
    for _ in range(60):  # bisection: δ falls in steps, since thresholds are whole numbers
        middle = 0.5 * (low + high)
        share = math.exp(middle)
        private = clones_delta(epsilon, users, share, 1.0 - share / 2.0) <= delta
        low, high = (low, middle) if private else (middle, high)
    return math.exp(high)


@lru_cache(maxsize=512)
def local_epsilon(epsilon: float, delta: float, users: int) -> float:
    """The largest ε₀ of which n shuffled users are surely (ε, δ)-private; at least ε."""

    def excess(local: float) -> float:
        return clones_delta(epsilon, users, math.exp(-local), 1.0 / (1.0 + math.exp(-local))) - delta

    low, high = epsilon, epsilon + math.log(users) + 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if excess(middle) > 0.0 else (middle, high)
    return low


@lru_cache(maxsize=512)
def shuffled_mu(epsilon: float, delta: float, users: int) -> float:
    """The largest μ₀ of a Gaussian that each user adds, such that the shuffled messages are (ε, δ)-private.

    An (ε₀, δ₀)-private randomiser costs (e^ε + 1)(1 + e^−ε₀/2) n δ₀ more (their theorem for approximate
    privacy); δ is divided in the best of a few ways. No less than without a shuffler.
    """
    found = to_mu(Budget(epsilon=epsilon, delta=delta))
    for share in _SHARES:
        local = local_epsilon(epsilon, (1.0 - share) * delta, users)
        tails = share * delta / ((math.exp(epsilon) + 1.0) * (1.0 + math.exp(-local) / 2.0) * users)
        found = max(found, to_mu(Budget(epsilon=local, delta=tails)))
    return found
