"""What `test_ray` runs: a sweep on a Ray of its own with two workers, and players that tell who plays.

    python ray_driver.py FOLDER POINTS.json    # prints outcomes as JSON, told lines on stderr

A process of its own, since Ray's warnings are not ours to fail on.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import feducb
from feducb.errors import ConfigurationError
from feducb_lab.experiments.experiment import Point
from feducb_lab.experiments.on_ray import play_on_ray
from feducb_lab.experiments.sweep import sweep


def slow(*, pid_file: str, **setting: Any) -> dict[str, Any]:
    """`feducb.simulate`, but the first process that is at it says who it is, and waits to be killed."""
    with Path(pid_file).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    while len(Path(pid_file).read_text(encoding="utf-8").split()) == 1:
        time.sleep(0.05)
    result = feducb.simulate(**setting)
    return result.as_dict() | {"finals": result.regret[:, -1].tolist()}


def fails(**setting: Any) -> dict[str, Any]:
    """A point that cannot be."""
    raise ConfigurationError("epsilon", -1, "a positive number")


def main() -> None:
    """One sweep."""
    folder, points = sys.argv[1:]
    given = [Point(**one) for one in json.loads(Path(points).read_text(encoding="utf-8"))]
    try:
        outcomes = sweep(
            given,
            Path(folder),
            partial(play_on_ray, backend="cpu", workers=2),
            lambda done, total: print(f"told {done} {total}", file=sys.stderr, flush=True),
        )
    except ConfigurationError as error:
        sys.exit(f"refused: {error}")
    print(json.dumps([[one.label, one.setting, one.result] for one in outcomes]))


if __name__ == "__main__":
    main()
