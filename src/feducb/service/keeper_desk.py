"""A keeper that answers at an agent's door; its file has a thread of its own, so no decision waits for it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from feducb.errors import RefusedError, StoreError
from feducb.service.commits import NotDurableError
from feducb.service.json_logs import log_failure
from feducb.storage.keeper_book import KeeperBook

__all__ = ["KeeperDesk"]

_LOOK_SECONDS = 0.5


class KeeperDesk:
    """A keeper's file, open for as long as the service runs.

    Attributes:
        card: its key of the season, signed; another one with the next.
    """

    def __init__(self, open_book: Callable[[], KeeperBook]) -> None:
        self._open = open_book
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="keeper")
        self._book = self._thread.submit(open_book).result()
        self.card = self._thread.submit(self._book.card).result()

    async def follow_the_clock(self) -> None:
        """For ever: open the next season when it is time to, with another key."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                self.card = await asyncio.get_running_loop().run_in_executor(self._thread, self._roll)
            except (sqlite3.Error, StoreError, OSError) as error:
                log_failure("keeper_failed", str(error), error)

    def _roll(self) -> bytes:
        if self._book.closed:
            self._book = self._open()
        self._book.roll(now=time.time())
        return self._book.card()

    async def answer(self, data: bytes) -> bytes:
        """The answer to the controller's list, on disk before this returns; or `RefusedError`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, data)

    def close(self) -> None:
        """Give the file back, once what was asked is answered."""
        self._thread.submit(self._book.close).result()
        self._thread.shutdown()

    def _answer(self, data: bytes) -> bytes:
        try:
            if self._book.closed:  # it had to be given up, as after a disk that was full
                self._book = self._open()
            return self._book.answer(data)
        except RefusedError as error:
            log_failure("list_refused", str(error), error)
            raise
        except (sqlite3.Error, StoreError, OSError) as error:
            log_failure("keeper_failed", str(error), error)
            raise NotDurableError("the keeper's answer could not be put on disk; send it again") from None
