"""One visit at an agent: acknowledge, bring the sum, fetch what is new. Safe to repeat and to cut short."""

from __future__ import annotations

from feducb.agent.agent_http import ServiceError
from feducb.carriers.flower.agent_door import AgentDoor
from feducb.carriers.flower.exchange import MOST_RELEASES, Answer, Ask
from feducb.protocol import messages
from feducb.protocol.parcels import Parcel

__all__ = ["visit"]

_MOST_BYTES = 16 * 2**20  # in one answer, unless a single release is larger


def visit(door: AgentDoor, ask: Ask) -> Answer:
    """Do what the ServerApp asks, as far as the agent lets; what fails is told and does not stop the rest.

    Guarantees:
        Nothing but releases goes out: whatever else the outbox holds, raw uploads for a trusted controller
        above all, stays here.
    """
    problems: list[str] = []
    try:
        for season, number in ask.sent:
            door.mark_sent(season, number)
    except ServiceError as error:
        problems.append(str(error))
    absorbed = False
    if ask.total:
        try:
            door.absorb(ask.total)
            absorbed = True
        except ServiceError as error:
            problems.append(str(error))
    waiting: list[Parcel] = []
    try:
        waiting = door.outbox()
    except ServiceError as error:
        problems.append(str(error))
    fit, refused = _releases(waiting)
    return Answer(
        releases=tuple(item.body for item in fit),
        absorbed=absorbed,
        more=len(fit) + len(refused) < len(waiting),
        problems=tuple(problems + refused),
    )


def _releases(waiting: list[Parcel]) -> tuple[list[Parcel], list[str]]:
    """Those that are releases and fit into one answer; why others must not go."""
    fit: list[Parcel] = []
    refused: list[str] = []
    size = 0
    for item in waiting:
        try:
            release = messages.decode(item.released())
            if release.agents != 1:
                raise ValueError(f"it is a sum over {release.agents} agents, expected a release")
            if (release.season, release.group, release.number) != item.name:
                raise ValueError("it is listed under another name than its own")
        except ValueError as error:
            refused.append(f"kept back {item.number} of season {item.season}, group {item.group}: {error}")
            continue
        size += len(item.body)
        if fit and (size > _MOST_BYTES or len(fit) == MOST_RELEASES):
            break
        fit.append(item)
    return fit, refused
