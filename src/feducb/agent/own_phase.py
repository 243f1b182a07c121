"""Own play in an agent's file: until the close as ever, then by own records and the others' sum.

An agent closes once the moment of the last release has passed by the common clock, nothing of its season can
leave it any more, and the total of the last release is here: everybody's last batch is sealed then. Under
keepers that is so once the last row is over, whatever it told; a trusted controller says when it is so.
From then on the file has what own records came to when they were last read; what is decided by follows from
the file, so that an agent that was killed goes on as if it had not been.

Under ``trust = "self"`` nothing ever leaves, and there is nothing to wait for: own records are read from the
first on, once a public number of visitors was decided uniformly. What such an agent knows stays when its
season ends. If the next one shares, that is read after its close, and never enters a release.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from feducb.agent.kept import Season
from feducb.agent.remembered import Memory
from feducb.agent.settings import AgentSettings
from feducb.models.joint import Hearing, Others
from feducb.privacy.grid import FINE_BITS
from feducb.protocol.messages import GridSum
from feducb.storage import AgentStore, agent_tables, own_sums, row_counts
from feducb.storage.own_sums import OwnSums
from feducb.types import Belief

__all__ = [
    "PHASES",
    "begin",
    "has_shared",
    "is_over",
    "knows",
    "knows_alone",
    "note_refused",
    "note_sealed",
    "read_again",
    "read_held_out",
    "read_now",
    "view_own",
]

SHARING: Final = "sharing"
WAITING: Final = "waiting"
CLOSED: Final = "closed"
ALONE: Final = "alone"
PHASES: Final = (SHARING, WAITING, CLOSED, ALONE)


def begin(db: sqlite3.Connection, store: AgentStore, settings: AgentSettings, now: int) -> None:
    """What was learnt alone in earlier seasons is read at once where nothing leaves; else not before a close.

    Guarantees:
        Where the season shares, raw records of earlier ones decide nothing until everybody's last batch is
        sealed; under released play they are deleted, and so they are where earlier seasons are not to count
        whole.

    Args:
        db: the agent's file, within `writing`; its season has begun, and nothing happened in it yet.
        store: the same.
        settings: the new season's.
        now: in milliseconds since 1970.
    """
    if not settings.closes or not settings.remembers_own:
        own_sums.forget(db, "before")
    elif read_again(db, settings):
        read_now(db, store, now)


def has_shared(db: sqlite3.Connection, settings: AgentSettings) -> bool:
    """Whether own records are among those of the open season's sums, or to be."""
    return settings.play == "own" and own_sums.read(db, "shared") is not None


def is_over(store: AgentStore, settings: AgentSettings, newest: int, *, shares: bool = True) -> bool:
    """Whether everybody's last batch is sealed, this agent's too: it may close.

    Args:
        store: the agent's file.
        settings: the agent's.
        newest: the number of the newest sum that it has.
        shares: whether it is in sums; a newcomer before its first season has no batch, and a restored agent
            that must not send any none that is still to come.
    """
    shares = shares and not store.silent
    if settings.trust.padded:
        return store.next_label().row > settings.releases
    if settings.trust.raw:
        everybody = agent_tables.in_last_sum(store.database) == settings.agents
        return everybody and not (shares and store.uploads_made < settings.releases)
    return not (shares and store.releases_left) and newest >= settings.releases


def note_sealed(db: sqlite3.Connection, settings: AgentSettings, total: GridSum, sealed: int) -> None:
    """Remember what a trusted controller says about its newest release, within `writing`.

    Once all have all their batches in it no other comes; nor after the last number, whoever is in that.

    Args:
        db: the agent's file.
        settings: the agent's.
        total: the release, which is in use.
        sealed: how many have.
    """
    final = sealed >= settings.agents or total.number == settings.releases
    if settings.closes and settings.trust.raw and final:
        agent_tables.mark_last_sum(db, min(sealed, settings.agents))


def note_refused(db: sqlite3.Connection, settings: AgentSettings, season: int, total: GridSum) -> None:
    """Remember that the last sum is there and lacks agents: it is final, so that nobody closes.

    Args:
        db: the agent's file, within `writing`.
        settings: the agent's.
        season: the open one.
        total: a sum that was refused.
    """
    last = (total.season, total.number) == (season, settings.releases)
    if settings.closes and last and not settings.trust.joint and total.agents < settings.agents:
        agent_tables.mark_last_sum(db, total.agents)


_HEARS: Final = {
    Hearing.HEARD: "the others are heard",
    Hearing.IMPOSSIBLE: "the others are not heard: no records add up to the sum that they sent",
    Hearing.CONTRADICTED: "the others are not heard: your own records contradict what they sent",
    Hearing.NO_HELP: "the others are not heard: they tell no more than your own records do",
    Hearing.UNKNOWN: "the others are not heard: not all that you shared is in the last sum",
}


def read_now(db: sqlite3.Connection, store: AgentStore, now: int) -> None:
    """Read all own records there are, within `writing`; the first time, that is the close."""
    if own_sums.closed_at(db) is None:
        agent_tables.mark_close(db)
    own_sums.mark_read(db, own_sums.everything(db) or store.no_records, now)


def read_again(db: sqlite3.Connection, settings: AgentSettings) -> bool:
    """Whether the own phase has begun, as it always has under trust self, and enough own records are new."""
    before = own_sums.read(db, "read")
    if before is None and settings.trust.leaves:
        return False
    return settings.reads_own(0 if before is None else before.records, own_sums.count(db))


