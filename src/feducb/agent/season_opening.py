"""A season is opened: the first with the file, the next by the clock or by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from secrets import token_bytes
from sqlite3 import Connection

from feducb.agent import own_phase
from feducb.agent.kept import placed, require_later, require_place, require_promised, season_in, started_at
from feducb.agent.noted import note_settings
from feducb.agent.promises import PROMISED
from feducb.agent.season_roll import (
    Opening,
    Renewal,
    earlier_keys,
    is_complete,
    may_carry,
    next_opening,
    over_budget,
)
from feducb.agent.settings import AgentSettings
from feducb.agent.state import State
from feducb.errors import ConfigurationError, FeducbError
from feducb.protocol.hiding import Member
from feducb.protocol.signed_roster import quorum_among
from feducb.storage import agent_tables, own_sums, recipe_marks
from feducb.worlds.features import Recipe
from feducb.worlds.features.season import continues, fixed_part

__all__ = ["SeasonOpening"]

_DROPPED = "what waited for a release was dropped: the new season adds up other records"
_BY_ROSTER = ("agents", "quorum", "releases", "first_release", "last_release")  # what may follow from it


def _mark(db: Connection, member: Member | None) -> None:
    """By which roster a season is opened; on a restart it is the same, whatever has come since."""
    if member is not None:
        agent_tables.mark_roster(db, member.roster.version)


def _recipe_in(kept: agent_tables.KeptSettings) -> Recipe | None:
    plain = json.loads(kept.body)["recipe"]
    return plain and Recipe.from_plain(plain)


def _is_another(
    before: AgentSettings, member: Member | None, after: AgentSettings, later: Member | None
) -> bool:
    """Whether the roster says something else than the one that the season was opened with."""
    if before.trust.padded:
        known = None if member is None else member.roster.content()
        return known is not None and (later is None or later.roster.content() != known)
    follows = after.quorum == quorum_among(before.quorum, before.agents, after.agents)
    on_graph = before.clique or after.clique  # where the place of an agent stays for a season
    return not on_graph and follows and before.agents != after.agents


def _require_same_play(before: AgentSettings, after: AgentSettings) -> None:
    """Raise unless what is promised for a season is the same, but for what follows from the roster."""
    if not before.rolls:
        raise ConfigurationError("play", before.play, "released: under own play it waits for a new season")
    for name in PROMISED:
        if name not in _BY_ROSTER and getattr(before, name) != getattr(after, name):
            raise ConfigurationError(name, getattr(after, name), "as it was until a new season opens")


class SeasonOpening:
    """Writes the settings of a season as it opens, and begins it."""

    def __init__(self, state: State) -> None:
        self.state = state

    def keep_settings(self, db: Connection) -> None:
        """Write the settings, and the terms that follow from them if nothing has happened under others."""
        state, store = self.state, self.state.store
        season, kept, body = store.season, agent_tables.read_settings(db), state.settings.to_json()
        again = kept is not None and kept.season == season
        if again and season_in(db, store.path).settings != state.settings:
            require_promised(db, state.settings)
        if agent_tables.is_unused(db):
            store.restate(db, state.settings.terms)
        if kept is not None and kept.season == season:
            start, id_key = started_at(state.settings, kept), kept.id_key
        else:  # a new file, or one from a backup
            agent_tables.mark_season(db, None if kept is None else kept.started_at)
            start, id_key = self._begins(season), token_bytes(32)
        note_settings(db, kept, season, body, state.by)
        self._mark_recipe(db, kept)
        agent_tables.write_settings(db, season=season, body=body, started_at=start, id_key=id_key)
        if agent_tables.is_unused(db):
            _mark(db, store.member)
            self.begin_own(db, kept)
        state.settings = state.settings.under(store.terms)

    def _mark_recipe(self, db: Connection, kept: agent_tables.KeptSettings | None) -> None:
        """Note since which decision there are other actions or another recipe; the file may not say."""
        recipe, before = self.state.settings.recipe, None if kept is None else _recipe_in(kept)
        unknown = recipe_marks.of_other_actions(db) is None and recipe and recipe != fixed_part(recipe)
        if kept is None or unknown or before != recipe:
            recipe_marks.mark_other_actions(db)
        if kept is not None and continues(before, recipe):
            recipe_marks.settle_other_recipe(db)
        else:
            recipe_marks.mark_other_recipe(db)

    def _begins(self, season: int) -> float:
        """When a season starts that has no settings yet."""
        settings = self.state.settings
        return self.state.clock() if settings.start is None else settings.common_calendar.starts(season)

    def begin_own(self, db: Connection, kept: agent_tables.KeptSettings | None) -> None:
        """What was learnt alone stays where a new season can read it, under the same recipe."""
        state = self.state
        if kept is not None and not continues(_recipe_in(kept), state.settings.recipe):
            own_sums.forget(db)
        own_phase.begin(db, state.store, state.settings, state.now())

    def open_by_hand(self, settings: AgentSettings | None, *, drop_open: bool, by: str | None) -> int:
        """Close the season and open the next at once (`Agent.new_season`); its number."""
        state, store = self.state, self.state.store
        settings = settings or replace(state.settings, start=None, first_season=None, promised=None)
        now = state.clock()
        opening = Opening(store.season + 1, now, settings)
        if settings.start is not None:
            opening = next_opening(state.season, settings, now)
            if opening.started_at > max(now, settings.start):  # it is not over, and its start has not moved
                require_later(settings, state.started_at)
        if store.member is not None:
            require_place(store.member, settings)
        store.new_season(
            opening.settings.terms,
            drop_pending=drop_open,
            number=opening.number,
            then=lambda db: self.write(db, opening, token_bytes(32), by or state.by, store.member),
        )
        self._begin_again(opening.settings)
        return store.season

    def open_if_over(self, renewal: Renewal | None, joins_at: Callable[[int], int | None]) -> None:
        """Open the season that runs by now, if its time has come by the clock.

        Args:
            renewal: what to open it with.
            joins_at: of a season, with which later one the agent comes in; None if it is in it.
        """
        state = self.state
        numbers = [state.inbox.number(group) for group in range(state.settings.groups)]
        last_is_here = min(numbers) >= state.settings.releases
        complete = last_is_here if state.waits else is_complete(state.store, state.settings, numbers)
        if state.watch.is_over(state.season, complete=complete):
            self._roll(renewal, joins_at)

    def _roll(self, renewal: Renewal | None, joins_at: Callable[[int], int | None]) -> None:
        state, store, now = self.state, self.state.store, self.state.clock()
        settings, member = again = state.settings, store.member
        state.trouble = ""
        try:
            if renewal is not None:
                number = next_opening(state.season, replace(settings, promised=None), now).number
                settings, member = renewal(number)
            settings = replace(placed(store.database, settings), promised=None)
            if member is not None:
                require_place(member, settings)
            opening = next_opening(state.season, settings, now)
        except (FeducbError, OSError) as error:
            state.trouble = f"the season goes on with the settings before: {error}"
            settings, member = again
            opening = next_opening(state.season, replace(settings, promised=None), now)
        waits = member is None and joins_at(opening.number) is not None  # so that it costs nothing
        state.spent = "" if waits else over_budget(store.ledger(), opening.settings)
        if state.spent:
            state.trouble = state.spent
            return
        whole = store.roll(
            opening.settings.terms,
            number=opening.number,
            carries=may_carry(state.settings, opening.settings),
            keep_keys=earlier_keys(opening.settings),
            then=lambda db: self.write(db, opening, state.id_key, "the clock", member),
        )
        if not whole:
            state.trouble = _DROPPED
        store.member = member
        self._begin_again(opening.settings)

    def take_late(self, renewal: Renewal | None) -> None:
        """Go by a roster of the open season that came after it began.

        Rows under pads are bound to the roster: with an older one than the keepers' none is built. As long as
        there is none of the season, built here or opened, the newer one is taken over, as if it had been
        there. Elsewhere it says how many agents are in a sum: it is taken over where the terms stay the same,
        or before anything was made under them. What decides about visitors stays for the season.
        """
        state, store = self.state, self.state.store
        if renewal is None or not state.misheard or store.silent:
            return
        state.misheard = False
        made = store.has_made()
        if made and state.settings.trust.padded:
            return
        try:
            settings, member = renewal(store.season)
            settings = replace(placed(store.database, settings), promised=None)
            if not _is_another(state.settings, store.member, settings, member):
                return
            same_terms = not settings.trust.padded and settings.terms == store.terms
            if made and not same_terms:
                raise ConfigurationError("agents", settings.agents, f"{state.settings.agents} to its end")
            if member is not None:
                require_place(member, settings)
            _require_same_play(state.settings, settings)
        except (FeducbError, OSError) as error:
            state.trouble = f"a newer roster of this season is not taken: {error}"
            return
        opening, whole = Opening(store.season, state.started_at, settings), True
        if same_terms:
            with store.writing() as db:
                self._write_again(db, opening, member)
        else:
            whole = store.reopen(
                settings.terms,
                carries=may_carry(state.settings, settings),
                then=lambda db: self._write_again(db, opening, member),
            )
        state.trouble = "" if whole else _DROPPED
        store.member = member
        state.settings = settings.under(store.terms)
        state.reload()
        store.cut_log()

    def _write_again(self, db: Connection, opening: Opening, member: Member | None) -> None:
        kept, body = agent_tables.read_settings(db), opening.settings.to_json()
        note_settings(db, kept, opening.number, body, "a newer roster")
        agent_tables.write_settings(
            db,
            season=opening.number,
            body=body,
            started_at=opening.started_at,
            id_key=self.state.id_key,
        )
        _mark(db, member)

    def write(self, db: Connection, opening: Opening, id_key: bytes, by: str, member: Member | None) -> None:
        """The settings of a season that opens, in the transaction that opens it."""
        if not continues(self.state.settings.recipe, opening.settings.recipe):
            own_sums.forget(db)
            recipe_marks.mark_other_recipe(db)
        if self.state.settings.recipe != opening.settings.recipe:
            recipe_marks.mark_other_actions(db)
        agent_tables.mark_season(db, self.state.started_at)
        _mark(db, member)
        if self.state.settings.lane_shares != opening.settings.lane_shares:
            agent_tables.mark_other_lanes(db)
        body = opening.settings.to_json()
        note_settings(db, agent_tables.read_settings(db), opening.number, body, by)
        agent_tables.write_settings(
            db,
            season=opening.number,
            body=body,
            started_at=opening.started_at,
            id_key=id_key,
        )

    def _begin_again(self, settings: AgentSettings) -> None:
        """Go on in the season that was opened."""
        state = self.state
        state.settings = settings.under(state.store.terms)
        with state.store.writing() as db:
            self.begin_own(db, None)
        state.reload()
        state.store.cut_log()  # the file behind it still has the keys of the season before
