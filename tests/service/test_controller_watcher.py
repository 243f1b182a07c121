"""What a controller's page says about the time before it was started."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from feducb.service.controller_page import Watcher

FACTS: dict[str, Any] = {
    "connected": True,
    "season": 1,
    "newest_sum": [1, 4],
    "agents_in_it": ["north", "south"],
    "newest_message": {"north": 4, "south": 4},
}

SUMS = [
    {"season": 1, "number": 4, "published_at": 2000.0, "names": ["north", "south"], "deviation": 12.5},
    {"season": 1, "number": 3, "published_at": 1000.0, "names": ["north", "south"], "deviation": 11.5},
]


def _look(watcher: Watcher) -> tuple[dict[str, Any], dict[str, Any]]:
    told = asyncio.run(watcher())
    return {one["name"]: one["last_seen"] for one in told["agents"]}, told


def test_what_was_there_before_the_first_look_is_as_old_as_the_controllers_file_says() -> None:
    facts = FACTS | {"last_seen": {"north": 1000.0, "south": 2000.0}, "sums": SUMS}
    watcher = Watcher(lambda: facts, name="shops", agents=["north", "south", "west"])
    seen, told = _look(watcher)
    assert seen == {"north": 1000.0, "south": 2000.0, "west": None}
    assert told["sums"] == SUMS
    assert {"missing", "silent"} == {one["kind"] for one in told["trouble"]}  # west; north and south
    facts |= {"last_seen": {"north": 3000.0, "south": 2000.0}}
    assert _look(watcher)[0]["north"] == 3000.0


def test_without_a_time_only_what_changes_while_somebody_looks_is_new() -> None:
    facts = dict(FACTS)
    watcher = Watcher(lambda: facts, name="shops", agents=["north", "south"])
    seen, told = _look(watcher)
    assert (seen, told["sums"], told["trouble"]) == ({"north": None, "south": None}, [], [])
    began = time.time()
    facts |= {"newest_message": {"north": 5, "south": 4}, "newest_sum": [1, 5]}
    seen, _ = _look(watcher)
    assert (began <= seen["north"] <= time.time(), seen["south"]) == (True, None)


def test_the_last_refusal_of_an_agent_is_shown_in_words() -> None:
    refused = {
        "refused": {"north": {"size": 3}},
        "last_refusals": {"north": {"text": "a release of 9 bytes"}},
    }
    told = asyncio.run(Watcher(lambda: FACTS | refused, name="shops", agents=["north", "south"])())
    assert [one["last_refusal"] for one in told["agents"]] == ["a release of 9 bytes", None]


def test_a_controller_that_hangs_is_said_by_its_page_too() -> None:
    facts = FACTS | {"at": time.time() - 31.0}
    told = asyncio.run(Watcher(lambda: facts, name="shops", agents=["north", "south"])())
    assert [one["kind"] for one in told["trouble"]] == ["hangs"]
