"""How an open agent stands and what it has learnt, as plain data for its own people."""

from __future__ import annotations

from typing import Any

from feducb.agent.learnt import told_at
from feducb.agent.state import State
from feducb.agent.view import view
from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.storage import agent_tables

__all__ = ["view_live", "view_model"]


def view_live(state: State) -> dict[str, Any]:
    """How it stands, in plain numbers (`Agent.snapshot`)."""
    passed = state.clock() - state.started_at
    later = [one for one in state.settings.release_times if one > passed]
    groups, member = range(state.settings.groups), state.store.member
    keepers = None if member is None else member.roster.keepers
    stands = view(
        state.store.database, state.season, state.counters.totals(), keepers=keepers, joins=state.joins
    )
    return stands | {
        "model": [state.model_name(group) for group in groups],
        "agents_in_sum": [state.inbox.agents(group) for group in groups],
        "first_useful_sum": _first_read(state),
        "learning": sorted(state.chooser.deciders),
        "next_release_at": state.started_at + later[0] if later and not state.store.silent else None,
        "in_batch": state.store.pending,
        "season_over": state.season_over,
        "at": state.clock(),
    }


def _first_read(state: State) -> int:
    if not state.settings.trust.leaves:
        return 0
    rule = state.memory.rule(0)
    return state.settings.rule.first if rule is None else rule.first


def view_model(state: State, group: int) -> dict[str, Any]:
    """What was learnt for a group, now and at each sum that was read (`Agent.model`)."""
    groups = state.settings.groups
    if require_integer("group", group, at_least=0) >= groups:
        raise ConfigurationError("group", group, f"less than the number of groups, {groups}")
    past = agent_tables.read_learnt(state.store.database, group)
    return {
        "model": state.model_name(group),
        "group": group,
        "groups": groups,
        **state.learnt(group).as_dict(),
        "history": [told_at(*one) for one in past],
    }
