"""The durable agent: one SQLite file, decisions out, rewards in, releases when they are due."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes
from sqlite3 import Connection
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from feducb.agent import gain, own_phase
from feducb.agent.chooser import Chooser
from feducb.agent.curve import Curve, width_for
from feducb.agent.decision import Decision, Outcome
from feducb.agent.ids import kept_tag, make_id, new_tag, numbers_of
from feducb.agent.inbox import Counters, Inbox
from feducb.agent.kept import (
    Season,
    placed,
    require_later,
    require_place,
    require_promised,
    season_in,
    started_at,
    stored_settings,
)
from feducb.agent.learnt import MOST_POINTS, OWN, RELEASED, Learnt, told_at
from feducb.agent.noted import KeyChange, note_keys, note_settings, view_log
from feducb.agent.reasons import Question
from feducb.agent.remembered import Memory
from feducb.agent.requests import require_explainable, require_follow, require_id, require_reward
from feducb.agent.season_roll import (
    Opening,
    Renewal,
    Watch,
    earlier_keys,
    is_complete,
    may_carry,
    next_opening,
    over_budget,
)
from feducb.agent.settings import AgentSettings
from feducb.agent.view import view, view_over_time
from feducb.agent.visitors import Actions, Visitor, Visitors
from feducb.agent.warning import CHANGED, PARAMETER_BOUND, REWARD_BOUND, contradicts, read_warnings
from feducb.config import require_integer
from feducb.errors import ConfigurationError, FeducbError, RefusedError, StoreError
from feducb.models.joint import Hearing
from feducb.privacy.ledger import Ledger
from feducb.privacy.tally import surely_many
from feducb.protocol import messages
from feducb.protocol.admission import require_definite
from feducb.protocol.hiding import Member
from feducb.protocol.messages import GridSum
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.storage import AgentStore, agent_tables, events, operator_log, own_sums
from feducb.system import current_user
from feducb.types import Belief

__all__ = ["Agent", "Decision", "Outcome"]

Array = NDArray[np.float64]

_CHUNK = 500  # decisions settled in one go: a few milliseconds
_SWEEP_SECONDS = 10.0
_CURVE_HOURS = 30 * 24  # for which the learning curve is kept
_LEAST_MEMORY = 60_000  # milliseconds for which an id is remembered after its window, at least


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
        settings: as given; those of the next season, once the clock has opened it.
        store: the file; its ledger and outbox are for engines and officers.
        renewal: asked when a season opens, what it is to be opened with; None goes on with the same.
        trouble: why the next season is not open though its time has come, or not as it was asked for.
    """

    renewal: Renewal | None

    def __init__(
        self, store: AgentStore, settings: AgentSettings, clock: Callable[[], float], by: str | None = None
    ) -> None:
        self.store, self.settings, self._clock = store, settings, clock
        self._by = by or current_user()
        # The operating system's: from coins that can be predicted, others' could be told, and who was there.
        self._coins: random.Random = random.SystemRandom()
        self._writing: Connection | None = None
        self._counters, self._inbox, self._memory = Counters(), Inbox(), Memory(settings)
        self._curve, self._chooser = Curve(width_for(settings.season)), Chooser(settings)
        self._visitors = Visitors(settings)
        self._unswept, self._swept_at = False, time.monotonic()
        self._id_key, self.started_at = b"", 0.0
        self._watch, self.renewal, self.trouble = Watch(clock), None, ""
        self._spent = ""  # why nothing of this season may leave, if all seasons have cost too much
        with store.writing() as db:
            self._keep_settings(db)
            if not settings.keep_events:  # what an earlier setting kept goes now
                events.strip(db, before=self._now(), limit=-1)
        self._reload()

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
            id: a name of your own; asking twice gives the same decision. Made up if left out.
            person: who it is, where a person may come more than once. Kept as a keyed hash only.
            follow: in shadow mode, what the application shows: its index, or its name.
            follow_propensity: in shadow mode, the chance with which it does, if known.
            scores: also give all scores.
            top: also give the best so many, in order.
            explain: also say what each term of the recipe adds to estimate and bound, for the chosen action
                and for the best of the others.
        """
        visitor = self._visitors.read(actions, context)
        own = None if id is None else self._key(require_id(id, new=True))
        followed = require_follow(self.settings, follow, follow_propensity, visitor.choices)
        if top is not None:
            require_integer("top", top, at_least=1)
        if explain:
            require_explainable(visitor.names)
        hashed = self.store.hash_person(person)
        with self.writing() as db:
            self.store.find_person(db, person)
            if own is not None and (known := events.find(db, own)) is not None:
                if known.chosen is None:
                    raise ConfigurationError("id", id, "a new one: that decision is over")
                if known.candidates != len(visitor.candidates) or followed not in (None, known.chosen):
                    raise ConfigurationError("id", id, "a new one, or the same candidates as before")
                if self._visitors.changed:  # as many as before may be others
                    shown = visitor.candidates[known.chosen].tobytes()
                    if events.action_of(db, known.number) != shown:
                        raise ConfigurationError("id", id, "a new one: actions were added or retired since")
                again = self._decision(str(id), known, visitor, scores=scores, top=top, repeated=True)
                return self._with_reasons(again, known, visitor) if explain else again
            row, made_up = self._decide(db, visitor, own, hashed, followed, follow_propensity)
        decision = self._decision(id or made_up, row, visitor, scores=scores, top=top)
        return self._with_reasons(decision, row, visitor) if explain else decision

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

    def _decide(
        self,
        db: Connection,
        visitor: Visitor,
        own: bytes | None,
        person: bytes | None,
        follow: int | None,
        follow_propensity: float | None,
    ) -> tuple[events.Made, str]:
        """Choose for a visitor that is new, and write it down; the row, and an id that is made up for it."""
        number, group = self._counters.total("decisions") + 1, self.draw_group()
        lane, (preferred, chance, drawn) = self._choose(group, visitor.candidates)
        shown, propensity = (preferred, chance) if follow is None else (follow, follow_propensity)
        moment, tag = self._now(), new_tag()
        in_numbers = self.settings.keep_events > 0 and visitor.said is None
        row = events.Made(
            number=number,
            tag=kept_tag(self._id_key, tag),
            id=own,
            closes_at=moment + round(1000 * self.settings.window),
            group=group,
            decided_at=moment,
            person=person,
            action=visitor.candidates[shown].tobytes(),
            candidates=len(visitor.candidates),
            features=visitor.candidates.tobytes() if in_numbers else None,
            said=visitor.said,
            chosen=shown,
            preferred=preferred,
            propensity=propensity,
            model=self._inbox.number(group),
            lane=lane,
        )
        events.insert(db, row)
        self._counters.add("decisions")
        self._curve.decided(moment)
        self._counters.add("drawn_uniformly", drawn)
        self._counters.add("agreed", follow is not None and shown == preferred)
        for column, rule in visitor.rules:
            self._counters.add(f"{rule}:{column}")
        self._counters.add("ignored_columns", visitor.ignored)
        return row, make_id(self._id_key, number, tag)

    def _choose(self, group: int, candidates: Array) -> tuple[int | None, tuple[int, float, bool]]:
        """The visitor's lane (`gain`), None if none counts; index, propensity, whether drawn uniformly.

        Guarantees:
            Who is held out is a coin of the visitor's own. Under own play nobody is before the close.
        """
        settings, knows = self.settings, group in self._chooser.deciders
        open_lanes = settings.play == "released" or self.closed
        if not settings.trust.leaves:
            return events.ALONE, self._chooser.choose(group, candidates, self._coins)
        if settings.holdout and open_lanes and self._coins.random() < settings.holdout:
            return events.ALONE, (*self._chooser.choose_alone(candidates, self._coins), False)
        preferred, chance, drawn = self._chooser.choose(group, candidates, self._coins)
        counted = open_lanes and (knows or settings.holdout > 0.0) and not settings.shadow
        if not counted:
            return None, (preferred, chance, drawn)
        # While nothing was learnt both lanes draw uniformly: a coin says which it was.
        uniform = drawn if knows else self._coins.random() < settings.uniform_share
        return events.UNIFORM if uniform else events.FEDERATED, (preferred, chance, drawn)

    def reward(self, id: str, value: float) -> Outcome:
        """Say what a decision was worth: late, out of order or twice is no error; the first value counts.

        Raises:
            ConfigurationError: the value cannot be a reward. That one came out of range is remembered for the
                tally of them, and nothing else is.
        """
        require_id(id)
        try:
            worth = require_reward(value, self.settings.problem)
        except ConfigurationError:
            if isinstance(value, float | int) and not isinstance(value, bool):
                with self.writing() as db:
                    known = self._find(db, id)
                    if known is not None and self._state_of(known) is Outcome.RECORDED:
                        events.mark_refused(db, known.number)
            raise
        with self.writing() as db:
            outcome = self._state_of(known := self._find(db, id))
            if outcome is Outcome.RECORDED:
                assert known is not None
                if known.reward is None:
                    events.set_reward(db, known.number, worth)
                    self._counters.add("rewards")
                    self._curve.rewarded(self._now())
                    return outcome
                outcome = Outcome.REPEATED
            self._counters.add(f"{outcome}_rewards")
        return outcome

    def discard(self, id: str) -> Outcome:
        """Take a decision back that was never shown; only while its window is open.

        Never discard by what the reward was: that would make the statistics untrue.
        """
        require_id(id)
        with self.writing() as db:
            outcome = self._state_of(known := self._find(db, id))
            if outcome is Outcome.RECORDED:
                assert known is not None
                events.discard(db, [known.number])
                self._counters.add("discarded")
                return Outcome.DISCARDED
        return Outcome.REPEATED if outcome is Outcome.DISCARDED else outcome

    def shown_without(self, id: str) -> Outcome:
        """Say that the application showed a default of its own, since no answer reached it; it is counted.

        No record of it enters: nobody stated how the default is chosen, as ``follow_policy`` does in shadow
        mode, and it comes out of its time. If a decision was made here all the same, that one was not shown,
        and is discarded; if not, its id is taken from now on, so that a request on its way makes none.

        Returns:
            ``discarded``; ``repeated``, if it was said before; or ``late``: there was a decision, its window
            has closed, and its record is in with the default reward.
        """
        require_id(id)
        with self.writing() as db:
            known = self._find(db, id)
            outcome = self._state_of(known)
            if outcome is Outcome.DISCARDED:
                return Outcome.REPEATED
            if outcome is Outcome.LATE:
                self._counters.add("late_fallbacks")
                return outcome
            if known is None:
                number, own = self._counters.total("decisions") + 1, self._key(require_id(id, new=True))
                events.insert_discarded(
                    db,
                    number=number,
                    tag=kept_tag(self._id_key, new_tag()),
                    id=own,
                    closes_at=self._now() + round(1000 * self.settings.window),
                )
                self._counters.add("decisions")
            else:
                events.discard(db, [known.number])
            self._counters.add("discarded")
            self._counters.add("fallbacks")
        return Outcome.DISCARDED

    def writing(self) -> AbstractContextManager[Connection]:
        """Several calls, one durable commit: on disk when it ends, or nothing of them happened.

        An error of one call may be caught within it: refused calls leave no trace. A call that failed
        half-way, which no refusal does, takes the whole commit along.
        """
        return self._commit() if self._writing is None else self.store.part(self._writing)

    @contextmanager
    def _commit(self) -> Iterator[Connection]:
        try:
            with self.store.writing() as db:
                self._writing = db
                yield db
                self._counters.flush(db)
                self._curve.flush(db)
        except BaseException:
            self._writing = None
            self._reload()
            raise
        finally:
            self._writing = None

    # What happens on its own

    def tick(self, *, alone: bool = True) -> int:
        """Do what is due: close windows, forget, release, open the next season; how many releases were made.

        Args:
            alone: if this is the only agent, its own releases are its sums: act on them at once. Whoever
                carries them elsewhere says no.
        """
        moment, made = self._now(), 0
        self._settle_all(moment)
        self._forget(moment)
        for group in range(self.settings.groups):
            while self.releases_due(group):
                self.release(group)
                made += 1
        if made:
            self._settle_all(moment)  # for the next one
        if alone and self.settings.agents == 1 and not self.settings.trust.raw:
            for item in self.outbox():
                if item.season == self.store.season:
                    self.absorb(messages.decode(item.released()))
                self.mark_sent(item)
        if self._may_close():  # the last sum was here before the last release was made
            with self.writing() as db:
                self._read_own(db)
        if self._watch.is_over(self._season, complete=self._is_complete()):
            self._roll()
        return made

    def settle_some(self, moment: int | None = None) -> bool:
        """Take in a chunk of each group whose windows have closed; whether there may be more.

        What closed after the next release was due waits for the one after it: the batch of a record follows
        from its own time and public ones, not from how long it took to take others in (docs/theory.md, 2).

        Args:
            moment: milliseconds since 1970; now if left out.
        """
        more, moment = False, self._now() if moment is None else moment
        if self._watch.is_away(self._season) and not self._spent:
            return False  # what waits goes along to the next season, if the clock is right
        for group in range(self.settings.groups):
            cut = int(min(moment, self._next_cut(group)))
            rows = events.due(self.store.database, group, now=cut, limit=_CHUNK)
            if rows:
                self._settle(group, rows)
                more = more or len(rows) == _CHUNK
        return more

    def _settle_all(self, moment: int) -> None:
        while self.settle_some(moment):
            pass

    @property
    def season_over(self) -> bool:
        """Whether all releases of this season are made; never where there are none."""
        return self.settings.trust.leaves and all(
            self._made(group) >= self.settings.releases for group in range(self.settings.groups)
        )

    @property
    def closed(self) -> bool:
        """Whether it goes by its own records too (`own_phase`)."""
        return own_sums.closed_at(self.store.database) is not None

    def releases_due(self, group: int = 0) -> int:
        """How many releases the clock asks for that were not made yet."""
        if self._watch.is_away(self._season) or self._spent:
            return 0
        passed = self._clock() - self.started_at
        due = max(0, sum(one <= passed for one in self.settings.release_times) - self._made(group))
        if not self.settings.trust.padded:
            return due
        # One at a time: the row before must be over. One that was closed empty is made up for at once.
        owed = due or self.store.next_label(group).attempt > 1
        return 1 if owed and self.store.may_build(group) else 0

    def release(self, group: int = 0) -> bytes:
        """Make the next release, or raw upload where the controller is trusted.

        It is of the records whose windows had closed when it was due, however late it is made; of those
        closed by now, if it is made before that.
        """
        if self._spent:
            raise StoreError(self._spent)
        self._settle_all(self._now())
        made = self._make(group)
        scale = self.settings.tally_scale
        if scale is not None:  # look at the tally of rewards out of range, under noise
            with self.writing() as db:
                if surely_many(*self.store.tell_tallies(db, scale), scale):
                    agent_tables.add_warning(db, REWARD_BOUND)
        return made

    def _make(self, group: int) -> bytes:
        if self.settings.trust.padded:
            return self.store.build_row(group)
        return self.store.upload() if self.settings.trust.raw else self.store.release(group)

    # For engines

    def outbox(self) -> list[Parcel]:
        """What waits to be sent."""
        if self.settings.trust.padded:
            return self.store.rows()
        return self.store.uploads() if self.settings.trust.raw else self.store.outbox()

    def mark_sent(self, item: Parcel) -> None:
        """It has arrived: on the other side's disk."""
        if item.padded:
            self.store.mark_row_sent(item)
        elif item.kind is ParcelKind.UPLOAD:
            self.store.acknowledge(item.season, item.number)
        else:
            self.store.mark_sent(item.season, item.number, group=item.group)

    def absorb(self, total: GridSum, *, agents: int | None = None, sealed: int = 0) -> bool:
        """Act on a sum from now on, if it is newer than the one before.

        Args:
            total: the sum, as `protocol.messages` decodes it.
            agents: where the controller is trusted, how many agents handed records over to it.
            sealed: likewise, how many of them have all their batches of the season in it.

        Raises:
            ValueError: it is of another federation, or below the quorum, or rows leave under pads here, whose
                sums prove themselves (`hear`); it is counted, and not kept.
        """
        try:
            if self.settings.trust.padded:
                raise RefusedError("malformed", "a sum without proof, expected a row that is over")
            if total.season < self.store.season:
                return False  # it came after its season
            if not self.settings.trust.leaves:
                raise RefusedError("malformed", "a sum, expected none: this agent is alone (trust self)")
            new = self._inbox.admit(total, self.settings, self.store.season, agents)
        except ValueError:
            with self.writing() as db:
                self._counters.add("refused_sums")
                own_phase.note_refused(db, self.settings, self.store.season, total)
            raise
        told_again = bool(sealed) and total.number == self._inbox.number(0) and not self.closed
        if new or told_again:  # a carrier that did not say before who was done may do so now
            with self.writing() as db:
                if new:
                    self._act_on(db, total)
                own_phase.note_sealed(db, self.settings, total, sealed)
                self._close_if_over(db)
        return new

    def _act_on(self, db: Connection, total: GridSum) -> None:
        if contradicts(total.read(), self.settings):
            agent_tables.add_warning(db, PARAMETER_BOUND)
        self._inbox.put(db, total, keep=self._memory.fading is not None)
        self._counters.add("sums")
        self._learn(total.group)
        if self._memory.disagrees(total.group, self._inbox.read(total.group)):
            agent_tables.add_warning(db, CHANGED)
        learnt = self._learnt(total.group)
        if learnt.belief is not None:
            agent_tables.add_learnt(
                db,
                group=total.group,
                number=total.number,
                read_at=self._now() / 1000.0,
                body=learnt.point(),
                most=MOST_POINTS,
            )

    def hear(self, data: bytes) -> bool:
        """Take in what is said about secure sums; whether it is new.

        Args:
            data: as it came: a keeper's `KeyCard` or a row that is over, an `Opened` (`secure_rows`); on a
                graph what a member of the clique says for a row (`protocol.masks`).

        Raises:
            RefusedError: it does not prove itself, or is not the next.
        """
        with self.writing() as db:
            new, told = self.store.hear(db, data)
            if told is not None:
                self._act_on_rows(db, messages.decode(told))
            self._close_if_over(db)
        return new

    def _act_on_rows(self, db: Connection, total: GridSum) -> None:
        """Act on what rows tell, unless it cannot be true: then it is counted, and the next may mend it."""
        try:
            require_definite(total)
            self._inbox.admit(total, self.settings, self.store.season)
        except ValueError:
            self._counters.add("refused_sums")
            return
        self._act_on(db, total)

    def _close_if_over(self, db: Connection) -> None:
        """Go on with own records, once everybody's last batch is sealed."""
        if self._may_close():
            self._read_own(db)

    def _may_close(self) -> bool:
        if not self.settings.closes or not self.settings.trust.leaves or self.closed:
            return False
        passed = self._now() >= 1000 * (self.started_at + self.settings.release_times[-1])
        return passed and own_phase.is_over(self.store, self.settings, self._inbox.number(0))

    def _read_own(self, db: Connection) -> None:
        own_phase.read_now(db, self.store, self._now())
        self._counters.add("own_readings")
        known = self._own_belief()
        assert known is not None  # it was just read
        self._chooser.know(0, known[0])
        agent_tables.mark_hearing(db, known[1])
        self._chooser.know_alone(own_phase.knows_alone(self.store, self.settings))

    @property
    def name(self) -> str:
        """By which others know it."""
        return self.settings.name if self.store.member is None else self.store.member.name

    def place(self) -> bytes:
        """The newest row of the first group that is over, as 16 bytes; none if there is none."""
        return self.store.place()

    # Looking, and the rarer wishes

    def snapshot(self) -> dict[str, Any]:
        """How it stands, in plain numbers: for the agent's own people, since counts are raw."""
        passed = self._clock() - self.started_at
        later = [one for one in self.settings.release_times if one > passed]
        groups, member = range(self.settings.groups), self.store.member
        keepers = None if member is None else member.roster.keepers
        return view(self.store.database, self._season, self._counters.totals(), keepers=keepers) | {
            "model": [self._model(self._inbox.number(group)) for group in groups],
            "agents_in_sum": [self._inbox.agents(group) for group in groups],
            "first_useful_sum": self._first_read,
            "learning": sorted(self._chooser.deciders),
            "next_release_at": self.started_at + later[0] if later else None,
            "in_batch": self.store.pending,
            "season_over": self.season_over,
            "at": self._clock(),
        }

    @property
    def _first_read(self) -> int:
        if not self.settings.trust.leaves:
            return 0
        rule = self._memory.rule(0)
        return self.settings.rule.first if rule is None else rule.first

    @property
    def warnings(self) -> dict[str, str]:
        """By kind, what speaks against the settings: seen in released sums and under noise alone."""
        return read_warnings(self.store.database, self.settings)

    def overview(self) -> dict[str, Any]:
        """`snapshot`, and what happened over time: for the agent's own page."""
        return self.snapshot() | view_over_time(self.store.database, self._season, now=self._clock())

    @property
    def _season(self) -> Season:
        return Season(self.store.season, self.settings, self.started_at)

    def model(self, group: int = 0) -> dict[str, Any]:
        """What was learnt, in the recipe's words, now and at each sum that was read (`learnt`).

        Args:
            group: of visitors, where there are several.

        Guarantees:
            A function of released sums and public settings, unless ``from`` is ``own records``.
        """
        groups = self.settings.groups
        if require_integer("group", group, at_least=0) >= groups:
            raise ConfigurationError("group", group, f"less than the number of groups, {groups}")
        past = agent_tables.read_learnt(self.store.database, group)
        return {
            "model": self._model(self._inbox.number(group)),
            "group": group,
            "groups": groups,
            **self._learnt(group).as_dict(),
            "history": [told_at(*one) for one in past],
        }

    def _learnt(self, group: int) -> Learnt:
        decider = self._chooser.deciders.get(group)
        belief = None if decider is None else decider.belief
        blended = self._memory.blended(group, self._inbox.read(group))
        return Learnt(self.settings, belief, blended, self.closed)

    def _learn(self, group: int) -> None:
        """Go by the sums that are there, of this season and of earlier ones."""
        self._chooser.know(group, self._memory.belief(group, self._inbox.read(group)))

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
        settings = settings or replace(self.settings, start=None, first_season=None, promised=None)
        now = self._clock()
        opening = Opening(self.store.season + 1, now, settings)
        if settings.start is not None:
            opening = next_opening(self._season, settings, now)
            if opening.started_at > max(now, settings.start):  # it is not over, and its start has not moved
                require_later(settings, self.started_at)
        if self.store.member is not None:
            require_place(self.store.member, settings)
        self.store.new_season(
            opening.settings.terms,
            drop_pending=drop_open,
            number=opening.number,
            then=lambda db: self._write_opening(db, opening, token_bytes(32), by or self._by),
        )
        self._begin_again(opening.settings)
        return self.store.season

    def _is_complete(self) -> bool:
        """Whether all that was to leave in this season has, and its last sum is here."""
        numbers = [self._inbox.number(group) for group in range(self.settings.groups)]
        return is_complete(self.store, self.settings, numbers)

    def _roll(self) -> None:
        """Open the season that runs by now: its time has come, by the clock."""
        now, again = self._clock(), (self.settings, self.store.member)
        settings, member = again
        self.trouble = ""
        try:
            if self.renewal is not None:
                number = next_opening(self._season, replace(settings, promised=None), now).number
                settings, member = self.renewal(number)
            settings = replace(placed(self.store.database, settings), promised=None)
            if member is not None:
                require_place(member, settings)
            opening = next_opening(self._season, settings, now)
        except (FeducbError, OSError) as error:
            self.trouble = f"the season goes on with the settings before: {error}"
            settings, member = again
            opening = next_opening(self._season, replace(settings, promised=None), now)
        self._spent = over_budget(self.ledger(), opening.settings)
        if self._spent:
            self.trouble = self._spent
            return
        whole = self.store.roll(
            opening.settings.terms,
            number=opening.number,
            carries=may_carry(self.settings, opening.settings),
            keep_keys=earlier_keys(opening.settings),
            then=lambda db: self._write_opening(db, opening, self._id_key, "the clock"),
        )
        if not whole:
            self.trouble = "what waited for a release was dropped: the new season adds up other records"
        self.store.member = member
        self._begin_again(opening.settings)

    def _write_opening(self, db: Connection, opening: Opening, id_key: bytes, by: str) -> None:
        """The settings of a season that opens, in the transaction that opens it."""
        if self.settings.recipe != opening.settings.recipe:
            own_sums.forget(db)
        agent_tables.mark_season(db, self.started_at)
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
        self.settings = settings.under(self.store.terms)
        with self.store.writing() as db:
            self._begin_own(db, None)
        self._reload()
        self.store.cut_log()  # the file behind it still has the keys of the season before

    def close(self) -> None:
        """Give the file back."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def draw_group(self) -> int:
        """The group of a new record, by a private coin.

        In turn, one absent visitor would move every later record to another group (docs/theory.md, 2).
        """
        return self._coins.randrange(self.settings.groups) if self.settings.groups > 1 else 0

    def count(self, name: str, count: int = 1) -> None:
        """Count something, within `writing`."""
        self._counters.add(name, count)

    def _now(self) -> int:
        return int(1000 * self._clock())

    def _find(self, db: Connection, id: str) -> events.Row | None:
        """By the id that was made up here, or by the application's own."""
        for number, tag in numbers_of(self._id_key, id):
            if (row := events.find_numbered(db, number, tag)) is not None:
                return row
        return events.find(db, self._key(id))

    def _key(self, name: str) -> bytes:
        """How an application's own id is kept: a keyed hash, since it may name people."""
        return blake2b(name.encode(), key=self._id_key, digest_size=16).digest()

    def _model(self, number: int | None) -> str:
        return f"{self.store.season}.{number or 0}"

    def _with_reasons(self, decision: Decision, row: events.Made | events.Row, visitor: Visitor) -> Decision:
        """With what each term adds, where something was learnt."""
        assert visitor.names is not None  # it was asked for
        asked = Question(
            visitor.candidates, visitor.names, decision.index, decision.propensity, self.settings.shadow
        )
        source = OWN if self.closed or row.lane == events.ALONE else RELEASED
        return replace(decision, explanation=self._chooser.explain(row.group, asked, source, row.lane))

    def _decision(
        self,
        name: str,
        row: events.Made | events.Row,
        visitor: Visitor,
        *,
        scores: bool,
        top: int | None,
        repeated: bool = False,
    ) -> Decision:
        """With what is expected of it, where something was learnt; and with all scores, if asked for."""
        assert row.chosen is not None
        assert row.preferred is not None  # they are content, and go together
        judged = self._chooser.judge(row.group, visitor.candidates[row.chosen], row.lane)
        by_all = self._chooser.scores(row.group, visitor.candidates, row.lane) if scores or top else None
        return Decision(
            id=name,
            index=row.chosen,
            action=visitor.name(row.chosen),
            propensity=row.propensity,
            estimate=None if judged is None else judged[0],
            bound=None if judged is None else judged[1],
            model=self._model(row.model),
            would_choose=row.preferred,
            would_choose_action=visitor.name(row.preferred),
            scores=None if by_all is None or not scores else tuple(by_all.tolist()),
            ranking=None if by_all is None or not top else _best_first(by_all)[:top],
            repeated=repeated,
        )

    def _state_of(self, known: events.Row | None) -> Outcome:
        if known is None:
            return Outcome.UNKNOWN
        if known.state == events.DISCARDED:
            return Outcome.DISCARDED
        # By the clock, not by whether it was settled yet: what enters must not depend on how busy we are.
        late = known.state == events.TAKEN or self._now() >= known.closes_at
        return Outcome.LATE if late else Outcome.RECORDED

    def _next_cut(self, group: int) -> float:
        """When the next release is due, in milliseconds: after the last, the first of the next season.

        Never, where no season follows. An agent may linger beyond that one's first release: what closes by
        then is of its second, whenever the season is opened.
        """
        made, times = self._made(group), self.settings.release_times
        if made < len(times):
            return int(1000 * (self.started_at + times[made]) + 0.001)
        if not times or self._spent or not self.settings.rolls:
            return math.inf
        return int(1000 * (self._season.ends_at + times[0]) + 0.001)

    def _settle(self, group: int, rows: Sequence[events.Due]) -> None:
        reaches_all = self._chooser.reaches_all(group)
        with self.writing() as db:
            self._unswept = True
            batch = self._take_in(db, group, rows)
            events.mark_taken(
                db, group, rows, season=self.store.season, batch=batch, keep=self.settings.keep_events > 0
            )
            self._counters.add("settled", len(rows))
            self._counters.add("defaulted", sum(row.reward is None for row in rows))
            self._curve.settled(
                rows,
                default=self.settings.default_reward,
                uniform=not self.settings.shadow and (reaches_all or not self.settings.chooses.needs_coins),
                only_choice=reaches_all,
            )
            gain.add(db, self.settings, rows)
            self.read_own_again(db)

    def read_own_again(self, db: Connection) -> None:
        """Read own records, within `writing`, if that is allowed by now and enough of them are new."""
        if self.settings.closes and own_phase.read_again(db, self.settings):
            self._read_own(db)
        elif own_phase.read_held_out(db, self.settings):
            self._chooser.know_alone(own_phase.knows_alone(self.store, self.settings))

    def _take_in(self, db: Connection, group: int, rows: Sequence[events.Due]) -> int | None:
        """Add records to what is released next; the number of that release, or None if they never leave."""
        default, alone = self.settings.default_reward, not self.settings.trust.leaves
        if not alone and not self.settings.releases_records:
            self._counters.add("only_followed", len(rows))
            return None
        actions = np.frombuffer(b"".join(row.action for row in rows))
        rewards = np.array([default if row.reward is None else row.reward for row in rows])
        shaped = actions.reshape(-1, self.settings.problem.dim)
        if alone:
            self.store.keep_own(db, shaped, rewards)
            return None
        if self.settings.play == "released":
            held_out = np.array([row.lane == events.ALONE for row in rows])
            if held_out.any():
                hashes = [row.person for row in rows if row.lane == events.ALONE]
                self.store.hold_out(db, shaped[held_out], rewards[held_out], hashes)
                self._counters.add("held_out", len(hashes))
                rows = [row for row in rows if row.lane != events.ALONE]
                shaped, rewards = shaped[~held_out], rewards[~held_out]
        made = self._made(group)
        if made >= self.settings.releases:
            self._counters.add("after_the_last_release", len(rows))
            if self.settings.closes:
                self.store.keep_own(db, shaped, rewards)
            if not self.settings.rolls:
                return None  # else the next season's first release has them
        refused = None  # where no noise could cover a tally, none is written
        if self.settings.tally_scale is not None:
            refused = [row.reward is None and bool(row.refused) for row in rows]
        hashes, own = [row.person for row in rows], self.settings.closes
        self.store.settle(db, group, shaped, rewards, hashes, refused, own=own)
        return made + 1

    def _made(self, group: int) -> int:
        """Releases made in this season, or uploads where the controller makes releases of them.

        All, where the season may have gone on elsewhere: nothing more of it leaves here.
        """
        if self.store.silent:
            return self.settings.releases
        if self.settings.trust.raw:
            return self.store.uploads_made
        return self.settings.releases - self.store.releases_left_in(group)

    def _forget(self, moment: int) -> None:
        """Take the content of retained events away once that is over, and their rows a window later."""
        retain = round(1000 * self.settings.keep_events)
        remember = max(round(1000 * self.settings.window), _LEAST_MEMORY)
        db = self.store.database
        if 0 < retain < remember and events.any_content(db, before=moment - retain):
            with self.writing() as db:
                events.strip(db, before=moment - retain, limit=4 * _CHUNK)
        oldest = moment - max(retain, remember)
        if events.any_old(db, before=oldest):
            with self.writing() as db:
                events.forget(db, before=oldest, limit=4 * _CHUNK)
        if self._unswept and time.monotonic() - self._swept_at > _SWEEP_SECONDS:
            self.sweep()

    def sweep(self) -> None:
        """Cut the file's log off, which still holds content that the file itself has forgotten."""
        with self.writing() as db:
            agent_tables.forget_before(db, self._now() // 3_600_000 - _CURVE_HOURS)
        self.store.cut_log()
        self._swept_at, self._unswept = time.monotonic(), False

    def note(self, what: str, *, by: str | None = None, **details: object) -> None:
        """Add a line to the operator log, in the same commit as what it tells of; never about a visitor.

        Args:
            what: was done.
            by: who did it; whoever opened the agent if not given.
            details: plain values.
        """
        with self.writing() as db:
            operator_log.add(db, by or self._by, what, **details)

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

    def _keep_settings(self, db: Connection, by: str | None = None) -> None:
        """Write the settings, and the terms that follow from them if nothing has happened under others."""
        season, kept, body = self.store.season, agent_tables.read_settings(db), self.settings.to_json()
        again = kept is not None and kept.season == season
        if again and season_in(db, self.store.path).settings != self.settings:
            require_promised(db, self.settings)
        if agent_tables.is_unused(db):
            self.store.restate(db, self.settings.terms)
        if kept is not None and kept.season == season:
            start, id_key = started_at(self.settings, kept), kept.id_key
        else:  # a new file, or one from a backup
            agent_tables.mark_season(db, None if kept is None else kept.started_at)
            start, id_key = self._begins(season), token_bytes(32)
        note_settings(db, kept, season, body, by or self._by)
        agent_tables.write_settings(db, season=season, body=body, started_at=start, id_key=id_key)
        if agent_tables.is_unused(db):
            self._begin_own(db, kept)
        self.settings = self.settings.under(self.store.terms)

    def _begins(self, season: int) -> float:
        """When a season starts that has no settings yet."""
        return self._clock() if self.settings.start is None else self.settings.common_calendar.starts(season)

    def _begin_own(self, db: Connection, kept: agent_tables.KeptSettings | None) -> None:
        """What was learnt alone stays where a new season can read it, under the same recipe."""
        if kept is not None:
            before, now = (json.loads(body)["recipe"] for body in (kept.body, self.settings.to_json()))
            if before != now:
                own_sums.forget(db)
        own_phase.begin(db, self.store, self.settings, self._now())

    def _reload(self) -> None:
        """What is in memory, from the file."""
        if self.store.closed:
            return
        db = self.store.database
        kept = agent_tables.read_settings(db)
        assert kept is not None  # written when it was opened
        self.started_at, self._id_key = kept.started_at, kept.id_key
        self._counters.load(db)
        self._counters.at_least("decisions", events.last_number(db))
        self._curve, self._chooser = Curve(width_for(self.settings.season)), Chooser(self.settings)
        self._visitors = Visitors(self.settings)
        self._inbox.load(db, self.settings)
        self._memory = Memory.load(db, self.settings, season=self.store.season, started_at=self.started_at)
        for group in range(self.settings.groups):
            self._learn(group)
        if (own := self._own_belief()) is not None:
            self._chooser.know(0, own[0])
        self._chooser.know_alone(own_phase.knows_alone(self.store, self.settings))
        # Also where a season was opened by hand, edited before its first release, or opened from a backup.
        limited = self.settings.most_epsilon is not None
        unspent = limited and not agent_tables.count_made(db, self.store.season)
        self._spent = over_budget(self.ledger(), self.settings) if unspent else ""
        self.trouble = self._spent or self.trouble

    def _own_belief(self) -> tuple[Belief, Hearing] | None:
        """What it goes by in its own phase, and whether it hears the others; None before that."""
        return own_phase.knows(self.store, self.settings, self._inbox.newest(0), self._memory)


def _running(settings: AgentSettings, clock: Callable[[], float]) -> int:
    """The season that runs now, for a file that is made."""
    return 1 if settings.start is None else settings.common_calendar.number_at(clock())


def _best_first(scores: Array) -> tuple[int, ...]:
    return tuple(np.argsort(-scores, kind="stable").tolist())
