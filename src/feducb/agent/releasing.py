"""What leaves an agent: releases when they are due, rows under pads, or raw uploads; and its outbox."""

from __future__ import annotations

from feducb.agent.kept import written
from feducb.agent.roster_place import NEVER
from feducb.agent.settling import Settling
from feducb.agent.state import State
from feducb.agent.warning import REWARD_BOUND
from feducb.errors import StoreError
from feducb.privacy.tally import surely_many
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.storage import agent_tables

__all__ = ["mark_sent", "outbox", "release", "releases_due"]


def releases_due(state: State, group: int) -> int:
    """How many releases the clock asks for that were not made yet."""
    if state.watch.is_away(state.season) or state.spent or state.waits:
        return 0
    passed = state.clock() - state.started_at
    due = max(0, sum(one <= passed for one in state.settings.release_times) - state.made(group))
    if not state.settings.trust.padded:
        return due
    # One at a time: the row before must be over. One that was closed empty is made up for at once.
    owed = due or state.store.next_label(group).attempt > 1
    return 1 if owed and state.store.may_build(group) else 0


def release(state: State, settling: Settling, group: int) -> bytes:
    """Make the next release of what has settled by its time (`Agent.release`)."""
    if state.spent:
        raise StoreError(state.spent)
    if state.waits:
        if state.joins == NEVER:
            raise StoreError("nothing leaves: this agent is not in the roster")
        raise StoreError(f"nothing leaves before season {state.joins}, with which this agent comes in")
    _require_due(state, group)
    settling.settle_all(state.now())
    made = _make(state, group)
    scale = state.settings.tally_scale
    if scale is not None:  # look at the tally of rewards out of range, under noise
        with state.writing() as db:
            if surely_many(*state.store.tell_tallies(db, scale), scale):
                agent_tables.add_warning(db, REWARD_BOUND)
    return made


def _require_due(state: State, group: int) -> None:
    """Raise before the next release's time: the clock must tell what may be out (`upkeep.restore`).

    Rows under pads may be built out of their time, so that a restored agent never builds one of its season.
    """
    times, made = state.settings.release_times, state.made(group)
    if state.settings.trust.padded:
        return
    if made < len(times) and state.clock() < (due := state.started_at + times[made]):
        early = f"release {made + 1} of season {state.season.number} is not due before {written(due)}"
        raise StoreError(f"{early}: a file from a backup knows by the clock alone what may be out")


def _make(state: State, group: int) -> bytes:
    if state.settings.trust.padded:
        return state.store.build_row(group)
    return state.store.upload() if state.settings.trust.raw else state.store.release(group)


def outbox(state: State) -> list[Parcel]:
    """What waits to be sent."""
    if state.settings.trust.padded:
        return state.store.rows()
    return state.store.uploads() if state.settings.trust.raw else state.store.outbox()


def mark_sent(state: State, item: Parcel) -> None:
    """It has arrived: on the other side's disk."""
    if item.padded:
        state.store.mark_row_sent(item)
    elif item.kind is ParcelKind.UPLOAD:
        state.store.acknowledge(item.season, item.number)
    else:
        state.store.mark_sent(item.season, item.number, group=item.group)
