"""Columns of a record as blocks of numbers, each of length at most 1. Nothing is estimated from data."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from feducb.config import require_finite, require_integer
from feducb.errors import ConfigurationError, RowError

__all__ = ["COLUMN_KINDS", "Category", "Coded", "Column", "Hashed", "Number", "Tags", "Values", "as_text"]

Array = NDArray[np.float64]
Values: TypeAlias = "Sequence[Any] | NDArray[Any] | Coded"


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of few different texts: which one each row has. Faster to read than the texts.

    Attributes:
        codes: (n,), index into ``texts``; negative where the value is missing.
        texts: the different values.
    """

    codes: NDArray[np.int64]
    texts: tuple[str, ...]


def as_text(value: Any) -> str:
    """One spelling for a level, whether a file gave it as text, as 3 or as 3.0."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _coded(values: Values) -> Coded:
    if isinstance(values, Coded):
        return values
    index: dict[str, int] = {}
    codes = np.empty(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        codes[row] = -1 if missing else index.setdefault(as_text(value), len(index))
    return Coded(codes, tuple(index))


def _complain(column: str, row: int, value: Any, expected: str) -> ConfigurationError:
    return RowError(column, row, value, expected)


def _looked_up(name: str, values: Values, places: Sequence[int], first_row: int, expected: str) -> Any:
    """The place of each row's value; an error that names the row of the first that has none."""
    coded = _coded(values)
    levels = np.array([*places, -1])[coded.codes]  # a missing value, code −1, finds the last entry
    if len(levels) and levels.min() < 0:
        row = int(np.argmax(levels < 0))
        code = int(coded.codes[row])
        raise _complain(name, first_row + row, None if code < 0 else coded.texts[code], expected)
    return levels


@dataclass(frozen=True, slots=True)
class Number:
    """A number, clipped to a public range and scaled to [−1, 1].

    Attributes:
        name: the column.
        low: the least value that counts.
        high: the largest.
    """

    kind: ClassVar[str] = "number"
    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        require_finite(f"low of {self.name}", self.low)
        require_finite(f"high of {self.name}", self.high, above=self.low)

    @property
    def width(self) -> int:
        """One entry: the scaled number."""
        return 1

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, 1), each value in [−1, 1]."""
        if isinstance(values, Coded):
            values = [None if code < 0 else values.texts[code] for code in values.codes.tolist()]
        try:
            numbers = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            numbers = np.array([_as_number(value) for value in values])
        finite = np.isfinite(numbers)
        if not finite.all():
            row = int(np.argmin(finite))
            raise _complain(self.name, first_row + row, _plain(values[row]), "a finite number")
        middle, half = (self.low + self.high) / 2.0, (self.high - self.low) / 2.0
        return np.asarray((np.clip(numbers, self.low, self.high) - middle) / half)[:, None]


def _as_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, slots=True)
class Category:
    """One of a few public levels, as a one-hot.

    Attributes:
        name: the column.
        levels: all there can be; another value is an error.
    """

    kind: ClassVar[str] = "category"
    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        levels = tuple(as_text(level) for level in self.levels)
        if not levels or len(set(levels)) != len(levels):
            raise ConfigurationError(f"levels of {self.name}", levels, "one or more, all different")
        object.__setattr__(self, "levels", levels)

    @property
    def width(self) -> int:
        """One entry per level."""
        return len(self.levels)

    def index(self, values: Values, first_row: int = 1) -> NDArray[np.int64]:
        """(n,), which level each value is."""
        coded = _coded(values)
        place = {level: index for index, level in enumerate(self.levels)}
        places = [place.get(text, -1) for text in coded.texts]
        shown = ", ".join(self.levels[:8]) + (", …" if len(self.levels) > 8 else "")
        levels: NDArray[np.int64] = _looked_up(self.name, coded, places, first_row, f"one of {shown}")
        return levels

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, levels), a single 1 per row."""
        return np.asarray(np.eye(self.width)[self.index(values, first_row)])


@dataclass(frozen=True, slots=True)
class Hashed:
    """One of many levels, known or not, hashed into a fixed number of signed buckets.

    Two levels in one bucket share what is learnt (with a random sign); the buckets are the same everywhere.

    Attributes:
        name: the column.
        buckets: how many.
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
        place = _looked_up(self.name, coded, range(len(hashes)), first_row, "a value")
        bucket = np.array([(hashed >> 1) % self.buckets for hashed in hashes], dtype=np.int64)[place]
        sign = np.array([1.0 if hashed & 1 else -1.0 for hashed in hashes])[place]
        return np.asarray(np.eye(self.buckets)[bucket] * sign[:, None])


@dataclass(frozen=True, slots=True)
class Tags:
    """Some of a few public levels at once, as text with a separator; k tags count 1/√k each.

    Attributes:
        name: the column.
        levels: all that count; others are ignored.
        separator: between two tags.
    """

    kind: ClassVar[str] = "tags"
    name: str
    levels: tuple[str, ...]
    separator: str = "|"

    def __post_init__(self) -> None:
        if not self.levels or len(set(self.levels)) != len(self.levels):
            raise ConfigurationError(f"levels of {self.name}", self.levels, "one or more, all different")
        object.__setattr__(self, "levels", tuple(self.levels))

    @property
    def width(self) -> int:
        """One entry per level."""
        return len(self.levels)

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, levels), rows of length 1, or 0 where no tag counts."""
        coded = _coded(values)
        table = np.zeros((len(coded.texts), self.width))
        for row, text in enumerate(coded.texts):
            tags = set(text.split(self.separator))
            table[row] = [level in tags for level in self.levels]
        table /= np.sqrt(np.maximum(table.sum(axis=1, keepdims=True), 1.0))
        place = _looked_up(self.name, coded, range(len(table)), first_row, "tags")
        return np.asarray(table[place] if len(table) else np.zeros((0, self.width)))


Column: TypeAlias = Number | Category | Hashed | Tags
COLUMN_KINDS: dict[str, type[Any]] = {one.kind: one for one in (Number, Category, Hashed, Tags)}
