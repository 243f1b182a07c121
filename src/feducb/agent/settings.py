"""What a deployed agent is told: public promises, which hold for a season, and its own habits."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from feducb.config import Budget, Problem, require_finite, require_integer, require_probability
from feducb.errors import ConfigurationError
from feducb.interfaces import Contexts
from feducb.models import Model
from feducb.models.joint import JointBound
from feducb.models.mixture import MixtureBound
from feducb.models.play import AlonePlay, JointPlay, ReleasedPlay
from feducb.policies import Mixture, parse_policy
from feducb.privacy.calibration import to_epsilon, to_mu
from feducb.privacy.grid import rounding_radius
from feducb.privacy.mechanisms import Dense, Mechanism
from feducb.privacy.tally import tally_scale
from feducb.privacy.terms import Terms, require_agents_per_person
from feducb.protocol.calendar import Calendar
from feducb.protocol.closing import after_history, closing_estimator, joint_rule, shares_of
from feducb.protocol.estimators import Estimator, alone_estimator, calibrated_estimator, plan_rounds
from feducb.protocol.federation import EVERYTHING, Federation, Play, Tuning
from feducb.protocol.names import require_name
from feducb.protocol.schedules import DEFAULT_RELEASES, Geometric, Periodic, Planned
from feducb.storage import events
from feducb.trust import NOBODY, Keepers, Trust, require_trust
from feducb.types import Belief, ReleasedSum, Statistics
from feducb.worlds.features import Recipe, model_of
from feducb.worlds.features.bounds import problem_of, require_agreeing
from feducb.worlds.features.season import fixed_part

__all__ = ["AgentSettings", "FollowPolicy", "parse_duration"]

FollowPolicy = Literal["learning", "fixed"]
ScheduleName = Literal["planned", "geometric", "periodic"]
Remember = Literal["all", "none"] | int

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 3650 * 86400.0
# What must stay as it is in a season, beside the terms. What an operator sees within a season is raw (the
# learning curve, counts): if it could decide what later visitors are shown, one record would move many
# (docs/theory.md, 2). Those that terms follow from come first, since an error names the first that changed.
PROMISED = (
    *(
        "recipe",
        "agents",
        "budgets",
        "quorum",
        "decisions",
        "history",
        "releases",
        "season",
        "schedule",
        "first_release",
    ),
    *("last_release", "alpha", "play", "distance", "groups", "name", "window", "default_reward"),
    *("policy", "exploration", "uniform_share", "holdout", "shadow", "follow_policy"),
    *("remember", "discount", "drift"),
)
PLACE = ("clique", "cliques")  # decides on a graph how sums are read; stays for a season once it is known
FALSE_ALARM = 0.01  # chance, over a season, of warning of a parameter bound that holds
_MOST_SETS = 900.0  # as a power of 2: α over so many is still a number
_LEAST_ALPHA = -1000.0  # as a power of 2: a share of it, by release and part of the bound, is still a number
_AS_PLANNED = 1.01  # a sum has at most so many times the planned variance: the grid adds 0.2 %
_MOST_AGENTS = 1_000_000
_MOST_RELEASES = 100_000
_MOST_DIM = 2_000
SAME_START = 0.001  # seconds: what is written as text is rounded
_LARGEST_HOLDOUT = 0.5
_GRID_ONLY = Budget(epsilon=1.0, delta=1e-6)  # under trust self: it fixes the grid, and promises nothing
_LATEST_START = 250_246_627_200.0  # 9900-01-01: the season's last moment is still a date


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Settings of one agent. All agents of a federation share those that are marked *shared*.

    What is marked *season* is a public promise: from the first decision of a season on, or the first record,
    it stays as it is until a new season opens.

    Attributes:
        name: of the agent, among the others: letters, digits, ``-`` and ``_``.
        problem: the public bounds (*shared*, *season*). With a recipe they follow from it, for rewards from 0
            to 1, if they are left out; what is given must agree.
        recipe: how vectors are made of visitors and actions (*shared*, *season*, but for actions that are
            added to its reserve or retired: `features.season`); without one the application makes them
            itself.
        budget: (ε, δ) of a person at this agent (*season*); none under ``self``, where nothing leaves.
        budgets: by name, where agents have budgets of their own: everybody's, this agent's too (*shared*,
            *season*). Empty if all have ``budget``.
        agents: M, how many agents the federation is planned for (*shared*, *season*).
        decisions: how many decisions an agent is expected to make in a season, roughly (*shared*, *season*).
            With M it says from which release on sums are worth reading; the privacy promise does not depend
            on it.
        history: how many records an agent has from before, roughly, that enter its first release
            (`warm_start`; *shared*, *season*): sums are planned, weighed and read with them.
        season: how long a season lasts, in seconds (*shared*, *season*).
        releases: n, how many releases the budget covers (*shared*, *season*). Left out, ``planned`` has a
            number of its own and the others 64; from then on it stands here.
        schedule: ``planned``, few releases in geometric progression from the first moment at which a sum of
            all agents is worth reading (`protocol.estimators.plan_rounds`); ``geometric`` from
            ``first_release`` to the season's end; or ``periodic`` (*shared*, *season*).
        first_release: seconds to the first release; none with ``periodic`` (*shared*, *season*). Left out,
            ``planned`` has one of its own, which stands here from then on. It goes with ``releases``: a plan
            that was made is kept as numbers, so that no later version moves an open season.
        last_release: under own play, seconds to the last release, at which all close; none otherwise
            (*shared*, *season*). Left out, it is planned like ``first_release``, and goes with it.
        start: when the season starts, seconds since 1970 (*shared*, *season*). An agent on its own may leave
            it out: its season then starts when it is first opened. Several agents need the same one: their
            confidence bound rests on sums over prefixes of one common clock (docs/theory.md, 6). Seasons
            follow upon each other from there on (`calendar`), so that it stays as it is for all of them.
        first_season: the number of the season that starts at ``start`` (*shared*, *season*); 1 if left out.
            It goes up where a federation agrees on another ``start`` or ``season`` from some number on.
        most_epsilon: the most that all seasons together may cost a person who is there in each: ε at
            ``most_delta``. No season is opened that would go beyond; None sets no limit.
        most_delta: the δ that goes with it; that of ``budget`` if left out.
        mechanism: the mechanism's name (*shared*, *season*).
        records_per_person: p, how many records of one person may enter here (*season*).
        spacing: any two of them are in releases at least so many apart (*season*; *shared* where the
            controller is trusted); 0: anywhere. Noise is less than p times that of one record then.
        agents_per_person: how many agents one person visits at most; 1 says that people do not visit several
            (*shared*, *season*). Where the controller is trusted its noise covers p records at each of them,
            and all agents are taken if it is not given.
        trust: who adds the noise (*shared*, *season*); its name will do. ``self``: nothing leaves, and one
            agent learns from its own raw records from the first on.
        contexts: ``public`` states that everybody may know all about visitors and what they are shown:
            rewards alone are protected then, with less noise (*shared*, *season*).
        groups: estimators an agent keeps; more than one only among peers (*shared*, *season*).
        quorum: how many agents a sum needs at least; all if not given (*shared*, *season*). On a graph, none:
            a sum is of the whole clique.
        clique: on a graph, the names of the agents of this one's clique; empty with a controller (*season*,
            from the first time that it is known).
        cliques: how many cliques cover the graph (*shared*, *season* like ``clique``); 1 with a controller.
        alpha: α, the chance that the confidence bound ever fails (*shared*, *season*).
        play: ``released``, decisions look at released sums alone, to the season's end; or ``own``, until all
            have made their last release, and from then on at own raw records and the others' sum (*shared*,
            *season*; docs/service.md). An agent in shadow mode shares like the others, and never closes.
        distance: under own play, by how much θ* of two agents may differ, over S: 0, all are alike; None, it
            is not known (*shared*, *season*; `protocol.closing`).
        policy: how the agent chooses, as text (`policies.parse_policy`; *season*).
        exploration: scales the bonus of the optimistic policy; 1 is the proven bound (*season*).
        window: seconds after a decision in which its reward may come (*season*).
        default_reward: what a decision counts whose reward did not come (*season*).
        uniform_share: this share of decisions is drawn uniformly, so that the log can judge other policies
            (*season*).
        holdout: this share of decisions is made as the agent alone would make them, to see what the others
            are worth (`agent.gain`; *season*). Under own play that is after the close, from all own records.
            Under released play such visitors' records are learnt from for other such visitors, and enter no
            release; whoever sets it states that what they were shown moves nobody else's record.
        shadow: follow the application's own choice, and only say what would have been chosen (*season*).
        follow_policy: how the application chooses in shadow mode (*season*). ``learning``: it may learn from
            rewards, so that one reward may move many later records; what was followed is then kept for
            evaluation, but enters no release. ``fixed``: its operator states that the policy is public and
            does not learn from rewards; what was followed is then released like any other record.
        remember: earlier seasons whose last sums are read beside this one's: ``all``, ``none`` or how many
            (*season*; docs/theory.md, 11). A season of another recipe or other bounds is not.
        discount: what such a sum counts less for each season that has passed since, as a factor (*season*).
        drift: in how many seconds what was learnt is to count half; None: rewards follow the same law for
            ever (*season*). It takes the place of ``discount``, and goes on within a season.
        keep_events: seconds for which raw events are kept after their window, for `export`. It may change
            within a season, since nothing that is decided or leaves depends on it.
        promised: the terms of the open season (`under`), which is no setting and is not written down.
    """

    name: str = "agent"
    problem: Problem = None  # type: ignore[assignment]  # there once it is made
    budget: Budget = None  # type: ignore[assignment]  # likewise
    recipe: Recipe | None = None
    budgets: Mapping[str, Budget] = field(default_factory=dict, hash=False)
    agents: int = 1
    decisions: int = 100_000
    history: int = 0
    season: float = 30 * 86400.0
    releases: int = None  # type: ignore[assignment]  # a number once it is made
    schedule: ScheduleName = "planned"
    first_release: float | None = None
    last_release: float | None = None
    start: float | None = None
    first_season: int | None = None
    most_epsilon: float | None = None
    most_delta: float | None = None
    mechanism: str = "auto"
    records_per_person: int = 1
    spacing: int = 0
    agents_per_person: int | None = None
    trust: Trust = NOBODY
    contexts: Contexts = "private"
    groups: int = 1
    quorum: int | None = None
    clique: tuple[str, ...] = ()
    cliques: int = 1
    alpha: float = 0.1
    play: Play = "released"
    distance: float | None = None
    policy: str = "tempered"
    exploration: float = 1.0
    window: float = 3600.0
    default_reward: float = 0.0
    uniform_share: float = 0.0
    holdout: float = 0.0
    shadow: bool = False
    follow_policy: FollowPolicy = "learning"
    remember: Remember = "all"
    discount: float = 1.0
    drift: float | None = None
    keep_events: float = 0.0
    promised: Terms | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.problem is None:
            if self.recipe is None:
                raise ConfigurationError(
                    "problem", None, "the public bounds, or a recipe that they follow from"
                )
            object.__setattr__(self, "problem", problem_of(self.recipe))
        trust = require_trust(self.trust)
        self._fix_alone(trust)
        trust = trust.on_graph().among(len(self.clique)) if self.clique else trust.among(self.agents)
        object.__setattr__(self, "trust", trust)
        for fits, name, expected in self._checks():
            if not fits:
                value = getattr(self, name)
                named = name in ("clique", "budgets")  # by name, of agents
                raise ConfigurationError(name, ", ".join(value) if named else value, expected)
        self._fix_releases()
        self.terms  # noqa: B018  # whatever is wrong with it is said now

    def _fix_alone(self, trust: Trust) -> None:
        """Under ``self`` there is no budget, no release, and own records are what is played by."""
        if trust.leaves:
            if self.budget is None:
                raise ConfigurationError("budget", None, "(ε, δ) of a person; none but under trust self")
            return
        if self.budget not in (None, _GRID_ONLY):
            raise ConfigurationError("budget", self.budget, "none under trust self: nothing leaves")
        for name, value in (("budget", _GRID_ONLY), ("play", "own")):
            object.__setattr__(self, name, value)

    def _checks(self) -> Iterator[tuple[bool, str, str]]:
        """Whether a setting can be, its name, and what was expected; some rest on earlier ones."""
        require_name("name", self.name)
        if self.recipe is not None:
            require_agreeing(self.problem, self.recipe)
        agents = require_integer("agents", self.agents, at_least=1)
        yield agents <= _MOST_AGENTS, "agents", f"at most {_MOST_AGENTS}"
        if self.problem.dim > _MOST_DIM:
            expected = f"at most {_MOST_DIM}: a release has d(d + 3)/2 numbers"
            raise ConfigurationError("dim", self.problem.dim, expected)
        require_integer("decisions", self.decisions, at_least=1)
        require_integer("history", self.history, at_least=0)
        require_integer("groups", self.groups, at_least=1)
        if self.agents_per_person is not None:
            require_agents_per_person("agents_per_person", self.agents_per_person, agents)
        for name, least in (("season", 0.001), ("window", 0.001), ("keep_events", 0.0)):
            length = require_finite(name, getattr(self, name), at_least=least)
            yield length <= _LONGEST, name, "at most ten years, in seconds"
        yield from self._check_seasons()
        if self.quorum is not None:
            quorum = require_integer("quorum", self.quorum, at_least=1)
            yield quorum <= agents, "quorum", f"at most the number of agents, {agents}"
            if isinstance(self.trust, Keepers):
                least = self.trust.quorum(agents)
                yield quorum == least, "quorum", f"{least}, the agents that are not away, under trust keepers"
        yield from self._check_clique()
        if not self.trust.leaves:
            yield from self._check_alone()
        yield from self._check_play()
        if self.budgets:
            yield from self._check_budgets()
        require_probability("alpha", self.alpha)
        yield from self._check_sets()
        require_finite("exploration", self.exploration, at_least=0)
        reward, (low, high) = require_finite("default_reward", self.default_reward), self.problem.reward_range
        yield low <= reward <= high, "default_reward", f"from {low:g} to {high:g}"
        share = require_finite("uniform_share", self.uniform_share, at_least=0)
        yield share <= 1, "uniform_share", "a share from 0 to 1"
        held_out = require_finite("holdout", self.holdout, at_least=0)
        yield held_out <= _LARGEST_HOLDOUT, "holdout", f"a share from 0 to {_LARGEST_HOLDOUT:g}"
        federated = self.trust.leaves and not self.shadow
        yield federated or not held_out, "holdout", "0 in shadow mode, and for an agent alone"
        yield isinstance(self.policy, str), "policy", "a text: it is kept in the agent's file"
        self.chooses  # noqa: B018  # a policy that is not known is refused now
        yield self.follow_policy in ("learning", "fixed"), "follow_policy", "learning or fixed"
        if self.start is not None:
            start = require_finite("start", self.start)
            yield 0 <= start <= _LATEST_START, "start", "seconds since 1970, before the year 9900"
        one_clock = (
            f"when the season starts, the same at all {agents} agents (`[releases] start`, such as "
            "2027-01-01T00:00:00Z): their sums go by one clock"
        )
        yield agents == 1 or self.start is not None, "start", one_clock
        yield from self._check_memory()
        yield from self._check_releases()

    def _check_memory(self) -> Iterator[tuple[bool, str, str]]:
        """What is remembered of earlier seasons, and how it fades; and that who is held out stays so."""
        # Groups are settled one after the other: a later record of who was held out could come first.
        yield not self.holdout or self.groups == 1, "holdout", "0 where there are several groups"
        if self.remember not in ("all", "none"):
            expected = "all, none, or how many seasons, at least 1"
            yield isinstance(self.remember, int) and self.remember >= 1, "remember", expected
        share = require_finite("discount", self.discount, above=0)
        yield share <= 1.0, "discount", "a factor above 0 and at most 1"
        if self.drift is not None:
            half_life = require_finite("drift", self.drift, above=0)
            yield half_life <= _LONGEST, "drift", "a half-life of at most ten years, in seconds, or none"
            yield share == 1.0, "discount", "1 beside a drift, whose half-life says what each season counts"

    def _check_alone(self) -> Iterator[tuple[bool, str, str]]:
        """Settings that only mean something where something leaves are as they were left."""
        under = "under trust self: nothing leaves"
        for name in ("agents", "groups", "records_per_person"):
            yield getattr(self, name) == 1, name, f"1 {under}"
        for name in ("spacing", "history"):
            yield getattr(self, name) == 0, name, f"0 {under}"
        yield self.schedule == "planned", "schedule", f"planned, which plans nothing {under}"
        yield self.releases in (None, 0), "releases", f"none {under}"
        for name in ("first_release", "last_release", "quorum", "agents_per_person", "distance"):
            yield getattr(self, name) is None, name, f"nothing {under}"

    def _check_releases(self) -> Iterator[tuple[bool, str, str]]:
        if not self.trust.leaves:
            return
        yield self.schedule in get_args(ScheduleName), "schedule", "planned, geometric or periodic"
        given, planned = self.releases is not None, self.schedule == "planned"
        if given:
            releases = require_integer("releases", self.releases, at_least=1)
            yield releases <= _MOST_RELEASES, "releases", f"at most {_MOST_RELEASES} in a season"
        if self.first_release is not None:
            first = require_finite("first_release", self.first_release, above=0)
            yield self.schedule != "periodic", "first_release", "nothing with a periodic schedule"
            yield first <= self.season, "first_release", f"at most the season's {self.season:g} seconds"
            room = not planned or self.releases == 1 or first < self.season
            yield room, "first_release", "before the season's end, where more than one release is planned"
            yield given or not planned, "first_release", "nothing with a planned schedule, or releases too"
        elif planned:
            expected = "nothing with a planned schedule, or first_release too; geometric and periodic take it"
            yield not given, "releases", expected
        yield from self._check_close()

    def _check_seasons(self) -> Iterator[tuple[bool, str, str]]:
        """How long they are, a number for the first, and what all of them may cost."""
        shorter = f"less than the season's {self.season:g} seconds: no reward would come in its season"
        yield self.window < self.season, "window", shorter
        if self.first_season is not None:
            require_integer("first_season", self.first_season, at_least=1)
            yield self.start is not None, "first_season", "nothing without the start that it goes with"
        if self.most_epsilon is None:
            yield self.most_delta is None, "most_delta", "nothing without most_epsilon"
            return
        most = Budget(epsilon=self.most_epsilon, delta=self.most_delta or self.budget.delta)
        enough = to_epsilon(to_mu(self.budget), most.delta) <= most.epsilon * (1 + 1e-9)
        yield enough, "most_epsilon", "at least what one season costs, epsilon at that delta"

    def _check_close(self) -> Iterator[tuple[bool, str, str]]:
        """The last release is where the plan ends, under own play alone."""
        last, first = self.last_release, self.first_release
        if self.play == "released" or first is None:
            expected = "nothing but under own play, with releases and first_release"
            yield last is None, "last_release", expected
            return
        expected = "seconds to the last release: it goes with releases and first_release under own play"
        yield last is not None, "last_release", expected
        assert last is not None
        last = require_finite("last_release", last, above=0)
        yield last <= self.season, "last_release", f"at most the season's {self.season:g} seconds"
        right = first < last if self.releases > 1 else first == last
        yield right, "last_release", "after the first release, or the same where there is one"

    def _check_sets(self) -> Iterator[tuple[bool, str, str]]:
        """Not so many sets of agents that α over them is no number, nor that counting them takes for ever."""
        least, most = self.sizes_of_sums
        size = max(least, most // 2)  # of which there are most
        sets = (math.lgamma(most + 1) - math.lgamma(size + 1) - math.lgamma(most - size + 1)) / math.log(2)
        few = sets <= _MOST_SETS + 1 and math.log2(self.sets_of_agents) <= _MOST_SETS
        yield few, "quorum", "more: too many sets of agents could make a sum"
        shares = math.log2(self.groups) + math.log2(self.cliques) + math.log2(self.sets_of_agents)
        enough = math.log2(self.alpha) - shares >= _LEAST_ALPHA
        yield enough, "alpha", "more: its share for each set of agents that could make a sum is tiny"

    def _check_clique(self) -> Iterator[tuple[bool, str, str]]:
        size = len(self.clique)
        require_integer("cliques", self.cliques, at_least=1)
        if not size:
            yield self.cliques == 1, "cliques", "1 without a clique of this agent's own"
            return
        differ = len(set(self.clique)) == size <= self.agents
        yield differ, "clique", f"different names, at most {self.agents}"
        others = self.agents - size  # each of them is in one of the other cliques
        cover = min(others, 1) <= self.cliques - 1 <= others
        yield cover, "cliques", f"as many as cover {self.agents} agents, {size} of them in this one"
        yield self.quorum is None, "quorum", "none on a graph: a sum is of the whole clique"
        self.trust.refuse("graph", "trust", self.trust.name)

    def _check_play(self) -> Iterator[tuple[bool, str, str]]:
        """Own records are read after a close that is the same for all, and known by a sum of all."""
        yield self.play in get_args(Play), "play", "released or own"
        if self.play == "released":
            return
        central = not self.clique and self.groups == 1
        yield central, "play", "released on a graph or with groups: there is no common close"
        if not self.trust.leaves:
            return
        whole = self.quorum in (None, self.agents) or self.trust.padded
        yield whole, "quorum", f"{self.agents}, or nothing, under own play: the last sum must be of all"
        expected = "planned under own play; its releases, first_release and last_release may be given"
        yield self.schedule == "planned", "schedule", expected

    def _check_budgets(self) -> Iterator[tuple[bool, str, str]]:
        self.trust.refuse("budgets", "budgets", ", ".join(self.budgets))
        yield self.name in self.budgets, "budgets", f"one for this agent, {self.name}, too"
        yield len(self.budgets) == self.agents, "budgets", f"a budget for each of {self.agents} agents"
        own = self.budgets[self.name]
        if own != self.budget:
            raise ConfigurationError(f"budgets.{self.name}", own, f"{self.budget}, as in [privacy]")
        yield self.budgets.keys() >= set(self.clique), "clique", "agents that have a budget"

    def _fix_releases(self) -> None:
        """Put numbers where they were left to the schedule, the same at all agents.

        A plan is for the sum of all agents, which is read first: no agent need know its place on a graph.
        """
        if not self.trust.leaves:
            object.__setattr__(self, "releases", 0)
        if self.releases is not None:
            return
        releases = DEFAULT_RELEASES
        if self.schedule == "planned":
            everybody, horizon = range(self.agents), self.decisions
            if self.play == "own":
                rounds = self._closing_rounds()
                object.__setattr__(self, "last_release", self._seconds(rounds[-1]))
            else:
                alpha = self.alpha / (self.groups * self.sets_of_agents)
                rounds = plan_rounds(self.federation, everybody, horizon, alpha=alpha, groups=self.groups)
            object.__setattr__(self, "first_release", self._seconds(rounds[0]))
            releases = len(rounds)
        object.__setattr__(self, "releases", releases)

    def _closing_rounds(self) -> tuple[int, ...]:
        """After which visits releases are due; a history that is enough is released after the first."""
        rounds = after_history(self.federation, range(self.agents), self.decisions, self.history)
        if not rounds:
            expected = (
                "nothing that leaves: by these public numbers an agent alone does better than with what "
                "others' sums would tell it under their noise. More agents, a larger epsilon, keepers or a "
                "history change that; releases, first_release and last_release in [releases] overrule it"
            )
            raise ConfigurationError("play", self.play, expected)
        return tuple(sorted({max(1, at - self.history) for at in rounds}))

    def _seconds(self, visits: int) -> float:
        """When a release is due that is planned for a round; under own play, with the rewards of that many.

        Milliseconds, rounded up: at the first release there must be as many decisions as were planned.
        """
        due = math.ceil(1000.0 * self.season * visits / self.decisions) / 1000.0
        return min(due + self._waits, self.season)

    @property
    def _waits(self) -> float:
        """How long after a planned round its release is due.

        A close comes early, so that what is still open then would be a large part of all that is shared.
        """
        return self.window if self.play == "own" else 0.0

    @cached_property
    def release_times(self) -> tuple[float, ...]:
        """When each release is due, in seconds after the start."""
        if not self.trust.leaves:
            return ()
        if self.schedule == "planned":
            assert self.first_release is not None
            first, steps = self.first_release, self.releases
            if self.last_release is not None:
                growth = (self.last_release / first) ** (1.0 / max(1, steps - 1))
                return (*(first * growth**step for step in range(steps - 1)), self.last_release)
            return tuple(first * (self.season / first) ** (step / steps) for step in range(steps))
        parts = max(1_000_000, self.releases)
        schedule = self._schedule(parts)
        assert not isinstance(schedule, Planned)
        rounds = schedule.rounds(parts)
        if len(rounds) != self.releases:
            raise ConfigurationError("releases", self.releases, "fewer, or an earlier first release")
        return tuple(self.season * one / parts for one in rounds)

    def _schedule(self, rounds: int) -> Planned | Geometric | Periodic:
        """When releases are due, in a season of so many rounds."""
        if self.schedule == "planned":
            return Planned()
        if self.schedule == "periodic":
            return Periodic(releases=self.releases)
        first = self.first_release or self.season / 100
        return Geometric(first=max(1, round(rounds * first / self.season)), releases=self.releases)

    @cached_property
    def chooses(self) -> Mixture:
        """How the agent chooses: its policy, with a share of decisions drawn uniformly."""
        return Mixture(parse_policy(self.policy, exploration=self.exploration), self.uniform_share)

    @property
    def lane_shares(self) -> Mapping[int, float]:
        """The chance of each lane that a visitor may be drawn into (`agent.gain`): public."""
        if not self.trust.leaves:
            return {events.FEDERATED: 0.0, events.ALONE: 1.0, events.UNIFORM: 0.0}
        rest, uniform = 1.0 - self.holdout, self.uniform_share
        return {
            events.FEDERATED: rest * (1.0 - uniform),
            events.ALONE: self.holdout,
            events.UNIFORM: rest * uniform,
        }

    @cached_property
    def held_out_rule(self) -> AlonePlay:
        """Under released play, how an agent alone plays that has the held out visitors and no others."""
        visits = max(1, round(self.holdout * self.decisions))
        rule = alone_estimator(self.federation, visits, alpha=self.alpha).rule
        assert isinstance(rule, AlonePlay)
        return rule

    @cached_property
    def estimator(self) -> Estimator:
        """How sums are read, and which mechanism goes with it, as in a simulation (`simulation.plan`).

        The mechanism follows from everybody's budgets; noise and bound of a sum from those of the team that
        adds it up: all agents, or the clique. α is shared by all cliques and groups.

        The simulated joint radius holds for sums of the whole team. Where sums of fewer may come, each set of
        agents has a bound of its own: the closed form, a union over releases, at α over the number of sets.
        """
        if not self.trust.leaves:
            return alone_estimator(self.federation, self.decisions, alpha=self.alpha)
        expected = (round(self.decisions * (due - self._waits) / self.season) for due in self.release_times)
        rounds = tuple(max(1, (self.history + one) // self.groups) for one in expected)
        if self.play == "own":
            promised = self._promised_mechanism
            horizon = self.history + self.decisions
            return closing_estimator(
                self.federation, rounds, range(self.agents), horizon=horizon, promised=promised
            )
        return calibrated_estimator(
            self.federation,
            rounds,
            self.team,
            alpha=self.share_of_alpha(),
            promised=self._promised_mechanism,
        )

    @property
    def _promised_mechanism(self) -> Mechanism | None:
        """That of the open season; None if there is none, or if it is not the one that is asked for."""
        if self.promised is None or self.promised.releases != self.releases:
            return None
        mechanism = self.promised.factors
        return mechanism if self.mechanism in ("auto", mechanism.name) else None

    def under(self, terms: Terms) -> AgentSettings:
        """These settings in a season that was opened under such terms.

        How noise is spread over releases follows from the settings, but another version may make something
        else of them: in an open season it stays as it was.
        """
        return self if self.terms == terms else replace(self, promised=terms)

    @property
    def federation(self) -> Federation:
        """The federation that the agent is one of, as far as an agent knows it: its clique, not the graph.

        Agents are in the order of their names. Rounds are decisions of one agent.
        """
        each = tuple(self.budgets[name] for name in sorted(self.budgets))
        return Federation(
            problem=self.problem,
            agents=self.agents,
            budget=each or self.budget,
            records_per_person=self.records_per_person,
            agents_per_person=self.agents_visited,
            spacing=self.spacing,
            trust=self.trust if self.trust.leaves else NOBODY,
            baseline=None if self.trust.leaves else "alone",
            model=self._model,
            contexts=self.contexts,
            mechanism=self.mechanism,
            schedule=self._schedule(self.decisions),
            alpha=self.alpha,
            play=self.play,
            distance=self.distance,
            policy=self.chooses if self.uniform_share else self.chooses.policy,
            tuning=Tuning(simulated=self.sets_of_agents == 1),
        )

    @property
    def _model(self) -> Model:
        """What is learnt: the recipe says which entries of a Gram are always zero, and do not leave.

        In an open season it stays as it was promised.
        """
        promised = self.promised
        if promised is not None and (promised.problem, promised.contexts) == (self.problem, self.contexts):
            return promised.model
        return model_of(self.recipe, spaced=self.spacing > 0)

    def calendar(self, number: int, started_at: float) -> Calendar:
        """Which season runs when, for an agent whose open season has this number and start.

        One that was opened by hand may have started at ``start`` itself under a later number than 1: then
        that one goes with it, unless ``first_season`` says otherwise.

        Args:
            number: of the open season.
            started_at: when it started, in seconds since 1970.
        """
        if self.start is None:
            return Calendar(started_at, self.season, number)
        if self.first_season is None and abs(self.start - started_at) <= SAME_START:
            return Calendar(started_at, self.season, number)
        return self.common_calendar

    @property
    def common_calendar(self) -> Calendar:
        """Which season runs when, by the settings alone; they must have a start."""
        assert self.start is not None
        return Calendar(self.start, self.season, self.first_season or 1)

    @property
    def rolls(self) -> bool:
        """Whether the clock opens the next season. Own play shares again on a person's word alone.

        A later season is private for people of earlier ones only if nothing that it sees depends on what was
        decided after the close (docs/theory.md, 10), which no clock can say.
        """
        return self.play == "released" and self.trust.leaves

    @property
    def _recipe_digest(self) -> str:
        """Of what a season keeps of the recipe; in an open season as promised: files had none before."""
        if self.promised is not None:
            return self.promised.recipe
        return "" if self.recipe is None else fixed_part(self.recipe).fingerprint

    @property
    def agents_visited(self) -> int:
        """How many agents a person is taken to visit: as stated, else all where that costs noise."""
        if self.agents_per_person is not None:
            return self.agents_per_person
        return self.trust.agents_visited(self.agents)

    @property
    def sets_of_agents(self) -> int:
        """How many sets of agents a sum may be over: those that meet the quorum.

        The records of two different sets are not nested in each other, so the bound must hold for each. Sums
        of rows are one: whoever misses some counts with weights, which the bound allows (docs/theory.md, 9).
        """
        if self.trust.padded:
            return 1
        least, most = self.sizes_of_sums
        return sum(math.comb(most, size) for size in range(least, most + 1))

    @property
    def sizes_of_sums(self) -> tuple[int, int]:
        """How many agents a sum is over: at least, at most."""
        if self.clique:
            return len(self.clique), len(self.clique)
        if isinstance(self.trust, Keepers):
            return self.trust.quorum(self.agents), self.agents
        return self.agents if self.quorum is None else self.quorum, self.agents

    @property
    def reads(self) -> bool:
        """Whether any release of the season is worth reading; if not, all decisions are drawn uniformly."""
        return self.closes or self.rule.first <= self.releases

    @property
    def closes(self) -> bool:
        """Whether own records are read: once all have made their last release, or if none ever leaves.

        In shadow mode records come of another policy: an agent among others stays with released sums then.
        """
        return self.play == "own" and not (self.shadow and self.trust.leaves)

    @property
    def remembers_own(self) -> bool:
        """Whether own records of earlier seasons that are in nobody's sum go along, for the own phase.

        They are one sum, so all of them count whole or none does.
        """
        return not self.trust.leaves or (
            self.remember == "all" and self.discount == 1.0 and self.drift is None
        )

    @cached_property
    def rule(self) -> ReleasedPlay:
        """How the agent plays: as in a simulation, with room for what the grid adds to noise."""
        rule = self.estimator.rule
        if isinstance(rule, JointPlay):
            rule = rule.shared
        assert isinstance(rule, ReleasedPlay)
        return replace(rule, bound=replace(_mixture(rule), rounding=rounding_radius(self.problem.dim)))

    @property
    def team(self) -> Sequence[int]:
        """Who adds up releases, by number: the clique, or all."""
        if not self.clique:
            return range(self.agents)
        names = sorted(self.budgets)
        return [names.index(name) for name in sorted(self.clique)] if names else range(len(self.clique))

    def share_of_alpha(self, past: int = 0) -> float:
        """α of one estimator's readings, where so many earlier seasons are read too.

        Each of them may have been a sum over any of the sets of agents, as this season's.
        """
        alpha = self.alpha / (self.groups * self.cliques * float(self.sets_of_agents) ** (1 + past))
        return alpha * shares_of(self.federation)[0] if self.play == "own" else alpha

    def rule_for(self, total: ReleasedSum) -> ReleasedPlay:
        """How a sum is read: a simulated threshold is for the noise that it was simulated with.

        Others may have settings of their own (``records_per_person``, ``spacing``, budgets that are not
        stated here), and a sum other noise than was planned. A union over releases holds under any.
        """
        if self.as_planned(total):
            return self.rule
        alpha = EVERYTHING.shares[0] * self.share_of_alpha()
        threshold = math.log(max(1, self.releases - self.rule.first + 1) / alpha)
        return replace(self.rule, bound=replace(_mixture(self.rule), log_threshold=threshold))

    def as_planned(self, total: ReleasedSum) -> bool:
        """Whether a sum has the noise that its threshold was simulated with."""
        assert self.estimator.privatizer is not None
        privatizer = self.estimator.privatizer
        scale = float(np.linalg.norm(privatizer.noise_scale))
        planned = (scale * privatizer.mechanism.error(total.number)) ** 2
        return planned <= float(total.variance) <= _AS_PLANNED * planned

    def joint_for(self, total: ReleasedSum) -> JointBound:
        """Under own play, how the sum at the close is read together with own records (`rule_for`)."""
        rule, variance = self.estimator.rule, float(total.variance)
        if total.number != self.releases or not self.as_planned(total):
            shared = replace(self.estimator, rule=self.rule)
            horizon = self.history + self.decisions
            rule = joint_rule(self.federation, shared, range(self.agents), horizon=horizon, variance=variance)
        assert isinstance(rule, JointPlay)
        return replace(rule.bound, variance=variance, rounding=rounding_radius(self.problem.dim))

    def joint_with(self, total: ReleasedSum, records: float) -> JointBound:
        """Under own play, how a sum of others', some of it from earlier seasons, is read with own records.

        Args:
            total: that sum.
            records: how many records of others it has, as planned.
        """
        variance = float(total.variance)
        shared = replace(self.estimator, rule=replace(self.rule, first=0))  # what was remembered was read
        rule = joint_rule(
            self.federation,
            shared,
            range(self.agents),
            horizon=self.history + self.decisions,
            variance=variance,
            records=records,
        )
        return replace(rule.bound, variance=variance, rounding=rounding_radius(self.problem.dim))

    def reads_own(self, before: int, now: int) -> bool:
        """Whether own records are read anew now that there are so many, in the own phase: public."""
        rule = self.estimator.rule
        assert isinstance(rule, JointPlay | AlonePlay)
        if isinstance(rule, JointPlay):
            rule = replace(rule, first=0)  # the close came, however many there were by then
        return any(map(rule.reads_at, range(before + 1, now + 1)))

    @property
    def alone(self) -> MixtureBound:
        """Under own play, how own records are read by themselves."""
        rule = self.estimator.rule
        if isinstance(rule, JointPlay):
            return rule.bound.alone
        assert isinstance(rule, AlonePlay)
        assert isinstance(rule.bound, MixtureBound)
        return rule.bound

    def unheard(self, own: Statistics) -> Belief:
        """Under own play, what own records tell where there is no sum of others to go with them."""
        rule = self.estimator.rule
        if isinstance(rule, JointPlay):
            return rule.bound.unheard(own)
        return self.alone.belief(own.gram, own.moment, np.zeros(()))

    @property
    def waits_alone(self) -> int:
        """Under trust self, how many visitors are decided uniformly before own records are read."""
        assert isinstance(self.estimator.rule, AlonePlay)
        return self.estimator.rule.first

    @cached_property
    def watch(self) -> MixtureBound:
        """The confidence set, wide enough to be empty with a chance of at most `FALSE_ALARM` a season.

        That holds if ‖θ*‖ ≤ S, for all sums over all sets of agents together: a union over releases.
        """
        bound, read = _mixture(self.rule), max(1, self.releases - self.rule.first + 1)
        alpha = FALSE_ALARM / self.groups / self.sets_of_agents
        both, gram = (share * alpha for share in EVERYTHING.shares)
        gram_bound = self.terms.model.gram_radius(self.problem.dim, read, gram)
        return replace(bound, log_threshold=math.log(read / both), gram_radius=gram_bound)

    @cached_property
    def tally_scale(self) -> int | None:
        """Noise of the tally of rewards out of range; None where the default reward leaves no room for it."""
        return tally_scale(self.terms, self.default_reward)

    @cached_property
    def terms(self) -> Terms:
        """What is promised about releases."""
        if not self.trust.leaves:
            return Terms(
                problem=self.problem,
                budget=self.budget,
                releases=1,
                mechanism=Dense(1).name,
                trust=self.trust,
                model=self.federation.model,
            )
        assert self.estimator.privatizer is not None
        mechanism = self.estimator.privatizer.mechanism
        quiet, decay = (mechanism.quiet, mechanism.decay) if isinstance(mechanism, Dense) else (0, None)
        return Terms(
            problem=self.problem,
            budget=self.budget,
            releases=self.releases,
            mechanism=mechanism.name,
            quiet=quiet,
            decay=decay,
            records_per_person=self.records_per_person,
            spacing=self.spacing,
            agents_per_person=self.agents_visited,
            trust=self.trust,
            agents=len(self.clique) or self.agents,
            groups=self.groups,
            model=self.estimator.privatizer.model,
            recipe=self._recipe_digest,
        )

    @property
    def releases_records(self) -> bool:
        """Whether records enter releases: not those of a followed policy that may learn from rewards."""
        return not self.shadow or self.follow_policy == "fixed"

    @property
    def terms_of_all(self) -> dict[str, Terms]:
        """By name, what each agent promises, where they have budgets of their own; else empty."""
        return {name: replace(self.terms, budget=budget) for name, budget in self.budgets.items()}

    def to_json(self) -> str:
        """As text, for the file."""
        recipe = None if self.recipe is None else self.recipe.as_plain()
        plain = asdict(replace(self, recipe=None)) | {"problem": self.problem.as_dict(), "recipe": recipe}
        plain["trust"] = self.trust.name
        del plain["promised"]  # the file has the terms of every season
        return json.dumps(plain, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, *, started_at: float | None = None) -> AgentSettings:
        """Back from text.

        Args:
            text: what `to_json` wrote.
            started_at: when the season started, for files from before several agents had to name a start.
                One from before ``agents_per_person`` promised for p records alone, and one from before there
                were other policies was optimistic.
        """
        plain = json.loads(text)
        if plain.get("start") is None and plain["agents"] > 1:
            plain["start"] = started_at
        return cls(
            **{
                **{"agents_per_person": 1, "policy": "optimistic"},
                **plain,
                "problem": Problem(**plain["problem"]),
                "budget": Budget(**plain["budget"]),
                "recipe": Recipe.from_plain(plain["recipe"]) if plain.get("recipe") else None,
                # absent in files from before agents had budgets of their own, or knew their clique
                "budgets": {name: Budget(**one) for name, one in plain.get("budgets", {}).items()},
                "clique": tuple(plain.get("clique", ())),
            }
        )


def _mixture(rule: ReleasedPlay) -> MixtureBound:
    """The confidence set of a rule, which of the models that are deployed is always this one."""
    assert isinstance(rule.bound, MixtureBound)
    return rule.bound


def parse_duration(setting: str, value: object) -> float:
    """Seconds, from a number of them or a text such as ``90s``, ``15m``, ``1h``, ``7d``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return require_finite(setting, value, at_least=0)
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", value) if isinstance(value, str) else None
    if parts is None:
        expected = "a number of seconds, or a text such as 90s, 15m, 1h or 7d"
        raise ConfigurationError(setting, value, expected)
    return float(parts[1]) * _UNITS[parts[2]]
