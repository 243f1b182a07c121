"""A controller or a keeper as a process: how it starts, logs, reports and ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from feducb.carriers.nats.link_status import Log
from feducb.controller.collector import Collector
from feducb.controller.controller_file import ControllerSettings, season_after, status_path, write_status
from feducb.controller.controller_health import judge_controller
from feducb.errors import FeducbError
from feducb.protocol.calendar import Calendar
from feducb.protocol.signed_roster import stamp
from feducb.protocol.trouble import News
from feducb.storage import RowBook
from feducb.system import optional, quieten_asyncio

__all__ = ["InForce", "JsonLog", "Renewal", "keep_status", "run_until_stopped", "season_times", "serve"]

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
    log = log or JsonLog()
    collector = settings.open()
    try:
        run_until_stopped(_serve(settings, collector, log), log)
    finally:
        collector.close()
        log("stopped")


def run_until_stopped(work: Coroutine[Any, Any, None], log: JsonLog) -> None:
    """Run until SIGTERM or SIGINT; what libraries complain about goes into the log."""
    with optional("a controller or a keeper", "nats"):
        import uvloop
    quieten_asyncio()
    logging.basicConfig(handlers=[_LibraryLog(log)], level=logging.ERROR)

    async def until_told() -> None:
        task = asyncio.create_task(work)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with suppress(asyncio.CancelledError):
            await task
            return
        log("stopping")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_told())


class Renewal:
    """A file of settings that is read again when it was edited: what it says then is for the next season."""

    def __init__(
        self, path: Path | None, read: Callable[[Path], None], log: Log, *, beside: Callable[[], object]
    ) -> None:
        """Args: ``beside`` is another one whenever a roster came or the season is another one."""
        self._path, self._read, self._beside, self.log = path, read, beside, log
        self._seen: tuple[tuple[int, int], object] = (self._stamp(), None)

    def look(self) -> None:
        """Read it if it was edited; what is wrong with it is said once."""
        if self._path is None or (seen := (self._stamp(), self._beside())) == self._seen:
            return
        edited, self._seen = seen[0] != self._seen[0], seen
        try:
            self._read(self._path)
        except (FeducbError, OSError) as error:
            self.log("settings_refused", reason=str(error))
        else:
            if edited:
                self.log("settings_taken", reason="they hold from the next season on")

    def _stamp(self) -> tuple[int, int]:
        with suppress(OSError):
            if self._path is not None:
                found = self._path.stat()
                return found.st_mtime_ns, found.st_size
        return 0, 0


async def keep_status(
    path: Path, facts: Callable[[], dict[str, Any]], work: Callable[[], Awaitable[None]], renewal: Renewal
) -> None:
    """Await work, and say meanwhile in a small file how it goes; what is wrong is also logged, once.

    Settings are looked at again.
    """
    log = renewal.log
    news = News()

    async def report() -> None:
        while True:
            said = facts()
            write_status(path, said)
            came, over = news.since(said["trouble"])
            for one in came:
                log("trouble", kind=one["kind"], severity=one["severity"], reason=one["says"])
            for one in over:
                log("trouble_over", kind=one["kind"])
            renewal.look()
            await asyncio.sleep(_STATUS_EVERY)

    reports = asyncio.create_task(report())
    try:
        await work()
    finally:
        reports.cancel()
        write_status(path, facts())


class InForce:
    """Which version of its file a controller goes by: one that is read in a season holds from the next on."""

    def __init__(self, settings: ControllerSettings, season: int) -> None:
        self._versions = [(season, settings)]

    def take(self, settings: ControllerSettings, season: int) -> None:
        """These hold from a season on, unless others are taken for it."""
        self._versions = [*(one for one in self._versions if one[0] < season), (season, settings)]

    def at(self, season: int) -> ControllerSettings:
        """What holds in a season; nothing earlier is asked for any more."""
        held = [one for one in self._versions if one[0] <= season][-1]
        self._versions = [held, *(one for one in self._versions if one[0] > season)]
        return held[1]


def season_times(calendar: Calendar | None, season: int, began: float) -> dict[str, float]:
    """Of the open season, and since when agents could have come: not before the first season's start."""
    if calendar is None:
        return {"watches_since": began}
    return {
        "watches_since": max(began, calendar.start),
        "season_started_at": calendar.starts(season),
        "season_ends_at": calendar.ends(season),
    }


async def _serve(settings: ControllerSettings, collector: Collector | RowBook, log: JsonLog) -> None:
    from feducb.carriers.nats import NatsController

    link = NatsController(settings.engine, collector, log=log)
    log("started", season=collector.season, agents=len(settings.terms), pid=os.getpid())

    versions = InForce(settings, collector.season)
    began = time.time()

    def facts() -> dict[str, Any]:
        held = versions.at(collector.season)
        said = {
            "at": time.time(),
            "pid": os.getpid(),
            "connected": link.status.connected,
            "season": collector.season,
            **season_times(settings.calendar, collector.season, began),
            "agents": list(held.terms),
            "quorum": held.quorum or len(held.terms),
            "deadline": held.deadline,
            "newest_sum": link.status.newest,
            "agents_in_it": link.status.members,
            "newest_message": collector.progress(),
            "last_seen": collector.last_received() | link.heard,
            "last_stored": collector.last_received(),
            "arrivals": collector.arrivals(),
            "waits": collector.waits(),
            "sums": collector.sums(),
            "refused": link.refusals.as_dict(),
            "last_refusals": link.last_refusals,
            "failures": link.status.failures,
            "errors": dict(link.status.errors),
            "last_error": link.status.last_error,
            "rows": collector.facts() if isinstance(collector, RowBook) else None,
        }
        return said | {"trouble": judge_controller(said)}

    def renew(path: Path, season: int | None = None) -> None:
        later = season or season_after(collector.season, settings.calendar)
        following = ControllerSettings.read(path, season=later)
        following.renew(collector)
        versions.take(following, later)

    def renew_for(season: int) -> None:
        """Before a season is opened: by what holds in it; what is wrong is said, and it goes on as before."""
        try:
            if settings.path is not None:
                renew(settings.path, season)
        except (FeducbError, OSError) as error:
            log("settings_refused", reason=str(error))

    def beside() -> object:
        return collector.season, stamp(settings.engine.roster)

    renewal = Renewal(settings.path, renew, log, beside=beside)
    if isinstance(collector, RowBook):
        collector.renewal = renew_for
    await keep_status(status_path(settings), facts, link.run, renewal)
