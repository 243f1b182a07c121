"""Every example runs and says what it is there to say; warnings are errors in them too."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
RUN = {
    "own_environment.py": ["--agents", "1000", "--horizon", "600"],
    "own_logged_data.py": ["--repeats", "3"],
    "decentralised_ring.py": ["--horizon", "1500", "--runs", "1"],
    "fastapi_shop.py": ["--visitors", "2000"],
}


def _said(name: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *RUN[name]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def _numbers(text: str, pattern: str) -> list[float]:
    found = re.search(pattern, text)
    assert found is not None, text
    return [float(one) for one in found.groups()]


def test_every_example_is_run_here() -> None:
    there = {path.name for path in EXAMPLES.glob("*.py")}
    assert there == set(RUN)


def test_an_environment_of_one_s_own_is_learnt_together(tmp_path: Path) -> None:
    said = _said("own_environment.py", tmp_path)
    (uniform,) = _numbers(said, r"at random: +([\d.]+)")
    (private,) = _numbers(said, r"together, ε = 1: +([\d.]+)")
    assert private < uniform / 2


def test_a_log_is_asked_whether_to_federate(tmp_path: Path) -> None:
    assert _said("own_logged_data.py", tmp_path).startswith("Federate: ")


def test_on_the_ring_one_estimator_beats_the_paper_s_and_staying_alone(tmp_path: Path) -> None:
    said = _said("decentralised_ring.py", tmp_path)
    assert said.count("clique:") == 4
    (alone,) = _numbers(said, r"each alone +([\d.]+)")
    (paper,) = _numbers(said, r"4 estimators +([\d.]+)")
    (one,) = _numbers(said, r"one estimator +([\d.]+)")
    assert one < min(alone, paper)


def test_the_shop_sells_more_than_at_random(tmp_path: Path) -> None:
    """At random 333 of the last 1,000 visitors would buy (deviation 15); in 15 runs 475 to 502 did.

    Visitors are seeded, the agent's coins and noise are not. 420 is 5.8 deviations above chance, and 10 of
    the runs' own below their mean: a false alarm is less likely than 1e-6 if runs spread as those did.
    """
    said = _said("fastapi_shop.py", tmp_path)
    assert _numbers(said, r"and to (\d+) of the others")[0] > 420
    assert "'releases_left': 1," in said


def test_the_notebook_runs_and_draws() -> None:
    notebook = nbformat.read(  # type: ignore[no-untyped-call]
        EXAMPLES / "notebook.ipynb", as_version=4
    )
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in cells:
        cell.outputs = []
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    pictures = [out for cell in cells for out in cell.outputs if "image/png" in out.get("data", {})]
    assert len(pictures) == 2
    assert not any(out.output_type == "error" for cell in cells for out in cell.outputs)


def test_the_flower_app_points_at_what_is_installed() -> None:
    """The app itself is run by tests/carriers/test_flower.py."""
    pytest.importorskip("flwr")
    told = tomllib.loads((EXAMPLES / "flower" / "pyproject.toml").read_text(encoding="utf-8"))
    for place in told["tool"]["flwr"]["app"]["components"].values():
        module, name = place.split(":")
        assert hasattr(import_module(module), name)
