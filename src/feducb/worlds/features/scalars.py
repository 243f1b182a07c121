"""Columns of one number: those of a public range, and true or false."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feducb.config import require_finite
from feducb.errors import ConfigurationError, RowError
from feducb.types import Array
from feducb.worlds.features.coded import Coded, Values, as_coded, gaps, require_column
from feducb.worlds.features.rules import Missing, Pairs, Reader, gap_reader, kind_of, require_rule, text_of

__all__ = ["Flag", "Number"]

_ROUNDING = 1e-9
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")


@dataclass(frozen=True, slots=True)
class _OneNumber:
    """A column whose block is one number in [−1, 1], and one more entry where a missing value has its own."""

    name: str

    def _filled(self, numbers: Array, missing: NDArray[np.bool_], rule: Missing) -> Array:
        """(n, width), the block of scaled numbers, of which some are missing."""
        block = np.where(missing, 0.0, numbers)[:, None]
        return np.concatenate([block, missing[:, None].astype(float)], axis=1) if rule == "own" else block


@dataclass(frozen=True, slots=True)
class Number(_OneNumber):
    """A number, clipped to a public range, ``low`` to ``high``, and scaled to [−1, 1]."""

    kind: ClassVar[str] = "number"
    low: float
    high: float
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        for end in ("low", "high"):
            if getattr(self, end) is None:
                expected = "a public number, written in by hand: it must not be read from private data"
                raise ConfigurationError(f"{end} of {self.name}", None, expected)
        object.__setattr__(self, "low", require_finite(f"low of {self.name}", self.low))
        high = require_finite(f"high of {self.name}", self.high, above=self.low)
        object.__setattr__(self, "high", high)
        middle, half = self._middle
        # In floating point too, or vectors would be longer than the recipe says
        scaled = [(end - middle) / half if half else math.inf for end in (self.low, high)]
        if not all(abs(abs(end) - 1.0) < _ROUNDING for end in scaled):
            expected = "numbers far enough apart, and not too large, to be scaled to −1 to 1"
            raise ConfigurationError(f"range of {self.name}", f"{self.low:g} to {high:g}", expected)
        require_rule(self.name, "missing", self.missing, Missing)

    @property
    def width(self) -> int:
        """One number, and one more if it may be missing."""
        return 1 + (self.missing == "own")

    @property
    def _middle(self) -> tuple[float, float]:
        return (self.low + self.high) / 2.0, (self.high - self.low) / 2.0

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, width), each value in [−1, 1]."""
        middle, half = self._middle
        missing = gaps(values)
        if self.missing != "refuse" and missing.any():
            given = values.values() if isinstance(values, Coded) else values
            values = [middle if gone else value for gone, value in zip(missing, given, strict=True)]
        numbers = require_column(self.name, values, first_row=first_row)
        scaled = np.clip((np.clip(numbers, self.low, self.high) - middle) / half, -1.0, 1.0)
        return self._filled(scaled, missing, self.missing)

    def reader(self, place: str) -> Reader:
        """Reads one visitor's value, which ``place`` names in errors."""
        low, high, (middle, half) = self.low, self.high, self._middle
        missing = gap_reader(self.missing, place, 1, "a number")
        # An end may be off 1 by rounding, and a product of several by as many times that.
        least, most = (max(-1.0, min(1.0, (end - middle) / half)) for end in (low, high))

        def read(value: Any) -> tuple[Pairs, str]:
            if type(value) is not float:
                if value is None or (isinstance(value, str) and not value):
                    return missing()
                if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
                    raise ConfigurationError(place, kind_of(value), "a number")
                try:
                    value = float(value)
                except OverflowError:  # a whole number with hundreds of digits
                    return ((0, most if value > 0 else least),), "clipped"
            if low <= value <= high:
                return ((0, max(-1.0, min(1.0, (value - middle) / half))),), ""
            if not math.isfinite(value):
                raise ConfigurationError(place, str(value), "a finite number")
            return ((0, least if value < low else most),), "clipped"

        return read


@dataclass(frozen=True, slots=True)
class Flag(_OneNumber):
    """True or false, as 1 or −1; yes, no, 1 and 0 will do."""

    kind: ClassVar[str] = "boolean"
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        require_rule(self.name, "missing", self.missing, Missing)

    @property
    def width(self) -> int:
        """One number, and one more if it may be missing."""
        return 1 + (self.missing == "own")

    def block(self, values: Values, first_row: int = 1) -> Array:
        """(n, width), each value −1 or 1."""
        coded = as_coded(values)
        signs = np.array([_sign(text) for text in coded.texts] + [0.0])
        gone = np.array([not text for text in coded.texts] + [True])[coded.codes]
        numbers = signs[coded.codes]
        bad = (numbers == 0.0) & ~gone if self.missing != "refuse" else numbers == 0.0
        if bad.any():
            row = int(np.argmax(bad))
            raise RowError(self.name, first_row + row, coded.values()[row], "true or false")
        return self._filled(numbers, gone, self.missing)

    def reader(self, place: str) -> Reader:
        """Reads one visitor's value, which ``place`` names in errors."""
        yes: tuple[Pairs, str] = ((0, 1.0),), ""
        no: tuple[Pairs, str] = ((0, -1.0),), ""
        missing = gap_reader(self.missing, place, 1, "true or false")

        def read(value: Any) -> tuple[Pairs, str]:
            if value is True:
                return yes
            if value is False:
                return no
            if value is None:
                return missing()
            text = text_of(value, place)
            if not text:
                return missing()
            sign = _sign(text)
            if not sign:
                raise ConfigurationError(place, kind_of(value), "true or false")
            return yes if sign > 0 else no

        return read


def _sign(text: str) -> float:
    """1 for yes, −1 for no, 0 for anything else."""
    plain = text.strip().lower()
    return 1.0 if plain in _YES else -1.0 if plain in _NO else 0.0
