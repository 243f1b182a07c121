"""Puts measured numbers into `paper.md`: each stands before a comment that says which one it is.

    31.6 ± 0.4<!--own: alone-->

    own: TABLE | ROW | COLUMN        mean ± standard error of a point of docs/figures/own-full.json
    prior: WORLD | WHO               that of docs/figures/prior-quick.json, at the best of what was tried
    figure: NAME, who=…, M=…         the same of a point of docs/figures/NAME.json, by its label
    real: SET, PLAY, ε, TRUST        difference to each agent alone ± margin, docs/real-data/all.json
    outcomes: PLAY, wins|ties|loses|all
                                     how often, over all sets and settings of that file's table
    differences                      for how many differences together its margins hold
    times: A over B                  the quotient of two means, each named as above
    largest: A; B; …                 the largest of such quotients

Usage: python paper/numbers.py, which writes paper.md anew; a test holds the paper to what it writes.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

PAPER = Path(__file__).with_name("paper.md")
DOCS = Path(__file__).parents[1] / "docs"
MARKED = re.compile(r"(?<![\w.,+−-])([+−]?[\d.,]*\d(?: ± [\d.,]*\d)?)<!--(.+?)-->", re.DOTALL)


@lru_cache
def _read(name: str) -> Any:
    return json.loads((DOCS / name).read_text(encoding="utf-8"))


def _measured(key: str) -> tuple[float, float]:
    """Mean and standard error."""
    kind, _, rest = key.partition(": ")
    if kind == "own":
        name, wanted = "own-full", dict(zip(("table", "row", "column"), rest.split(" | "), strict=True))
    elif kind == "prior":
        name, wanted = "prior-quick", dict(zip(("world", "who"), rest.split(" | "), strict=True))
    else:
        assert kind == "figure", key
        name, *label = rest.split(", ")
        wanted = dict(part.split("=") for part in label)
    points = _read(f"figures/{name}.json")["points"]
    found = [one for one in points if all(str(one["label"].get(k)) == v for k, v in wanted.items())]
    assert len(found) == 1 or (found and kind == "prior"), f"{key}: {len(found)} points"
    regret = min((one["result"]["per_agent_regret"] for one in found), key=lambda one: one["mean"])
    return regret["mean"], regret["stderr"]


def _real_data() -> Any:
    """What the cells of all data sets say together, as `benchmarks/real_data.py` wrote it."""
    return _read("real-data/all.json")["table"]


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _quotient(key: str) -> float:
    above, below = key.split(" over ")
    return _measured(above)[0] / _measured(below)[0]


def value_of(key: str) -> str:
    """What a comment stands for, as the paper writes it."""
    kind, _, rest = " ".join(key.split()).partition(": ")
    if kind == "times":
        return f"{_quotient(rest):.3g}"
    if kind == "largest":
        return f"{max(map(_quotient, rest.split('; '))):.3g}"
    if kind == "differences":
        return str(_real_data()["differences"])
    if kind == "outcomes":
        play, outcome = rest.split(", ")
        counts = _real_data()["outcomes"][play]["all"]
        return str(sum(counts.values()) if outcome == "all" else counts[outcome])
    if kind == "real":
        name, play, epsilon, trust = rest.split(", ")
        one = _real_data()["rows"][f"{name}, {play}"][f"ε = {epsilon}, {trust}"]
        return f"{one['value']:+.4f} ± {one['margin']:.4f}".replace("-", "−")
    mean, error = _measured(f"{kind}: {rest}")
    shown = _shown(mean)
    digits = len(shown.partition(".")[2])
    return f"{shown} ± {error:,.{digits}f}"


def fill(text: str) -> str:
    """The text with every number that has a comment as it was measured."""
    return MARKED.sub(lambda match: f"{value_of(match[2])}<!--{match[2]}-->", text)


if __name__ == "__main__":
    PAPER.write_text(fill(PAPER.read_text(encoding="utf-8")), encoding="utf-8")
