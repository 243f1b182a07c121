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
CONFIG = """
version = 2
[agent]
store = "agent.db"
[problem]
recipe = "{recipe}"
[privacy]
epsilon = 8.0
delta = 1e-6
[decisions]
{shadow}
[service]
port = 0
keys = "agent.keys"
"""
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
    assert seen["outcomes"] == ["recorded", "unknown", "refused", "repeated", "discarded"]
    assert seen["unsaid"] == "TypeError"
    assert seen["unsaidToo"] == [  # JSON would say null, which is a missing value
        "RangeError: context.age is NaN, expected a finite number",
        "RangeError: actions[1].price is -Infinity, expected a finite number",
        "RangeError: follow_propensity is NaN, expected a finite number",
        "TypeError: context.age is 36n, a bigint, expected a number or a text",
        "TypeError: actions[1].sizes[1] is one of the objects around it, expected no circle",
        "TypeError: context.visitor is one of the objects around it, expected no circle",
    ]
    assert seen["warned"][0].startswith("decisions[1] was refused: context.age is 'a text'")
    assert seen["cut"] == 2  # half a character in a text does not refuse the others
    assert seen["prefixed"] == 404  # what a proxy puts before the paths is asked for
    assert seen["learnt"] is None  # before the first sum
    (bad, why), (unknown, _), (away, silence) = seen["problems"]
    assert (bad, unknown, away) == (422, 401, None)
    assert "age" in why
    assert silence.startswith("POST /v1/decisions: no answer: ")
    counts = seen["counts"]
    assert (counts["decisions"], counts["rewards"]) == (4, 1)
    assert seen["seasons"] == 1


def tell(program: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line, which a program wants an answer to."""
    assert program.stdout is not None
    said: dict[str, Any] = json.loads(program.stdout.readline())
    return said


def go_on(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()


def while_away(built: Path, folder: Path, *follow: str, shadow: str = "") -> list[dict[str, Any]]:
    """What the program says before, while and after the service is away."""
    config = folder / "agent.toml"
    config.write_text(CONFIG.format(recipe=ROOT / "examples" / "shop" / "recipe.json", shadow=shadow))
    with Running(config) as service:
        config.write_text(config.read_text().replace("port = 0", f"port = {service.port}"))
        command = ["node", str(built / "example" / "away.js"), service.url, service.operator, *follow]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as program:
            before = tell(program)
            service.kill()
            go_on(program)
            meanwhile = tell(program)
            service.start()
            go_on(program)
            after = tell(program)
            go_on(program)
        assert program.returncode == 0
    return [before, meanwhile, after]


def test_a_visitor_gets_the_default_and_the_service_hears_of_it(built: Path, tmp_path: Path) -> None:
    before, meanwhile, after = while_away(built, tmp_path)
    assert before["fallback"] is False
    assert before["action"] in OFFERS
    why = before["refused"]
    assert why[0].startswith("ServiceError: POST /v1/decisions: answered 422")  # a refusal is no absence
    assert "fallback is 3, expected a name" in why[1]
    assert "fallback is bundle, expected one of the actions: none, gift" in why[2]
    assert "fallback is 2, expected an index from 0 to 1" in why[3]
    assert "fallback has 2, expected one for all, or one for each of 1" in why[4]
    assert "fallback is gift, expected none, as in follow" in why[5]
    assert "fallback is , expected a name" in why[6]
    shown = meanwhile["shown"] + meanwhile["many"]
    said = [(one["action"], one["fallback"], one["propensity"]) for one in shown]
    assert said == [("gift", True, None)] * 5
    assert "no answer" in shown[0]["reason"]
    assert "not asked" in shown[3]["reason"]
    assert (meanwhile["rewards"], meanwhile["waiting"]) == (["discarded", "discarded"], 6)
    assert "no answer" in meanwhile["without"]
    assert (after["again"]["fallback"], after["waiting"], after["after"]) == (False, 0, "discarded")
    told = [after["told"][name] for name in ("shown", "reported", "late", "refused", "lost")]
    assert told == [6, 5, 0, 1, 0]  # one has an id that is too long, and holds up no other
    counts = after["counts"]
    assert (counts["decisions"], counts["discarded"], counts["fallbacks"]) == (7, 5, 5)


def test_in_shadow_mode_the_followed_choice_and_its_reward_come_later(built: Path, tmp_path: Path) -> None:
    shadow = 'shadow = true\nfollow_policy = "fixed"'
    _, meanwhile, after = while_away(built, tmp_path, "loyalty_points", shadow=shadow)
    assert {one["action"] for one in meanwhile["shown"] + meanwhile["many"]} == {"loyalty_points"}
    assert (meanwhile["rewards"], meanwhile["waiting"]) == (["waiting", "repeated"], 6)
    told = after["told"]
    assert (told["reported"], told["refused"], after["waiting"], after["after"]) == (5, 1, 0, "repeated")
    counts = after["counts"]
    assert (counts["decisions"], counts["rewards"], counts.get("fallbacks", 0)) == (7, 1, 0)


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
