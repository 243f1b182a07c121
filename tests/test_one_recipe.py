"""One recipe file from a CSV to a running service and back, as a shop's people type it."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feducb.agent.agent_file import read_agent_file
from feducb.agent.own_logs import read_rows
from feducb.agent.view import look
from feducb.service.api_keys import add_key
from feducb.service.client import Client
from feducb.worlds.features import Recipe

OFFERS = ("none", "free_shipping", "ten_percent", "big")
CONTEXT = "age:0:120,country:DE|FR,returning:bool"
COLUMNS = ("--agent-column", "shop", "--action", "offer", "--reward", "bought", "--propensity", "p")


def _feducb(folder: Path, *arguments: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "feducb", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def _visitor(coins: random.Random) -> dict[str, Any]:
    visitor = {
        "age": coins.randrange(10, 130),
        "country": coins.choice(["DE", "FR", "PT"]),
        "returning": coins.choice([True, False]),
    }
    return {name: value for name, value in visitor.items() if coins.random() < 0.9}


def _buys(visitor: dict[str, Any], offer: str, coins: random.Random) -> bool:
    return coins.random() < 0.2 + 0.5 * (
        offer == ("free_shipping" if visitor.get("returning") else "ten_percent")
    )


def _write_log(path: Path, rows: int) -> None:
    coins = random.Random(1)
    with path.open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["shop", "age", "country", "returning", "offer", "bought", "p"])
        for number in range(rows):
            visitor, offer = _visitor(coins), coins.choice(OFFERS)
            known = [visitor.get(name, "") for name in ("age", "country", "returning")]
            bought = int(_buys(visitor, offer, coins))
            log.writerow([f"shop {number % 4}", *known, offer, bought, 1 / 4])


def _declare_actions(path: Path) -> None:
    """By hand: offers have prices, and what the log calls big is a bundle for five."""
    plain = json.loads(path.read_text())
    plain["action"][0]["levels"] = ["none", "free_shipping", "ten_percent", "bundle"]
    plain["action"].append({"kind": "number", "name": "price", "low": 0, "high": 10, "missing": "zero"})
    plain["terms"].append(["price"])
    big = {"id": "big", "offer": "bundle", "price": 5}
    plain["actions"] = ["none", {"id": "free_shipping", "price": 3}, "ten_percent", big]
    path.write_text(json.dumps(plain))


@pytest.mark.parametrize("shadow", [False, True])
def test_one_recipe_file_from_a_csv_to_a_running_service_and_back(tmp_path: Path, shadow: bool) -> None:
    _write_log(tmp_path / "log.csv", 1200)
    _feducb(tmp_path, "recipe", "init", "log.csv", "--action", "offer", "--context", CONTEXT)
    _declare_actions(tmp_path / "recipe.json")
    recipe = Recipe.read(tmp_path / "recipe.json")
    assert recipe.offered == OFFERS
    study = ("--recipe", "recipe.json", "--epsilon", "8", "--repeats", "2")
    said = _feducb(tmp_path, "evaluate", "log.csv", *COLUMNS, *study, "--json", "before.json")
    assert "ederat" in said
    assert json.loads((tmp_path / "before.json").read_text())["settings"]["dim"] == recipe.dim

    followed = ("--shadow",) if shadow else ("--uniform-share", "0.3")
    kept = ("--window", "200ms", "--keep-events", "1h", "--port", "0")
    _feducb(tmp_path, "agent", "init", "--recipe", "recipe.json", "--epsilon", "50", *kept, *followed)
    if not shadow:
        _feducb(tmp_path, "agent", "warm-start", "log.csv", "--policy", "fixed", "--reward", "bought")
        assert look(tmp_path / "agent.db")["counts"]["loaded"] == 1200
    decided = _serve_and_visit(tmp_path, shadow)

    _feducb(tmp_path, "agent", "export", "--out", "north.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "north.jsonl").read_text().splitlines()]
    assert [row["name"] for row in rows] == [offer for _, offer in decided]
    assert [row["context"] for row in rows] == [visitor for visitor, _ in decided]
    assert {row["recipe"] for row in rows} == {recipe.fingerprint}
    _write_as_log(tmp_path / "again.csv", rows)
    with (tmp_path / "again.csv").open(newline="") as opened:
        vectors, rewards = read_rows(csv.DictReader(opened), recipe, "bought")
    assert np.array_equal(vectors, [row["action"] for row in rows])
    assert rewards == [row["reward"] for row in rows]
    # From the vectors that were kept, and made anew by the recipe: the same.
    assert _evaluated(tmp_path) == pytest.approx(_evaluated(tmp_path, "--recipe", "recipe.json"), rel=1e-6)


def _write_as_log(path: Path, rows: list[dict[str, Any]]) -> None:
    """What an agent exported, as a log with the recipe's columns."""
    with path.open("w", newline="") as file:
        log = csv.DictWriter(file, ["age", "country", "returning", "offer", "bought"])
        log.writeheader()
        log.writerows(row["context"] | {"offer": row["name"], "bought": row["reward"]} for row in rows)


def _evaluated(folder: Path, *recipe: str) -> list[float]:
    """The value of each policy, by what the agent exported."""
    out = ("--json", "after.json", "--epsilon", "50", "--repeats", "2")
    _feducb(folder, "evaluate", "north.jsonl", *recipe, *out)
    found = json.loads((folder / "after.json").read_text())
    assert len(found["policies"]) > 3
    return [row["value"]["value"] for row in found["policies"]]


def _serve_and_visit(folder: Path, shadow: bool) -> list[tuple[dict[str, Any], str]]:
    """Visitors and what they were shown, once the windows of all have closed."""
    key = add_key(folder / "agent.keys", "test", "operator")
    assert read_agent_file(folder / "agent.toml").agent.recipe is not None
    coins, decided = random.Random(2), []
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "feducb", "agent", "serve"]
        process = subprocess.Popen(command, cwd=folder, stderr=log)
    try:
        with Client(f"http://127.0.0.1:{_port(folder / 'log')}", key=key) as agent:
            for _ in range(300):
                visitor = _visitor(coins)
                own: dict[str, Any] = (
                    {"follow": coins.choice(OFFERS), "follow_propensity": 1 / 4} if shadow else {}
                )
                decision = agent.decide(context=visitor, **own)
                assert decision.action in OFFERS
                assert own.get("follow", decision.action) == decision.action
                agent.reward(decision.id, float(_buys(visitor, str(decision.action), coins)))
                decided.append((visitor, str(decision.action)))
            while agent.status()["counts"].get("settled", 0) < 300:
                time.sleep(0.05)
    finally:
        process.terminate()
        process.wait(timeout=120)
    return decided


def _port(log: Path) -> int:
    while True:
        for line in log.read_bytes().splitlines():
            if b'"listening"' in line:
                return int(json.loads(line)["port"])
        time.sleep(0.05)
