"""Real data, from packages of the ``[data]`` extra or from files to be fetched; feducb ships none itself."""

from __future__ import annotations

from feducb.errors import ConfigurationError
from feducb.worlds.data.actg175 import ACTG175
from feducb.worlds.data.data_set import DataSet, Known, Loaded, Trial
from feducb.worlds.data.health_insurance import HEALTH_INSURANCE
from feducb.worlds.data.letter import LETTER
from feducb.worlds.data.movielens import MOVIELENS
from feducb.worlds.data.movielens_users import MOVIELENS_USERS
from feducb.worlds.data.orange_juice import ORANGE_JUICE
from feducb.worlds.data.star import STAR
from feducb.worlds.data.star_years import STAR_YEARS

__all__ = ["DATA_SETS", "DataSet", "Known", "Loaded", "Trial", "data_set"]

DATA_SETS: dict[str, DataSet] = {
    one.name: one
    for one in (
        *(ACTG175, STAR, STAR_YEARS, HEALTH_INSURANCE, ORANGE_JUICE),
        *(MOVIELENS, MOVIELENS_USERS, LETTER),
    )
}


def data_set(name: str) -> DataSet:
    """A data set by its name."""
    if name not in DATA_SETS:
        raise ConfigurationError("data set", name, f"one of {', '.join(DATA_SETS)}")
    return DATA_SETS[name]
