"""Every measured number of README and documentation is found in the JSON file that it came from."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from feducb.errors import ConfigurationError
from feducb_lab.pages.documentation import (
    HELD_ELSEWHERE,
    findings,
    held,
    rewritten_pages,
    write_pages,
)
from feducb_lab.pages.marks import rewritten
from feducb_lab.pages.sources import Sources

DOCS = Path(__file__).parents[2] / "docs"
PAIR = re.compile(r"(\d(?:[\d,]*\d)?(?:\.\d+)?)(?=\s±\s\d)")
NUMBERS = re.compile(r"<!-- numbers: .*? -->", re.DOTALL)
ELSEWHERE = re.compile(r"<!-- made: .*?(?:<!-- end -->|\Z)|<!-- printed: .*? -->\n\n.*?\n\n", re.DOTALL)
QUOTED = re.compile(r'"([^"]*)" = ')
QUOTED_NUMBERS = re.compile(r'<!-- numbers: [^>]*?"[^"]*" = ')


def test_numbers_are_what_their_sources_say() -> None:
    found = [f"{page}, {one}" for page, several in findings(DOCS).items() for one in several]
    assert not found, "\n".join(found) + "\nwrite them from the JSON files: feducb report --docs docs"


def test_every_page_is_held() -> None:
    """A page that somebody adds is held from then on; tests/docs/test_scale.py and test_paper.py hold two."""
    pages = [one for one in DOCS.rglob("*.md") if one.parent.name != "figures"]
    assert {*pages, *DOCS.parent.glob("[RC][EO]*.md")} == {
        *held(DOCS),
        *(DOCS / name for name in HELD_ELSEWHERE),
    }


def test_writing_the_pages_again_changes_nothing() -> None:
    """Of texts and tables that are written whole: experiments, claims, and the figures' own pages."""
    differs = [path.name for path, text in rewritten_pages(DOCS).items() if path.read_text("utf-8") != text]
    assert not differs, f"feducb report --docs docs writes {', '.join(differs)}"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages and their sources, to be changed."""
    folder = tmp_path_factory.mktemp("repository")
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("*.png", "*.svg"))
    for page in ("README.md", "CONTRIBUTING.md"):
        shutil.copy(DOCS.parent / page, folder)
    return folder / "docs"


def _pages(pattern: re.Pattern[str]) -> list[str]:
    """Those that have it."""
    pages = [path for path in held(DOCS) if pattern.search(path.read_text("utf-8"))]
    return [path.relative_to(DOCS.parent).as_posix() for path in pages]


@pytest.mark.parametrize("page", _pages(PAIR))
def test_each_number_with_an_error_is_held(page: str) -> None:
    """Another last digit is found out, wherever it stands; a number in a page's code block is none.

    Blocks that are written whole, and those that a command prints, are held by other tests.
    """
    text = (DOCS.parent / page).read_text("utf-8")
    sources = Sources(DOCS)
    whole = [range(*one.span()) for one in ELSEWHERE.finditer(text)]
    places = [
        one
        for one in PAIR.finditer(text)
        if not _in_code(text, one.start()) and not any(one.start() in block for block in whole)
    ]
    for place in places[:: max(1, len(places) // 12)]:
        digit = str((int(text[place.end() - 1]) + 1) % 10)
        changed = text[: place.end() - 1] + digit + text[place.end() :]
        assert rewritten(changed, sources)[1], f"{place[0]} may be edited unnoticed"


@pytest.mark.parametrize("page", _pages(QUOTED_NUMBERS))
def test_each_number_that_a_mark_quotes_is_held(page: str) -> None:
    """Another digit in words that a mark quotes is found out, in the page and in the mark."""
    text, sources = (DOCS.parent / page).read_text("utf-8"), Sources(DOCS)
    quoted = [(mark.end(), words) for mark in NUMBERS.finditer(text) for words in QUOTED.findall(mark[0])]
    for end, words in quoted[:: max(1, len(quoted) // 12)]:
        number = re.search(r"\d", words)
        assert number, f"{words} has no number"
        digit = str((int(number[0]) + 1) % 10)
        other = words[: number.start()] + digit + words[number.end() :]
        edited = text[:end] + text[end:].replace(words, other, 1)
        both = text[:end].replace(f'"{words}" =', f'"{other}" =') + text[end:].replace(words, other, 1)
        for changed in (edited, both):
            assert changed != text
            assert rewritten(changed, sources)[1], f"{words} may be edited unnoticed"


def test_what_a_page_says_is_printed_is_compared_by_the_test_that_it_names() -> None:
    named = [
        (path, test)
        for path in held(DOCS)
        for test in re.findall(r"<!-- printed: (.*?) -->", path.read_text("utf-8"))
    ]
    assert named
    for path, test in named:
        assert path.name in (DOCS.parent / test).read_text("utf-8")


def test_what_scripts_write_is_not_in_the_file_that_was_entered_by_hand() -> None:
    """Everything that is left there stands on a page."""
    tables = json.loads((DOCS / "figures/recorded.json").read_text("utf-8"))["tables"]
    text = "".join(path.read_text("utf-8") for path in held(DOCS))
    assert [name for name in tables if f"figures/recorded > tables > {name} > " not in text] == []


def _in_code(text: str, at: int) -> bool:
    return text[text.rfind("\n", 0, at) + 1 :].startswith("    ")


def test_a_number_that_was_measured_anew_is_found_and_written(copy: Path) -> None:
    file, page = copy / "figures/own-full.json", copy / "what-to-expect.md"
    plain = json.loads(file.read_text("utf-8"))
    (alone,) = [one for one in plain["points"] if one["label"] == _label("sizes", "all", "alone")]
    before = "{mean:.1f} ± {stderr:.1f}".format(**alone["result"]["per_agent_regret"])
    alone["result"]["per_agent_regret"] = {"mean": 40.26, "stderr": 1.04}
    file.write_text(json.dumps(plain, ensure_ascii=False), "utf-8")
    assert before in "".join(map(str, findings(copy)["docs/what-to-expect.md"]))
    assert page in write_pages(copy)
    assert not findings(copy)
    text = page.read_text("utf-8")
    assert "an agent alone loses 40.3 ± 1.0" in text
    assert "| each alone | 40.3 ± 1.0 |" in text
    assert "at most 0.82 times what alone does" in text  # a ratio, and the mark that quotes it


def _label(table: str, row: str, column: str) -> dict[str, str]:
    return {"table": table, "row": row, "column": column}


def test_a_verdict_is_quoted_word_for_word(copy: Path) -> None:
    page = copy / "real-data.md"
    text = page.read_text("utf-8")
    changed = text.replace("> Do not federate for this", "> Federate", 1)
    assert changed != text
    assert rewritten(changed, Sources(copy)) == (text, rewritten(changed, Sources(copy))[1])
    assert len(rewritten(changed, Sources(copy))[1]) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It loses 3.0 ± 0.1.\n", "as many as sources: 0"),
        ("<!-- numbers: a > b -->\n\nNo number.\n", "as many as sources: 1"),
        ("<!-- numbers: a > b; a > b -->\n\nIt loses 3.0 ± 0.1.\n", "as many as sources: 2"),
        ('<!-- numbers: "9 times" = a > b -->\n\nIt is 3 times.\n', "to be in the text"),
        ("It is 2.5 times as much.\n", "a source"),
        ("It takes 1,200 ms.\n", "a source"),
        ('<!-- numbers: "1.5 s" stated -->\n\nIt takes 1.5 s and 3 MiB.\n', "a source"),
        ("<!-- numbers: a > c -->\n\nIt loses 3.0 ± 0.1.\n", "one value, not 0"),
        (
            "<!-- table: 1 = a > b -->\n\n| | x | y |\n|---|---|---|\n| r | 3.0 ± 0.1 | 4 |\n",
            "this column or row",
        ),
        ("<!-- table: * = a > b -->\n\n| | x |\n|---|---|\n| r | 3.0 ± 0.1 (5 runs) |\n", "1 numbers"),
    ],
)
def test_a_number_without_its_source_is_found(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"b": {"mean": 3.01, "stderr": 0.1}}')
    found = rewritten(text, Sources(tmp_path))[1]
    assert found
    assert expected in str(found[0])


@pytest.mark.parametrize("path", ["a > c", "none > b", "a > list > who=x", "a > text", "a > list > who=z"])
def test_a_source_that_is_not_there_is_named(path: str, tmp_path: Path) -> None:
    rows = [{"who": "x", "value": 1, "margin": 2}, {"who": "x", "value": 1, "margin": 2}]
    (tmp_path / "a.json").write_text(json.dumps({"b": 1.0, "text": "t", "list": rows}))
    with pytest.raises(ConfigurationError, match=re.escape(path)):
        Sources(tmp_path).value(path)


def test_sources_compute_ratios_differences_and_counts(tmp_path: Path) -> None:
    def point(who: str, *finals: float) -> dict[str, object]:
        mean = sum(finals) / len(finals)
        result = {"per_agent_regret": {"mean": mean, "stderr": 1.0}, "finals": finals}
        return {"label": {"who": who}, "result": result}

    plain = {"points": [point("A & B", 4.0, 8.0), point("C", 1.0, 3.0)], "x, own": [{"o": "w"}, {"o": "l"}]}
    (tmp_path / "a.json").write_text(json.dumps(plain))
    value = Sources(tmp_path).value
    assert value("a > points > who=A & B ÷ a > points > who=C").mean == pytest.approx(3.0)
    found = value("a > points > who=A & B − a > points > who=C")
    assert found.mean == pytest.approx(4.0)
    assert found.error == pytest.approx(1.0)
    assert value("how many a > *, own > o=w").mean == 1.0


def test_joining_costs_no_more_than_was_asked_for() -> None:
    """The limits of own play where sites are alike, differ or lie, M = 100, ε = 1."""
    value = Sources(DOCS).value
    own = "figures/own-full > points > table="
    alone = value(f"{own}sizes & column=alone").mean
    most = {"0": 4.84, "0.05": 5.17, "0.1": 7.48, "0.2": 26.95, "0.4": 1.15 * alone}
    for apart, limit in most.items():
        assert value(f"{own}sites differ & row={apart} & column=keepers").mean <= limit
        assert value(f"{own}sites differ & row={apart} & column=nobody").mean <= 1.15 * alone
    for lie in ("the opposite", "another θ", "nothing gained", "half of it"):
        for trust in ("keepers", "nobody"):
            assert value(f"{own}others lie & row={lie} & column={trust}").mean <= 1.15 * alone


def test_means_are_those_of_the_runs_beside_them() -> None:
    plain = json.loads((DOCS / "figures/own-full.json").read_text("utf-8"))
    for point in plain["points"]:
        finals, regret = point["result"]["finals"], point["result"]["per_agent_regret"]
        mean = sum(finals) / len(finals)
        error = (sum((one - mean) ** 2 for one in finals) / (len(finals) - 1) / len(finals)) ** 0.5
        assert (regret["mean"], regret["stderr"]) == (pytest.approx(mean), pytest.approx(error))


def test_every_figure_of_the_documentation_names_its_commit_and_command() -> None:
    for path in sorted(DOCS.glob("figures/*.json")):
        made = json.loads(path.read_text("utf-8"))["made"]
        assert re.fullmatch(r"(v[\d.]+-\d+-g)?[0-9a-f]{12}", made["commit"]), path.name
        assert made["command"], path.name
        assert made["versions"]["feducb"], path.name


def test_a_figures_page_prints_the_command_that_made_it() -> None:
    """With the number of runs, where another than the scale's was asked for."""
    experiments = (DOCS / "experiments.md").read_text("utf-8").splitlines()
    for page in sorted(DOCS.glob("figures/*-*.md")):
        command = json.loads(page.with_suffix(".json").read_text("utf-8"))["made"]["command"]
        assert page.read_text("utf-8").splitlines()[-1] == f"    {command}"
        assert f"    {command}" in experiments
