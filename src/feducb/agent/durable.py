"""The durable agent: one SQLite file, decisions out, rewards in, releases when they are due.

`State` is what it has in memory. What it does is by name: `deciding`, `rewarding`, `settling`, `releasing`,
`absorbing` (sums of others), `own_reading`, `season_opening`, `forgetting`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from sqlite3 import Connection
from typing import Any, ClassVar, NamedTuple, Self

from feducb.agent import absorbing, deciding, forgetting, own_phase, releasing, rewarding
from feducb.agent.decision import Decision, Outcome
from feducb.agent.kept import placed, require_place, require_promised, stored_settings
from feducb.agent.live_view import view_live, view_model
from feducb.agent.noted import KeyChange, note_keys, view_log
from feducb.agent.own_reading import OwnReading
from feducb.agent.season_opening import SeasonOpening
from feducb.agent.season_roll import Renewal
from feducb.agent.settings import AgentSettings
from feducb.agent.settling import Settling
from feducb.agent.state import State
from feducb.agent.view import view_over_time
from feducb.agent.visitors import Actions
from feducb.agent.warning import read_warnings
from feducb.errors import ConfigurationError, FeducbError
from feducb.privacy.ledger import Ledger
from feducb.protocol import messages
from feducb.protocol.hiding import Member
from feducb.protocol.messages import GridSum
from feducb.protocol.parcels import Parcel
from feducb.storage import AgentStore, agent_tables, events, operator_log
from feducb.system import current_user

__all__ = ["Agent", "Parts"]


class Parts(NamedTuple):
    """What an agent is made of where something could leak; the audit puts a broken one in its place."""

    state: type[State] = State
    own: type[OwnReading] = OwnReading
    settling: type[Settling] = Settling
    opening: type[SeasonOpening] = SeasonOpening


class Agent:
    """One agent, in one file; made by `open`, used by one thread.

    Guarantees:
        Whatever a call returns is on disk. A decision's record enters exactly one batch: with the reward that
        came within the window, which is fixed and public, or with the default. Decisions are a function of
        released sums, coins and the visitor's own candidates: no record changes one before its release. Under
        own play that holds until the close, and after it nothing of the season leaves any more (`own_phase`).
        Under trust ``self`` nothing leaves at all, and own records are used at once.
        Each visitor has coins of her own, for her group too: that she came moves nobody else's record.

        In shadow mode the application decides. Its records are then released only if ``follow_policy`` is
        ``fixed``, which is its operator's word that the policy is public and does not learn from rewards;
        under ``learning`` no release depends on them.

    Attributes:
        store: the file; its ledger and outbox are for engines and officers.
        renewal: asked when a season opens, what it is to be opened with; None goes on with the same.
        comes_in: asked at every tick what `wait_for` is told, for the open season.
    """

    _parts: ClassVar[Parts] = Parts()
    store: AgentStore
    renewal: Renewal | None
    comes_in: Callable[[int], int | None] | None

    def __init__(
        self, store: AgentStore, settings: AgentSettings, clock: Callable[[], float], by: str | None = None
    ) -> None:
        parts = self._parts
        self.store, self.renewal, self.comes_in = store, None, None
        self._state = parts.state(store, settings, clock, by or current_user())
        self._own = parts.own(self._state)
        self._settling = parts.settling(self._state, self._own)
        self._opening = parts.opening(self._state)
        with store.writing() as db:
            self._opening.keep_settings(db)
            if not settings.keep_events:  # what an earlier setting kept goes now
                events.strip(db, before=self._state.now(), limit=-1)
        self._state.reload()

    @classmethod
    def open(
        cls,
        path: str | Path,
        settings: AgentSettings | None = None,
        *,
        first_season: int | None = None,
        clock: Callable[[], float] = time.time,
        member: Member | None = None,
        by: str | None = None,
    ) -> Self:
        """Open an agent's file, or make one.

        Args:
            path: of the file.
            settings: needed to make one. Once anything has happened in its open season, they must promise
                the same (`kept`); ``keep_events`` is no promise. If left out, those of the last time.
            first_season: the number of a new file's first season; if left out, the one that runs now. In
                place of a file that was lost: one that it never opened.
            clock: seconds since 1970.
            member: who it is among the others, under ``trust="keepers"``: no row is built without.
            by: who opens it, for the operator log; the user of this process if not given.
        """
        given, path = settings is not None, Path(path).resolve()
        settings = settings or stored_settings(path)
        try:
            store = AgentStore.open(path)
        except ConfigurationError:  # there is no season in it yet
            number = first_season or _running(settings, clock)
            store = AgentStore.open(path, settings.terms, first_season=number)
        try:
            if given:  # terms of the file: an older feducb may have made others of the same settings
                require_promised(store.database, settings)
                settings = placed(store.database, settings)
            if member is not None:
                require_place(member, settings)
            store.member = member
            agent = cls(store, settings, clock, by)
            store.require_same_charter()
            return agent
        except BaseException:
            store.close()
            raise

    @property
    def settings(self) -> AgentSettings:
        """As given; those of the next season, once the clock has opened it."""
        return self._state.settings

    @property
    def started_at(self) -> float:
        """When the open season started, in seconds since 1970."""
        return self._state.started_at

    @property
    def trouble(self) -> str:
        """Why the next season is not open though its time has come, or not as it was asked for."""
        return self._state.trouble

    # Decisions and rewards

    def decide(
        self,
        actions: Actions | None = None,
        *,
        context: Mapping[str, Any] | None = None,
        id: str | None = None,
        person: str | None = None,
        follow: int | str | None = None,
        follow_propensity: float | None = None,
        scores: bool = False,
        top: int | None = None,
        explain: bool = False,
    ) -> Decision:
        """Choose one of the candidates, and remember what was chosen.

        Args:
            actions: the candidates of this visitor, as many as there are this time: (K, d) vectors; or, by
                the agent's recipe, names or mappings with an ``id`` and columns. Left out, the recipe's.
            context: what is known of the visitor, a value per column of the recipe. What is missing, unknown
                or out of range is taken by the recipe's rules, and counted; other columns are ignored.
            id: a name of your own; asking twice gives the same decision, asking about another visitor or
                other candidates is refused. Made up if left out.
            person: who it is, where a person may come more than once. Kept as a keyed hash only.
            follow: in shadow mode, what the application shows: its index, or its name.
            follow_propensity: in shadow mode, the chance with which it does, if known.
            scores: also give all scores.
            top: also give the best so many, in order.
            explain: also say what each term of the recipe adds to estimate and bound, for the chosen action
                and for the best of the others.
        """
        asked = deciding.Asked(id, person, follow, follow_propensity, scores, top, explain)
        return deciding.decide(self._state, actions, context, asked)

    def decide_many(self, asked: Sequence[Mapping[str, Any]]) -> list[Decision | ConfigurationError]:
        """`decide` for many visitors, each with its own arguments by name, in one durable commit.

        One that is refused is answered with its reason, and the others are decided.
        """
        answers: list[Decision | ConfigurationError] = []
        with self.writing():
            for one in asked:
                try:
                    answers.append(self.decide(**one))
                except ConfigurationError as error:
                    answers.append(error.with_traceback(None))
        return answers

    def reward(self, id: str, value: float) -> Outcome:
        """Say what a decision was worth: late, out of order or twice is no error; the first value counts.

        Raises:
            ConfigurationError: the value cannot be a reward. That one came out of range is remembered for the
                tally of them, and nothing else is.
        """
        return rewarding.reward(self._state, id, value)

    def discard(self, id: str) -> Outcome:
        """Take a decision back that was never shown; only while its window is open.

        Never discard by what the reward was: that would make the statistics untrue.
        """
        return rewarding.discard(self._state, id)

    def shown_without(self, id: str) -> Outcome:
        """Say that the application showed a default of its own, since no answer reached it; it is counted.

        No record of it enters: nobody stated how the default is chosen, as ``follow_policy`` does in shadow
        mode, and it comes out of its time. If a decision was made here all the same, that one was not shown,
        and is discarded; if not, its id is taken from now on, so that a request on its way makes none.

        Returns:
            ``discarded``; ``repeated``, if it was said before; or ``late``: there was a decision, its window
            has closed, and its record is in with the default reward.
        """
        return rewarding.shown_without(self._state, id)

    def writing(self) -> AbstractContextManager[Connection]:
        """Several calls, one durable commit: on disk when it ends, or nothing of them happened.

        An error of one call may be caught within it: refused calls leave no trace. A call that failed
        half-way, which no refusal does, takes the whole commit along.
        """
        return self._state.writing()

    # What happens on its own

    def tick(self, *, alone: bool = True) -> int:
        """Do what is due: close windows, forget, release, open the next season; how many releases were made.

        Args:
            alone: if this is the only agent, its own releases are its sums: act on them at once. Whoever
                carries them elsewhere says no.
        """
        state, made = self._state, 0
        self._look_at_roster()
        moment = state.now()
        self._settling.settle_all(moment)
        forgetting.forget(state, moment)
        for group in range(self.settings.groups):
            while self.releases_due(group):
                self.release(group)
                made += 1
        if made:
            self._settling.settle_all(moment)  # for the next one
        if alone and self.settings.agents == 1 and not self.settings.trust.raw:
            for item in self.outbox():
                if item.season == self.store.season:
                    self.absorb(messages.decode(item.released()))
                self.mark_sent(item)
        if self._own.may_close():  # the last sum was here before the last release was made
            with self.writing() as db:
                self._own.read_own(db)
        self._opening.take_late(self.renewal)
        self._opening.open_if_over(self.renewal, self._joins_at)
        self._look_at_roster()  # it may be another season's
        return made

    def settle_some(self, moment: int | None = None) -> bool:
        """Take in a chunk of each group whose windows have closed; whether there may be more.

        What closed after the next release was due waits for the one after it: the batch of a record follows
        from its own time and public ones, not from how long it took to take others in (docs/theory.md, 2).

        Args:
            moment: milliseconds since 1970; now if left out.
        """
        return self._settling.settle_some(self._state.now() if moment is None else moment)

    @property
    def season_over(self) -> bool:
        """Whether all releases of this season are made; never where there are none."""
        return self._state.season_over

    @property
    def waits(self) -> bool:
        """Whether its first season among the others is still to come (`wait_for`)."""
        return self._state.waits

    @property
    def closed(self) -> bool:
        """Whether it goes by its own records too (`own_phase`)."""
        return self._state.closed

    def releases_due(self, group: int = 0) -> int:
        """How many releases the clock asks for that were not made yet."""
        return releasing.releases_due(self._state, group)

    def release(self, group: int = 0) -> bytes:
        """Make the next release, or raw upload where the controller is trusted.

        It is of the records whose windows had closed when it was due, however late it is made.

        Raises:
            StoreError: it is not due yet, the agent waits for its first season (`wait_for`), or all seasons
                together have spent their limit.
        """
        return releasing.release(self._state, self._settling, group)

    def wait_for(self, season: int | None) -> None:
        """Make no release before this season, with which the agent comes in; None: it is one of them.

        What is decided before enters its first release. Under own play it stays with the agent, which closes
        with the others all the same. A roster that comes when the season's rows are bound to another one, or
        under own play when the agent has shared in it, is for the next season.
        """
        state = self._state
        shares = state.store.member is not None or own_phase.has_shared(state.store.database, state.settings)
        joins = None if shares else season
        if joins != state.joins:
            state.joins = joins
            state.look_at_budget()

    def _look_at_roster(self) -> None:
        if self.comes_in is not None:
            self.wait_for(self._joins_at(self.store.season))

    def _joins_at(self, season: int) -> int | None:
        """With which season it comes in that is later than this one; None if it is one of them in this."""
        if self.comes_in is not None:
            with suppress(FeducbError, OSError):  # a version that somebody is just putting there
                return self.comes_in(season)
        known = self._state.joins
        return known if known is not None and season < known else None

    # For engines

    def outbox(self) -> list[Parcel]:
        """What waits to be sent."""
        return releasing.outbox(self._state)

    def mark_sent(self, item: Parcel) -> None:
        """It has arrived: on the other side's disk."""
        releasing.mark_sent(self._state, item)

    def absorb(self, total: GridSum, *, agents: int | None = None, sealed: int = 0) -> bool:
        """Act on a sum from now on, if it is newer than the one before.

        One of a season before this agent's first is remembered, as if it had been there (`recall`).

        Args:
            total: the sum, as `protocol.messages` decodes it.
            agents: where the controller is trusted, how many agents handed records over to it.
            sealed: likewise, how many of them have all their batches of the season in it.

        Raises:
            ValueError: it is of another federation, or below the quorum, or rows leave under pads here, whose
                sums prove themselves (`hear`); it is counted, and not kept.
        """
        if total.season < self.store.season and not self.settings.trust.padded:
            return absorbing.recall(self._state, self.renewal, total, agents)
        return absorbing.absorb(self._state, self._own, total, agents=agents, sealed=sealed)

    def hear(self, data: bytes) -> bool:
        """Take in what is said about secure sums; whether it is new.

        Args:
            data: as it came: a keeper's `KeyCard` or a row that is over, an `Opened` (`secure_rows`); on a
                graph what a member of the clique says for a row (`protocol.masks`).

        Raises:
            RefusedError: it does not prove itself, or is not the next.
        """
        return absorbing.hear(self._state, self._own, data)

    @property
    def name(self) -> str:
        """By which others know it."""
        return self.settings.name if self.store.member is None else self.store.member.name

    def earliest(self) -> int:
        """The oldest season of which the file knows: its own first, or one whose sum it was told."""
        return agent_tables.earliest_season(self.store.database)

    def place(self) -> bytes:
        """The newest row of the first group that is over, as 16 bytes; none if there is none."""
        return self.store.place()

    # Looking, and the rarer wishes

    def snapshot(self) -> dict[str, Any]:
        """How it stands, in plain numbers: for the agent's own people, since counts are raw."""
        return view_live(self._state)

    @property
    def warnings(self) -> dict[str, str]:
        """By kind, what speaks against the settings: seen in released sums and under noise alone."""
        return read_warnings(self.store.database, self.settings)

    def overview(self) -> dict[str, Any]:
        """`snapshot`, and what happened over time: for the agent's own page."""
        state = self._state
        return self.snapshot() | view_over_time(self.store.database, state.season, now=state.clock())

    def model(self, group: int = 0) -> dict[str, Any]:
        """What was learnt, in the recipe's words, now and at each sum that was read (`learnt`).

        Args:
            group: of visitors, where there are several.

        Guarantees:
            A function of released sums and public settings, unless ``from`` is ``own records``.
        """
        return view_model(self._state, group)

    def ledger(self) -> Ledger:
        """What left, when, at what cost, and what is left."""
        return self.store.ledger()

    def new_season(
        self, settings: AgentSettings | None = None, *, drop_open: bool = False, by: str | None = None
    ) -> int:
        """Close the season by hand and open the next, over new decisions only, with a fresh budget.

        The clock does so by itself (`tick`), and then nothing is lost. By hand it is for what the clock may
        not do: to begin anew at once, and to share again under own play.

        Args:
            settings: of the new season; those of the last one if not given.
            drop_open: agree that what waits is lost.
            by: who opens it, for the operator log; whoever opened the agent if not given.
        """
        return self._opening.open_by_hand(settings, drop_open=drop_open, by=by)

    def close(self) -> None:
        """Give the file back."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For upkeep

    def draw_group(self) -> int:
        """The group of a new record, by a private coin.

        In turn, one absent visitor would move every later record to another group (docs/theory.md, 2).
        """
        return self._state.draw_group()

    def count(self, name: str, count: int = 1) -> None:
        """Count something, within `writing`."""
        self._state.counters.add(name, count)

    def read_own_again(self, db: Connection) -> None:
        """Read own records, within `writing`, if that is allowed by now and enough of them are new."""
        self._own.read_again(db)

    def sweep(self) -> None:
        """Cut the file's log off, which still holds content that the file itself has forgotten."""
        forgetting.sweep(self._state)

    def note(self, what: str, *, by: str | None = None, **details: object) -> None:
        """Add a line to the operator log, in the same commit as what it tells of; never about a visitor.

        Args:
            what: was done.
            by: who did it; whoever opened the agent if not given.
            details: plain values.
        """
        with self.writing() as db:
            operator_log.add(db, by or self._state.by, what, **details)

    def note_keys(self, keys: Sequence[KeyChange]) -> None:
        """Add what became of API keys since the last time to the operator log.

        Args:
            keys: those that were made, and those that were revoked, each once.
        """
        with self.writing() as db:
            note_keys(db, keys)

    def operator_log(self) -> dict[str, Any]:
        """Who changed what, oldest first; and where the log was tampered with, if it was."""
        return view_log(self.store.database)


def _running(settings: AgentSettings, clock: Callable[[], float]) -> int:
    """The season that runs now, for a file that is made."""
    return 1 if settings.start is None else settings.common_calendar.number_at(clock())
