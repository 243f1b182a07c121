"""`feducb controller`, as whoever runs a federation types it; running one is in tests/engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from feducb.config import Budget, Problem
from feducb.controller.collector import open_collector
from feducb.privacy.terms import Terms
from feducb.service.api_keys import ApiKeys
from typed import typed

EXAMPLE = Path(__file__).parents[2] / "examples" / "deploy" / "controller.toml"
TERMS = "[terms]\ndim = 3\nepsilon = 1.0\ndelta = 1e-6\nreleases = 8\n"


def _feducb(folder: Path, *arguments: str, status: int = 0) -> str:
    done = typed(*arguments, cwd=folder)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.fixture
def controller(tmp_path: Path) -> Path:
    given = ("--federation", "clinics", "--agents", "north,south", "--host", "127.0.0.1")
    _feducb(tmp_path, "keys", "init", "federation", *given)
    folder = tmp_path / "federation" / "controller"
    (folder / "controller.toml").write_text(EXAMPLE.read_text() + TERMS)
    return folder


def test_keys_of_the_page_are_made_listed_and_revoked(controller: Path) -> None:
    secret = _feducb(controller, "controller", "key", "add", "ada").strip()
    looks = _feducb(
        controller, "controller", "key", "add", "bob", "-c", "controller.toml", "--role", "viewer"
    )
    keys = ApiKeys(controller / "page.keys")
    assert keys.role(f"Bearer {secret}".encode()) == "operator"
    assert keys.role(f"Bearer {looks.strip()}".encode()) == "viewer"
    assert (controller / "page.keys").stat().st_mode & 0o077 == 0
    _feducb(controller, "controller", "key", "revoke", "ada")
    assert _feducb(controller, "controller", "key", "list").split()[:2] == ["bob", "viewer"]
    said = _feducb(controller, "controller", "key", "add", "shop", "--role", "application", status=2)
    assert "role is 'application', expected operator or viewer" in said


def test_without_a_page_there_are_no_keys(controller: Path) -> None:
    config = controller / "controller.toml"
    text = config.read_text()
    config.write_text(text[: text.index("[page]")] + TERMS)
    said = _feducb(controller, "controller", "key", "add", "ada", status=2)
    assert "page is None, expected a table, such as [page] with keys" in said


def test_a_controller_that_adds_no_noise_has_nothing_to_state(tmp_path: Path) -> None:
    terms = Terms(problem=Problem(dim=3), budget=Budget(epsilon=1.0, delta=1e-6), releases=8)
    open_collector(tmp_path / "controller.db", {"north": terms}).close()
    said = _feducb(tmp_path, "privacy", "statement", "--store", "controller.db", status=2)
    assert "ask each agent's file" in said
    assert said.count("\n") == 1
