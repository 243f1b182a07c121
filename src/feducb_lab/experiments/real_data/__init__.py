"""Real data, all of them: where private federation pays, and for how many records per agent.

load ▶ measure (cells, in parallel, kept as they come) ▶ tables and a picture ▶ the page

Each cell says which code made it: one of other code is measured again, and stays until it has been.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from feducb.worlds.data import DATA_SETS
from feducb_lab.experiments.experiment import Scale
from feducb_lab.experiments.provenance import commit, fingerprint, made_by
from feducb_lab.experiments.real_data.carried import Ready, carried, load
from feducb_lab.experiments.real_data.cells import Cell, cells_of, measure
from feducb_lab.experiments.real_data.findings import Findings

__all__ = ["Found", "make", "measure_all"]

Found = dict[str, Any]
Tell = Callable[[str], None]

_PLAYER = "feducb_lab.experiments.real_data.cells"


def measure_all(
    path: Path,
    scale: Scale,
    tell: Tell,
    *,
    names: Sequence[str] = tuple(DATA_SETS),
    source: Path | None = None,
    processes: int = 1,
    minutes: float | None = None,
    command: str | None = None,
) -> Found:
    """Measure what is not in the file yet, or was by other code, and keep it there as it comes.

    Args:
        path: the JSON file.
        scale: quick or full.
        tell: hears each cell.
        names: data sets.
        source: a file that `carry` wrote; None: load them from their packages.
        processes: at once.
        minutes: begin nothing after so many; the same call goes on later.
        command: measures this file; None: the script of benchmarks/.
    """
    found: Found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    cells = found.get("cells", {}) if found.get("scale", scale) == scale else {}
    command = command or f"python benchmarks/real_data.py {path} --scale {scale}"
    by = {"commit": commit(), "code": fingerprint(_PLAYER)}
    ready = carried(source) if source else {name: load(name) for name in names}
    todo = [cell for name in names for cell in cells_of(ready[name][0], scale)]
    todo = [cell for cell in todo if cells.get(cell.key, {}).get("code") != by["code"]]
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
            cells[waiting[done].key] = {**result, **by}
            _write(path, _kept(scale, command, cells))
            tell(waiting[done].key)
    return _kept(scale, command, cells)


def _write(path: Path, found: Found) -> None:
    """Whole or not at all: who is stopped goes on from here."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(path)


def _kept(scale: Scale, command: str, cells: Mapping[str, Any]) -> Found:
    """The file: by what its newest cells were made, how many are older, and what all of them say."""
    made = made_by(command, [_PLAYER])
    older = sum(one.get("code") != made["code"] for one in cells.values())
    return {
        "scale": scale,
        "made": made | {"older": older},
        "table": Findings.of(cells, full=True).plain(),
        "cells": cells,
    }


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
    command = f"feducb report --everything --scale {scale}"
    measure_all(path, scale, tell, names=names, command=command)
    return [path, *write(path)]
