"""The paper says what was measured, cites what it lists, and shows figures that are there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

PAPER = Path(__file__).parents[2] / "paper"
TEXT = (PAPER / "paper.md").read_text(encoding="utf-8")
BIB = (PAPER / "paper.bib").read_text(encoding="utf-8")
# What is no measurement: settings in mathematics, code, versions, confidence levels.
SAID = re.compile(
    r"\$[^$]*\$|`[^`]*`|^---.*?^---|Apache-2\.0|Python 3\.11 to 3\.13|95 %", re.DOTALL | re.MULTILINE
)


def _numbers() -> Any:
    """paper/numbers.py, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("paper_numbers", PAPER / "numbers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_marked_number_is_the_measured_one() -> None:
    numbers = _numbers()
    assert len(numbers.MARKED.findall(TEXT)) == TEXT.count("<!--") > 60
    assert numbers.fill(TEXT) == TEXT, "run: python paper/numbers.py"


def test_no_measured_number_stands_without_its_source() -> None:
    """What has a decimal point, an error or thousands is measured, and so is marked."""
    unmarked = SAID.sub("", _numbers().MARKED.sub("", TEXT))
    assert re.findall(r"\S*\d[.,]\d\S*|\d+ ±", unmarked) == []


def test_a_wrong_number_or_source_is_found() -> None:
    numbers = _numbers()
    wrong = "a site loses 12.3 ± 0.4<!--own: sizes | all | alone--> here"
    assert (
        numbers.fill(wrong)
        == f"a site loses {numbers.value_of('own: sizes | all | alone')}<!--own: sizes | all | alone--> here"
        != wrong
    )
    assert re.fullmatch(r"[\d.]+ ± [\d.]+", numbers.value_of("own: sizes | all | alone"))
    with pytest.raises(AssertionError, match="0 points"):
        numbers.value_of("own: sizes | all | nobody knows")
    with pytest.raises(AssertionError, match="points"):
        numbers.value_of("figure: 1a-full, who=calibrated")


def test_what_is_cited_is_listed_and_what_is_listed_is_cited() -> None:
    cited = set(re.findall(r"@([a-z]+\d{4})", TEXT))
    entries = dict(re.findall(r"@\w+\{(\w+),\n(.*?)\n\}", BIB, re.DOTALL))
    assert cited == entries.keys()
    for name, fields in entries.items():
        for field in ("author", "title", "year"):
            assert re.search(rf"^  {field} = \{{.+\}},$", fields, re.MULTILINE), (name, field)
        assert name.endswith(re.findall(r"year = \{(\d+)\}", fields)[0])


def test_its_form_is_that_of_a_short_paper_of_nobody_in_particular() -> None:
    assert "name: The feducb contributors" in TEXT
    headings = re.findall(r"^# (.+)$", TEXT, re.MULTILINE)
    wanted = ["Summary", "Statement of need", "Evidence", "Limitations", "Related work", "References"]
    assert [one for one in headings if one in wanted] == wanted
    assert len(re.sub(r"<!--.*?-->", "", TEXT).split()) < 2200  # four pages
    pictures = re.findall(r"!\[.*?\]\(([^)]+)\)", TEXT, re.DOTALL)
    assert pictures
    assert all((PAPER / one).is_file() for one in pictures)
    files = re.findall(r"`(docs/[^`]+)`", TEXT)
    assert files
    assert all((PAPER.parent / one).is_file() for one in files)
