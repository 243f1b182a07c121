"""A keeper as a process of its own, or beside an agent in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from feducb.agent.agent_file import AgentFile, read_agent_file
from feducb.carriers.controller_process import JsonLog, Renewal, keep_status, run_until_stopped
from feducb.carriers.nats.link_status import EngineStatus, Log
from feducb.controller.controller_file import read_toml, season_after, status_path
from feducb.controller.controller_health import judge_keeper
from feducb.controller.keeper_file import KeeperSettings
from feducb.errors import FeducbError
from feducb.privacy.terms import Terms
from feducb.protocol.engine_table import NatsSettings, require_keys, require_text
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.signed_roster import stamp
from feducb.storage.keeper_book import KeeperBook

__all__ = ["beside", "serve", "settings_beside"]

_log = logging.getLogger("feducb.service")


def serve(settings: KeeperSettings, *, log: JsonLog | None = None) -> None:
    """Run until SIGTERM or SIGINT. Killed at any point, it goes on from its file."""
    log = log or JsonLog()
    book = settings.open()
    try:
        log("started", keeper=book.duty.keeper, season=book.season, pid=os.getpid())
        run_until_stopped(_work(settings, book, log), log)
    finally:
        book.close()
        log("stopped")


def _work(settings: KeeperSettings, book: KeeperBook, log: Log) -> Coroutine[Any, Any, None]:
    """What a keeper does, until cancelled; wrong settings are said before it begins."""
    from feducb.carriers.nats import NatsKeeper

    link = NatsKeeper(settings.engine, book, log=log)

    def beside() -> object:
        return book.season, stamp(settings.engine.roster)

    renewal = Renewal(settings.path, lambda path: _renew(path, book), log, beside=beside)
    book.renewal = partial(_renew_for, settings.path, book, log)
    return keep_status(status_path(settings), lambda: _facts(book, link.status), link.run, renewal)


def _renew(path: Path, book: KeeperBook) -> None:
    """Give a keeper what its own file, or its agent's, says for the open season and those after it."""
    later, now = (_read(path, one) for one in (season_after(book.season, book.calendar), book.season))
    book.take_late(now.roster, now.terms)
    book.renew(later.roster, later.terms, Signer(later.engine.seed))


def _renew_for(path: Path | None, book: KeeperBook, log: Log, season: int) -> None:
    """The same for a season that is about to be opened; what is wrong is said, and it goes on as before."""
    try:
        if path is not None:
            settings = _read(path, season)
            book.renew(settings.roster, settings.terms, Signer(settings.engine.seed))
    except (FeducbError, OSError) as error:
        log("settings_refused", reason=str(error))


def _read(path: Path, season: int) -> KeeperSettings:
    if "version" in read_toml(path):  # an agent's
        return settings_beside(read_agent_file(path, season=season), season=season)
    return KeeperSettings.read(path, season=season)


def _facts(book: KeeperBook, status: EngineStatus) -> dict[str, Any]:
    said = {
        "at": time.time(),
        "pid": os.getpid(),
        "connected": status.connected,
        **book.facts(),
        "evidence": [proof.hex() for proof in book.evidence()],  # `two_lists.TwoLists` reads them
        "sent": status.sent,
        "last_receipt_at": status.last_receipt_at,
        "refused_by_controller": dict(status.refused),
        "last_refusal": status.last_refusal or None,
        "last_refusal_at": status.last_refusal_at,
        "failures": status.failures,
        "unanswered": status.unanswered,
        "errors": dict(status.errors),
        "last_error": status.last_error,
    }
    return said | {"trouble": judge_keeper(said)}


def settings_beside(file: AgentFile, *, season: int | None = None) -> KeeperSettings:
    """What the ``[keeper]`` table of an agent's file says; for a season, or the keeper's open one."""
    assert file.keeper is not None
    require_keys("keeper", file.keeper, needed=("state", "seed"), known=("season",))
    calendar = None if file.agent.start is None else file.agent.common_calendar
    base = file.path.parent
    engine = NatsSettings.from_table(file.engine, base=base)
    seed = base / require_text("keeper.seed", file.keeper["seed"])
    engine = replace(engine, agent=engine.agent or file.agent.name, seed=seed)

    def terms(number: int, roster: Roster) -> Terms:
        return file.of_season(number, version=roster.version).agent.terms

    settings = KeeperSettings.of(file.keeper, engine, terms, base, calendar, season=season)
    return replace(settings, path=file.path)


@contextmanager
def beside(file: AgentFile) -> Iterator[None]:
    """Keep pads for as long as the block lasts, as the agent's file says.

    In a thread of its own, since an answer for many agents takes a while and decisions should not wait. It
    has its own file and its own connection.
    """
    settings = settings_beside(file)
    with closing(settings.open()) as book, closing(asyncio.new_event_loop()) as loop:
        work = loop.create_task(_work(settings, book, _tell))

        def keep() -> None:
            book.take_over()
            try:
                loop.run_until_complete(work)
            except asyncio.CancelledError:
                pass
            except Exception as error:  # decisions go on
                _tell("failed", error=str(error))

        thread = threading.Thread(target=keep, name="keeper", daemon=True)
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(work.cancel)
            thread.join()
            book.take_over()


def _tell(event: str, **facts: object) -> None:
    """The keeper's word in the service's log: all but one are trouble."""
    _log.log(logging.INFO if event == "connected" else logging.WARNING, f"keeper_{event}", extra=facts)
