"""Rules for values that a column does not know or does not get, and how one visitor's value is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from feducb.errors import ConfigurationError
from feducb.worlds.features.coded import as_text

__all__ = ["Missing", "Pairs", "Reader", "Unknown", "gap_reader", "kind_of", "require_rule", "text_of"]

Missing = Literal["refuse", "zero", "own"]
Unknown = Literal["refuse", "zero", "other"]
Pairs: TypeAlias = tuple[tuple[int, float], ...]  # the entries of a block that are not 0, and their numbers
Reader: TypeAlias = "Callable[[Any], tuple[Pairs, str]]"  # of a value: its entries, and which rule it took


def require_rule(name: str, rule: str, value: object, choices: object) -> None:
    """Raise unless a column's rule is one of those that there are."""
    if value not in get_args(choices):
        raise ConfigurationError(f"{rule} of {name}", value, f"one of {', '.join(get_args(choices))}")


def kind_of(value: Any) -> str:
    """What a refused value is, without repeating it: it may tell of somebody."""
    if isinstance(value, float | np.floating):
        return str(float(value)) if not math.isfinite(value) else "a number"
    kinds = {bool: "true or false", str: "a text", dict: "an object", list: "a list", tuple: "a list"}
    said = "a number" if isinstance(value, int | np.generic) else type(value).__name__
    return next((text for kind, text in kinds.items() if isinstance(value, kind)), said)


def gap_reader(rule: Missing, place: str, entry: int, expected: str) -> Callable[[], tuple[Pairs, str]]:
    """How a reader answers where a value is missing; ``entry`` is the one of its own."""
    found: tuple[Pairs, str] = ((((entry, 1.0),) if rule == "own" else ()), "missing")

    def answer() -> tuple[Pairs, str]:
        if rule == "refuse":
            raise ConfigurationError(place, "missing", expected)
        return found

    return answer


def text_of(value: Any, place: str) -> str:
    """The text of a level; a number or true will do, what is not finite or has parts will not."""
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        raise ConfigurationError(place, kind_of(value), "a text")
    if not isinstance(value, str | bool | int | float | np.generic):
        raise ConfigurationError(place, kind_of(value), "a text")
    return as_text(value)
