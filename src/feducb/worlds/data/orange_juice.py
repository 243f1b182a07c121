"""Orange juice at Dominick's: 106,139 weeks of 11 brands in 83 stores. Nobody drew prices by lot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from feducb.errors import ConfigurationError
from feducb.system import optional
from feducb.worlds.data.data_set import DataSet, Trial
from feducb.worlds.data.fetched import Fetched
from feducb.worlds.features import Category, Number, Recipe

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ORANGE_JUICE"]

_BRANDS = (
    "Tropicana Premium 64", "Tropicana Premium 96", "Florida's Natural", "Tropicana 64", "Minute Maid 64",
    "Minute Maid 96", "Citrus Hill", "Tree Fresh", "Florida Gold", "Dominick's 64", "Dominick's 128",
)  # fmt: skip
_PRICES = ("low", "usual", "high")
_CAP = 200.0  # dollars a week
_STEP = 0.1  # of the usual price
_FEWEST = 5  # weeks of each kind of price, for a store's brand to be used

RECIPE = Recipe(
    context=(
        Category("brand", _BRANDS),
        Number("log_income", 9.0, 12.0),
        Number("college", 0.0, 1.0),
    ),
    action=(Category("price", _PRICES),),
    terms=(("price", "brand"), ("log_income",), ("college",)),
)

FILE = Fetched(
    "orangeJuice.rda",
    "apt-get download r-cran-bayesm, dpkg -x r-cran-bayesm_*.deb DIR, and FEDUCB_DATA="
    "DIR/usr/lib/R/site-library/bayesm/data",
    folders=("/usr/lib/R/site-library/bayesm/data",),
)


def _load(agents: int | None) -> Trial:
    with optional("the data set orange-juice", "data"):
        import pandas  # noqa: F401
        import rdata
    if agents is not None:
        raise ConfigurationError("agents", agents, "nothing for orange-juice: its agents are stores")
    found = rdata.read_rda(FILE.require("the data set orange-juice"))["orangeJuice"]
    weeks, stores = found["yx"], found["storedemo"].set_index("STORE")
    brand = weeks["brand"].to_numpy(dtype=np.int64) - 1
    prices = weeks[[f"price{one + 1}" for one in range(len(_BRANDS))]].to_numpy(dtype=np.float64)
    price = prices[np.arange(len(weeks)), brand]
    earned = np.exp(weeks["logmove"].to_numpy(dtype=np.float64)) * price
    earned *= weeks["profit"].to_numpy(dtype=np.float64) / 100
    store = weeks["store"].to_numpy(dtype=np.int64)
    everything = weeks[[]].assign(
        store=[f"store {one}" for one in store],
        week=weeks["week"].to_numpy(dtype=np.int64),
        brand=[_BRANDS[one] for one in brand],
        dollars=price,
        reward=np.clip(earned / _CAP, 0.0, 1.0),
        log_income=stores["INCOME"].astype(float).loc[store].to_numpy(),
        college=stores["EDUC"].astype(float).loc[store].to_numpy(),
    )
    everything["price"] = _kind_of_price(everything)
    plain = weeks["feat"].to_numpy(dtype=np.float64) <= 0.5
    frame = everything[plain]
    weeks_of = frame.groupby(["store", "brand"])["price"]
    alike = frame.groupby(["store", "brand", "price"])["price"]
    fewest = alike.size().unstack(fill_value=0).min(axis=1) >= _FEWEST
    chance = alike.transform("size") / weeks_of.transform("size")
    tried = fewest.loc[list(zip(frame["store"], frame["brand"], strict=True))].to_numpy()
    advertised, untried = int((~plain).sum()), int((~tried).sum())
    clipped = float((earned[plain][tried] > _CAP).mean())
    frame = frame.assign(propensity=chance)[tried].drop(columns="dollars")
    return Trial(
        frame=frame.reset_index(drop=True),
        agent="store",
        recipe=RECIPE,
        notes=(
            f"{len(weeks):,} weeks of {len(_BRANDS)} brands in {weeks['store'].nunique()} stores; "
            f"{len(frame):,} are used. {advertised:,} are left out because the brand was advertised, when "
            f"prices go with the advertisement, and {untried:,} because the store asked one of the three "
            f"kinds of price for the brand in fewer than {_FEWEST} weeks",
            "action: the shelf price, low or high if it is more than a tenth off what the store asked for "
            "the brand in its median week; shelf prices are public",
            f"reward: gross margin on the brand in the week, up to {_CAP:g} dollars over {_CAP:g} "
            f"({100 * clipped:.1f} % were more); 0.01 is 2 dollars. Margins are "
            "the chain's own accounts, by average cost",
            "observational: people set prices, by season, cost and what was in stock. The propensity is the "
            "kind of price's share among the store's weeks of the brand, as if it had been drawn by lot",
            "intervals come from the spread over stores, which had the same weeks and mostly the same prices "
            "in them: they are too narrow",
            "a budget is for one brand in one week at one store; ranges are chosen from meaning",
        ),
        spread="agents",
    )


def _kind_of_price(weeks: pd.DataFrame) -> list[str]:
    """Against what the store asked for the brand in its median week."""
    usual = weeks.groupby(["store", "brand"])["dollars"].transform("median")
    off = (weeks["dollars"] / usual - 1.0).to_numpy()
    return [str(one) for one in np.select([off < -_STEP, off > _STEP], [_PRICES[0], _PRICES[2]], _PRICES[1])]


ORANGE_JUICE = DataSet(
    name="orange-juice",
    title="Orange juice: a low, usual or high price in 83 stores, observed",
    kind="observed",
    package="r-cran-bayesm (Debian)",
    source="Montgomery, Marketing Science 16 (1997), Dominick's Finer Foods, as bayesm/orangeJuice",
    question="A low, the usual or a high price for a brand this week: which leaves the highest margin?",
    licence="of the package: GPL 2 or later; the records are Dominick's, given to the University of Chicago "
    "for research",
    natural="83 stores of one chain",
    unclaimed="That a price causes a margin: whoever set it knew more than the file does. Nor anything of "
    "other brands' sales, which a low price takes away, nor of advertised weeks",
    load=_load,
    file=FILE,
)
