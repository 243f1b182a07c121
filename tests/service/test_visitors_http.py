"""A shop over HTTP: whatever its visitors are, each gets an action or a word about the column."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import Running

from feducb import ConfigurationError
from feducb.service.client import Client, ServiceError
from feducb.worlds.features import Category, Flag, Hashed, Number, Recipe, Tags

CONFIG = """
version = 2
[agent]
store = "agent.db"
[problem]
recipe = "recipe.json"
[privacy]
epsilon = 1.0
delta = 1e-6
[service]
port = 0
keys = "agent.keys"
"""
OFFERS = ("none", "free_shipping", "ten_percent")
RECIPE = Recipe(
    context=(
        Category("country", ("DE", "FR"), unknown="other", missing="own"),
        Number("age", 0, 100, missing="own"),
        Flag("returning", missing="own"),
        Hashed("zip", 4, missing="zero"),
        Tags("likes", ("books", "games"), missing="zero"),
    ),
    action=(Category("offer", OFFERS), Number("price", 0, 20, missing="own")),
    terms=((), ("offer",), ("price",), ("offer", "age"), ("offer", "country"), ("zip",), ("offer", "likes")),
    actions=("none", {"id": "free_shipping", "price": 4.9}, "ten_percent"),  # type: ignore[arg-type]
)
COLUMNS = tuple(column.name for column in (*RECIPE.context, *RECIPE.action))
ADA = {"country": "DE", "age": 36, "returning": True, "likes": ["books"]}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("shop")
    (folder / "recipe.json").write_text(RECIPE.to_json())
    (folder / "agent.toml").write_text(CONFIG)
    with Running(folder / "agent.toml") as service:
        yield service


def test_a_visitor_in_words_gets_an_action_by_name(shop: Running) -> None:
    with Client(shop.url, key=shop.application, timeout=120.0) as agent:
        decision = agent.decide(context=ADA)
        assert decision.action == OFFERS[decision.index]
        assert agent.reward(decision.id, 1.0) == "recorded"
        asked: dict[str, Any] = {"actions": ["none", {"id": "ten_percent", "price": 9.9}], "context": ADA}
        own = agent.decide(**asked, id="visit 17")
        assert own.action in ("none", "ten_percent")
        assert agent.decide(**asked, id="visit 17").action == own.action
        with pytest.raises(ServiceError, match=r"422: context\.age is 'a text', expected a number") as caught:
            agent.decide(context=ADA | {"age": "36"})
        assert caught.value.status == 422
        with pytest.raises(
            ServiceError, match=r"422: actions\[1\]\.offer is 'another one', expected one of none"
        ):
            agent.decide(["none", "half_price"], context=ADA)
        with pytest.raises(ServiceError, match="expected from 0 to 1"):
            agent.reward(own.id, 1.5)


def test_many_visitors_in_one_call(shop: Running, caplog: pytest.LogCaptureFixture) -> None:
    with Client(shop.url, key=shop.operator, timeout=120.0) as agent:
        before = agent.status()["counts"].get("decisions", 0)
        found = agent.decide_many([{"context": ADA | {"age": age}} for age in (20, "old", 50)])
        assert [one is None for one in found] == [False, True, False]
        assert caplog.messages[-1].startswith("decisions[1] was refused: context.age is 'a text'")
        assert agent.status()["counts"].get("decisions", 0) == before + 2
        many = agent.decide_many([{"context": ADA}] * 1000)
        assert len({one.id for one in many if one is not None}) == 1000
        for count, limit in ((1001, "at most 1000 items"), (0, "at least 1 item")):
            with pytest.raises(ServiceError, match=f"is not what was expected: decisions: .* {limit}"):
                agent.decide_many([{"context": ADA}] * count)
        with pytest.raises(ServiceError, match=r"context\.age is 'a text'"):
            agent.decide_many([{"context": {"age": "old"}}])


@pytest.mark.parametrize(
    ("asked", "where", "what"),
    [
        ({"actions": "gift"}, ["actions"], "a list of names, or of objects with an id"),
        ({"actions": [None]}, ["actions", 0], "a list of names"),
        ({"actions": [1, 2]}, ["actions", 0], "rows of numbers"),
        ({"actions": [[1.0, 2.0], [1.0, "a"]]}, ["actions", 1, 1], "rows of numbers"),
        ({"actions": ["none", None]}, ["actions", 1], "a list of names"),
        ({"actions": []}, ["actions"], "1 to 1,000"),
        ({"follow": 1.5}, ["follow"], "the index of an action, or its name"),
        ({"context": ["DE"]}, ["context"], "an object"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_once_and_in_words(
    shop: Running, asked: dict[str, Any], where: list[str | int], what: str
) -> None:
    """Not once for each kind that a field may be of, by names of types."""
    with shop.http(shop.application) as http:
        for path, body, first in (
            ("/v1/decisions", asked, []),
            ("/v1/decisions/batch", {"decisions": [asked]}, ["decisions", 0]),
        ):
            answer = http.post(path, json=body)
            assert answer.status_code == 422
            (detail,) = answer.json()["details"]
            assert detail["where"] == [*first, *where]
            assert what in detail["what"]
            assert what in answer.json()["error"]
            assert "list[" not in answer.text


def test_a_row_of_many_that_cannot_be_read_touches_no_other(shop: Running) -> None:
    """It is refused with its reason, in its place, and the others are decided."""
    odd: tuple[tuple[Any, str], ...] = (
        ({"id": "x" * 129}, "id: String should have at most 128"),
        ({"context": [1]}, "context: Input should be an object"),
        ({"actions": []}, "actions: Input should be a list of names"),
        ({"actions": ["none", 3]}, "actions[1]: Input should be a list of names"),
        ({"person": ""}, "person: String should have at least 1"),
        ({"shoe": 1}, "shoe: Extra inputs"),
        (3, "Input should be an object"),
        ({"context": {"age": "old"}}, "context.age is 'a text'"),
        ({"actions": [{"id": "x" * 129, "offer": "none"}]}, "actions[0].id is 'too long'"),
    )
    with shop.http(shop.operator) as http:
        before = http.get("/v1/status").json()["counts"].get("decisions", 0)
        rows = [one for row, _ in odd for one in (row, {"context": ADA})]
        answer = http.post("/v1/decisions/batch", json={"decisions": rows}).json()
        shown, reasons = answer["decisions"], answer["reasons"]
        assert [one is None for one in shown] == [True, False] * len(odd)
        for reason, (_, said) in zip(reasons[::2], odd, strict=True):
            assert reason.startswith(said)
        assert reasons[1::2] == [None] * len(odd)
        assert http.get("/v1/status").json()["counts"]["decisions"] == before + len(odd)
        for beside in ({"shoe": 1}, {"decisions": [{}, 3] * 501}):  # about all of them, not about one
            refused = http.post("/v1/decisions/batch", json={"decisions": [{}, 3]} | beside)
            assert refused.status_code == 422


def test_the_client_sends_numbers_of_numpy_and_decimals_and_names_what_it_cannot(shop: Running) -> None:
    with Client(shop.url, key=shop.application, timeout=120.0) as agent:
        visitor = {"country": np.str_("DE"), "age": np.int64(36), "returning": np.bool_(True)}
        price = {"id": "ten_percent", "price": Decimal("9.9")}
        first = agent.decide(["none", price], context=visitor, id="of numpy")
        plain = {"country": "DE", "age": 36, "returning": True}
        asked = ["none", {"id": "ten_percent", "price": np.float32(9.9).astype(float)}]
        assert agent.decide(["none", price | {"price": 9.9}], context=plain, id="of numpy").repeated
        assert first.action in ("none", "ten_percent")
        assert agent.decide(asked, context={"age": np.float32(36.0)}).action in ("none", "ten_percent")
        itself: list[Any] = []
        itself.append(itself)
        odd: tuple[tuple[dict[str, Any], str], ...] = (
            ({"context": {"age": object()}}, "context.age is 'object', expected a number, a text"),
            ({"context": {"age": {1, 2}}}, "context.age is 'set'"),
            ({"actions": ["none", {"id": "a", "price": 1j}]}, r"actions\[1\].price is 'complex'"),
            ({"context": {"age": 10**5000}}, "context.age is 'a number of thousands of digits'"),
            ({"context": {"age": Decimal("sNaN")}}, "context.age is 'no number'"),
            ({"context": {"likes": itself}}, "context.likes is 'nested without end'"),
            ({"actions": "none"}, "actions is 'a text', expected a list"),
            ({"actions": ["none", None]}, r"actions\[1\] is 'NoneType', expected a name"),
            ({"context": "DE"}, "context is 'a text', expected a mapping"),
        )
        for one, named in odd:
            with pytest.raises(ConfigurationError, match=named):
                agent.decide(**one)


def test_values_that_took_a_rule_are_in_status_and_metrics(shop: Running) -> None:
    with Client(shop.url, key=shop.operator, timeout=120.0) as agent:
        before = agent.status()["recipe"]["values"]
        agent.decide(context={"country": "Atlantis", "age": 140, "likes": ["chess"]})
        after = agent.status()["recipe"]["values"]
        for column, rule in (
            ("country", "unknown"),
            ("age", "clipped"),
            ("likes", "unknown"),
            ("zip", "missing"),
        ):
            assert after[column][rule] == before.get(column, {}).get(rule, 0) + 1
    with shop.http(shop.operator) as http:
        page = http.get("/metrics").text
    assert f'feducb_values_total{{column="age",rule="clipped"}} {after["age"]["clipped"]}.0' in page


SOME: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 36, 1e308, -1e308, 10**400, 3.5, "", "DE", "36", "\u00fc", "x" * 5000),
    *(
        float("nan"),
        float("inf"),
        [],
        {},
        [1],
        ["books"],
        [["books"]],
        {"a": {"b": [1]}},
        [None],
        "\x00",
        "NaN",
    ),
)


def fuzzed(coins: random.Random) -> dict[str, Any]:
    """Anything may be anywhere, a column gone, another one there; half of them are as they should be."""
    visitor: dict[str, Any] = {"context": dict(ADA), "id": f"fuzzed {coins.random()}"}
    if coins.random() < 0.5:
        return visitor
    for _ in range(coins.randrange(1, 4)):
        visitor["context"][coins.choice((*COLUMNS, "shoe", ""))] = coins.choice(SOME)
    if coins.random() < 0.2:
        visitor["actions"] = coins.choice(
            (
                ["none", "ten_percent"],
                ["none", {"id": "ten_percent", "price": coins.choice(SOME)}],
                [{"id": coins.choice(SOME)}, "none"],
                [{"offer": "none", "price": 3, "colour": coins.choice(SOME)}],
            )
        )
    return visitor


def test_ten_thousand_fuzzed_visitors_get_an_answer_each_and_none_is_lost(shop: Running) -> None:
    coins, decided, refused = random.Random(20), 0, 0
    with shop.http(shop.operator) as http:
        before = http.get("/v1/status").json()["counts"].get("decisions", 0)
        for visitors in [1] * 500 + [500] * 19:
            asked = [fuzzed(coins) for _ in range(visitors)]
            if visitors == 1:
                answer = http.post("/v1/decisions", content=json.dumps(asked[0]))
                reasons = [answer.json().get("error")]
            else:
                answer = http.post("/v1/decisions/batch", content=json.dumps({"decisions": asked}))
                reasons = answer.json().get("reasons") or [None] * visitors
            assert answer.status_code == 200 or (visitors == 1 and answer.status_code == 422), answer.text
            for reason in reasons:
                decided, refused = decided + (reason is None), refused + (reason is not None)
                named = reason is None or any(f"{column} is" in reason for column in (*COLUMNS, "]"))
                assert named, reason
        after = http.get("/v1/status").json()["counts"].get("decisions", 0)
    assert (decided + refused, after - before) == (10_000, decided)
    assert 1_000 < refused < 5_000
