"""The TypeScript client under a real node, against a running service, of whose interface its types are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Running

ROOT = Path(__file__).parents[2]
HERE = ROOT / "clients" / "typescript"
OFFERS = ("none", "free_shipping", "ten_percent", "gift", "bundle", "loyalty_points")
pytestmark = pytest.mark.xdist_group("typescript")  # they share one folder of packages


@pytest.fixture(scope="module", autouse=True)
def needs_node() -> None:
    """Skip where node or npm is missing; with CI=true that is a failure."""
    if shutil.which("node") is not None and shutil.which("npm") is not None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail("node or npm is not installed, and CI=true: apt-get install nodejs npm")
    pytest.skip("node or npm is not installed, so the TypeScript client was not tried")


def typescript(*arguments: str) -> None:
    done = subprocess.run(
        [str(ROOT / "scripts" / "typescript"), *arguments],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built() -> Path:
    typescript("build")
    return HERE / "dist"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("shop")
    command = [sys.executable, "-m", "feducb", "agent", "init"]
    command += ["--recipe", str(ROOT / "examples" / "shop" / "recipe.json"), "--epsilon", "8", "--port", "0"]
    command += ["--decisions", "12000", "--season", "1h", "--window", "60s"]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    with Running(folder / "agent.toml") as service:
        yield service


def node(program: Path, *arguments: str) -> str:
    command = ["node", str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_types_are_those_of_the_service(tmp_path: Path) -> None:
    typescript("generate", str(tmp_path / "api.ts"))
    kept, now = (HERE / "src" / "api.ts").read_text(), (tmp_path / "api.ts").read_text()
    assert kept == now, "the service has changed: run scripts/typescript generate"


def test_every_call_is_answered(built: Path, shop: Running) -> None:
    seen: dict[str, Any] = json.loads(node(built / "example" / "tour.js", shop.url, shop.operator))
    first, again = seen["first"], seen["again"]
    assert first["action"] == OFFERS[first["index"]]
    assert 0.0 < first["propensity"] <= 1.0
    assert (again["action"], again["repeated"]) == (first["action"], True)
    assert seen["refused"] is None
    assert seen["outcomes"] == ["recorded", "unknown", "repeated", "discarded", "discarded"]
    (bad, why), (unknown, _), (away, silence) = seen["problems"]
    assert (bad, unknown, away) == (422, 401, None)
    assert "age" in why
    assert silence.startswith("POST /v1/decisions: no answer: ")
    counts = seen["counts"]
    assert (counts["decisions"], counts["rewards"], counts["fallbacks"]) == (3, 1, 1)
    assert seen["seasons"] == 1


def test_the_shop_is_at_most_twenty_lines_and_runs(built: Path, shop: Running) -> None:
    text = (HERE / "example" / "shop.ts").read_text()
    own = [line for line in text.splitlines() if line.strip() and not line.startswith("//")]
    assert len(own) <= 20, own
    said = node(built / "example" / "shop.js", shop.url, shop.application, "500")
    assert said.startswith("500 visitors; of the last 500, ")
    assert said.split()[-1] in OFFERS


def test_packages_are_pinned_and_their_lock_names_no_place() -> None:
    package = json.loads((HERE / "package.json").read_text())
    assert all(version[0].isdigit() for version in package["devDependencies"].values())
    assert "dependencies" not in package
    assert '"resolved"' not in (HERE / "package-lock.json").read_text()
