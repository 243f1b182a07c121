"""The controller of Alg. 1: it adds up what agents release (l. 18) and keeps nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feducb.privacy.privatizer import Release
from feducb.protocol.messages import ReleasedSum

__all__ = ["add_up", "combine"]


def add_up(release: Release) -> ReleasedSum:
    """Add the releases of all agents, given as one release with agents on the last leading axis."""
    return ReleasedSum(
        number=release.number,
        gram=release.gram.sum(axis=-3),
        moment=release.moment.sum(axis=-2),
        variance=release.variance.sum(axis=-1),
        agents=release.moment.shape[-2],
    )


def combine(releases: Sequence[Release]) -> ReleasedSum:
    """Add single agents' releases; all must carry the same number."""
    numbers = sorted({release.number for release in releases})
    if len(numbers) != 1:
        raise ValueError(f"releases carry the numbers {numbers}, expected one number")
    return ReleasedSum(
        number=numbers[0],
        gram=np.sum([release.gram for release in releases], axis=0),
        moment=np.sum([release.moment for release in releases], axis=0),
        variance=np.sum([release.variance for release in releases], axis=0),
        agents=len(releases),
    )
