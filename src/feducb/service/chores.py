"""What a running service does on its own: close windows, release by the clock, say what is wrong."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from operator import methodcaller
from typing import Any

from feducb.errors import FeducbError
from feducb.protocol.trouble import WRONG, News
from feducb.service.commits import GroupCommit, NotDurableError
from feducb.service.gate import Service
from feducb.service.json_logs import log_failure
from feducb.service.running_mailbox import ServiceMailbox

__all__ = ["keep_up", "say_trouble"]

_TICK_SECONDS = 0.2
_TROUBLE_SECONDS = 1.0  # between looks at what is wrong
log = logging.getLogger("feducb.service")


async def keep_up(commit: GroupCommit, mailbox: ServiceMailbox, *, alone: bool) -> None:
    """Tick for ever; requests go first, and an error is logged once and tried again.

    Args:
        commit: holds the agent.
        mailbox: rung when there is something to send.
        alone: no engine will come: the agent's own releases are its sums, if it is the only one.
    """
    failing, closed, season, trouble = None, False, 0, ""
    while True:
        await asyncio.sleep(_TICK_SECONDS)
        try:
            while await commit.apart(lambda agent: agent.settle_some()):
                pass
            before = season
            made, now_closed, season, now_trouble = await commit.apart(
                lambda agent: (agent.tick(alone=alone), agent.closed, agent.store.season, agent.trouble)
            )
        except Exception as error:
            if failing != str(error):
                failing = str(error)
                log_failure("upkeep_failed", failing, error)
            continue
        failing = None
        if before and season != before:
            log.info("season", extra={"season": season})
            mailbox.begin()
        if now_trouble and now_trouble != trouble:
            log.warning("season_trouble", extra={"reason": now_trouble})
        trouble = now_trouble
        if now_closed and not closed:
            log.info("closed", extra={"reason": "own records are read from now on, and nothing leaves"})
        closed = now_closed
        if made:
            mailbox.ring()
            try:
                _say_released(await commit.apart(lambda agent: agent.snapshot()), closed=closed)
            except Exception as error:
                log_failure("upkeep_failed", str(error), error)


def _say_released(facts: dict[str, Any], *, closed: bool) -> None:
    """Write into the log that a release was made, and what follows upon the last."""
    names = ("season", "releases_made", "releases_left")
    log.info("released", extra={name: facts[name] for name in names})
    if facts["releases_left"] == 0 and facts["own"] is not None and not closed:
        log.info("waiting", extra={"reason": facts["own"]["says"]})
    if facts["releases_left"] == 0 and facts["own"] is None:
        log.info("last_release", extra={"reason": "the next season opens by the clock"})


async def say_trouble(service: Service) -> None:
    """Write into the log what is wrong, when it comes and when it is over; and note keys made or revoked."""
    news, keys = News(), None
    while True:
        await asyncio.sleep(_TROUBLE_SECONDS)
        try:
            changes = service.keys.changes()
            if changes is not None and changes != keys:
                await service.commit.apart(methodcaller("note_keys", changes))
                keys = changes
            facts = service.judge(await service.commit.apart(lambda agent: agent.snapshot()))
        except (NotDurableError, FeducbError, sqlite3.Error):  # said where it happened
            continue
        came, over = news.since(facts["trouble"])
        for one in came:
            level = logging.ERROR if one["severity"] == WRONG else logging.WARNING
            log.log(level, "trouble", extra={"kind": one["kind"], "reason": one["says"]})
        for one in over:
            log.info("trouble_over", extra={"kind": one["kind"]})
