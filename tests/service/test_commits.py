"""Group commit: what was acknowledged is on disk, whatever happened to others in the same commit."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from feducb.agent import Agent, AgentSettings
from feducb.agent.view import look
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.service.chores import keep_up
from feducb.service.commits import GroupCommit, NotDurableError
from feducb.service.running_mailbox import ServiceMailbox

ACTIONS = [[0.1, 0.2], [0.2, 0.1]]
SETTINGS = AgentSettings(
    problem=Problem(dim=2),
    budget=Budget(epsilon=1.0, delta=1e-6),
    releases=8,
    schedule="periodic",
    season=1.6,
    window=0.1,
)


def _run(path: Path, work: Callable[[GroupCommit], Awaitable[None]]) -> None:
    async def whole() -> None:
        commit = GroupCommit(lambda: Agent.open(path, SETTINGS))
        try:
            await work(commit)
        finally:
            await commit.close()

    asyncio.run(whole())


def _full(agent: Agent) -> None:
    raise sqlite3.OperationalError("database or disk is full")


def test_a_commit_that_fails_takes_all_of_its_calls_back_and_none_after_it(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"

    async def work(commit: GroupCommit) -> None:
        await commit(lambda agent: agent.decide(ACTIONS))
        gc.disable()  # what goes wrong must not be tidied up by chance
        try:
            found = await asyncio.gather(
                commit(lambda agent: agent.decide(ACTIONS)),
                commit(lambda agent: agent.decide([[9.0, 9.0]])),  # refused: its error remembers frames
                commit(_full),
                return_exceptions=True,
            )
            assert {type(one) for one in found} == {NotDurableError}
            assert commit.failing is not None
            for number in range(2, 22):
                await commit(lambda agent: agent.decide(ACTIONS))
                assert look(path)["counts"]["decisions"] == number
            assert commit.failing is None
        finally:
            gc.enable()

    _run(path, work)


def test_a_refusal_is_for_its_caller_alone(tmp_path: Path) -> None:
    async def work(commit: GroupCommit) -> None:
        good, bad = await asyncio.gather(
            commit(lambda agent: agent.decide(ACTIONS)),
            commit(lambda agent: agent.decide([[9.0, 9.0]])),
            return_exceptions=True,
        )
        assert isinstance(bad, ConfigurationError)
        assert not isinstance(good, BaseException)

    _run(tmp_path / "agent.db", work)
    assert look(tmp_path / "agent.db")["counts"]["decisions"] == 1


def test_after_the_end_calls_are_told_so(tmp_path: Path) -> None:
    async def whole() -> None:
        commit = GroupCommit(lambda: Agent.open(tmp_path / "agent.db", SETTINGS))
        pending = asyncio.ensure_future(commit(lambda agent: agent.decide(ACTIONS)))
        await asyncio.sleep(0)
        await commit.close()
        assert (await pending).id
        with pytest.raises(NotDurableError, match="stopping"):
            await commit(lambda agent: agent.decide(ACTIONS))

    asyncio.run(whole())


def test_upkeep_survives_an_error_and_goes_on(tmp_path: Path) -> None:
    """An agent whose tick fails three times, in a way that nobody foresaw, still closes windows later."""

    async def work(commit: GroupCommit) -> None:
        mailbox, failures = ServiceMailbox(commit), [0]
        honest = Agent.tick

        def tick(agent: Agent, *, alone: bool = True) -> int:
            if failures[0] < 3:
                failures[0] += 1
                raise KeyError("unforeseen")
            return honest(agent, alone=alone)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Agent, "tick", tick)
            task = asyncio.ensure_future(keep_up(commit, mailbox, alone=True))
            await commit(lambda agent: agent.decide(ACTIONS))
            for _ in range(2400):
                await asyncio.sleep(0.05)
                told = await commit(lambda agent: agent.snapshot())
                if told["model"] != ["1.0"]:
                    break
            task.cancel()
        assert failures == [3]
        assert told["open_decisions"] == 0
        assert told["model"] != ["1.0"]

    _run(tmp_path / "agent.db", work)


def test_upkeep_goes_on_though_what_is_said_after_a_release_finds_a_full_disk(tmp_path: Path) -> None:
    """It would end for ever: no window would close any more, and nothing be released."""

    async def work(commit: GroupCommit) -> None:
        honest, failures = Agent.snapshot, [0]

        def snapshot(agent: Agent) -> dict[str, Any]:
            if failures[0] < 3:
                failures[0] += 1
                _full(agent)
            return honest(agent)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Agent, "snapshot", snapshot)
            task = asyncio.ensure_future(keep_up(commit, ServiceMailbox(commit), alone=True))
            while not task.done() and failures[0] < 3:
                await asyncio.sleep(0.05)
            assert not task.done()
            task.cancel()

    _run(tmp_path / "agent.db", work)
