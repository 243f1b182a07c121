"""Puts what `feducb evaluate` of an earlier commit found into the form of benchmarks/real_data.py.

    git worktree add ../before 5ca99c8 && cp src/feducb/worlds/data/*.py ../before/src/feducb/worlds/data/
    export PYTHONPATH=../before/src ASKED="--trust nobody --trust keepers --trust controller"
    python -m feducb evaluate NAME $ASKED --json found/NAME.json
    python benchmarks/real_data_before.py 5ca99c8 docs/real-data/before.json found/*.json

5ca99c8 is the last commit at which agents could act on released sums alone. Today's loaders are copied, so
that it is asked about the same records; star-years needs --person-column child and health-insurance
--person-column person, which today's code takes from the loader.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feducb_lab.experiments.real_data.findings import COLUMNS, OPEN

ALONE, WITHOUT = "each agent alone", "federation without privacy"


def cell(found: Mapping[str, Any]) -> dict[str, Any]:
    """One comparison."""
    settings = found["settings"]
    online = "runs" in settings
    if online:
        freedom = settings["runs"] - 1
        each = settings["horizon"]
    else:
        freedom = settings["agents"] - 1 if settings["spread"] == "agents" else None
        each = settings["rounds_of_training"]

    def plain(one: Mapping[str, Any]) -> dict[str, Any]:
        return {"value": one["value"], "stderr": one["stderr"], "freedom": freedom}

    names, policies = iter(COLUMNS), {}
    for row in found["policies"]:
        if row["play"] != found["primary"]:
            continue
        name = next(names) if row["private"] else {ALONE: "alone", WITHOUT: OPEN}[row["policy"]]
        policies[name] = {
            "value": plain(row["value"]),
            **({"over_alone": plain(row["over_alone"])} if row["over_alone"] else {}),
            **({"reads": row["reads_a_release"], "shares": True} if row["private"] else {}),
        }
    facts = {"agents": settings["agents"], "dim": settings["dim"], "records_each": each}
    return {**facts, "primary": found["primary"], "reliable": found["reliable"], "policies": policies}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("json", type=Path)
    parser.add_argument("found", nargs="+", type=Path)
    asked = parser.parse_args()
    cells = {}
    for path in asked.found:
        found = json.loads(path.read_text(encoding="utf-8"))
        cells[f"{found['source']}, released, all, 0"] = cell(found)
    made = {"commit": asked.commit, "cells": cells}
    asked.json.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
