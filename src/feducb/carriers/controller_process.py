"""A controller as a process: how it starts, logs, reports and ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import IO, Any

from feducb.controller.collector import Collector
from feducb.controller.controller_file import ControllerSettings, status_path, write_status
from feducb.system import optional, quieten_asyncio

__all__ = ["JsonLog", "serve"]

_STATUS_EVERY = 2.0  # seconds


class JsonLog:
    """One JSON object a line: when, what happened, public facts. Payloads are never in it."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream or sys.stderr

    def __call__(self, event: str, **facts: object) -> None:
        """Write a line; a log that cannot be written does not stop the controller."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")  # as agents write it
        line = json.dumps({"at": at, "event": event, **facts})
        with suppress(OSError):
            print(line, file=self._stream, flush=True)


class _LibraryLog(logging.Handler):
    """What asyncio and nats-py complain about, as lines of the same log."""

    def __init__(self, log: JsonLog) -> None:
        super().__init__(logging.ERROR)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as one line of the log."""
        self._log("library", logger=record.name, text=record.getMessage()[:500])


def serve(settings: ControllerSettings, *, log: JsonLog | None = None) -> None:
    """Run until SIGTERM or SIGINT. Killed at any point, it goes on from its file."""
    with optional("a controller", "nats"):
        import uvloop
    log = log or JsonLog()
    collector = settings.open()
    quieten_asyncio()
    logging.basicConfig(handlers=[_LibraryLog(log)], level=logging.ERROR)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, collector, log))
    finally:
        collector.close()
        log("stopped")


async def _serve(settings: ControllerSettings, collector: Collector, log: JsonLog) -> None:
    from feducb.carriers.nats import NatsController

    link, path = NatsController(settings.engine, collector, log=log), status_path(settings)
    log("started", season=collector.season, agents=len(settings.terms), pid=os.getpid())
    work = asyncio.create_task(link.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)

    def facts() -> dict[str, Any]:
        return {
            "at": time.time(),
            "pid": os.getpid(),
            "connected": link.status.connected,
            "season": collector.season,
            "newest_sum": link.status.newest,
            "agents_in_it": link.status.members,
            "newest_message": collector.progress(),
            "last_seen": collector.last_received() | link.heard,
            "newest_sum_at": collector.last_published(),
            "refused": link.refusals.as_dict(),
            "last_refusals": link.last_refusals,
            "errors": dict(link.status.errors),
            "last_error": link.status.last_error,
        }

    async def report() -> None:
        while True:
            write_status(path, facts())
            await asyncio.sleep(_STATUS_EVERY)

    reports = asyncio.create_task(report())
    try:
        await work
    except asyncio.CancelledError:
        log("stopping")
    finally:
        reports.cancel()
        write_status(path, facts())
