"""Which records teach: all of them, or about so many of each agent, drawn anew in each repeat.

All records judge, whoever teaches, so that values of different numbers can be compared and are as sure as the
log allows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feducb.evaluation.crossfit import draw_folds, hashed
from feducb.evaluation.sources import Progress, Source
from feducb.evaluation.study import Study
from feducb.types import Array, Indices

__all__ = ["Teaching"]


@dataclass(frozen=True, slots=True)
class Teaching:
    """How many records teach."""

    rows: int  # of all agents, a fold that is held out among them
    chance: Array | None = None  # (M,), that of a record, by its agent; None: all teach

    @classmethod
    def of(cls, source: Source, study: Study, progress: Progress) -> Teaching:
        """All records, or as the study limits them: the log is read once more for that."""
        if study.records_per_agent is None:
            return cls(source.facts.rows)
        counts = np.zeros(len(source.facts.agents))
        for rows in source.blocks():
            counts += np.bincount(rows.agents, minlength=len(counts))
            progress("counting", len(rows.rewards))
        most = study.records_per_agent * study.folds / (study.folds - 1)  # one fold never teaches
        return cls(round(np.minimum(counts, most).sum()), np.minimum(1.0, most / np.maximum(counts, 1.0)))

    def folds(self, keys: NDArray[np.uint64], agents: Indices, study: Study, repeats: int) -> Indices:
        """(repeats, n): as `draw_folds`, but -1 for records that do not teach."""
        folds = draw_folds(keys, study, repeats)
        if self.chance is None:
            return folds
        for repeat in range(repeats):
            drawn = hashed(keys, -1 - (study.seed * 1_000_003 + repeat)) / 2.0**64
            folds[repeat, drawn >= self.chance[agents]] = -1
        return folds
