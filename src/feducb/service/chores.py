"""What a running service does on its own: close windows, release by the clock."""

from __future__ import annotations

import asyncio
import logging

from feducb.agent.warning import HALTED
from feducb.service.commits import GroupCommit
from feducb.service.json_logs import log_failure
from feducb.service.running_mailbox import ServiceMailbox

__all__ = ["keep_up"]

_TICK_SECONDS = 0.2
log = logging.getLogger("feducb.service")


async def keep_up(commit: GroupCommit, mailbox: ServiceMailbox, *, alone: bool) -> None:
    """Tick for ever; requests go first, and an error is logged once and tried again.

    Args:
        commit: holds the agent.
        mailbox: rung when there is something to send.
        alone: no engine will come: the agent's own releases are its sums, if it is the only one.
    """
    failing, warned, closed = None, set[str](), False
    while True:
        await asyncio.sleep(_TICK_SECONDS)
        try:
            while await commit.apart(lambda agent: agent.settle_some()):
                pass
            made, warnings, now_closed = await commit.apart(
                lambda agent: (agent.tick(alone=alone), agent.warnings, agent.closed)
            )
        except Exception as error:
            if failing != str(error):
                failing = str(error)
                log_failure("upkeep_failed", failing, error)
            continue
        failing = None
        for kind in warnings.keys() - warned:
            event = "halted" if kind == HALTED else "setting_does_not_fit"
            log.warning(event, extra={"setting": kind, "reason": warnings[kind]})
        warned = set(warnings)
        if now_closed and not closed:
            log.info("closed", extra={"reason": "own records are read from now on, and nothing leaves"})
        closed = now_closed
        if made:
            mailbox.ring()
            facts = await commit(lambda agent: agent.snapshot())
            names = ("season", "releases_made", "releases_left")
            log.info("released", extra={name: facts[name] for name in names})
            if facts["releases_left"] == 0 and facts["own"] is not None and not closed:
                log.info("waiting", extra={"reason": facts["own"]["says"]})
            if facts["releases_left"] == 0 and facts["own"] is None:
                reason = "nothing is learnt until `feducb agent new-season`"
                log.warning("season_over", extra={"reason": reason})
