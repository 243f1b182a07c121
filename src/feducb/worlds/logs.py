"""Logs of decisions, read a chunk at a time: a data frame, CSV or Parquet, with one class for each.

What a log must have: who decided (agent), what was known (context), what was done (action), with which
probability (propensity), and what came of it (reward).
"""

from __future__ import annotations

import csv
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from feducb.config import require_integer
from feducb.errors import ConfigurationError, RowError
from feducb.system import optional
from feducb.worlds.features import Coded, as_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Chunk", "CsvLog", "FrameLog", "Log", "LogColumns", "ParquetLog", "open_log"]

ROWS_AT_ONCE = 50_000


@dataclass(frozen=True, kw_only=True, slots=True)
class LogColumns:
    """Which column is what.

    Attributes:
        agent: who decided.
        action: what was done.
        reward: what came of it.
        propensity: the probability with which it was done.
        context: what was known before.
        person: whose record it is, if a person may have several: they then stay together.
        texts: columns of the context that are texts even where they look like numbers.
    """

    agent: str
    action: str
    reward: str
    propensity: str
    context: tuple[str, ...] = ()
    person: str | None = None
    texts: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every column that is read, once."""
        named = (self.agent, self.action, self.reward, self.propensity, *self.context)
        return tuple(dict.fromkeys((*named, self.person) if self.person is not None else named))

    @property
    def always_text(self) -> tuple[str, ...]:
        """Columns that are texts even where they look like numbers."""
        return (self.agent, self.action, *self.texts)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some successive rows of a log."""

    first_row: int  # its number, counted from 1
    columns: Mapping[str, NDArray[Any] | Coded]  # numbers as arrays, texts coded
    rows: int


class Log(Protocol):
    """Something that can be read from beginning to end, as often as needed."""

    @property
    def name(self) -> str:
        """What to call it."""

    def chunks(self, columns: LogColumns) -> Iterator[Chunk]:
        """Its rows, in order."""


@dataclass(frozen=True, slots=True)
class FrameLog:
    """A data frame in memory."""

    frame: pd.DataFrame
    name: str = "data frame"
    rows_at_once: int = ROWS_AT_ONCE

    def chunks(self, columns: LogColumns) -> Iterator[Chunk]:
        """Rows of the frame."""
        _require_columns(columns, self.frame.columns, self.name)
        starts = range(0, len(self.frame), self.rows_at_once)
        yield from _chunks((self.frame.iloc[start : start + self.rows_at_once] for start in starts), columns)


@dataclass(frozen=True, slots=True)
class _FileLog:
    """A log in a file, which is never in memory as a whole."""

    path: Path
    rows_at_once: int = ROWS_AT_ONCE

    @property
    def name(self) -> str:
        """The file's name, without its folder."""
        return self.path.name


class CsvLog(_FileLog):
    """A CSV file with a header, plain or compressed (.gz, .bz2, .xz, .zst)."""

    def chunks(self, columns: LogColumns) -> Iterator[Chunk]:
        """Rows of the file, counted without the header; `line_of` says where one stands."""
        with optional("reading a CSV file", "data"):
            import pandas
        # A missing value is an empty field: NA may well be the code of a region.
        settings: dict[str, Any] = {"keep_default_na": False, "na_values": [""], "encoding": "utf-8-sig"}
        header = None
        try:
            header = pandas.read_csv(self.path, nrows=0, **settings)
            _require_columns(columns, header.columns, self.name)
            first_line = pandas.read_csv(self.path, header=None, skiprows=1, nrows=1, dtype=str, **settings)
            if len(first_line.columns) > len(header.columns):  # pandas would shift all columns
                raise ConfigurationError("log", self.name, "as many fields in line 2 as in the header")
            texts: dict[Hashable, Any] = dict.fromkeys(columns.always_text, "category")
            settings |= {"dtype": texts, "chunksize": self.rows_at_once, "low_memory": False}
            # All columns are parsed: with usecols pandas would not notice a line with a field too many.
            with pandas.read_csv(self.path, **settings) as reader:
                yield from _chunks(reader, columns)
        except pandas.errors.EmptyDataError:
            if header is not None:
                return  # no rows
            raise ConfigurationError("log", self.name, "a CSV file with a header") from None
        except (pandas.errors.ParserError, UnicodeDecodeError) as error:
            raise ConfigurationError("log", self.name, f"a CSV file ({error})") from None

    def line_of(self, row: int) -> int:
        """The line, as an editor counts them, on which a row starts; row 1 is the first after the header."""
        with optional("reading a CSV file", "data"):
            from pandas.io.common import get_handle
        with get_handle(self.path, "r", encoding="utf-8-sig", compression="infer") as opened:
            return next(islice(_record_lines(opened.handle), row, None))


