"""Real data, from packages that the ``[data]`` extra brings; nothing is shipped with feducb itself."""

from __future__ import annotations

from feducb.data.actg175 import ACTG175
from feducb.data.base import DataSet, Known, Loaded, Trial
from feducb.data.letter import LETTER
from feducb.data.movielens import MOVIELENS
from feducb.data.star import STAR
from feducb.errors import ConfigurationError

__all__ = ["DATA_SETS", "DataSet", "Known", "Loaded", "Trial", "data_set"]

DATA_SETS: dict[str, DataSet] = {one.name: one for one in (ACTG175, STAR, MOVIELENS, LETTER)}


def data_set(name: str) -> DataSet:
    """A data set by its name."""
    if name not in DATA_SETS:
        raise ConfigurationError("data set", name, f"one of {', '.join(DATA_SETS)}")
    return DATA_SETS[name]
