"""Real data measured as a whole: what is put together, corrected, kept and said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri

from feducb_lab.experiments.real_data import measure_all
from feducb_lab.experiments.real_data.carried import carried, carry
from feducb_lab.experiments.real_data.cells import combined
from feducb_lab.experiments.real_data.findings import COLUMNS, Findings
from feducb_lab.experiments.real_data.pages import sections, write

DOCS = Path(__file__).parents[2] / "docs"


def cell(value: float, stderr: float = 0.01, *, shares: bool = True, reads: bool = True) -> dict[str, object]:
    """A comparison in which every private federation earns so much more than alone."""
    plain = {"value": value, "stderr": stderr, "freedom": None}
    private = {"value": plain, "over_alone": plain, "reads": reads, "shares": shares}
    policies = {"alone": {"value": plain}, "no privacy": {"value": plain, "over_alone": plain}}
    facts = {"agents": 3, "dim": 2, "records_each": 100, "primary": "greedy", "reliable": True}
    return {**facts, "policies": {**policies, **dict.fromkeys(COLUMNS, private)}}


def test_parts_are_put_together_as_if_all_runs_had_been_made_at_once() -> None:
    runs = np.random.default_rng(0).normal(size=(3, 5))
    parts = []
    for one in runs:
        plain = {"value": one.mean(), "stderr": one.std(ddof=1) / np.sqrt(5), "freedom": 4}
        parts.append({"policies": {"alone": {"value": plain}}})
    value = combined(parts)["alone"].value
    assert value.value == pytest.approx(runs.mean())
    assert value.stderr == pytest.approx(runs.std(ddof=1) / np.sqrt(15))
    assert value.freedom == 14


def test_what_is_sure_holds_for_the_whole_table_and_what_is_no_difference_is_not_counted() -> None:
    cells = {
        "actg175, released, all, 0": cell(-0.1, reads=False),  # at random: six times the same difference
        "actg175, own, all, 0": cell(0.0, shares=False),  # alone: none
        "star, own, all, 0": cell(0.03),
        "star, own, 20, 0": cell(0.03),  # of learning curves, not of the table
    }
    table = Findings.of(cells, full=True)
    assert table.family == 1 + 0 + 6
    margin = 0.01 * ndtri(1 - 0.025 / 7)
    (line,) = (one for one in table.lines if one.name == "star")
    assert table.margin(line.policies[COLUMNS[0]]) == pytest.approx(margin)
    assert dict(table.counts("own")) == {"ties": 6, "wins": 6}  # 0.03 is more than 0.0269
    assert dict(table.counts("released")) == {"loses": 6}
    curves = Findings.of(cells, full=False)
    assert curves.family == 1 + 0 + 6 + 6 + 1  # and one without privacy, counted once


def test_measuring_goes_on_where_it_was_stopped_and_reads_what_is_carried(tmp_path: Path) -> None:
    held, path, told = tmp_path / "carried", tmp_path / "all.json", list[str]()
    carry(["actg175"], held)
    assert carried(held)["actg175"][0].agents == 10
    whole = measure_all(path, "quick", told.append, names=["actg175"], source=held)
    assert sorted(told) == [
        f"actg175, {play}, {each}, 0" for play in ("own", "released") for each in (20, "all")
    ]
    kept = json.loads(path.read_text(encoding="utf-8"))
    lost = kept["cells"].pop("actg175, own, 20, 0")
    path.write_text(json.dumps(kept), encoding="utf-8")
    told.clear()
    again = measure_all(path, "quick", told.append, names=["actg175"])  # loaded from its package now
    assert told == ["actg175, own, 20, 0"]
    assert again["cells"]["actg175, own, 20, 0"] == lost == whole["cells"]["actg175, own, 20, 0"]
    picture, text = write(path)
    assert picture.stat().st_size > 10_000
    assert "actg175, 10 × 171" in text.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["all", "curves"])
def test_the_page_has_what_the_file_says(name: str) -> None:
    page = (DOCS / "real-data.md").read_text(encoding="utf-8")
    (there,) = re.findall(rf"<!-- made: {name} -->\n(.*?)\n<!-- end -->", page, flags=re.DOTALL)
    assert there == sections(DOCS / "real-data" / "all.json")[name]
