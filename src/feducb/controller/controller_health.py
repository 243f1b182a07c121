"""What is wrong with a controller or a keeper: the list of each, over what they say about themselves.

Besides what a controller's status has (`carriers.controller_process`): ``agents``, all by name; ``running``,
and ``seconds_ago``, when it said so, where somebody looked; and ``at``, when.
"""

from __future__ import annotations

import math
from typing import Any, Final

from feducb.protocol import engine_health, trouble
from feducb.protocol.calendar import LINGER
from feducb.protocol.trouble import DOUBTFUL, WRONG, Condition, Facts, moment, some_of

__all__ = ["CONTROLLER", "judge_controller", "judge_keeper"]

_PATIENCE = 300.0  # seconds for which a sum may wait for agents, beyond its deadline
_SILENCE = 900.0  # for which an agent may say nothing: it asks for news twice a minute, unless told otherwise
_ANSWERING = 10.0  # in which rows come in and keepers answer
_TOGETHER = 60.0  # within which messages of one number come, if all clocks are right


def judge_controller(facts: Facts) -> list[trouble.Plain]:
    """What is wrong with a controller."""
    return trouble.find(CONTROLLER, facts)


def judge_keeper(facts: dict[str, Any]) -> list[trouble.Plain]:
    """What is wrong with a keeper, whose status has its book's facts and its link's side by side."""
    refusal = ("last_refusal", "last_refusal_at", "last_receipt_at")
    link = {name: facts.get(name) for name in (*refusal, "connected", "failures", "last_error")}
    link["unanswered"] = facts.get("unanswered", 0)
    return trouble.find(engine_health.KEEPER, facts | {"keeper": facts, "engine": link})


def _broker(facts: Facts) -> str | None:
    if facts.get("connected", True) or not facts.get("failures", 1):  # none yet: it has just started
        return None
    return f"The broker is not reached. {facts.get('last_error') or ''}".strip()


def _season_over(facts: Facts) -> str | None:
    ends = facts.get("season_ends_at")
    if ends is None:
        return None
    lingers = LINGER * (ends - facts["season_started_at"])  # for the last sum
    if facts["at"] < ends + lingers + _PATIENCE:
        return None
    return f"Season {facts['season']} has been over since {moment(ends)}, and no other is open."


def _no_sum(facts: Facts) -> str | None:
    """Whether a season passed without one; where there never was any, one that it saw from its start."""
    starts, ends = facts.get("season_started_at"), facts.get("season_ends_at")
    if starts is None or ends is None:
        return None
    season, (newest, _) = facts["season"], facts.get("newest_sum") or (None, None)
    if newest is None and facts["watches_since"] > starts - (ends - starts):
        return None
    if newest is not None and newest >= season - 1:
        return None
    known = "there is none at all" if newest is None else f"the newest is of season {newest}"
    return f"A whole season passed without a sum: {known}, and season {season} is open."


def _quorum(facts: Facts) -> str | None:
    waits = facts.get("waits")
    if not waits or facts["at"] - waits["since"] <= _PATIENCE + (facts.get("deadline") or 0.0):
        return None
    missing = [name for name in facts["agents"] if name not in waits["here"]]
    here, needs = f"{len(waits['here'])} of {len(facts['agents'])} agents", facts.get("quorum")
    return (
        f"Sum {waits['number']} has waited since {moment(waits['since'])}: it has {here} and needs "
        f"{needs if facts.get('deadline') is not None else 'all of them'}. Missing: {some_of(missing)}."
    )


def _row_waits(facts: Facts) -> str | None:
    rows = facts.get("rows") or {}
    since = rows.get("since")
    if since is not None and facts["at"] - since < _ANSWERING:
        return None
    return rows.get("waiting") or None


def _missing(facts: Facts) -> str | None:
    season, _ = facts.get("newest_sum") or (None, None)
    if season != facts.get("season"):  # of the season before: that had another roster, maybe
        return None
    missing = [name for name in facts["agents"] if name not in (facts.get("agents_in_it") or ())]
    return f"The newest sum lacks {some_of(missing)}." if missing else None


def _late(facts: Facts) -> str | None:
    arrivals = facts.get("arrivals") or {}
    first = min(arrivals.values(), default=0.0)
    late = {name: at - first for name, at in arrivals.items() if at - first > _TOGETHER}
    if not late:
        return None
    by = [f"{name} ({wait:,.0f} s)" for name, wait in sorted(late.items())]
    return (
        f"For the newest sum, messages came long after the first: {some_of(by)}. All release by one clock: "
        "theirs is behind, or they were away."
    )


def _silent(facts: Facts) -> str | None:
    seen = facts.get("last_seen") or {}
    since = max(facts.get("watches_since") or facts["at"], facts.get("season_started_at") or 0.0)
    silent = [name for name in facts["agents"] if facts["at"] - seen.get(name, since) > _SILENCE]
    return f"Not heard of for a quarter of an hour: {some_of(silent)}." if silent else None


def _refused(facts: Facts) -> str | None:
    stored = facts.get("last_stored") or {}
    refused = {
        name: one["text"]
        for name, one in (facts.get("last_refusals") or {}).items()
        if name in facts["agents"] and one.get("at", math.inf) > stored.get(name, 0.0)
    }
    if not refused:
        return None
    return f"Messages are refused. {some_of([f'{name}: {why}' for name, why in sorted(refused.items())])}"


CONTROLLER: Final = (
    engine_health.STOPPED,
    engine_health.HANGS,
    Condition("broker", WRONG, _broker),
    Condition("season_over", WRONG, _season_over),
    Condition("no_sum", WRONG, _no_sum),
    Condition("quorum", WRONG, _quorum),
    Condition("row_waits", WRONG, _row_waits),
    Condition("refused", WRONG, _refused),
    Condition("missing", DOUBTFUL, _missing),
    Condition("late", DOUBTFUL, _late),
    Condition("silent", DOUBTFUL, _silent),
)
