"""Data sets, loaded; or taken from a file, where the packages that carry them are not to be had."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

# Of evaluation only what decides a cell, so that a cell is not older than the code for another file's sake.
from feducb.evaluation.compare import compare_source
from feducb.evaluation.online import compare_online
from feducb.evaluation.sources import Survey
from feducb.evaluation.study import Online, Study
from feducb.evaluation.survey import survey
from feducb.evaluation.verdicts import Comparison
from feducb.worlds.data import Known, data_set
from feducb.worlds.logs import Chunk, FrameLog, LogColumns

__all__ = ["Ready", "carried", "carry", "load"]


@dataclass(frozen=True, slots=True)
class _HeldLog:
    """A log that was read once, for the columns of its survey."""

    name: str
    held: tuple[Chunk, ...]

    def chunks(self, columns: LogColumns) -> Iterator[Chunk]:
        """Its rows."""
        return iter(self.held)


@dataclass(frozen=True, slots=True)
class Ready:
    """A data set to compare on, without the library that it was read with."""

    name: str
    data: Known | Survey
    notes: tuple[str, ...] = ()

    @property
    def agents(self) -> int:
        """M."""
        return len(self.data.world.records if isinstance(self.data, Known) else self.data.agents)

    @property
    def dim(self) -> int:
        """d."""
        return self.data.recipe.dim

    @property
    def online(self) -> bool:
        """Whether it is played, all rewards being known."""
        return isinstance(self.data, Known)

    def records_each(self, folds: int) -> int:
        """What an agent can learn from: its rounds, or all folds but one of its records, on average."""
        if isinstance(self.data, Known):
            return self.data.world.horizon
        return self.data.rows * (folds - 1) // (folds * len(self.data.agents))

    def compare(self, study: Study, online: Online) -> Comparison:
        """As `feducb evaluate` does."""
        if isinstance(self.data, Known):
            return compare_online(self.data, source=self.name, study=study, online=online)
        return compare_source(self.data, study=study, notes=self.notes)


def load(name: str) -> tuple[Ready, str]:
    """A data set by its name, and what its intervals come from."""
    loaded = data_set(name).load(None)
    if isinstance(loaded, Known):
        return Ready(name, loaded, loaded.notes), "records"
    log, bounds = FrameLog(loaded.frame, name), loaded.reward_range
    found = survey(log, loaded.columns, context=loaded.recipe, reward_range=bounds)
    held = _HeldLog(name, tuple(log.chunks(found.columns)))
    return Ready(name, replace(found, log=held), loaded.notes), loaded.spread


def carry(names: Sequence[str], path: Path) -> None:
    """Write data sets to a file of one's own, to be read by the same version of feducb alone."""
    path.write_bytes(gzip.compress(pickle.dumps({name: load(name) for name in names}), 6))


def carried(path: Path) -> dict[str, tuple[Ready, str]]:
    """What `carry` wrote."""
    found: dict[str, tuple[Ready, str]] = pickle.loads(gzip.decompress(path.read_bytes()))
    return found
