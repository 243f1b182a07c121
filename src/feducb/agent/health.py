"""What is wrong with an agent: the one list, over its view (`agent.view`) and what is beside its file.

Beside it: ``running``, ``disk`` (why nothing can be written), ``misfit`` (`kept.misfit`), ``engine`` and
``keeper``. What the file itself warns of is in words already, as ``warnings`` (`agent.warning`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from feducb.agent.season_roll import is_within
from feducb.protocol import engine_health, trouble
from feducb.protocol.calendar import LINGER
from feducb.protocol.trouble import DOUBTFUL, WRONG, Condition, Facts, Plain, Severity, moment
from feducb.system import counted

__all__ = ["AGENT", "says_disk", "with_trouble"]

_LEAST, _MOST, _SHARE = 10.0, 900.0, 0.02  # seconds of patience, at least and at most; of the season
_CLOCK_SHARE = 0.1  # of the patience
_NEARLY = 0.9  # of the year's limit


def with_trouble(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts, with what is wrong by them as ``trouble``, which has the file's warnings in it."""
    rest = {name: value for name, value in facts.items() if name not in ("warnings", "disk", "misfit")}
    return rest | {"trouble": trouble.find(AGENT, facts)}


def says_disk(why: str) -> Plain:
    """Where nothing else is known of an agent, since its file could not be read."""
    return trouble.find([_DISK], {"disk": why})[0]


def _patience(facts: Facts) -> float:
    """Seconds for which something may be late: a fiftieth of the season, but 10 s to 15 min."""
    season = float(facts["season_ends_at"] - facts["started_at"])
    return min(max(_SHARE * season, _LEAST), _MOST)


def _is_late(facts: Facts, since: float) -> bool:
    return bool(facts["at"] - since > _patience(facts))


def _warned(kind: str, severity: Severity = DOUBTFUL, *, before: str = "") -> Condition:
    """What the file itself warns of, as a sentence."""

    def sentence(facts: Facts) -> str | None:
        said = (facts.get("warnings") or {}).get(kind)
        return None if said is None else f"{before}{said if before else said[0].upper() + said[1:]}."

    return Condition(kind, severity, sentence)


def _disk(facts: Facts) -> str | None:
    why = facts.get("disk")
    return f"Nothing can be written to disk, so that no decision is made: {why}." if why else None


def _misfit(facts: Facts) -> str | None:
    why = facts.get("misfit")
    return (
        f"Its configuration was edited for another season, and waits for the next one: {why}."
        if why
        else None
    )


def _season_over(facts: Facts) -> str | None:
    ends, own = facts["season_ends_at"], facts.get("own") or {}
    lingers = LINGER * (ends - facts["started_at"])  # for the last sum
    if facts["at"] < ends + lingers or own.get("phase") in (
        "closed",
        "alone",
    ):  # it goes on learning by itself
        return None
    return (
        f"Season {facts['season']} has been over since {moment(ends)}, and nothing is learnt any more: no "
        "agent runs that would open the next, or it may not (its log says why); `feducb agent new-season`."
    )


def _never_reads(facts: Facts) -> str | None:
    if facts["reads"]:
        return None
    return (
        "No sum of this season will be worth reading, so that all choices are drawn uniformly to its end: "
        "noise is too large for so few decisions. More agents, decisions, epsilon or trust change that "
        "(`feducb privacy plan`)."
    )


def _restored(facts: Facts) -> str | None:
    if not facts.get("restored"):
        return None
    went_on = f"Season {facts['season']} may have gone on in the file that was lost after this one's backup: "
    if facts.get("own"):
        return (
            f"{went_on}nothing more of it leaves. Decisions go by the sums of the others, and by own records "
            "too once all have closed."
        )
    return (
        f"{went_on}until it ends at {moment(facts['season_ends_at'])} nothing more of it leaves, and "
        "decisions go by the sums of the others."
    )


def _not_in_roster(facts: Facts) -> str | None:
    joins = facts.get("joins")
    if not joins or joins["season"] is not None:
        return None
    return (
        f"This agent is not in the roster of season {facts['season']}, nor in a later one that is known "
        "here: nothing leaves it. `feducb keys add` lets it in again."
    )


def _late_release(facts: Facts) -> str | None:
    due = facts["next_due_at"]
    if due is None or facts.get("joins") or not _is_late(facts, due):
        return None
    return f"A release was due at {moment(due)} and is not made."


