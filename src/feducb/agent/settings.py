"""What a deployed agent is told: public promises, which hold for a season, and its own habits.

What is right and what follows is by concept: `setting_checks`, `promises`, `release_plan`, `promised_terms`,
`sum_reading`, `own_bounds` (of own records), `settings_text`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from feducb.agent.own_bounds import alone_bound, held_out_rule, joint_for, joint_with, reads_own, unheard
from feducb.agent.promised_terms import federation_of, terms_of
from feducb.agent.release_plan import ScheduleName, plan_releases, release_times
from feducb.agent.setting_checks import checks
from feducb.agent.settings_text import read_json, write_json
from feducb.agent.sum_reading import as_planned, estimator_of, rule_for, rule_of, share_of_alpha, watch_of
from feducb.config import Budget, Problem
from feducb.errors import ConfigurationError
from feducb.interfaces import Contexts
from feducb.models.joint import JointBound
from feducb.models.mixture import MixtureBound
from feducb.models.play import AlonePlay, ReleasedPlay
from feducb.policies import Mixture, parse_policy
from feducb.privacy.tally import tally_scale
from feducb.privacy.terms import Terms
from feducb.protocol.calendar import Calendar
from feducb.protocol.estimators import Estimator
from feducb.protocol.federation import Federation, Play
from feducb.storage import events
from feducb.trust import NOBODY, Keepers, Trust, require_trust
from feducb.types import Belief, ReleasedSum, Statistics
from feducb.worlds.features import Recipe
from feducb.worlds.features.bounds import problem_of

__all__ = ["SAME_START", "AgentSettings", "FollowPolicy"]

FollowPolicy = Literal["learning", "fixed"]
Remember = Literal["all", "none"] | int

SAME_START = 0.001  # seconds: what is written as text is rounded
_GRID_ONLY = Budget(epsilon=1.0, delta=1e-6)  # under trust self: it fixes the grid, and promises nothing


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
        for fits, name, expected in checks(self):
            if not fits:
                value = getattr(self, name)
                named = name in ("clique", "budgets")  # by name, of agents
                raise ConfigurationError(name, ", ".join(value) if named else value, expected)
        for name, number in plan_releases(self).items():
            object.__setattr__(self, name, number)
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

    # Its releases

    @cached_property
    def release_times(self) -> tuple[float, ...]:
        """When each release is due, in seconds after the start."""
        return release_times(self)

    @property
    def releases_records(self) -> bool:
        """Whether records enter releases: not those of a followed policy that may learn from rewards."""
        return not self.shadow or self.follow_policy == "fixed"

    @cached_property
    def terms(self) -> Terms:
        """What is promised about releases."""
        return terms_of(self)

    @property
    def terms_of_all(self) -> dict[str, Terms]:
        """By name, what each agent promises, where they have budgets of their own; else empty."""
        return {name: replace(self.terms, budget=budget) for name, budget in self.budgets.items()}

    def under(self, terms: Terms) -> AgentSettings:
        """These settings in a season that was opened under such terms.

        How noise is spread over releases follows from the settings, but another version may make something
        else of them: in an open season it stays as it was.
        """
        return self if self.terms == terms else replace(self, promised=terms)

    @cached_property
    def tally_scale(self) -> int | None:
        """Noise of the tally of rewards out of range; None where the default reward leaves no room for it."""
        return tally_scale(self.terms, self.default_reward)

    @property
    def agents_visited(self) -> int:
        """How many agents a person is taken to visit: as stated, else all where that costs noise."""
        if self.agents_per_person is not None:
            return self.agents_per_person
        return self.trust.agents_visited(self.agents)

    # Its seasons

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
    def remembers_own(self) -> bool:
        """Whether own records of earlier seasons that are in nobody's sum go along, for the own phase.

        They are one sum, so all of them count whole or none does.
        """
        return not self.trust.leaves or (
            self.remember == "all" and self.discount == 1.0 and self.drift is None
        )

    # The others

    @property
    def federation(self) -> Federation:
        """The federation that the agent is one of, as far as an agent knows it: its clique, not the graph.

        Agents are in the order of their names. Rounds are decisions of one agent.
        """
        return federation_of(self)

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
    def team(self) -> Sequence[int]:
        """Who adds up releases, by number: the clique, or all."""
        if not self.clique:
            return range(self.agents)
        names = sorted(self.budgets)
        return [names.index(name) for name in sorted(self.clique)] if names else range(len(self.clique))

    # How it decides, and what by

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

    @cached_property
    def estimator(self) -> Estimator:
        """How sums are read, and which mechanism goes with it, as in a simulation (`simulation.plan`).

        The mechanism follows from everybody's budgets; noise and bound of a sum from those of the team that
        adds it up: all agents, or the clique. α is shared by all cliques and groups.

        The simulated joint radius holds for sums of the whole team. Where sums of fewer may come, each set of
        agents has a bound of its own: the closed form, a union over releases, at α over the number of sets.
        """
        return estimator_of(self)

    @cached_property
    def rule(self) -> ReleasedPlay:
        """How the agent plays: as in a simulation, with room for what the grid adds to noise."""
        return rule_of(self)

    def share_of_alpha(self, past: int = 0) -> float:
        """α of one estimator's readings, where so many earlier seasons are read too.

        Each of them may have been a sum over any of the sets of agents, as this season's.
        """
        return share_of_alpha(self, past)

    def rule_for(self, total: ReleasedSum) -> ReleasedPlay:
        """How a sum is read: a simulated threshold is for the noise that it was simulated with.

        Others may have settings of their own (``records_per_person``, ``spacing``, budgets that are not
        stated here), and a sum other noise than was planned. A union over releases holds under any.
        """
        return rule_for(self, total)

    def as_planned(self, total: ReleasedSum) -> bool:
        """Whether a sum has the noise that its threshold was simulated with."""
        return as_planned(self, total)

    @cached_property
    def watch(self) -> MixtureBound:
        """The confidence set, wide enough to be empty with a chance of at most `FALSE_ALARM` a season.

        That holds if ‖θ*‖ ≤ S, for all sums over all sets of agents together: a union over releases.
        """
        return watch_of(self)

    # Own records

    def joint_for(self, total: ReleasedSum) -> JointBound:
        """Under own play, how the sum at the close is read together with own records (`rule_for`)."""
        return joint_for(self, total)

    def joint_with(self, total: ReleasedSum, records: float, past: int) -> JointBound:
        """Under own play, how a sum of others', some of it from earlier seasons, is read with own records.

        Args:
            total: that sum.
            records: how many records of others it has, as planned.
            past: how many earlier seasons are in it.
        """
        return joint_with(self, total, records, past)

    def reads_own(self, before: int, now: int) -> bool:
        """Whether own records are read anew now that there are so many, in the own phase: public."""
        return reads_own(self, before, now)

    @property
    def alone(self) -> MixtureBound:
        """Under own play, how own records are read by themselves."""
        return alone_bound(self)

    def unheard(self, own: Statistics) -> Belief:
        """Under own play, what own records tell where there is no sum of others to go with them."""
        return unheard(self, own)

    @property
    def waits_alone(self) -> int:
        """Under trust self, how many visitors are decided uniformly before own records are read."""
        assert isinstance(self.estimator.rule, AlonePlay)
        return self.estimator.rule.first

    @cached_property
    def held_out_rule(self) -> AlonePlay:
        """Under released play, how an agent alone plays that has the held out visitors and no others."""
        return held_out_rule(self)

    # As text

    def to_json(self) -> str:
        """As text, for the file."""
        return write_json(self)

    @classmethod
    def from_json(cls, text: str, *, started_at: float | None = None) -> AgentSettings:
        """Back from text.

        Args:
            text: what `to_json` wrote.
            started_at: when the season started, for files from before several agents had to name a start.
                One from before ``agents_per_person`` promised for p records alone, and one from before there
                were other policies was optimistic.
        """
        return cls(**read_json(text, started_at=started_at))
