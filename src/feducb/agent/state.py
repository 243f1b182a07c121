"""What an agent has in memory of its file, and the commits that keep the two the same."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from sqlite3 import Connection

from feducb.agent import own_phase
from feducb.agent.chooser import Chooser
from feducb.agent.curve import Curve, width_for
from feducb.agent.inbox import Counters, Inbox
from feducb.agent.kept import Season
from feducb.agent.learnt import Learnt
from feducb.agent.remembered import Memory
from feducb.agent.season_roll import Watch, over_budget
from feducb.agent.settings import AgentSettings
from feducb.agent.visitors import Visitors
from feducb.models.joint import Hearing
from feducb.storage import AgentStore, agent_tables, events, own_sums, recipe_marks
from feducb.types import Belief

__all__ = ["State"]


class State:
    """What follows from an agent's file and its settings; read again whenever a commit fails.

    Attributes:
        store: the file.
        settings: of the open season.
        clock: seconds since 1970.
        by: who opened the agent, for the operator log.
        coins: all chance that decisions need.
        counters: totals by name.
        curve: the learning curve.
        inbox: the sums that it acts on.
        memory: what is remembered of earlier seasons.
        chooser: what it knows, ready to decide by.
        visitors: reads what is asked.
        other_actions: the newest decision from before actions were last added or retired, by its number.
        other_recipe: likewise, the newest by a recipe that the present one does not continue.
        watch: when the season is over.
        started_at: when the season started, in seconds since 1970.
        id_key: of ids that are made up, and under which the application's own are kept.
        spent: why nothing of this season may leave, if all seasons have cost too much.
        trouble: why the next season is not open though its time has come, or not as it was asked for.
        joins: from which later season on it is one of the federation's agents; None if it is one already.
        misheard: whether a sum of the season, or a word about one, was refused: the roster may be older.
        unswept: whether the file's log may still hold content that the file has forgotten.
        swept_at: when it was last cut off, by the monotonic clock.
    """

    def __init__(
        self, store: AgentStore, settings: AgentSettings, clock: Callable[[], float], by: str
    ) -> None:
        self.store, self.settings, self.clock, self.by = store, settings, clock, by
        # The operating system's: from coins that can be predicted, others' could be told, and who was there.
        self.coins: random.Random = random.SystemRandom()
        self._writing: Connection | None = None
        self.counters, self.inbox, self.memory = Counters(), Inbox(), Memory(settings)
        self.curve, self.chooser = Curve(width_for(settings.season)), Chooser(settings)
        self.visitors = Visitors(settings)
        self.other_actions = self.other_recipe = 0
        self.unswept, self.swept_at = False, time.monotonic()
        self.id_key, self.started_at = b"", 0.0
        self.watch, self.spent, self.trouble = Watch(clock), "", ""
        self.joins: int | None = None
        self.misheard = False

    def now(self) -> int:
        """Milliseconds since 1970."""
        return int(1000 * self.clock())

    @property
    def season(self) -> Season:
        """The open one."""
        return Season(self.store.season, self.settings, self.started_at)

    @property
    def waits(self) -> bool:
        """Whether it makes no release yet, since it comes in with a later season: records go along to that.

        Under own play they stay its own, in nobody's sum, so that all of a sum is the others'.
        """
        return self.joins is not None and self.store.season < self.joins

    @property
    def closed(self) -> bool:
        """Whether it goes by its own records too (`own_phase`)."""
        return own_sums.closed_at(self.store.database) is not None

    def made(self, group: int) -> int:
        """Releases made in this season, or uploads where the controller makes releases of them.

        All, where the season may have gone on elsewhere: nothing more of it leaves here.
        """
        if self.store.silent:
            return self.settings.releases
        if self.settings.trust.raw:
            return self.store.uploads_made
        return self.settings.releases - self.store.releases_left_in(group)

    @property
    def season_over(self) -> bool:
        """Whether all releases of this season are made; never where there are none."""
        return self.settings.trust.leaves and all(
            self.made(group) >= self.settings.releases for group in range(self.settings.groups)
        )

    def draw_group(self) -> int:
        """The group of a new record, by a private coin.

        In turn, one absent visitor would move every later record to another group (docs/theory.md, 2).
        """
        return self.coins.randrange(self.settings.groups) if self.settings.groups > 1 else 0

    def model_name(self, group: int) -> str:
        """The sum that is in use for a group, ``season.number``."""
        return self.name_of(self.inbox.number(group))

    def name_of(self, number: int | None) -> str:
        """A sum of this season, ``season.number``; number 0 is none yet."""
        return f"{self.store.season}.{number or 0}"

    # Commits

    def writing(self) -> AbstractContextManager[Connection]:
        """One durable commit, or a part of the one that is open (`Agent.writing`)."""
        return self._commit() if self._writing is None else self.store.part(self._writing)

    @contextmanager
    def _commit(self) -> Iterator[Connection]:
        try:
            with self.store.writing() as db:
                self._writing = db
                yield db
                self.counters.flush(db)
                self.curve.flush(db)
        except BaseException:
            self._writing = None
            self.reload()
            raise
        finally:
            self._writing = None

    def reload(self) -> None:
        """What is in memory, from the file."""
        if self.store.closed:
            return
        db = self.store.database
        kept = agent_tables.read_settings(db)
        assert kept is not None  # written when it was opened
        self.started_at, self.id_key = kept.started_at, kept.id_key
        self.counters.load(db)
        self.counters.at_least("decisions", events.last_number(db))
        self.curve, self.chooser = Curve(width_for(self.settings.season)), Chooser(self.settings)
        self.visitors = Visitors(self.settings)
        self.other_actions = recipe_marks.of_other_actions(db) or 0
        self.other_recipe = recipe_marks.of_other_recipe(db)
        self.inbox.load(db, self.settings)
        self.memory = Memory.load(db, self.settings, season=self.store.season, started_at=self.started_at)
        for group in range(self.settings.groups):
            self.learn(group)
        if (own := self.own_belief()) is not None:
            self.chooser.know(0, own[0])
        self.learn_alone()
        self.look_at_budget()

    def look_at_budget(self) -> None:
        """Whether the open season may cost anything, if nothing of it was made yet.

        Also where it was opened by hand, edited before its first release, or opened from a backup.
        """
        limited = self.settings.most_epsilon is not None and not self.waits
        unspent = limited and not agent_tables.count_made(self.store.database, self.store.season)
        before, self.spent = self.spent, over_budget(self.store.ledger(), self.settings) if unspent else ""
        self.trouble = self.spent or ("" if self.trouble == before else self.trouble)

    # What it knows

    def learn(self, group: int) -> None:
        """Go by the sums that are there, of this season and of earlier ones."""
        self.chooser.know(group, self.memory.belief(group, self.inbox.read(group)))

    def learn_alone(self) -> None:
        """Decide by own records for whom is held out."""
        self.chooser.know_alone(own_phase.knows_alone(self.store, self.settings))

    def own_belief(self) -> tuple[Belief, Hearing] | None:
        """What it goes by in its own phase, and whether it hears the others; None before that."""
        return own_phase.knows(self.store, self.settings, self.inbox.newest(0), self.memory)

    def learnt(self, group: int) -> Learnt:
        """What it knows for a group of visitors."""
        decider = self.chooser.deciders.get(group)
        belief = None if decider is None else decider.belief
        blended = self.memory.blended(group, self.inbox.read(group))
        return Learnt(self.settings, belief, blended, self.closed)