def _record_lines(lines: Iterable[str]) -> Iterator[int]:
    """The line on which each record of a CSV file starts; empty lines are none."""
    reader, start = csv.reader(lines), 1
    for fields in reader:
        if len(fields) > 1 or "".join(fields).strip():
            yield start
        start = reader.line_num + 1


@contextmanager
def lines_in_errors(log: Log) -> Iterator[None]:
    """A row that is complained about is named by its line where the log is a text that one can open."""
    try:
        yield
    except RowError as error:
        if not isinstance(log, CsvLog):
            raise
        place = f"{error.column} in line {log.line_of(error.row)}"
        raise ConfigurationError(place, error.value, error.expected) from None


class ParquetLog(_FileLog):
    """A Parquet file, read a batch at a time."""

    def chunks(self, columns: LogColumns) -> Iterator[Chunk]:
        """Rows of the file."""
        with optional("reading a Parquet file", "data"):
            import pandas  # noqa: F401
            import pyarrow as arrow
            from pyarrow import parquet
        try:
            opened = parquet.ParquetFile(self.path)
        except arrow.ArrowInvalid as error:
            raise ConfigurationError("log", self.name, f"a Parquet file ({error})") from None
        with opened:
            _require_columns(columns, opened.schema_arrow.names, self.name)
            batches = opened.iter_batches(batch_size=self.rows_at_once, columns=list(columns.all))
            yield from _chunks((batch.to_pandas() for batch in batches), columns)


_READERS: dict[str, type[CsvLog] | type[ParquetLog]] = {".csv": CsvLog, ".parquet": ParquetLog}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


def open_log(path: str | Path, *, rows_at_once: int = ROWS_AT_ONCE) -> Log:
    """The log in a file, by its ending."""
    require_integer("rows_at_once", rows_at_once, at_least=1)
    path = Path(path)
    plain = path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path
    reader = _READERS.get(plain.suffix.lower())
    if reader is None:
        raise ConfigurationError("log", str(path), f"a file that ends in {' or '.join(_READERS)}")
    if not path.is_file():
        raise ConfigurationError("log", str(path), "a file that exists, or the name of a data set")
    return reader(path, rows_at_once)


def _require_columns(columns: LogColumns, there: Iterable[Any], name: str) -> None:
    names = [str(one) for one in there]
    for one in columns.all:
        if one not in names:
            raise ConfigurationError("column", one, f"one of those of {name}: {', '.join(names)}")


def _chunks(frames: Iterable[pd.DataFrame], columns: LogColumns) -> Iterator[Chunk]:
    """Successive frames as chunks; a person's column is hashed."""
    first_row = 1
    for frame in frames:
        values: dict[str, NDArray[Any] | Coded] = {}
        for name in columns.all:
            series = frame[name]
            if name in columns.always_text or series.dtype.kind not in "biuf":
                texts = series.astype("category").cat
                codes = texts.codes.to_numpy().astype(np.int64)
                values[name] = Coded(codes, tuple(map(as_text, texts.categories)))
            else:
                values[name] = series.to_numpy()
        if columns.person is not None:
            with optional("a person column", "data"):
                from pandas.util import hash_pandas_object
            values[columns.person] = hash_pandas_object(frame[columns.person], index=False).to_numpy()
        yield Chunk(first_row, values, len(frame))
        first_row += len(frame)
