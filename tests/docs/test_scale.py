"""The page on scale says what was measured: its tables, and the numbers of its sentences."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOUND = json.loads((ROOT / "docs/figures/scale.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
THOUSAND, TEN_THOUSAND = FOUND["parties"]["1000"], FOUND["parties"]["10000"]


@pytest.fixture(scope="module")
def scale() -> Any:
    """benchmarks/scale.py, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("benchmark_of_scale", ROOT / "benchmarks/scale.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_those_that_the_script_makes(scale: Any) -> None:
    made = scale.tables(FOUND)
    assert made.keys() == set(re.findall(r"<!-- table: (.*?) -->", PAGE))
    assert scale.fill(PAGE, made) == PAGE, "python benchmarks/scale.py --page docs/scale.md"
    cells = [one for visitors in FOUND["regret"].values() for one in visitors.values()]
    assert len(cells) > 20
    for one in cells:
        assert f"{one['mean']:.3g} ± {one['stderr']:.1g}" in PAGE


def test_sentences_say_what_was_measured(scale: Any) -> None:
    row, plain = TEN_THOUSAND["bytes of row"], TEN_THOUSAND["bytes of release"]
    padding = scale.seconds(TEN_THOUSAND["agent, padding"])
    keeper, controller = (scale.seconds(round(THOUSAND[who], 3)) for who in ("keeper", "controller"))
    to_an_agent = scale.size(THOUSAND["bytes of opened"])
    to_all = TEN_THOUSAND["bytes of opened"] * 10_000
    for said in (
        f"An agent sends {row} bytes ({plain} if nobody is trusted)",
        f"takes it {padding} of processor",
        f"measured: {keeper} of a keeper, {controller} of a controller, {to_an_agent} to each agent",
        f"sums to all are {scale.size(to_all)} a release: at 25 releases in a season "
        f"{25 * to_all / 1e9:.0f} GB",
        f"in 1,000 regions:* {scale.size(THOUSAND['bytes of opened'] * 1e6)} to agents inside regions, "
        f"and {plain} bytes of the total",
        f"1,000 releases to add, {THOUSAND['plain controller'] * 1e3:.0f} ms",
    ):
        assert said in PAGE


def test_lists_grow_by_as_many_bytes_as_the_page_says() -> None:
    """For each agent in it: what the page says grows beyond bounds, and at how many agents it breaks."""
    each = {
        name: (TEN_THOUSAND[name] - THOUSAND[name]) / 9_000
        for name in ("bytes of opened", "bytes of ask", "bytes of plain sum")
    }
    assert each == {"bytes of opened": 18, "bytes of ask": 162, "bytes of plain sum": 13}
    assert "18 bytes for each agent in it" in PAGE
    assert "(162 bytes for each agent)" in PAGE
    assert "about 13 bytes each" in PAGE
    assert pytest.approx(6_470, rel=1e-3) == 2**20 / 162
    assert "| 6,470 |" in PAGE
