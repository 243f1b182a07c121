"""The documentation has no broken link, loads nothing from elsewhere, and names only what there is."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from links import Page, dead_links, dead_links_of_texts, ill_formed

ROOT = Path(__file__).parents[2]
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# What a page fetches by itself; links that a reader follows are another matter.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)"""
)


def _build(folder: Path, *, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-f", str(config), "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


pytestmark = pytest.mark.xdist_group("site")  # built once for all


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = _build(folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert [address for page in pages for address in FETCHED.findall(page.read_text(encoding="utf-8"))] == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"url\(['\"]?(?:https?:)?//[^)]*\)|@import", styles) == []


def test_every_link_and_anchor_of_the_site_leads_somewhere(site: Path) -> None:
    """Also in raw HTML, to pages of source files and to lines in them, which the build does not look at."""
    assert dead_links(site) == []


def test_addresses_elsewhere_have_a_form_that_can_be_meant(site: Path) -> None:
    links = {one for page in site.rglob("*.html") for one in Page(page).links if "//" in one.split("?")[0]}
    assert "https://semver.org" in links
    assert sorted(filter(ill_formed, links)) == []


def test_texts_of_the_repository_link_to_what_is_there() -> None:
    texts = [path for path in ROOT.rglob("*.md") if not {".venv", "node_modules", "site"} & set(path.parts)]
    assert len(texts) > 30
    assert dead_links_of_texts(ROOT, texts) == []


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        ("[x](there.md#a-heading-here)", False),
        ("[x](there.md#gone)", True),
        ("[x](gone.md)", True),
        ("`[x](gone.md)`", False),
        ("[x](https://example.org/gone)", False),
    ],
)
def test_a_dead_link_of_a_text_is_found(text: str, dead: bool, tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A `heading`, here\n", encoding="utf-8")
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    assert bool(dead_links_of_texts(tmp_path, [tmp_path / "page.md"])) is dead


@pytest.mark.parametrize(
    ("link", "dead"),
    [("b.html#two", False), ("b.html", False), ("#one", False), ("b.html#gone", True), ("c.html", True)],
)
def test_a_dead_link_of_the_site_is_found(link: str, dead: bool, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f'<p id="one"><a href="{link}">x</a></p>', encoding="utf-8")
    (tmp_path / "b.html").write_text('<p id="two">', encoding="utf-8")
    assert bool(dead_links(tmp_path)) is dead


def test_an_address_without_a_host_or_with_a_login_is_ill_formed() -> None:
    for wrong in ("http://example.org", "https://example", "https://me:you@example.org/", "https://a b.org"):
        assert ill_formed(wrong)
    assert not ill_formed("https://arxiv.org/abs/2010.11425")


def test_the_paper_s_page_links_every_name_to_its_line(site: Path) -> None:
    page = (site / "paper-line-by-line.html").read_text(encoding="utf-8")
    named = re.findall(r'href="(source/[^"]+\.py\.html)(#__codelineno-0-\d+)?"><code>', page)
    assert len(named) > 80
    assert all(line for _, line in named)
    for number in (*range(1, 25), "25–27"):  # Algorithm 1 has 27 lines, and none is left out
        assert re.search(rf"<td>(\d+–)?{number}(–\d+)?</td>", page), number


@pytest.mark.parametrize("broken", ["[x](gone.md)", "[x](#gone)", "![x](gone.png)"])
def test_a_broken_link_ends_the_build(broken: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{broken}\n", encoding="utf-8")
    settings = tmp_path / "mkdocs.yml"
    settings.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nhooks: []\nplugins: []\nnav: [index.md]\n",
        encoding="utf-8",
    )
    done = _build(tmp_path / "site", config=settings)
    assert done.returncode != 0
    assert "gone" in done.stderr + done.stdout


def test_a_name_that_is_not_in_the_code_is_not_found() -> None:
    hooks = _hooks()
    module = ROOT / "src" / "feducb" / "protocol" / "schedules.py"
    lines = module.read_text(encoding="utf-8").splitlines()
    assert lines[hooks.line_of(module, "Geometric") - 1] == "class Geometric:"
    assert "def rounds" in lines[hooks.line_of(module, "Geometric.rounds") - 1]
    assert hooks.line_of(module, "Geometric.rounds") > hooks.line_of(module, "Geometric")
    assert hooks.line_of(module, "gone") is None
    assert hooks.line_of(module, "Geometric.gone") is None
    with pytest.raises(Exception, match="which is not there"):
        hooks._target(module.parent, "gone.py", "a page")


def _hooks() -> Any:
    """scripts/docs_hooks.py, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "scripts" / "docs_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _commands() -> list[tuple[str, str]]:
    """`feducb …` wherever a page says it, in a line of its own or in the text."""
    commands = set()
    for path in WRITTEN:
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        said = re.findall(r"`(?:\.venv/bin/)?(feducb [a-z][^`\n]*)`", text)
        said += re.findall(r"^(?: {4,})?(?:\.venv/bin/)?(feducb [a-z][^\n]*)$", text, flags=re.MULTILINE)
        commands |= {(path.relative_to(ROOT).as_posix(), one) for one in said}
    return sorted(commands)


_TREE = """
import json, click, typer
from feducb.cli.program import app

def tree(command):
    names = [name for one in command.params for name in (*one.opts, *one.secondary_opts)]
    inside = getattr(command, "commands", {})
    return {"options": names, "commands": {name: tree(one) for name, one in inside.items()}}

print(json.dumps(tree(typer.main.get_command(app))))
"""


def test_every_command_that_a_page_names_is_there_with_its_options() -> None:
    listing = subprocess.run([sys.executable, "-c", _TREE], capture_output=True, text=True, check=True).stdout
    everything, wrong = json.loads(listing), []
    commands = _commands()
    assert len(commands) > 50
    for page, command in commands:
        here, words = everything, shlex.split(command.replace("…", ""), comments=True)[1:]
        while here["commands"] and words and not words[0].startswith("-"):
            here = here["commands"].get(words.pop(0), {"commands": {}, "options": ["no such command"]})
        asked = {word.split("=")[0] for word in words if word.startswith("--")} - {"--help"}
        if here["options"] == ["no such command"] or not asked <= set(here["options"]):
            wrong.append((page, command))
    assert wrong == []
