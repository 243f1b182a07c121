"""Visitors in place of real ones, with tastes that the shop does not know; some do not tell their age."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

OFFERS = ("none", "free_shipping", "ten_percent", "gift", "bundle", "loyalty_points")
_COINS = random.Random(20)


def arrive(count: int, per_second: float) -> Iterator[dict[str, Any]]:
    """So many, one after another."""
    for _ in range(count):
        time.sleep(1.0 / per_second)
        visitor = {
            "country": _COINS.choice(["DE", "FR", "US", "PT"]),  # the recipe has never heard of Portugal
            "device": _COINS.choice(["phone", "desktop"]),
            "age": _COINS.randrange(16, 95),
            "returning": _COINS.random() < 0.5,
            "basket": round(_COINS.uniform(0.0, 250.0), 2),
        }
        yield {name: value for name, value in visitor.items() if _COINS.random() < 0.98}


def chance(visitor: dict[str, Any], offer: str) -> float:
    """How likely a visitor buys who is shown this offer."""
    age = (min(max(visitor.get("age", 54), 18), 90) - 54) / 36
    basket = (min(visitor.get("basket", 100.0), 200.0) - 100) / 100
    returning = (1.0 if visitor["returning"] else -1.0) if "returning" in visitor else 0.0
    taste: dict[str, float] = {
        "none": 0.0,
        "free_shipping": 0.05 - 0.15 * basket,
        "ten_percent": 0.02 - 0.2 * age,
        "gift": 0.02 + 0.2 * age,
        "bundle": 0.15 * basket,
        "loyalty_points": 0.15 * returning,
    }
    return 0.3 + 0.02 * (visitor.get("device") == "desktop") + taste[offer]


def buys(visitor: dict[str, Any], offer: str | None) -> bool:
    """Whether this one does."""
    return _COINS.random() < chance(visitor, str(offer))
