"""Every command and code block of README, the start page and the tutorials is run, as a reader would run it.

Where that would take minutes, or change this checkout, `INSTEAD` says what is run in its place, and why. An
entry that no page needs any more is an error, so the table cannot outgrow the pages.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/index.md",
    "docs/tutorials/simulate.md",
    "docs/tutorials/deploy.md",
)
# Run by tests of their own, which also look at what they say.
ELSEWHERE = {
    "docs/tutorials/your-own-data.md": "tests/worlds/test_pages.py",
    "docs/service.md": "tests/service/test_docs.py",
}
SMALL = "--agents 50 --dim 8 --arms 16 --horizon 300 --runs 1"
RING = "ring:16 --ttl 4 --estimators one --no-privacy"
READY = "until curl -sf http://127.0.0.1:8750/readyz; do sleep 0.2; done; kill $! && wait $!"
# What a page says, what is run in its place, and why.
INSTEAD = (
    ("scripts/setup service", ":", "this environment is set up already"),
    ("scripts/setup deploy", ":", "the same"),
    ("scripts/setup data", ":", "the same"),
    (
        "feducb tour    #",
        "feducb tour --help    #",
        "until it is ended; tests/cli/test_tour.py runs the command, and looks at it",
    ),
    ("scripts/demo", ".venv/bin/feducb demo --agents 20 --horizon 100", "it sets up, then does this, larger"),
    ("scripts/test", ":", "that is what runs this"),
    ("--agents 200 --dim 8 --arms 16 --horizon 1500", SMALL, "6 s each"),
    ("--horizon 1000000", "--horizon 300 --runs 1", "minutes; that it can be killed: tests/simulation"),
    (RING, f"{RING} --horizon 500 --runs 1", "5 s"),
    ("figure 1a --out figures", "figure --help", "a minute; tests/lab plays its points small"),
    (
        "feducb privacy audit",
        "feducb privacy audit --help",
        "two minutes; tests/audit runs all of it, tests/cli the command with fewer trials",
    ),
    ("plan --epsilon 1 --agents 100", "plan --epsilon 1 --agents 9 --dim 4 --visitors 100 --runs 2", "20 s"),
    ("agents=200, dim=8, arms=16, horizon=1500", "agents=50, dim=8, arms=16, horizon=300", "6 s each"),
    ("--arms 20 --horizon 1000 --runs 2", "--arms 20 --horizon 200 --runs 1", "2 s each, seven of them"),
    ("agent serve                       #", f"agent serve & {READY} #", "it serves until it is ended"),
    ("--dim 3 --epsilon 8    #", "--dim 3 --epsilon 8 --port 8750    #", "to have a port that is free here"),
)


class Block(NamedTuple):
    """One piece of a page that a reader would run."""

    page: str
    line: int
    kind: str
    text: str


def _blocks(page: str) -> list[Block]:
    """Fenced ```sh and ```python blocks, and indented lines that start with a command of this checkout."""
    blocks: list[Block] = []
    fence: list[str] | None = None
    kind, start = "", 0
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), start=1):
        if fence is None and line.startswith("```"):
            fence, kind, start = [], line.removeprefix("```").strip(), number
        elif fence is not None and line.startswith("```"):
            if kind in ("sh", "python"):
                blocks.append(Block(page, start, kind, "\n".join(fence) + "\n"))
            fence = None
        elif fence is not None:
            fence.append(line)
        elif re.match(r" {4}(scripts/|\.venv/bin/)", line):
            if blocks and blocks[-1].kind == "sh" and blocks[-1].line + blocks[-1].text.count("\n") == number:
                blocks[-1] = blocks[-1]._replace(text=f"{blocks[-1].text}{line.strip()}\n")
            else:
                blocks.append(Block(page, number, "sh", f"{line.strip()}\n"))
    return blocks


BLOCKS = [block for page in PAGES for block in _blocks(page)]


def _replaced(text: str) -> str:
    for printed, run, _ in INSTEAD:
        text = text.replace(printed, run)
    for port in sorted(set(re.findall(r"\b87[5-9]\d\b", text))):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            text = text.replace(port, str(free.getsockname()[1]))
    return text.replace(".venv/bin", str(Path(sys.executable).parent))


@pytest.mark.xdist_group("port 8750")
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}:{block.line}")
def test_a_block_runs(block: Block, tmp_path: Path) -> None:
    text = _replaced(block.text)
    command = (
        [sys.executable, "-c", text] if block.kind == "python" else ["bash", "-euo", "pipefail", "-c", text]
    )
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0, said
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_every_replacement_is_needed_by_a_page() -> None:
    everything = "".join(block.text for block in BLOCKS)
    assert [printed for printed, _, _ in INSTEAD if printed not in everything] == []


def test_no_tutorial_is_left_out() -> None:
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "tutorials").glob("*.md")}
    assert there <= set(PAGES) | set(ELSEWHERE)
    assert all(_blocks(page) for page in PAGES)
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


def test_every_skeleton_is_run_by_a_suite() -> None:
    suites = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    pages = {path.name for path in (ROOT / "docs" / "extending").glob("*.md")} - {"index.md"}
    assert {"mechanism.md", "carrier.md"} <= pages
    assert [name for name in sorted(pages) if f'"extending/{name}"' not in suites] == []


def test_the_readme_fits_two_screens() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 80
