"""scripts/*: each says what it does when asked, and refuses what it does not know before it installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.name for path in (ROOT / "scripts").iterdir() if os.access(path, os.X_OK))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The scripts by themselves, on a machine without Python: whatever installs something fails."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "cat", "cksum", "cp", "cut", "dirname", "grep", "id", "mkdir", "rm", "sed", "tr"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def _run(checkout: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(checkout / "bin")}
    return subprocess.run(
        ["sh", *command], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_says_what_it_does_and_how_it_is_called(checkout: Path, name: str, flag: str) -> None:
    done = _run(checkout, f"scripts/{name}", flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: scripts/{name}" in done.stdout
    assert not any(line.startswith(("#", "set -")) for line in done.stdout.splitlines())
    assert not (checkout / ".venv").exists()


def test_setup_lists_every_extra(checkout: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = _run(checkout, "scripts/setup", "--help").stdout.split("EXTRAS:")[1].split()
    assert [name.strip(",") for name in listed] == list(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such"], "there is no extra no-such; expected some of client,"),
        (["service,no-such"], "there is no extra no-such"),
        (["--verbose"], "there is no extra --verbose"),
        (["nats", "service"], "separate extras by commas: scripts/setup nats,service"),
    ],
)
def test_setup_refuses_what_it_does_not_know_in_one_sentence(
    checkout: Path, arguments: list[str], said: str
) -> None:
    done = _run(checkout, "scripts/setup", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("extras", ["", "dev", "nats,service"])
def test_setup_goes_on_with_extras_that_exist(checkout: Path, extras: str) -> None:
    done = _run(checkout, "scripts/setup", *([extras] if extras else []))
    assert (done.returncode, "feducb needs Python 3.11" in done.stderr) == (1, True)