def knows(
    store: AgentStore, settings: AgentSettings, total: GridSum | None, memory: Memory
) -> tuple[Belief, Hearing] | None:
    """What the agent goes by in its own phase, and whether it hears the others; None before it.

    If not all that it shared is in the total with its whole weight, as where a row of its own did not open,
    or if there is no total, what is the others' cannot be told: then it goes by its own records alone.

    Args:
        store: the agent's file.
        settings: the agent's.
        total: the newest sum.
        memory: what is remembered of earlier seasons: others' sums, as far as this agent can tell.
    """
    db = store.database
    seen = own_sums.read(db, "read")
    if seen is None:
        return None
    own = store.read_own(seen)
    last = 1 if settings.trust.raw else settings.releases  # of a trusted controller, that it closed says it
    if total is None or total.number < last or not _is_whole(store):
        return settings.unheard(own), Hearing.UNKNOWN
    shared = own_sums.read(db, "shared") or store.no_records
    left = (total.values.astype(object) << FINE_BITS) - shared.values
    others = store.read_own(OwnSums(0, left))
    newest = total.read()
    blended, records, past = memory.with_others(replace(newest, gram=others.gram, moment=others.moment))
    bound = settings.joint_with(blended, records, past) if past else settings.joint_for(newest)
    belief, hearing = bound.weigh(own, Others.of(blended.gram, blended.moment))
    return belief, Hearing(int(hearing))


def knows_alone(store: AgentStore, settings: AgentSettings) -> Belief | None:
    """What visitors who are held out are decided by: own records alone; None before any was read.

    Under own play all of them; under released play those of visitors who were held out, and no others.
    """
    if not settings.holdout:
        return None
    own = settings.play == "own"
    seen = own_sums.read(store.database, "read" if own else "held_out_read")
    if seen is None:
        return None
    bound, sums = settings.alone if own else settings.held_out_rule.bound, store.read_own(seen)
    return bound.belief(sums.gram, sums.moment, np.zeros(()))


def read_held_out(db: sqlite3.Connection, settings: AgentSettings) -> bool:
    """Read what was held out, within `writing`, if enough is new; whether it was."""
    there, before = own_sums.read(db, "held_out"), own_sums.read(db, "held_out_read")
    if there is None:
        return False
    seen = 0 if before is None else before.records
    if not any(map(settings.held_out_rule.reads_at, range(seen + 1, there.records + 1))):
        return False
    own_sums.mark_held_out_read(db)
    return True


def _is_whole(store: AgentStore) -> bool:
    """Whether all that this agent shared is in the last total: sums are of all, but for rows that miss."""
    if not store.terms.trust.padded:
        return True
    if store.halted:
        return False
    nothing = own_sums.read(store.database, "shared") is None  # a newcomer, or who was away all the time
    return nothing or row_counts.whole_in_sum(store.database, store.season, store.terms.releases)


def view_own(db: sqlite3.Connection, season: Season, *, left: int) -> dict[str, Any] | None:
    """Where an agent under own play stands, for status and page; None under released play.

    Args:
        db: the agent's file.
        season: the open one.
        left: how many releases can still be made.

    Returns:
        ``phase``; ``shares_until`` and ``closed_at`` in seconds since 1970, the latter None before the close,
        the former under trust self;
        ``records``, how many own records there are, and ``shared``, how many of them entered sums;
        ``missing``, how many agents the last sum lacks, None while that is not known; ``hearing``, whether
        the others are heard, as `Hearing` names it, None before the close; ``says`` in words.
    """
    _, settings, started_at = season
    if settings.play == "released":
        return None
    if not settings.trust.leaves:
        return _view_alone(db, settings)
    closed, until = own_sums.closed_at(db), started_at + settings.release_times[-1]
    phase = CLOSED if closed is not None else SHARING if left else WAITING
    shared = own_sums.read(db, "shared")
    there = None if closed is not None else agent_tables.in_last_sum(db)
    missing = None if there in (None, settings.agents) else settings.agents - (there or 0)
    last = "last row to be over" if settings.trust.padded else f"last sum of all {settings.agents} agents"
    after = f"waiting for the {last}"
    if missing is not None:
        after += f"; {missing} {'is' if missing == 1 else 'are'} missing in the one that was published"
    hearing = agent_tables.hearing(db) if phase == CLOSED else None
    since = f"closed, on your own records since {_moment((closed or 0) / 1000.0)}"
    return {
        "phase": phase,
        "shares_until": until,
        "closed_at": None if closed is None else closed / 1000.0,
        "records": own_sums.count(db),
        "shared": 0 if shared is None else shared.records,
        "missing": missing,
        "hearing": None if hearing is None else Hearing(hearing).name.lower(),
        "says": {
            SHARING: f"sharing until {_moment(until)}",
            WAITING: after if settings.closes else "shared; shadow mode never closes",
            CLOSED: since if hearing is None else f"{since}; {_HEARS[Hearing(hearing)]}",
        }[phase],
    }


def _view_alone(db: sqlite3.Connection, settings: AgentSettings) -> dict[str, Any]:
    """`view_own` where nothing leaves."""
    since, records, first = own_sums.closed_at(db), own_sums.count(db), settings.waits_alone
    uniform = f"alone, nothing leaves: choosing uniformly until {first} records are there, {records} so far"
    return {
        "phase": ALONE,
        "shares_until": None,
        "closed_at": None if since is None else since / 1000.0,
        "records": records,
        "shared": 0,
        "missing": None,
        "hearing": None,
        "says": uniform
        if since is None
        else f"alone, nothing leaves: on your own records since {_moment(since / 1000.0)}",
    }


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
