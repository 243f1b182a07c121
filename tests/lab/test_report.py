"""The report, as a reader meets it: in a real browser, on a wide screen and on a phone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure as Picture
from playwright.sync_api import Browser, sync_playwright

from feducb.errors import ConfigurationError
from feducb_lab.experiments.experiment import Outcome, Results, Scale
from feducb_lab.experiments.report import make_report

NASTY = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)>"
LONG = "Donaudampfschifffahrtsgesellschaft" * 8
WIDE = [[f"column {i}" for i in range(24)], *([[f"{i * j / 7:.6f}" for i in range(24)] for j in range(5)])]


pytestmark = pytest.mark.xdist_group("report")  # one browser for all


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("the report is tested in Chromium, which is missing: apt-get install chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


def _write(
    folder: Path,
    name: str,
    scale: Scale,
    *,
    title: str,
    text: str = "It was found.",
    table: list[list[str]] | None = None,
    pictures: tuple[str, ...] = ("png", "svg"),
    **setting: Any,
) -> None:
    outcomes = [
        Outcome({"M": agents, "who": "calibrated"}, {"agents": agents, "dim": 4, **setting}, {"seconds": 1.0})
        for agents in (10, 100)
    ]
    path = folder / f"{name}-{scale}"
    path.with_suffix(".json").write_text(json.dumps(Results(name, scale, outcomes).as_dict()))
    rows = table or [["M", "regret"], ["10", "12.5 ± 0.3"], ["100", "3.1 ± 0.1"]]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    words = [
        f"# {title}",
        "Does regret fall with M?",
        text,
        "\n".join(lines),
        f"    feducb figure {name} --scale {scale}",
    ]
    path.with_suffix(".md").write_text("\n\n".join(words) + "\n")
    picture = Picture(figsize=(7, 4))
    picture.subplots().plot([10, 100], [12.5, 3.1])
    for ending in pictures:
        picture.savefig(path.with_suffix(f".{ending}"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _write(tmp_path, "regret-agents", "full", title="Regret falls with the number of agents")
    _write(
        tmp_path,
        "nasty",
        "quick",
        title=f"{NASTY} & {LONG}",
        text=f"{NASTY}\n\nA word: {LONG}. **Bold**, `code {LONG}`, "
        "![a picture](http://127.0.0.1:9/x.png) [press](javascript:alert(1))",
        table=[*WIDE, [NASTY, LONG, *["1"] * 22]],
        pictures=("png",),
        mechanism=NASTY,
        remark=LONG,
    )
    _write(tmp_path, "fig10", "quick", title="Ten", text="![picture](fig10-quick.png)\n\n## Found\n\nIt did.")
    _write(tmp_path, "fig2", "quick", title="Two", pictures=("svg",))
    return tmp_path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_page_in_a_browser(folder: Path, browser: Browser, width: int, scheme: Any) -> None:
    page_file = make_report(folder)
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    page.screenshot(path=folder / f"closed-{width}-{scheme}.png", full_page=True)
    for opened in (False, True):
        if opened:
            page.locator("summary").first.focus()
            page.keyboard.press("Enter")  # the keyboard is enough
            assert page.locator("details").first.get_attribute("open") is not None
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.screenshot(path=folder / f"open-{width}-{scheme}.png", full_page=True)

    images = page.evaluate("[...document.images].map(one => [one.naturalWidth, one.alt])")
    assert len(images) == 4
    assert all(wide > 0 and alt.startswith("Figure: ") for wide, alt in images)
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [page_file.as_uri()]

    assert page.title() == "feducb: figures and tables"
    assert page.locator("script").count() == 0
    headings = page.locator("main h2")
    assert headings.all_inner_texts()[0::2] == ["Two", f"{NASTY} & {LONG}"]
    assert headings.all_inner_texts()[1::2] == ["Ten", "Regret falls with the number of agents"]
    assert page.locator("main h3").all_inner_texts() == ["Found"]
    for link in page.locator("nav a").all():
        assert page.locator(str(link.get_attribute("href"))).count() == 1
    box = page.locator("section", has_text="document.title").locator(".wide").first
    assert box.evaluate("one => one.scrollWidth > one.clientWidth")  # a wide table scrolls in its own box
    context.close()


def test_settings_that_are_shared_are_said_once(folder: Path) -> None:
    text = make_report(folder, folder / "out.html").read_text(encoding="utf-8")
    (full,) = [part for part in text.split("<section") if "regret-agents" in part and "figure-" in part[:60]]
    assert "<td>dim</td><td>4</td>" in full
    assert "<td>M = 100, who = calibrated</td><td>100</td>" in full
    assert "<code>feducb figure regret-agents --scale full</code>" in full
    assert full.count("feducb figure regret-agents") == 1
    assert NASTY not in text


def test_what_stands_before_the_picture_is_the_question(tmp_path: Path) -> None:
    _write(tmp_path, "a", "quick", title="A", text="In two parts.\n\n![A](a-quick.png)\n\nIt was found.")
    text = make_report(tmp_path).read_text(encoding="utf-8")
    question, found = text.split('<div class="question">')[1].split("</div>", 1)
    assert question == "<p>Does regret fall with M?</p>\n<p>In two parts.</p>\n"
    assert found.index("<figure>") < found.index("<p>It was found.</p>") < found.index("<table>")


def test_command_line(folder: Path) -> None:
    asked = [sys.executable, "-m", "feducb", "report", str(folder), "--out", str(folder / "page.html")]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    (folder / "empty").mkdir()
    done = subprocess.run([*asked[:4], str(folder / "empty")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "expected a folder with figures" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        '{"figure": 1',
        "[]",
        '{"points": 3}',
        '{"made": "x"}',
        '{"made": {"versions": 3}}',
        '{"made": {"code": "a", "modules": [3]}}',
    ],
)
def test_results_that_cannot_be_read_are_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "broken-quick.json").write_text(text)
    with pytest.raises(ConfigurationError, match=r"broken-quick\.json is 'unreadable'"):
        make_report(tmp_path)


def test_words_and_notes_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "fine-quick.json").write_text("{}")
    (tmp_path / "left-out.json").write_text("[1]")
    with pytest.raises(ConfigurationError, match=r"left-out\.json is 'unreadable'"):
        make_report(tmp_path)
    (tmp_path / "fine-quick.md").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"fine-quick\.md is 'unreadable'"):
        make_report(tmp_path)


def test_a_figure_without_words_or_picture_is_still_there(tmp_path: Path) -> None:
    (tmp_path / "bare-quick.json").write_text(json.dumps(Results("bare", "quick", []).as_dict()))
    text = make_report(tmp_path).read_text(encoding="utf-8")
    assert ">bare</h2>" in text
    assert "no picture" in text
