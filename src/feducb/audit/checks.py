"""Which checks each part of the code goes through, shipped or broken on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from feducb.agent import Agent
from feducb.audit.agents import check_agent_presence, check_quorum, check_shadow
from feducb.audit.columns import check_columns, check_spaced_rows
from feducb.audit.doors import Make, ScaleOf
from feducb.audit.exact import (
    check_clipping,
    check_encoder,
    check_horizon,
    check_noisy,
    check_presence,
    check_sensitivity,
    check_tally,
)
from feducb.audit.findings import Check
from feducb.audit.invariance import check_decisions, check_graph, check_release_times
from feducb.audit.later_seasons import check_seasons
from feducb.audit.own_agents import check_agent_close
from feducb.audit.own_play import Closing, check_after_close, check_close, check_shared_phase
from feducb.audit.raw_lanes import check_held_out, check_joining
from feducb.audit.secure import check_disk, check_pads, check_restored, check_value
from feducb.audit.spaced import check_spaced, check_spaced_tally, check_spacing
from feducb.audit.stores import check_groups, check_replay, check_several_agents
from feducb.config import Budget, Problem
from feducb.privacy.deployed import DeployedPrivatizer
from feducb.privacy.tally import tally_scale
from feducb.privacy.terms import Terms
from feducb.protocol.closing import own_estimator
from feducb.storage import AgentStore
from feducb.trust import CONTROLLER, Keepers

__all__ = [
    "BLOCKS",
    "CENTRED",
    "CLOSES",
    "MIXED",
    "ONE_HOTS",
    "PUBLIC",
    "SECURE",
    "SHIPPED",
    "ZEROS",
    "Code",
    "exact_checks",
    "variant_checks",
]

# Terms of other records than an audit's own.
CENTRED: dict[str, Any] = {"problem": Problem(dim=2, reward_bound=0.5, reward_centre=0.5)}
BLOCKS: dict[str, Any] = {"problem": Problem(dim=4), "model": "blocks:2"}
ZEROS: dict[str, Any] = {"problem": Problem(dim=4), "model": "zeros:2(a2)"}
MIXED: dict[str, Any] = {"problem": Problem(dim=4), "model": "zeros:1+a2+1"}
ONE_HOTS: dict[str, Any] = {"model": "blocks:2"}
PUBLIC: dict[str, Any] = {"model": "public:linear"}
# One of four agents may be away and one may collude, which leaves two shares of noise.
SECURE: dict[str, Any] = {"trust": Keepers(1, 1), "agents": 4}
# Whom else agents trust that share first and close then; where nobody may be away a row is made up for.
CLOSES: tuple[dict[str, Any], ...] = ({"trust": CONTROLLER}, {"trust": Keepers(0, 1), "agents": 3})


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """The parts that are audited together; a fault is planted in one or two, and then there are no others.

    Attributes:
        privatizer: an agent's.
        tally: the noise of the tally of rewards out of range.
        store: an agent's file, across restarts.
        groups: the same, with several groups.
        agent: the whole of it.
        controller: the privatizer of a controller that is trusted.
        rows: an agent's file, where its rows leave under pads.
        closing: how a team shares first and closes then, under own play.
        closing_agent: an agent that does, deployed.
        lanes: an agent some of whose decisions raw records drive: some visitors, or a season alone.
        policy: what is simulated, as settings of `feducb.simulate`.
        mechanism: with which a fault shows.
        epsilon: at which it shows; that of the audit if not given.
        changes: what else of the terms is other than in the audit.
        variant: a privatizer that goes through `variant_checks`, and through nothing else.
    """

    privatizer: Make | None = None
    tally: ScaleOf | None = None
    store: type[AgentStore] | None = None
    groups: type[AgentStore] | None = None
    agent: type[Agent] | None = None
    controller: Make | None = None
    rows: type[AgentStore] | None = None
    closing: Closing | None = None
    closing_agent: type[Agent] | None = None
    lanes: type[Agent] | None = None
    policy: dict[str, Any] | None = None
    mechanism: str = "auto"
    epsilon: float | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    variant: Make | None = None

    def terms(self, plain: Terms) -> Terms:
        """Those under which a fault shows."""
        budget = Budget(epsilon=self.epsilon or plain.budget.epsilon, delta=plain.budget.delta)
        return replace(plain, mechanism=self.mechanism, budget=budget, **self.changes)


SHIPPED = Code(
    privatizer=DeployedPrivatizer,
    tally=tally_scale,
    store=AgentStore,
    groups=AgentStore,
    agent=Agent,
    controller=DeployedPrivatizer,
    rows=AgentStore,
    closing=own_estimator,
    closing_agent=Agent,
    lanes=Agent,
)

# A person with several records at each of several agents, and a controller that all of them trust.
_PERSON = {"trust": CONTROLLER, "records_per_person": 2, "agents_per_person": 3}
# One whose records are apart; and so far that a file which forgets it shows.
_SPACED = {"releases": 4, "records_per_person": 2, "spacing": 1}
_FAR = {"releases": 3, "records_per_person": 2, "spacing": 2}
# Part, what of the terms is changed for it, checks.
_CHECKS: tuple[tuple[str, dict[str, Any], tuple[Callable[[Any, Terms], Check], ...]], ...] = (
    ("privatizer", {}, (check_encoder, check_presence, check_clipping, check_horizon)),
    ("privatizer", _SPACED, (check_spaced,)),
    ("tally", {}, (check_tally,)),
    ("tally", _SPACED, (check_spaced_tally,)),
    ("store", {"groups": 2}, (check_replay,)),
    ("store", _FAR, (check_spacing,)),
    ("groups", {"groups": 2}, (check_groups,)),
    ("agent", {}, (check_agent_presence, check_shadow, check_quorum, check_seasons)),
    ("controller", _PERSON, (check_several_agents,)),
    ("rows", SECURE | {"records_per_person": 4, "spacing": 2}, (check_spaced_rows,)),
    ("rows", SECURE, (check_columns, check_pads, check_restored, check_disk, check_value)),
    ("closing", {}, (check_close, check_shared_phase, check_after_close)),
    ("closing_agent", {}, (check_agent_close,)),
    ("lanes", {}, (check_held_out, check_joining)),
)


def variant_checks(make: Make, terms: Terms) -> Iterator[Check]:
    """What a privatizer of other records, or of another model, goes through without chance."""
    low, high = terms.problem.reward_range
    checks: tuple[Callable[[Make, Terms], Check], ...] = (check_sensitivity, check_noisy)
    if terms.contexts == "private":  # else presence and actions are public
        checks += (check_presence, check_clipping)
    for check in checks:
        made = check(make, terms)
        yield replace(made, name=f"{made.name} model={terms.model.name} rewards={low:g}:{high:g}")


def exact_checks(code: Code, terms: Terms) -> Iterator[Check]:
    """Each part that there is goes through all of its checks that know no chance."""
    for part, changes, checks in _CHECKS:
        if (subject := getattr(code, part)) is not None:
            for check in checks:
                yield check(subject, replace(terms, **changes))
    if code.variant is not None:
        yield from variant_checks(code.variant, terms)
    if code.policy is not None:
        for check_policy in (check_release_times, check_decisions, check_graph):
            yield check_policy(code.policy)
