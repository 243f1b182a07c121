"""A log with a known world: what shops offered, to whom, with which probability, and what was bought."""

from __future__ import annotations

import numpy as np
import pandas as pd

OFFERS = ("book", "game", "film")


def shop_log(rows: int, *, shops: int = 20, seed: int = 0) -> pd.DataFrame:
    """The young should be offered games, the old books; films sell to nobody. Propensities are uneven."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 100, rows)
    chances = np.array([0.5, 0.3, 0.2])
    action = rng.choice(3, size=rows, p=chances)
    return pd.DataFrame(
        {
            "shop": [f"shop {one}" for one in rng.integers(0, shops, rows)],
            "age": age,
            "region": rng.choice(["north", "south"], rows),
            "offer": np.array(OFFERS)[action],
            "bought": (rng.random(rows) < buys(age)[np.arange(rows), action]).astype(float),
            "p": chances[action],
        }
    )


def buys(age: np.ndarray) -> np.ndarray:
    """(n, 3), the probability that each offer is taken: linear in the age."""
    share = age / 100
    return np.stack([0.1 + 0.8 * share, 0.9 - 0.8 * share, np.full_like(share, 0.1)], axis=1)


BEST_VALUE = 0.1 + 0.8 * 0.75  # of book above 50 and game below
