"""The service is away: visitors get the application's default, and it hears of them later, once each."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ACTIONS, Running, write_config

from feducb.agent import Decision, Outcome
from feducb.errors import ConfigurationError
from feducb.service import client_flows
from feducb.service.client import AsyncClient, Client, Fallback, ServiceError
from feducb.service.fallback import Fallbacks


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with Running(write_config(tmp_path)) as running:
        fix_port(running)
        yield running


def fix_port(running: Running) -> None:
    """The one it got, so that it has the same after a restart."""
    text = running.config.read_text().replace("port = 0", f"port = {running.port}")
    running.config.write_text(text)


def until_asked_again() -> None:
    time.sleep(client_flows._AWAY_SECONDS)


def test_a_visitor_gets_the_default_and_the_service_hears_of_it(service: Running) -> None:
    with Client(service.url, key=service.operator) as agent:
        assert agent.decide(ACTIONS, fallback=2).fallback is False
        service.kill()
        begun = time.monotonic()
        shown = [agent.decide(ACTIONS, fallback=2) for _ in range(3)]
        assert time.monotonic() - begun < 3.0  # no attempts with pauses while visitors wait
        for one in shown:
            assert isinstance(one, Fallback)
            assert (one.fallback, one.index, one.propensity, one.estimate) == (True, 2, None, None)
        assert "no answer" in shown[0].reason  # type: ignore[union-attr]
        assert "not asked" in shown[1].reason  # type: ignore[union-attr]
        assert agent.reward(shown[0].id, 1.0) is Outcome.DISCARDED
        assert (agent.fallbacks.shown, agent.fallbacks.waiting) == (3, 3)
        with pytest.raises(ServiceError, match="no answer"):
            agent.report_fallbacks()
        service.start()
        until_asked_again()
        assert isinstance(agent.decide(ACTIONS, fallback=2), Decision)
        told = agent.fallbacks
        assert (told.waiting, told.reported, told.late, told.refused, told.lost) == (0, 3, 0, 0, 0)
        facts = agent.status()
        assert facts["counts"]["fallbacks"] == 3
        assert facts["counts"]["discarded"] == 3
        assert facts["open_decisions"] == 2  # those that were decided, and nothing else
        assert agent.reward(shown[0].id, 1.0) is Outcome.DISCARDED
        assert agent.status()["counts"].get("rewards", 0) == 0


def test_what_the_service_decided_but_nobody_heard_does_not_enter(service: Running) -> None:
    """It hangs, the visitor gets the default; when it goes on, it makes a decision that was never shown."""
    with Client(service.url, key=service.operator, timeout=0.5) as agent:
        agent.decide(ACTIONS)
        os.kill(service.process.pid, signal.SIGSTOP)
        shown = agent.decide(ACTIONS, id="visit-1", fallback=0)
        os.kill(service.process.pid, signal.SIGCONT)
        assert isinstance(shown, Fallback)
        until_asked_again()
        assert agent.report_fallbacks().reported == 1
        counts = agent.status()["counts"]
        assert (counts["fallbacks"], counts["discarded"]) == (1, 1)
        with pytest.raises(ServiceError, match="id: expected a new one: that decision is over"):
            agent.decide(ACTIONS, id="visit-1")  # a request that comes after its report makes no record
        assert agent.status()["open_decisions"] == 1


def test_one_whose_window_is_over_is_said_to_be_late(tmp_path: Path) -> None:
    with Running(write_config(tmp_path, window="100ms")) as service, service.http(service.operator) as http:
        http.post("/v1/decisions", json={"actions": ACTIONS, "id": "visit-1"})
        time.sleep(0.2)
        answer = http.post("/v1/fallbacks", json={"ids": ["visit-1", "visit-2", "7-0123456789abcdef"]}).json()
        assert answer["outcomes"] == ["late", "discarded", "refused"]
        assert [reason is None for reason in answer["reasons"]] == [True, True, False]
        again = http.post("/v1/fallbacks", json={"ids": ["visit-2"]})
        assert again.json() == {"outcomes": ["repeated"]}
        counts = http.get("/v1/status").json()["counts"]
        assert (counts["fallbacks"], counts["late_fallbacks"], counts["decisions"]) == (1, 1, 2)


def test_in_shadow_mode_the_followed_choice_and_its_reward_come_later(tmp_path: Path) -> None:
    decisions = 'shadow = true\nfollow_policy = "fixed"'
    with Running(write_config(tmp_path, decisions=decisions)) as service:
        fix_port(service)
        with Client(service.url, key=service.operator) as agent:
            service.kill()
            shown = [agent.decide(ACTIONS, follow=1, fallback=1) for _ in range(25)]
            assert agent.reward(shown[0].id, 0.5) is Outcome.WAITING
            assert agent.reward(shown[0].id, 0.7) is Outcome.REPEATED
            service.start()
            assert agent.report_fallbacks().reported == 25
            facts = agent.status()
            assert facts["counts"]["decisions"] == facts["open_decisions"] == 25
            assert facts["counts"]["rewards"] == 1
            assert "fallbacks" not in facts["counts"]
            assert agent.reward(shown[1].id, 0.5) is Outcome.RECORDED


def test_one_that_cannot_be_taken_holds_up_no_other(service: Running) -> None:
    with Client(service.url, key=service.operator) as agent:
        service.kill()
        for id in ("first", "x" * 200, *(f"visit-{number}" for number in range(5))):
            agent.decide(ACTIONS, id=id, fallback=0)
        service.start()
        until_asked_again()
        told = agent.report_fallbacks()
        assert (told.waiting, told.reported, told.refused) == (0, 6, 1)
        assert agent.status()["counts"]["fallbacks"] == 6


def test_in_shadow_mode_neither_a_bad_request_nor_a_bad_reward_holds_up_others(tmp_path: Path) -> None:
    with Running(write_config(tmp_path, decisions='shadow = true\nfollow_policy = "fixed"')) as service:
        fix_port(service)
        with Client(service.url, key=service.operator) as agent:
            service.kill()
            shown = [agent.decide(ACTIONS, follow=1, fallback=1) for _ in range(3)]
            agent.decide(ACTIONS, follow=1, fallback=1, person="x" * 300)
            assert agent.reward(shown[0].id, 1e9) is Outcome.WAITING
            service.start()
            until_asked_again()
            told = agent.report_fallbacks()
            assert (told.waiting, told.reported, told.refused) == (0, 3, 1)
            assert agent.reward(shown[0].id, 0.5) is Outcome.RECORDED  # that one was none


def test_what_cannot_be_sent_is_said_at_once_and_breaks_no_later_visit(tmp_path: Path) -> None:
    """While the service is not asked, too: it would be kept, and fail whenever others are reported."""
    with Running(write_config(tmp_path, decisions='shadow = true\nfollow_policy = "fixed"')) as service:
        fix_port(service)
        with Client(service.url, key=service.operator) as agent:
            service.kill()
            agent.decide(ACTIONS, follow=1, fallback=1)
            with pytest.raises(ConfigurationError, match=r"context\.age is 'set'"):
                agent.decide(ACTIONS, follow=1, fallback=1, context={"age": {36}})
            service.start()
            until_asked_again()
            assert isinstance(agent.decide(ACTIONS, follow=1, fallback=1), Decision)
            assert (agent.fallbacks.waiting, agent.fallbacks.reported) == (0, 1)


@pytest.mark.parametrize("follow", [None, 1])
def test_what_waits_goes_on_waiting_while_the_key_is_not_known(tmp_path: Path, follow: int | None) -> None:
    """A key that was revoked says nothing about what was shown."""
    shadow = "" if follow is None else 'shadow = true\nfollow_policy = "fixed"'
    with Running(write_config(tmp_path, decisions=shadow)) as service:
        fix_port(service)
        with Client(service.url, key="feducb_another") as agent:
            service.kill()
            agent.decide(ACTIONS, follow=follow, fallback=1)
            service.start()
            with pytest.raises(ServiceError, match="401"):
                agent.report_fallbacks()
            assert (agent.fallbacks.waiting, agent.fallbacks.refused) == (1, 0)


def test_many_visitors_get_their_defaults_together(service: Running) -> None:
    visitors = [{"actions": ACTIONS, "id": f"visit-{number}"} for number in range(1000)]
    with Client(service.url, key=service.operator) as agent:
        first = agent.decide_many(visitors[:3], fallback=1)
        assert [isinstance(one, Decision) for one in first] == [True] * 3
        refused = agent.decide_many([{"actions": ACTIONS}, {"actions": [[9.0, 9.0, 9.0]]}], fallback=0)
        assert [one is None for one in refused] == [False, True]  # a refusal is no absence
        service.kill()
        each = [number % 4 for number in range(1000)]
        shown = agent.decide_many(visitors, fallback=each)
        assert [one.index for one in shown if isinstance(one, Fallback)] == each
        assert [one.id for one in shown if one is not None] == [one["id"] for one in visitors]
        assert set(agent.rewards({one.id: 1.0 for one in shown if one is not None}).values()) == {"discarded"}
        with pytest.raises(ServiceError, match="no answer"):
            agent.decide_many(visitors[:2])
        service.start()
        until_asked_again()
        assert isinstance(agent.decide_many([{"actions": ACTIONS}] * 2, fallback=0)[0], Decision)
        told = agent.fallbacks
        assert (told.shown, told.waiting, told.reported) == (1000, 0, 1000)
        # Three of them had been decided before: those are taken back, and no visitor counts twice
        counts = agent.status()["counts"]
        assert (counts["decisions"], counts["discarded"], counts["fallbacks"]) == (1003, 1000, 1000)
        for fallback in ([0], [0, 1, 2, 3, 4], 4, "gift", [0, 9]):
            with pytest.raises(ConfigurationError, match="fallback"):
                agent.decide_many(visitors[:2], fallback=fallback)
        with pytest.raises(TypeError, match="no argument 'contxt'"):
            agent.decide_many([{"contxt": {}}])


def test_in_asyncio_all_is_the_same(service: Running) -> None:
    async def shop() -> None:
        async with AsyncClient(service.url, key=service.operator) as agent:
            decided = await asyncio.gather(*(agent.decide(ACTIONS, fallback=0) for _ in range(20)))
            assert not any(one.fallback for one in decided)
            assert await agent.reward(decided[0].id, 1.0) is Outcome.RECORDED
            worth = await agent.rewards({decided[1].id: 0.5, "nobody": 0.5})
            assert list(worth.values()) == [Outcome.RECORDED, Outcome.UNKNOWN]
            assert await agent.discard(decided[2].id) is Outcome.DISCARDED
            assert len(await agent.decide_many([{"actions": ACTIONS}] * 3)) == 3
            assert (await agent.status())["counts"]["decisions"] == 23
            assert "seasons" in await agent.privacy()
            with pytest.raises(ServiceError, match="422"):
                await agent.decide([[9.0, 9.0, 9.0]], fallback=0)  # a refusal is no absence
            service.kill()
            away = await asyncio.gather(*(agent.decide(ACTIONS, fallback=0) for _ in range(5)))
            assert all(one.fallback for one in away)
            several = await agent.decide_many([{"actions": ACTIONS}] * 5, fallback=0)
            assert all(isinstance(one, Fallback) for one in several)
            with pytest.raises(ServiceError, match="no answer"):
                await agent.decide(ACTIONS)
            service.start()
            assert (await agent.report_fallbacks()).reported == 10
            assert (await agent.status())["counts"]["fallbacks"] == 10

    asyncio.run(shop())


def test_a_default_that_cannot_be_shown_is_refused_before_there_is_need_of_it() -> None:
    with Client("http://127.0.0.1:9", key="none") as agent:
        for actions, fallback, options in (
            (["a", "b"], "c", {}),
            (ACTIONS, 4, {}),
            (ACTIONS, "a", {}),
            (None, 0, {}),
            (None, "", {}),
            (["a", "b"], "a", {"follow": "b"}),
        ):
            with pytest.raises(ConfigurationError, match="fallback"):
                agent.decide(actions, fallback=fallback, **options)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="'contxt', expected some of context"):
            agent.decide(["a"], fallback="a", contxt={})  # type: ignore[call-overload]
        shown = agent.decide(["a", {"id": "b", "price": 1.0}], fallback="b")
        assert (shown.index, shown.action) == (1, "b")
        shown = agent.decide(context={"age": 3}, fallback="b")
        assert (shown.index, shown.action) == (None, "b")  # whatever the recipe has, which it does not know


def test_of_more_than_fit_the_oldest_are_lost_and_counted() -> None:
    shelf = Fallbacks(most=3)
    for number in range(5):
        shelf.keep({"id": str(number), "follow": None})
    assert (shelf.shown, shelf.waiting, shelf.lost) == (5, 3, 2)
    assert list(shelf.oldest(2, 1)) == ["2", "3"]
    shelf.settle([("2", "discarded"), ("3", "late"), ("0", "discarded"), ("4", None)])
    assert (shelf.waiting, shelf.reported, shelf.late, shelf.refused) == (0, 2, 1, 1)
