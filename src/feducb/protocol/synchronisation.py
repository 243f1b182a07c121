"""The controller of Alg. 1, l. 16–20, in simulations; a deployed one adds whole numbers (`messages.combine`).

Who adds the noise is a matter of trust (`Trust.pooled`): every agent, and the sum carries M noises; or noise
is added once, to the total of all agents.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from feducb.interfaces import Trust
from feducb.privacy.noise import NoiseSource
from feducb.privacy.privatizer import Privatizer, PrivatizerState, Release
from feducb.types import ReleasedSum, pool

__all__ = ["add_up", "pooled", "synchronise"]


def add_up(release: Release) -> ReleasedSum:
    """Add the releases of all agents, given as one release with agents on the last leading axis."""
    return ReleasedSum(
        number=release.number,
        gram=release.gram.sum(axis=-3),
        moment=release.moment.sum(axis=-2),
        variance=release.variance.sum(axis=-1),
        agents=release.moment.shape[-2],
    )


def pooled(privatizer: Privatizer) -> Privatizer:
    """For a team's sum: independent noises add their variances, shifts add up."""
    scale = float(np.linalg.norm(privatizer.noise_scale))
    shift = float(np.sum(privatizer.shift))
    return replace(privatizer, noise_scale=np.array([scale]), shift=np.array([shift]))


def synchronise(
    privatizer: Privatizer, state: PrivatizerState, source: NoiseSource, *, trust: Trust
) -> tuple[PrivatizerState, Release]:
    """One synchronisation: what all agents have recorded, (runs, agents), goes in; what leaves comes out.

    The privatizer is each agent's, or that of the total; so is the source, which draws.
    """
    if not trust.pooled:
        return privatizer.release(state, source)
    together = PrivatizerState(pool(state.total), state.released, state.memory)
    after, release = privatizer.release(together, source)
    return PrivatizerState(state.total, after.released, after.memory), release
