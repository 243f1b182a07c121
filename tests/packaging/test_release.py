"""What says its version says the same everywhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

from feducb import __version__

ROOT = Path(__file__).parents[2]


def test_the_version_is_the_same_everywhere() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [__version__]
    assert json.loads((ROOT / "clients/typescript/package.json").read_text())["version"] == __version__


def test_the_changelog_has_the_version_and_its_date_below_what_is_not_released() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (date,) = re.findall(r"^date-released: (\d{4}-\d\d-\d\d)$", citation, re.MULTILINE)
    assert sections[:2] == ["Unreleased", f"{__version__} ({date})"]


def test_files_of_this_release_are_kept_for_the_next() -> None:
    assert (ROOT / "tests" / "formats" / f"{__version__}.tar.xz").is_file()
