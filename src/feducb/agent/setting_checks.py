"""Which settings of an agent can be, and what was expected where they cannot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from feducb.agent.release_plan import ScheduleName
from feducb.config import Budget, require_finite, require_integer, require_probability
from feducb.errors import ConfigurationError
from feducb.privacy.calibration import to_epsilon, to_mu
from feducb.privacy.terms import require_agents_per_person
from feducb.protocol.federation import Play
from feducb.protocol.names import require_name
from feducb.trust import Keepers
from feducb.worlds.features.bounds import require_agreeing

if TYPE_CHECKING:
    from feducb.agent.settings import AgentSettings

__all__ = ["checks"]

_LONGEST = 3650 * 86400.0
_MOST_SETS = 900.0  # as a power of 2: α over so many is still a number
_LEAST_ALPHA = -1000.0  # as a power of 2: a share of it, by release and part of the bound, is still a number
_MOST_AGENTS = 1_000_000
_MOST_RELEASES = 100_000
_MOST_DIM = 2_000
_LARGEST_HOLDOUT = 0.5
_LATEST_START = 250_246_627_200.0  # 9900-01-01: the season's last moment is still a date


def checks(settings: AgentSettings) -> Iterator[tuple[bool, str, str]]:
    """Whether a setting can be, its name, and what was expected; some rest on earlier ones."""
    require_name("name", settings.name)
    if settings.recipe is not None:
        require_agreeing(settings.problem, settings.recipe)
    agents = require_integer("agents", settings.agents, at_least=1)
    yield agents <= _MOST_AGENTS, "agents", f"at most {_MOST_AGENTS}"
    if settings.problem.dim > _MOST_DIM:
        expected = f"at most {_MOST_DIM}: a release has d(d + 3)/2 numbers"
        raise ConfigurationError("dim", settings.problem.dim, expected)
    require_integer("decisions", settings.decisions, at_least=1)
    require_integer("history", settings.history, at_least=0)
    require_integer("groups", settings.groups, at_least=1)
    if settings.agents_per_person is not None:
        require_agents_per_person("agents_per_person", settings.agents_per_person, agents)
    for name, least in (("season", 0.001), ("window", 0.001), ("keep_events", 0.0)):
        length = require_finite(name, getattr(settings, name), at_least=least)
        yield length <= _LONGEST, name, "at most ten years, in seconds"
    yield from _check_seasons(settings)
    if settings.quorum is not None:
        quorum = require_integer("quorum", settings.quorum, at_least=1)
        yield quorum <= agents, "quorum", f"at most the number of agents, {agents}"
        if isinstance(settings.trust, Keepers):
            least = settings.trust.quorum(agents)
            yield quorum == least, "quorum", f"{least}, the agents that are not away, under trust keepers"
    yield from _check_clique(settings)
    if not settings.trust.leaves:
        yield from _check_alone(settings)
    yield from _check_play(settings)
    if settings.budgets:
        yield from _check_budgets(settings)
    require_probability("alpha", settings.alpha)
    yield from _check_sets(settings)
    yield from _check_decisions(settings)
    yield from _check_start(settings)
    yield from _check_memory(settings)
    yield from _check_releases(settings)


def _check_decisions(settings: AgentSettings) -> Iterator[tuple[bool, str, str]]:
    """How the agent chooses, and what counts where no reward came."""
    require_finite("exploration", settings.exploration, at_least=0)
    reward, (low, high) = (
        require_finite("default_reward", settings.default_reward),
        settings.problem.reward_range,
    )
    yield low <= reward <= high, "default_reward", f"from {low:g} to {high:g}"
    share = require_finite("uniform_share", settings.uniform_share, at_least=0)
    yield share <= 1, "uniform_share", "a share from 0 to 1"
    held_out = require_finite("holdout", settings.holdout, at_least=0)
    yield held_out <= _LARGEST_HOLDOUT, "holdout", f"a share from 0 to {_LARGEST_HOLDOUT:g}"
    federated = settings.trust.leaves and not settings.shadow
    yield federated or not held_out, "holdout", "0 in shadow mode, and for an agent alone"
    yield isinstance(settings.policy, str), "policy", "a text: it is kept in the agent's file"
    settings.chooses  # noqa: B018  # a policy that is not known is refused now
    yield settings.follow_policy in ("learning", "fixed"), "follow_policy", "learning or fixed"


def _check_start(settings: AgentSettings) -> Iterator[tuple[bool, str, str]]:
    if settings.start is not None:
        start = require_finite("start", settings.start)
        yield 0 <= start <= _LATEST_START, "start", "seconds since 1970, before the year 9900"
    agents = settings.agents
    one_clock = (
        f"when the season starts, the same at all {agents} agents (`[releases] start`, such as "
        "2027-01-01T00:00:00Z): their sums go by one clock"
    )
    yield agents == 1 or settings.start is not None, "start", one_clock


def _check_memory(settings: AgentSettings) -> Iterator[tuple[bool, str, str]]:
    """What is remembered of earlier seasons, and how it fades; and that who is held out stays so."""
    # Groups are settled one after the other: a later record of who was held out could come first.
    yield not settings.holdout or settings.groups == 1, "holdout", "0 where there are several groups"
    if settings.remember not in ("all", "none"):
        expected = "all, none, or how many seasons, at least 1"
        yield isinstance(settings.remember, int) and settings.remember >= 1, "remember", expected
    share = require_finite("discount", settings.discount, above=0)
    yield share <= 1.0, "discount", "a factor above 0 and at most 1"
    if settings.drift is not None:
        half_life = require_finite("drift", settings.drift, above=0)
        yield half_life <= _LONGEST, "drift", "a half-life of at most ten years, in seconds, or none"
        yield share == 1.0, "discount", "1 beside a drift, whose half-life says what each season counts"


def _check_alone(settings: AgentSettings) -> Iterator[tuple[bool, str, str]]:
    """Settings that only mean something where something leaves are as they were left."""
    under = "under trust self: nothing leaves"
    for name in ("agents", "groups", "records_per_person"):
        yield getattr(settings, name) == 1, name, f"1 {under}"
    for name in ("spacing", "history"):
        yield getattr(settings, name) == 0, name, f"0 {under}"
    yield settings.schedule == "planned", "schedule", f"planned, which plans nothing {under}"
    yield settings.releases in (None, 0), "releases", f"none {under}"
    for name in ("first_release", "last_release", "quorum", "agents_per_person", "distance"):
        yield getattr(settings, name) is None, name, f"nothing {under}"


def _check_releases(settings: AgentSettings) -> Iterator[tuple[bool, str, str]]:
    if not settings.trust.leaves:
        return
    yield settings.schedule in get_args(ScheduleName), "schedule", "planned, geometric or periodic"
    given, planned = settings.releases is not None, settings.schedule == "planned"
    if given:
        releases = require_integer("releases", settings.releases, at_least=1)
        yield releases <= _MOST_RELEASES, "releases", f"at most {_MOST_RELEASES} in a season"
    if settings.first_release is not None:
        first = require_finite("first_release", settings.first_release, above=0)
        yield settings.schedule != "periodic", "first_release", "nothing with a periodic schedule"
        yield first <= settings.season, "first_release", f"at most the season's {settings.season:g} seconds"
        room = not planned or settings.releases == 1 or first < settings.season
        yield room, "first_release", "before the season's end, where more than one release is planned"
        yield given or not planned, "first_release", "nothing with a planned schedule, or releases too"
    elif planned:
        expected = "nothing with a planned schedule, or first_release too; geometric and periodic take it"
        yield not given, "releases", expected
    yield from _check_close(settings)


def _check_seasons(settings: AgentSettings) -> Iterator[tuple[bool, str, str]]:
    """How long they are, a number for the first, and what all of them may cost."""
    shorter = f"less than the season's {settings.season:g} seconds: no reward would come in its season"
    yield settings.window < settings.season, "window", shorter
    if settings.first_season is not None:
        require_integer("first_season", settings.first_season, at_least=1)
        yield settings.start is not None, "first_season", "nothing without the start that it goes with"
    if settings.most_epsilon is None:
        yield settings.most_delta is None, "most_delta", "nothing without most_epsilon"
        return
    most = Budget(epsilon=settings.most_epsilon, delta=settings.most_delta or settings.budget.delta)
    enough = to_epsilon(to_mu(settings.budget), most.delta) <= most.epsilon * (1 + 1e-9)
    yield enough, "most_epsilon", "at least what one season costs, epsilon at that delta"


def _check_close(settings: AgentSettings) -> Iterator[tuple[bool, str, str]]:
    """The last release is where the plan ends, under own play alone."""
    last, first = settings.last_release, settings.first_release
    if settings.play == "released" or first is None:
        expected = "nothing but under own play, with releases and first_release"
        yield last is None, "last_release", expected
        return
    expected = "seconds to the last release: it goes with releases and first_release under own play"
    yield last is not None, "last_release", expected
    assert last is not None
    last = require_finite("last_release", last, above=0)
    yield last <= settings.season, "last_release", f"at most the season's {settings.season:g} seconds"
    right = first < last if settings.releases > 1 else first == last
    yield right, "last_release", "after the first release, or the same where there is one"


def _check_sets(settings: AgentSettings) -> Iterator[tuple[bool, str, str]]:
    """Not so many sets of agents that α over them is no number, nor that counting them takes for ever."""
    least, most = settings.sizes_of_sums
    size = max(least, most // 2)  # of which there are most
    sets = (math.lgamma(most + 1) - math.lgamma(size + 1) - math.lgamma(most - size + 1)) / math.log(2)
    few = sets <= _MOST_SETS + 1 and math.log2(settings.sets_of_agents) <= _MOST_SETS
    yield few, "quorum", "more: too many sets of agents could make a sum"
    shares = math.log2(settings.groups) + math.log2(settings.cliques) + math.log2(settings.sets_of_agents)
    enough = math.log2(settings.alpha) - shares >= _LEAST_ALPHA
    yield enough, "alpha", "more: its share for each set of agents that could make a sum is tiny"


def _check_clique(settings: AgentSettings) -> Iterator[tuple[bool, str, str]]:
    size = len(settings.clique)
    require_integer("cliques", settings.cliques, at_least=1)
    if not size:
        yield settings.cliques == 1, "cliques", "1 without a clique of this agent's own"
        return
    differ = len(set(settings.clique)) == size <= settings.agents
    yield differ, "clique", f"different names, at most {settings.agents}"
    others = settings.agents - size  # each of them is in one of the other cliques
    cover = min(others, 1) <= settings.cliques - 1 <= others
    yield cover, "cliques", f"as many as cover {settings.agents} agents, {size} of them in this one"
    yield settings.quorum is None, "quorum", "none on a graph: a sum is of the whole clique"
    settings.trust.refuse("graph", "trust", settings.trust.name)


def _check_play(settings: AgentSettings) -> Iterator[tuple[bool, str, str]]:
    """Own records are read after a close that is the same for all, and known by a sum of all."""
    yield settings.play in get_args(Play), "play", "released or own"
    if settings.play == "released":
        return
    central = not settings.clique and settings.groups == 1
    yield central, "play", "released on a graph or with groups: there is no common close"
    if not settings.trust.leaves:
        return
    whole = settings.quorum in (None, settings.agents) or settings.trust.padded
    yield whole, "quorum", f"{settings.agents}, or nothing, under own play: the last sum must be of all"
    expected = "planned under own play; its releases, first_release and last_release may be given"
    yield settings.schedule == "planned", "schedule", expected


def _check_budgets(settings: AgentSettings) -> Iterator[tuple[bool, str, str]]:
    settings.trust.refuse("budgets", "budgets", ", ".join(settings.budgets))
    yield settings.name in settings.budgets, "budgets", f"one for this agent, {settings.name}, too"
    yield (
        len(settings.budgets) == settings.agents,
        "budgets",
        f"a budget for each of {settings.agents} agents",
    )
    own = settings.budgets[settings.name]
    if own != settings.budget:
        raise ConfigurationError(f"budgets.{settings.name}", own, f"{settings.budget}, as in [privacy]")
    yield settings.budgets.keys() >= set(settings.clique), "clique", "agents that have a budget"
