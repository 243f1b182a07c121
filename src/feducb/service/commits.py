"""Group commit: whatever arrives together becomes durable together, and is answered after that.

The event loop's thread runs the calls; a second thread waits for the disk. While it does, requests are read
and queue up for the next commit, and nobody else touches the agent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from feducb.agent import Agent
from feducb.errors import FeducbError, StoreError
from feducb.service.json_logs import log_failure

__all__ = ["GroupCommit", "NotDurableError"]

Result = TypeVar("Result")
Work = Callable[[Agent], Any]
Waiting = list[tuple[Work, asyncio.Future[Any]]]
_AGAIN_SECONDS = 1.0
_REFUSALS = (FeducbError, ValueError)  # raised before anything was written that must not be


class NotDurableError(FeducbError):
    """Nothing of the request happened: it could not be put on disk. Send it again."""


class GroupCommit:
    """Runs calls on the agent, many in one transaction, one transaction at a time.

    Guarantees:
        A call's result is handed out after the commit it was part of is on disk. If that fails, none of its
        calls happened, and each of them hears so.

    Attributes:
        failing: why the last commit failed; None if it did not.
    """

    def __init__(self, reopen: Callable[[], Agent]) -> None:
        self._reopen = reopen
        self._agent = reopen()
        self._tried_at = 0.0
        self._together: Waiting = []
        self._apart: Waiting = []
        self._wake, self._idle, self._closing = asyncio.Event(), asyncio.Event(), False
        self._idle.set()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._task = asyncio.get_running_loop().create_task(self._run())
        self.failing: str | None = None

    async def __call__(self, work: Callable[[Agent], Result]) -> Result:
        """Run ``work`` within the next commit."""
        result: Result = await self._enqueue(self._together, work)
        return result

    async def apart(self, work: Callable[[Agent], Result]) -> Result:
        """Run ``work``, which commits by itself, in the other thread, between two commits."""
        result: Result = await self._enqueue(self._apart, work)
        return result

    async def close(self) -> None:
        """Commit what waits, and give the file back."""
        self._closing = True
        while self._together or self._apart:
            await asyncio.sleep(0.01)
        await self._idle.wait()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._disk.shutdown()
        self._agent.close()

    def _enqueue(self, queue: Waiting, work: Work) -> asyncio.Future[Any]:
        if self._closing:
            raise NotDurableError("the service is stopping; send it again")
        done = asyncio.get_running_loop().create_future()
        queue.append((work, done))
        self._wake.set()
        return done

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._idle.clear()
            while self._together or self._apart:
                if self._together:
                    together, self._together = self._together, []
                    self._hand_out(together, await self._commit([work for work, _ in together]))
                if self._apart:
                    apart, self._apart = self._apart, []
                    for work, done in apart:
                        self._hand_out([(work, done)], [await self._on_disk(partial(self._by_itself, work))])
            self._idle.set()

    async def _commit(self, works: list[Work]) -> list[Any]:
        results: list[Any] = []
        try:
            agent = self._ready()
            transaction = agent.writing()
            transaction.__enter__()
        except Exception as error:
            return self._failed(error, len(works))
        try:
            for work in works:
                try:
                    results.append(work(agent))
                except _REFUSALS as error:
                    results.append(error.with_traceback(None))  # which would hold on to the transaction
        except Exception as error:
            with suppress(Exception):  # rolls back, and says again what went wrong
                transaction.__exit__(type(error), error, error.__traceback__)
            return self._failed(error, len(works))
        failure = await self._on_disk(lambda: transaction.__exit__(None, None, None))
        if isinstance(failure, Exception):
            return self._failed(failure, len(works))
        self.failing = None
        return results

    async def _on_disk(self, work: Callable[[], Any]) -> Any:
        """Run in the other thread, which has the agent to itself; its result, or its exception as one."""
        store = self._agent.store

        def there() -> Any:
            store.take_over()
            try:
                return work()
            except Exception as error:
                return error

        try:
            return await asyncio.get_running_loop().run_in_executor(self._disk, there)
        finally:
            self._agent.store.take_over()

    def _by_itself(self, work: Work) -> Any:
        return work(self._ready())

    def _ready(self) -> Agent:
        """The agent; opened anew if its file had to be given up, at most once a second."""
        if self._agent.store.closed:
            if time.monotonic() - self._tried_at < _AGAIN_SECONDS:
                raise StoreError("the agent's file is closed")
            self._tried_at = time.monotonic()
            self._agent = self._reopen()
        return self._agent

    def _failed(self, error: Exception, calls: int) -> list[Any]:
        self.failing = f"{type(error).__name__}: {error}"
        log_failure("commit_failed", self.failing, error)
        return [NotDurableError("could not be put on disk; send it again")] * calls

    @staticmethod
    def _hand_out(waiting: Waiting, results: list[Any]) -> None:
        for (_, done), result in zip(waiting, results, strict=True):
            if done.done():  # the caller has gone
                continue
            if isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)
