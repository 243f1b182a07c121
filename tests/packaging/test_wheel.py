"""The built wheel: small, typed, working where nothing else is installed. scripts/wheel tries all extras."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONSUMER = """
import feducb
from feducb.service.client import Client
from feducb.evaluation import Comparison

result: feducb.SimulationResult = feducb.simulate(agents=2, dim=2, horizon=50, runs=1, baseline="alone")
mean: float = result.mean
settings = feducb.AgentSettings(problem=feducb.Problem(dim=2), budget=feducb.Budget(epsilon=1.0, delta=1e-6))


def ask(agent: feducb.Agent, client: Client, comparison: Comparison) -> tuple[int, int, bool]:
    return agent.decide([[1.0, 0.0]]).index, client.decide([[1.0, 0.0]]).index, comparison.federate
"""
WRONG = """
import feducb

result = feducb.simulate(agents="two")
index: str = feducb.Agent.open("a.db").decide([[1.0]]).index
"""


def _run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_is_small_and_holds_the_package_alone(wheel: Path) -> None:
    assert wheel.stat().st_size < 1_200_000
    names = zipfile.ZipFile(wheel).namelist()
    assert "feducb/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"feducb", "feducb_lab"}
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert source <= set(names)
    assert not any("__pycache__" in name for name in names)


def test_a_strict_consumer_sees_its_types(wheel: Path, tmp_path: Path) -> None:
    """mypy --strict against the unpacked wheel: right use passes, wrong use is found."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\n", encoding="utf-8")
    for name, text in (("right.py", CONSUMER), ("wrong.py", WRONG)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    environment = {"MYPYPATH": "", "PYTHONPATH": str(tmp_path / "installed")}
    mypy = (sys.executable, "-m", "mypy", "--config-file", "mypy.ini")
    right = _run(*mypy, "right.py", cwd=tmp_path, **environment)
    assert right.returncode == 0, right.stdout
    wrong = _run(*mypy, "wrong.py", cwd=tmp_path, **environment)
    assert wrong.stdout.count("error:") == 2, wrong.stdout
    assert (
        str(tmp_path / "installed")
        in _run(
            sys.executable, "-c", "import feducb; print(feducb.__file__)", cwd=tmp_path, **environment
        ).stdout
    )


def test_the_wheel_works_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    """With pinned versions and no extra: help, a simulation, a picture, a sentence for what is missing."""
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    install = ("-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-compile")
    done = _run(python, *install, "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = _run(python, ROOT / "tests" / "packaging" / "smoke.py", "base", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "works: base\n"), done.stderr
