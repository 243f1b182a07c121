"""An agent's tables beside its decisions (`events`) and releases (`store`): settings, sums, counts, warnings.

Functions that write work within a transaction of the store.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from feducb.storage import sqlite
from feducb.storage.schema import MIGRATIONS

__all__ = ["look_into"]


def look_into(path: str | Path) -> sqlite3.Connection:
    """Read an agent's file, which another process may have open."""
    return sqlite.read_only(Path(path).resolve(), version=len(MIGRATIONS))
