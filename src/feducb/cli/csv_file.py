"""A log as a CSV file, opened so that what is none ends in a sentence."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from feducb.errors import ConfigurationError

__all__ = ["open_csv"]


@contextmanager
def open_csv(path: Path) -> Iterator[TextIO]:
    """A CSV file in UTF-8; while it is read, an error says what is wrong with it."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as opened:
            yield opened
    except UnicodeDecodeError as error:
        expected = (
            "text in UTF-8: save it again as CSV UTF-8, or convert it, such as by "
            f"`iconv -f WINDOWS-1252 -t UTF-8 {path.name}` ({error.reason} at byte {error.start})"
        )
        raise ConfigurationError("encoding of the log", str(path), expected) from None
    except csv.Error as error:
        raise ConfigurationError("log", str(path), f"a CSV file ({error})") from None
