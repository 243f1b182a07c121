"""Real data measured as a whole: what is put together, corrected, kept and said."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri

from feducb.worlds.data import DATA_SETS
from feducb_lab.experiments import everything, real_data
from feducb_lab.experiments.provenance import is_fresh
from feducb_lab.experiments.real_data import measure_all
from feducb_lab.experiments.real_data.carried import carried, carry
from feducb_lab.experiments.real_data.cells import PLAYS, combined
from feducb_lab.experiments.real_data.findings import COLUMNS, OUTCOMES, Findings
from feducb_lab.experiments.real_data.pages import sections, write

DOCS = Path(__file__).parents[2] / "docs"


def cell(value: float, stderr: float = 0.01, *, shares: bool = True, reads: bool = True) -> dict[str, object]:
    """A comparison in which every private federation earns so much more than alone."""
    plain = {"value": value, "stderr": stderr, "freedom": None}
    private = {"value": plain, "over_alone": plain, "reads": reads, "shares": shares}
    policies = {"alone": {"value": plain}, "no privacy": {"value": plain, "over_alone": plain}}
    facts = {"agents": 3, "dim": 2, "records_each": 100, "primary": "greedy", "reliable": True}
    return {**facts, "policies": {**policies, **dict.fromkeys(COLUMNS, private)}}


def stopping(said: str) -> None:
    """A teller that stops what tells it."""
    raise ValueError("stopped")


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


def test_cells_of_other_code_are_measured_again_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_data, "measure", lambda *rest: cell(0.03))
    monkeypatch.setattr(real_data, "ProcessPoolExecutor", ThreadPoolExecutor)  # which have what is patched
    path, told = tmp_path / "all.json", list[str]()
    found = measure_all(path, "quick", told.append, names=["actg175"])
    assert is_fresh(found["made"])
    assert {one["code"] for one in found["cells"].values()} == {found["made"]["code"]}
    lines = sections(path)["all"]
    assert f"All 4 cells were measured by the code of commit {found['made']['commit']}." in lines

    found["cells"]["actg175, own, 20, 0"]["code"] = "0" * 16
    del found["cells"]["actg175, own, all, 0"]["code"]  # as files were before cells had one
    path.write_text(json.dumps(found), encoding="utf-8")
    told.clear()
    measure_all(path, "quick", told.append, names=["actg175"], minutes=0)
    assert told == []
    with pytest.raises(ValueError, match="stopped"):
        measure_all(path, "quick", stopping, names=["actg175"])
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert kept["made"]["older"] == 1
    assert len(kept["cells"]) == 4  # the older stays until it has been measured again
    assert not is_fresh(kept["made"])
    assert "**Older than the code**: 1 of 4 cells" in sections(path)["all"]
    assert "which measured the rest: actg175 (1)." in sections(path)["all"]
    measure_all(path, "quick", told.append, names=["actg175"])
    assert len(told) == 1
    assert is_fresh(json.loads(path.read_text(encoding="utf-8"))["made"])


def test_a_report_that_was_stopped_keeps_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_data, "measure", lambda *rest: cell(0.03))
    monkeypatch.setattr(real_data, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(real_data, "DATA_SETS", {"actg175": DATA_SETS["actg175"]})
    with pytest.raises(ValueError, match="stopped"):
        everything._real_data("quick", tmp_path, lambda done, total: stopping(""))
    path = tmp_path / "real-data-quick.json"
    made = json.loads(path.read_text(encoding="utf-8"))["made"]
    assert is_fresh(made)
    assert made["command"] == "feducb report --everything --scale quick"
    told = list[int]()
    assert everything._real_data("quick", tmp_path, lambda done, total: told.append(done)) is None
    assert told == [1, 2, 3]  # of four
    assert len(json.loads(path.read_text(encoding="utf-8"))["cells"]) == 4
    words = path.with_suffix(".md").read_text(encoding="utf-8")
    assert words.startswith("# Private federation on real data\n\n| | agents")
    assert everything._real_data("quick", tmp_path, lambda done, total: pytest.fail("again")) is None
    assert path.with_suffix(".md").read_text(encoding="utf-8") == words


@pytest.mark.parametrize("name", ["short", "all", "curves"])
def test_the_page_has_what_the_file_says(name: str) -> None:
    page = (DOCS / "real-data.md").read_text(encoding="utf-8")
    (there,) = re.findall(rf"<!-- made: {name} -->\n(.*?)\n<!-- end -->", page, flags=re.DOTALL)
    assert there == sections(DOCS / "real-data" / "all.json")[name]


def test_the_table_of_the_file_is_what_its_cells_say() -> None:
    found = json.loads((DOCS / "real-data" / "all.json").read_text(encoding="utf-8"))
    table = Findings.of(found["cells"], full=True)
    assert found["table"] == table.plain()
    for play in ("own", "released"):
        outcomes = found["table"]["outcomes"][play]
        assert outcomes["all"] == {one: table.counts(play)[one] for one in OUTCOMES}
        for one in OUTCOMES:
            assert outcomes["all"][one] == sum(outcomes[name][one] for name in COLUMNS)


def test_what_pages_and_paper_say_in_words_is_what_came_out() -> None:
    """If one of these fails, docs/real-data.md, what-to-expect.md and the paper say it otherwise."""
    found = json.loads((DOCS / "real-data" / "all.json").read_text(encoding="utf-8"))
    table, curves = (Findings.of(found["cells"], full=full) for full in (True, False))
    wins = {line.name for line in table.lines for one in COLUMNS if table.outcome(line, one) == "wins"}
    assert wins == {"movielens", "movielens-users"}
    for line in table.lines:
        if line.name in wins:
            assert {table.outcome(line, f"ε = 8, {who}") for who in ("keepers", "controller")} == {"wins"}
    assert table.counts("own")["loses"] == 0
    for play in PLAYS:
        assert curves.counts(play, ["ε = 1, nobody"])["wins"] == 0
    few = [line.used for line in curves.play("own") if line.name == "orange-juice"]
    won = [
        line.used
        for line in curves.play("own")
        if line.name == "orange-juice" and "wins" in {curves.outcome(line, one) for one in COLUMNS}
    ]
    assert won == few[: len(won)]
    assert 0 < len(won) < len(few)
