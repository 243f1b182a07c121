"""Columns of a log as they are read: texts coded, numbers checked, with the row named that cannot be."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feducb.errors import RowError
from feducb.types import Array, Indices

__all__ = ["Coded", "Values", "as_coded", "as_number", "as_text", "gaps", "require_column"]

Values: TypeAlias = "Sequence[Any] | NDArray[Any] | Coded"


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of few different texts: which one each row has. Faster to read than the texts."""

    codes: Indices  # (n,), index into the texts; −1 where the value is missing
    texts: tuple[str, ...]

    def __getitem__(self, some: slice) -> Coded:
        return Coded(self.codes[some], self.texts)

    def values(self) -> NDArray[Any]:
        """(n,), each row's text; None where it is missing."""
        return np.array([*self.texts, None], dtype=object)[self.codes]

    def look_up(
        self, places: Sequence[int], name: str, first_row: int, expected: str, *, missing: int = -1
    ) -> Indices:
        """(n,), the place of each row's text; an error that names the row of the first that has none (−1)."""
        place: Indices = np.array([*places, missing], dtype=np.int64)[self.codes]  # a missing value: the last
        if len(place) and place.min() < 0:
            row = int(np.argmax(place < 0))
            raise RowError(name, first_row + row, self.values()[row], expected)
        return place


def as_text(value: Any) -> str:
    """One spelling for a level, whether a file gave it as text, as 3 or as 3.0."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    try:
        return str(value)
    except ValueError:  # Python writes no whole number of thousands of digits in decimals
        return f"{value:x}"


def as_number(value: Any) -> float:
    """What it says, or NaN."""
    try:
        return float(value)
    except OverflowError:  # a whole number with hundreds of digits
        return sys.float_info.max if value > 0 else -sys.float_info.max
    except (TypeError, ValueError):
        return math.nan


def require_column(
    name: str,
    values: ArrayLike | Coded,
    *,
    first_row: int = 1,
    low: float = -math.inf,
    high: float = math.inf,
    above: bool = False,
) -> Array:
    """(n,), the column as numbers, or an error that names the first row where it is none, or out of range.

    Rows are counted from ``first_row``; with ``above``, ``low`` itself is not allowed.
    """
    given = values.values() if isinstance(values, Coded) else values
    if not isinstance(given, np.ndarray):
        given = np.asarray(given, dtype=object)  # as they were given, to be named in errors
    try:
        numbers = given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.array([as_number(value) for value in given.tolist()])
    good = np.isfinite(numbers) & (numbers <= high) & ((numbers > low) if above else (numbers >= low))
    if not good.all():
        row = int(np.argmin(good))
        value: Any = given[row].item() if isinstance(given[row], np.generic) else given[row]
        expected = "a finite number"
        if math.isfinite(low):
            expected = f"a number {'above' if above else 'from'} {low:g}"
        if math.isfinite(high):
            expected += f" {'and at most' if above else 'to'} {high:g}"
        raise RowError(name, first_row + row, value, expected)
    return numbers


def as_coded(values: Values) -> Coded:
    """As texts, whatever they were; None and NaN are missing."""
    if isinstance(values, Coded):
        return values
    index: dict[str, int] = {}
    codes = np.empty(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        codes[row] = -1 if missing else index.setdefault(as_text(value), len(index))
    return Coded(codes, tuple(index))


def gaps(values: Values) -> NDArray[np.bool_]:
    """(n,), where a value is missing: None, NaN, or an empty text."""
    if isinstance(values, Coded):
        return np.array([*(not text for text in values.texts), True])[values.codes]
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return np.asarray(np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=bool))
    return np.array([_is_gap(value) for value in values], dtype=bool)


def _is_gap(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))
