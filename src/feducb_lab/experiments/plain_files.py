"""JSON files of results, which people move, edit and cut off: what cannot be read is named, with its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from feducb.errors import ConfigurationError
from feducb_lab.experiments.experiment import Results

__all__ = ["read_figure", "read_object"]


def read_object(path: Path, what: str) -> dict[str, Any]:
    """What a file holds; an error says that ``what`` was expected."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, what, str(error)) from None
    if not isinstance(plain, dict):
        raise _unreadable(path, what, f"its JSON is a {type(plain).__name__}, no object")
    return plain


def read_figure(path: Path) -> Results:
    """A figure's results, as `feducb figure` wrote them."""
    what = "a figure's results"
    try:
        return Results.from_dict(read_object(path, what))
    except (KeyError, TypeError) as error:
        raise _unreadable(path, what, f"{type(error).__name__}: {error}") from None


def _unreadable(path: Path, what: str, why: str) -> ConfigurationError:
    return ConfigurationError(str(path), "unreadable", f"{what} ({why})")
