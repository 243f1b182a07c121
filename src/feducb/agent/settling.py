"""Windows that have closed: each record enters one batch, with its reward or with the default."""

from __future__ import annotations

import math
from collections.abc import Sequence
from sqlite3 import Connection

import numpy as np

from feducb.agent import gain
from feducb.agent.own_reading import OwnReading
from feducb.agent.state import State
from feducb.storage import events

__all__ = ["CHUNK", "Settling"]

CHUNK = 500  # decisions settled in one go: a few milliseconds


class Settling:
    """Takes records in once their windows have closed."""

    def __init__(self, state: State, own: OwnReading) -> None:
        self.state, self.own = state, own

    def settle_some(self, moment: int) -> bool:
        """Take in a chunk of each group; whether there may be more (`Agent.settle_some`)."""
        more, state = False, self.state
        if state.watch.is_away(state.season) and not state.spent:
            return False  # what waits goes along to the next season, if the clock is right
        for group in range(state.settings.groups):
            cut = int(min(moment, self.next_cut(group)))
            rows = events.due(state.store.database, group, now=cut, limit=CHUNK)
            if rows:
                self.settle(group, rows)
                more = more or len(rows) == CHUNK
        return more

    def settle_all(self, moment: int) -> None:
        """Take in all whose windows have closed by a moment, in milliseconds since 1970."""
        while self.settle_some(moment):
            pass

    def next_cut(self, group: int) -> float:
        """When the next release is due, in milliseconds: after the last, the first of the next season.

        Never, where no season follows or nothing may leave. An agent may linger beyond that one's first
        release: what closes by then is of its second, whenever the season is opened.
        """
        state = self.state
        made, times = state.made(group), state.settings.release_times
        if state.spent:
            return math.inf
        if made < len(times) and not state.waits:
            return int(1000 * (state.started_at + times[made]) + 0.001)
        if not times or not state.settings.rolls:
            return math.inf
        return int(1000 * (state.season.ends_at + times[0]) + 0.001)

    def settle(self, group: int, rows: Sequence[events.Due]) -> None:
        """Take in rows of one group, in one commit."""
        state, settings = self.state, self.state.settings
        reaches_all = state.chooser.reaches_all(group)
        with state.writing() as db:
            state.unswept = True
            batch = self.take_in(db, group, rows)
            events.mark_taken(
                db, group, rows, season=state.store.season, batch=batch, keep=settings.keep_events > 0
            )
            state.counters.add("settled", len(rows))
            state.counters.add("defaulted", sum(row.reward is None for row in rows))
            state.curve.settled(
                rows,
                default=settings.default_reward,
                uniform=not settings.shadow and (reaches_all or not settings.chooses.needs_coins),
                only_choice=reaches_all,
            )
            gain.add(db, settings, rows)
            self.own.read_again(db)

    def take_in(self, db: Connection, group: int, rows: Sequence[events.Due]) -> int | None:
        """Add records to what is released next; the number of that release, or None if they never leave."""
        state, settings = self.state, self.state.settings
        default, alone = settings.default_reward, not settings.trust.leaves
        if not alone and not settings.releases_records:
            state.counters.add("only_followed", len(rows))
            return None
        actions = np.frombuffer(b"".join(row.action for row in rows))
        rewards = np.array([default if row.reward is None else row.reward for row in rows])
        shaped = actions.reshape(-1, settings.problem.dim)
        if alone:
            state.store.keep_own(db, shaped, rewards)
            return None
        if settings.play == "released":
            held_out = np.array([row.lane == events.ALONE for row in rows])
            if held_out.any():
                hashes = [row.person for row in rows if row.lane == events.ALONE]
                state.store.hold_out(db, shaped[held_out], rewards[held_out], hashes)
                state.counters.add("held_out", len(hashes))
                rows = [row for row in rows if row.lane != events.ALONE]
                shaped, rewards = shaped[~held_out], rewards[~held_out]
        made = state.made(group)
        if state.waits and settings.play == "own":
            if settings.closes:
                state.store.keep_own(db, shaped, rewards)
            return None
        if made >= settings.releases:
            state.counters.add("after_the_last_release", len(rows))
            if settings.closes:
                state.store.keep_own(db, shaped, rewards)
            if settings.closes or not settings.rolls:
                return None  # else the next season's first release has them
        refused = None  # where no noise could cover a tally, none is written
        if settings.tally_scale is not None:
            refused = [row.reward is None and bool(row.refused) for row in rows]
        hashes, own = [row.person for row in rows], settings.closes
        state.store.settle(db, group, shaped, rewards, hashes, refused, own=own)
        return made + 1
