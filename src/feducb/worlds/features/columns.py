"""Columns of a record as blocks of numbers, each of length at most 1. Nothing is estimated from data."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feducb.config import require_finite, require_integer
from feducb.errors import ConfigurationError, RowError
from feducb.types import Array, Indices

__all__ = [
    "COLUMN_KINDS",
    "Category",
    "Coded",
    "Column",
    "Hashed",
    "Number",
    "Tags",
    "Values",
    "as_number",
    "as_text",
    "require_column",
]

Values: TypeAlias = "Sequence[Any] | NDArray[Any] | Coded"

_SHOWN = 8  # levels that are named


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

    def look_up(self, places: Sequence[int], name: str, first_row: int, expected: str) -> Indices:
        """(n,), the place of each row's text; an error that names the row of the first that has none."""
        place: Indices = np.array([*places, -1], dtype=np.int64)[self.codes]  # a missing value has the last
        if len(place) and place.min() < 0:
            row = int(np.argmax(place < 0))
            raise RowError(name, first_row + row, self.values()[row], expected)
        return place


def as_text(value: Any) -> str:
    """One spelling for a level, whether a file gave it as text, as 3 or as 3.0."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def as_number(value: Any) -> float:
    """What it says, or NaN."""
    try:
        return float(value)
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
    except (TypeError, ValueError):
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


def _coded(values: Values) -> Coded:
    if isinstance(values, Coded):
        return values
    index: dict[str, int] = {}
    codes = np.empty(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        codes[row] = -1 if missing else index.setdefault(as_text(value), len(index))
    return Coded(codes, tuple(index))


@dataclass(frozen=True, slots=True)
class Number:
    """A number, clipped to a public range, ``low`` to ``high``, and scaled to [−1, 1]."""

    kind: ClassVar[str] = "number"
    width: ClassVar[int] = 1
    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        require_finite(f"low of {self.name}", self.low)
        require_finite(f"high of {self.name}", self.high, above=self.low)

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, 1), each value in [−1, 1]."""
        numbers = require_column(self.name, values, first_row=first_row)
        middle, half = (self.low + self.high) / 2.0, (self.high - self.low) / 2.0
        return np.asarray((np.clip(numbers, self.low, self.high) - middle) / half)[:, None]


@dataclass(frozen=True, slots=True)
class _OfLevels:
    """A column of a few public levels; a block has one entry per level."""

    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        levels = tuple(as_text(level) for level in self.levels)
        if not levels or len(set(levels)) != len(levels):
            raise ConfigurationError(f"levels of {self.name}", levels, "one or more, all different")
        object.__setattr__(self, "levels", levels)

    @property
    def width(self) -> int:
        return len(self.levels)

    @property
    def shown(self) -> str:
        """The first levels, for texts."""
        return ", ".join(self.levels[:_SHOWN]) + (", …" if self.width > _SHOWN else "")


@dataclass(frozen=True, slots=True)
class Category(_OfLevels):
    """One of a few public levels, as a one-hot; a value that is none of them is an error."""

    kind: ClassVar[str] = "category"

    def index(self, values: Values, first_row: int = 1) -> Indices:
        """(n,), which level each value is."""
        coded = _coded(values)
        place = {level: index for index, level in enumerate(self.levels)}
        places = [place.get(text, -1) for text in coded.texts]
        return coded.look_up(places, self.name, first_row, f"one of {self.shown}")

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, levels), a single 1 per row."""
        return np.asarray(np.eye(self.width)[self.index(values, first_row)])


@dataclass(frozen=True, slots=True)
class Hashed:
    """One of many levels, known or not, hashed into a fixed number of signed buckets.

    Two levels in one bucket share what is learnt (with a random sign); the buckets are the same everywhere.
    """

    kind: ClassVar[str] = "hashed"
    name: str
    buckets: int

    def __post_init__(self) -> None:
        require_integer(f"buckets of {self.name}", self.buckets, at_least=1)

    @property
    def width(self) -> int:
        """One entry per bucket."""
        return self.buckets

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, buckets), one entry of ±1 per row."""
        coded = _coded(values)
        hashes = [
            int.from_bytes(hashlib.blake2b(f"{self.name}={text}".encode(), digest_size=8).digest(), "big")
            for text in coded.texts
        ]
        place = coded.look_up(range(len(hashes)), self.name, first_row, "a value")
        bucket = np.array([(hashed >> 1) % self.buckets for hashed in hashes], dtype=np.int64)[place]
        sign = np.array([1.0 if hashed & 1 else -1.0 for hashed in hashes])[place]
        return np.asarray(np.eye(self.buckets)[bucket] * sign[:, None])


@dataclass(frozen=True, slots=True)
class Tags(_OfLevels):
    """Some of a few public levels at once, as text with a separator; k tags count 1/√k each.

    Tags that are none of the levels are ignored.
    """

    kind: ClassVar[str] = "tags"
    separator: str = "|"

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, levels), rows of length 1, or 0 where no tag counts."""
        coded = _coded(values)
        table = np.zeros((len(coded.texts), self.width))
        for row, text in enumerate(coded.texts):
            tags = set(text.split(self.separator))
            table[row] = [level in tags for level in self.levels]
        table /= np.sqrt(np.maximum(table.sum(axis=1, keepdims=True), 1.0))
        return np.asarray(table[coded.look_up(range(len(table)), self.name, first_row, "tags")])


Column: TypeAlias = Number | Category | Hashed | Tags
COLUMN_KINDS: dict[str, type[Any]] = {one.kind: one for one in (Number, Category, Hashed, Tags)}
