"""What the documentation says of own play is what was measured."""

import json
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"
CELLS = json.loads((DOCS / "figures" / "own-table.json").read_text(encoding="utf-8"))["cells"]
PAGE = (DOCS / "what-to-expect.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CELLS)
def test_page_has_the_mean_of_all_runs(name: str) -> None:
    regrets = np.array(list(CELLS[name]["regrets"].values()))
    mean, error = regrets.mean(), regrets.std(ddof=1) / len(regrets) ** 0.5
    assert CELLS[name]["mean"] == pytest.approx(mean, abs=1e-3)
    assert CELLS[name]["stderr"] == pytest.approx(error, abs=1e-3)
    digits = 2 if mean < 10.0 else 1
    if "half of it, nobody" not in name and ("others say" not in name or "keepers" in name):
        assert f"{CELLS[name]['mean']:.{digits}f} ± {CELLS[name]['stderr']:.{digits}f}" in PAGE


def test_joining_costs_no_more_than_was_asked_for() -> None:
    """The limits of own play where sites are alike, differ or lie, M = 100, ε = 1."""
    alone = CELLS["alone"]["mean"]
    most = {"0": 4.84, "0.05": 5.17, "0.1": 7.48, "0.2": 26.95, "0.4": 1.15 * alone}
    for apart, limit in most.items():
        assert CELLS[f"h = {apart}, keepers"]["mean"] <= limit
        assert CELLS[f"h = {apart}, nobody"]["mean"] <= 1.15 * alone
    for name, cell in CELLS.items():
        if name.startswith("others say"):
            assert cell["mean"] <= 1.15 * alone
