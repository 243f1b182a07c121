"""What docs/theory.md says was computed is what the code computes; other tests hold what they name there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from feducb.privacy.mechanisms import BinaryTree, Dense, choose_mechanism, person_reach

TEXT = (Path(__file__).parents[2] / "docs/theory.md").read_text(encoding="utf-8")
MECHANISMS = {
    "12": Dense(12),
    "12 (r = 1.7)": Dense(12, 0, 1.7),
    "14 (3 quiet, r = 1.7)": Dense(14, 3, 1.7),
    "64": Dense(64),
    "64 (r = 1.05)": Dense(64, 0, 1.05),
    "64 (40 quiet)": Dense(64, 40),
}


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_what_spaced_records_cost_over_what_as_many_would() -> None:
    head, _, *rows = TEXT[TEXT.index("| n (quiet, decay r) |") :].partition("\n\n")[0].splitlines()
    asked = [(int(p), int(spacing)) for p, spacing in re.findall(r"p = (\d+), ℓ = (\d+)", head)]
    found = {name: cells for name, *cells in map(_cells, rows)}
    assert found == {
        name: [f"{person_reach(mechanism, p, spacing) / p:.3f}" for p, spacing in asked]
        for name, mechanism in MECHANISMS.items()
    }


def test_worst_releases() -> None:
    (line,) = re.findall(r"^Worst release in units of R²/μ.*$", TEXT, re.MULTILINE)
    said = [float(one) for one in re.findall(r"\d+\.\d+", line)]
    sizes = (16, 64, 1_000_000)
    best = [choose_mechanism("auto", size).worst_error() for size in sizes]
    tree = [BinaryTree(size).worst_error() for size in sizes]
    assert said == pytest.approx([*best, *tree], rel=3e-3)
