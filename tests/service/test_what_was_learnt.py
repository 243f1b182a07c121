"""What was learnt, over HTTP and on the page, of a shop that has had visitors."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import findings, log_in, opened
from harness import Running
from playwright.sync_api import Browser, expect

from feducb.agent import Agent
from feducb.agent.agent_file import read_agent_file
from feducb.service.api_keys import add_key
from feducb.service.client import Client, ServiceError
from feducb.worlds.features import Category, Flag, Number, Recipe

CONFIG = """
version = 2
[agent]
store = "agent.db"
[problem]
recipe = "recipe.json"
[privacy]
epsilon = 50.0
delta = 1e-6
[releases]
releases = 8
schedule = "periodic"
season = "1000s"
[rewards]
window = "1s"
[service]
port = 0
keys = "agent.keys"
"""
NASTY = "<img src=x onerror=alert(1)>"
OFFERS = ("none", "free_shipping", "loyalty_points", NASTY)
RECIPE = Recipe(
    context=(
        Category("country", ("DE", "FR"), unknown="other", missing="own"),
        Number("age", 0, 100, missing="own"),
        Flag("returning", missing="own"),
    ),
    action=(Category("offer", OFFERS),),
    terms=((), ("offer",), ("offer", "age"), ("country",)),
)
ADA = {"country": "DE", "age": 36, "returning": True}

pytestmark = pytest.mark.xdist_group("learnt")  # one service and one browser for all


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Half of its season is over: of 500 visitors every other bought, three in four with free shipping."""
    folder: Path = tmp_path_factory.mktemp("learnt")
    (folder / "recipe.json").write_text(RECIPE.to_json())
    config = folder / "agent.toml"
    config.write_text(CONFIG)
    told, coins, now = read_agent_file(config), random.Random(3), [time.time() - 520.0]
    with Agent.open(told.store, told.agent, clock=lambda: now[0]) as agent:
        for _ in range(20):
            with agent.writing():
                for _ in range(25):
                    now[0] += 1.0
                    decision = agent.decide(context=ADA | {"age": coins.uniform(0, 100)})
                    likes = 0.75 if decision.action == "free_shipping" else 0.5
                    agent.reward(decision.id, float(coins.random() < likes))
            agent.tick()
    with Running(config) as service:
        yield service


def test_the_model_is_for_those_who_may_look(shop: Running) -> None:
    viewer = add_key(shop.config.parent / "agent.keys", "scraper", "viewer")
    shop.until(viewer, 200)
    with Client(shop.url, key=viewer) as agent:
        told = agent.model()
    assert (told["from"], told["groups"], told["reward_range"]) == ("released sums", 1, [0.0, 1.0])
    assert told["model"] == f"1.{told['history'][-1]['number']}"
    assert [one["id"] for one in told["actions"]] == list(OFFERS)
    assert sum(one["share"] for one in told["actions"]) == pytest.approx(1.0)
    assert [one["term"] for one in told["terms"]] == ["1", "offer", "offer*age", "country"]
    with Client(shop.url, key=shop.application) as agent, pytest.raises(ServiceError, match="403"):
        agent.model()
    with shop.http() as http:
        assert http.get("/v1/model").status_code == 401
        http.post("/v1/session", json={"key": viewer})
        assert http.get("/v1/model").json() == told  # the page's cookie is enough
    with shop.http(shop.operator) as http:
        for group in ("1", "-1", "first", "", "9" * 30, "²"):
            answer = http.get("/v1/model", params={"group": group})
            assert (answer.status_code, answer.json()["error"].startswith("group is ")) == (422, True), group


def test_an_application_is_told_why(shop: Running) -> None:
    with Client(shop.url, key=shop.application) as agent:
        decision = agent.decide(context=ADA, explain=True)
        why = decision.explanation
        assert why is not None
        chosen = why["chosen"]
        assert chosen["action"] == decision.action
        assert chosen["estimate"] == pytest.approx(decision.estimate)
        assert chosen["bound"] == pytest.approx(decision.bound)
        parts: list[float] = [chosen["level"], *(one["estimate"] for one in chosen["terms"])]
        assert math.fsum(parts) + chosen["cut_estimate"] == pytest.approx(decision.estimate, abs=1e-12)
        bonus = math.fsum([*parts, *(one["bonus"] for one in chosen["terms"])])
        assert bonus + chosen["cut_bound"] == pytest.approx(decision.bound, abs=1e-12)
        many = agent.decide_many([{"context": ADA, "explain": True}, {"context": ADA}])
        assert [one is not None and one.explanation is not None for one in many] == [True, False]
        with pytest.raises(ServiceError, match="422: explain is True, expected nothing beside vectors"):
            agent.decide([[0.0] * RECIPE.dim], explain=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_says_what_was_learnt(browser: Browser, shop: Running, width: int, scheme: Any) -> None:
    """Names are text, nothing is cut off or complained about, and axe-core finds nothing at all."""
    with Client(shop.url, key=shop.operator) as agent:
        told = agent.model()
    with opened(browser, shop.url, width=width, scheme=scheme) as page:
        log_in(page, shop.operator)
        rows = page.locator("#t-actions tr")
        expect(rows).to_have_count(len(OFFERS))
        for place, one in enumerate(told["actions"]):
            expect(rows.nth(place).locator("th")).to_have_text(one["id"])
            expect(rows.nth(place)).to_contain_text(f"{one['estimate']:.3f}")
            expect(rows.nth(place)).to_contain_text(f"{one['low']:.2f} to {one['high']:.2f}")
            expect(rows.nth(place).get_by_role("img")).to_have_count(1)
        expect(page.locator("#learnt-said")).to_contain_text("showing it costs no privacy")
        expect(page.locator("#learnt-visitor")).to_contain_text("age: 50, the middle of its range")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert findings(page) == []
        page.evaluate("for (const one of document.querySelectorAll('#learnt-card details')) one.open = true")
        expect(page.locator("#t-terms tr")).to_have_count(RECIPE.dim)
        expect(page.locator("#t-terms")).to_contain_text("age 100 (0: the opposite), for offer free_shipping")
        expect(page.locator("#t-past tr")).to_have_count(len(OFFERS) * len(told["history"]))
        for table in ("#t-actions", "#t-terms"):
            box = page.locator(".scroll", has=page.locator(table))
            assert box.evaluate("(box) => box.scrollWidth <= box.clientWidth"), table
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert findings(page) == []
