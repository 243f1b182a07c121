"""Real data, all of them: where private federation pays, and for how many records per agent.

load ▶ measure (cells, in parallel, kept as they come) ▶ tables and a picture ▶ the page
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from feducb.version import __version__
from feducb.worlds.data import DATA_SETS
from feducb_lab.experiments.experiment import Scale
from feducb_lab.experiments.real_data.carried import Ready, carried, load
from feducb_lab.experiments.real_data.cells import Cell, cells_of, measure

__all__ = ["Found", "make", "measure_all"]

Found = dict[str, Any]
Tell = Callable[[str], None]


def measure_all(
    path: Path,
    scale: Scale,
    tell: Tell,
    *,
    names: Sequence[str] = tuple(DATA_SETS),
    source: Path | None = None,
    processes: int = 1,
    minutes: float | None = None,
) -> Found:
    """Measure what is not in the file yet, and keep it there as it comes.

    Args:
        path: the JSON file.
        scale: quick or full.
        tell: hears each cell.
        names: data sets.
        source: a file that `carry` wrote; None: load them from their packages.
        processes: at once.
        minutes: begin nothing after so many; the same call goes on later.
    """
    found: Found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if found.get("scale", scale) != scale or found.get("version", __version__) != __version__:
        found = {}
    found = {
        "scale": scale,
        "version": __version__,
        "commits": found.get("commits", []),
        "cells": found.get("cells", {}),
    }
    commit = _commit()
    if commit and commit not in found["commits"]:
        found["commits"].append(commit)
    ready = carried(source) if source else {name: load(name) for name in names}
    todo = [cell for name in names for cell in cells_of(ready[name][0], scale)]
    todo = [cell for cell in todo if cell.key not in found["cells"]]
    todo.sort(
        key=lambda cell: (ready[cell.name][0].dim, cell.records or 10**9), reverse=True
    )  # the longest first
    until = None if minutes is None else time.monotonic() + 60 * minutes
    with ProcessPoolExecutor(processes) as pool:
        waiting = {pool.submit(_measured, cell, ready[cell.name], scale, until): cell for cell in todo}
        for done in as_completed(waiting):
            result = done.result()
            if result is None:
                continue
            found["cells"][waiting[done].key] = result
            tell(waiting[done].key)
            path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return found


def _commit() -> str | None:
    """Of the checkout that this runs in, if it is one; dirty where files are not as committed."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _measured(
    cell: Cell, ready: tuple[Ready, str], scale: Scale, until: float | None
) -> Mapping[str, Any] | None:
    if until is not None and time.monotonic() > until:
        return None
    return measure(cell, *ready, scale)


def make(out: Path, scale: Scale, tell: Tell) -> list[Path]:
    """Measure all data sets that are at hand; write JSON, Markdown and a picture into a folder."""
    from feducb_lab.experiments.real_data.pages import write

    out.mkdir(parents=True, exist_ok=True)
    path = out / f"real-data-{scale}.json"
    names = [name for name, one in DATA_SETS.items() if one.file is None or one.file.path() is not None]
    measure_all(path, scale, tell, names=names)
    return [path, *write(path)]