def _outbox(facts: Facts) -> str | None:
    since = facts["oldest_unsent_at"]
    if facts["agents"] == 1 or since is None or facts.get("joins") or not _is_late(facts, since):
        return None
    waits = f"{counted(facts['outbox'], 'message')} wait{'s' if facts['outbox'] == 1 else ''} to be sent"
    return f"{waits}, the oldest since {moment(since)}."


def _no_sum(facts: Facts) -> str | None:
    awaited = facts["awaited"]
    if awaited is None or not _is_late(facts, awaited["sent_at"]):
        return None
    quorum = f"{facts['quorum']} of {facts['team']} agents"
    return (
        f"Message {awaited['number']} arrived at {moment(awaited['sent_at'])}, and no sum of it has come: "
        f"it needs {quorum}. The controller's page says who is missing."
    )


def _members(facts: Facts) -> Sequence[str]:
    """Who is in the newest sum of the open season; one of the season before is by that one's roster."""
    engine = facts.get("engine") or {}
    season, _ = engine.get("newest") or (None, None)
    return engine.get("members") or () if season == facts["season"] else ()


def _not_in_sum(facts: Facts) -> str | None:
    members = _members(facts)
    if not members or facts["name"] in members or facts.get("restored") or facts.get("joins"):
        return None  # these two say why
    return "This agent is not in the newest sum: what it sent came too late, or not at all."


def _others_missing(facts: Facts) -> str | None:
    members = _members(facts)
    if not members or len(members) >= facts["team"]:
        return None
    there = f"{len(members)} of {facts['team']} agents"
    return f"The newest sum has {there} in it: the others were late, or are away."


def _clock(facts: Facts) -> str | None:
    starts = facts["started_at"]
    if starts - facts["at"] > _patience(facts) and facts["opened_at"] >= starts:  # not opened ahead of time
        return (
            f"Season {facts['season']} was opened once it had begun, at {moment(starts)}, which lies ahead "
            "by this machine's clock: it has been set back, and nothing is due by it. Set it right."
        )
    off = (facts.get("engine") or {}).get("clock_off")
    if off is None or abs(off) <= _CLOCK_SHARE * _patience(facts):
        return None
    way = "ahead of" if off > 0 else "behind"
    return (
        f"This machine's clock is {abs(off):,.0f} s or more {way} the controller's, and releases and windows "
        "go by it: set one of the two right."
    )


def _year(facts: Facts) -> str | None:
    spent = facts.get("all_seasons")
    most = (spent or {}).get("most_epsilon")
    if not spent or most is None or not spent["seasons"]:
        return None
    said = (
        f"Of all seasons' budget of ε = {most:.4g}, ε = {spent['epsilon']:.4g} is spent by whoever was there "
        "in every season: "
    )
    if not is_within(spent["epsilon_with_next"], most):
        following = "another one in the roster" if facts.get("joins") else "the next one"
        return f"{said}{following} would make it {spent['epsilon_with_next']:.4g}, and so does not open."
    return f"{said}no season opens beyond it." if spent["epsilon"] >= _NEARLY * most else None


_DISK: Final = Condition("disk", WRONG, _disk)
AGENT: Final = (
    engine_health.STOPPED,
    engine_health.HANGS,
    _DISK,
    Condition("misfit", DOUBTFUL, _misfit),
    _warned("halted", WRONG, before="This agent has halted: "),
    engine_health.KEEPER_HALTED,
    engine_health.SECOND_LIST,
    Condition("season_over", WRONG, _season_over),
    Condition("never_reads", WRONG, _never_reads),
    Condition("not_in_roster", WRONG, _not_in_roster),
    Condition("late_release", WRONG, _late_release),
    engine_health.BROKER,
    engine_health.REFUSED,
    engine_health.NEIGHBOURS,
    engine_health.SUM_REFUSED,
    engine_health.UNANSWERED,
    engine_health.ROW_WAITS,
    Condition("outbox", WRONG, _outbox),
    Condition("no_sum", WRONG, _no_sum),
    Condition("not_in_sum", WRONG, _not_in_sum),
    Condition("clock", WRONG, _clock),
    Condition("restored", DOUBTFUL, _restored),
    Condition("others_missing", DOUBTFUL, _others_missing),
    Condition("year", DOUBTFUL, _year),
    _warned("changed"),
    _warned("keep_events"),
    _warned("last_sum"),
    _warned("parameter_bound"),
    _warned("reward_bound"),
)
