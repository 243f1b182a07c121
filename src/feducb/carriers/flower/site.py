"""One visit at an agent: bring what is new, acknowledge, fetch. Safe to repeat and to cut short."""

from __future__ import annotations

from collections.abc import Sequence

from feducb.agent.agent_http import ServiceError
from feducb.carriers.flower.agent_door import AgentDoor, Outbox
from feducb.carriers.flower.exchange import MOST_MESSAGES, Answer, Ask, digest_of
from feducb.protocol import messages
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.protocol.secure_rows import PaddedRow, row_size

__all__ = ["visit"]

_MOST_BYTES = 16 * 2**20  # in one answer, unless a single parcel is larger


def visit(door: AgentDoor, ask: Ask) -> Answer:
    """Do what the ServerApp asks, as far as the agent lets; what fails is told and does not stop the rest.

    Guarantees:
        Nothing but releases, rows under pads and what a keeper says goes out: whatever else the outbox holds,
        raw uploads for a trusted controller above all, stays here.
    """
    problems: list[str] = []
    heard = _bring(door, ask.news, problems)
    answers = _ask_keeper(door, ask.rows, problems)
    box = Outbox([])
    try:
        box = door.outbox()
    except ServiceError as error:
        problems.append(str(error))
    waiting = _acknowledge(door, box.parcels, frozenset(ask.sent), problems)
    fit, refused = _sendable(waiting)
    return Answer(
        parcels=tuple(item.body for item in fit),
        words=((box.card,) if box.card else ()) + answers,
        agent=box.agent,
        place=box.place,
        heard=heard,
        more=len(fit) + len(refused) < len(waiting),
        problems=tuple(problems + refused),
    )


def _bring(door: AgentDoor, news: Sequence[bytes], problems: list[str]) -> int:
    """Hand over what is new, until something is refused: rows follow upon one another."""
    for number, payload in enumerate(news):
        try:
            door.bring(payload)
        except ServiceError as error:
            problems.append(str(error))
            return number
    return len(news)


def _ask_keeper(door: AgentDoor, rows: bytes, problems: list[str]) -> tuple[bytes, ...]:
    if not rows:
        return ()
    try:
        return (door.answer(rows),)
    except ServiceError as error:
        problems.append(str(error))
        return ()


def _acknowledge(
    door: AgentDoor, waiting: Sequence[Parcel], sent: frozenset[bytes], problems: list[str]
) -> list[Parcel]:
    """Tell the agent what has arrived; returns what has not."""
    try:
        for item in waiting:
            if digest_of(item.body) in sent:
                door.mark_sent(item)
    except ServiceError as error:
        problems.append(str(error))
    return [item for item in waiting if digest_of(item.body) not in sent]


def _sendable(waiting: Sequence[Parcel]) -> tuple[list[Parcel], list[str]]:
    """Those that may leave and fit into one answer; why others must not go."""
    fit: list[Parcel] = []
    refused: list[str] = []
    size = 0
    for item in waiting:
        try:
            _require_sendable(item)
        except ValueError as error:
            refused.append(f"kept back {item.number} of season {item.season}, group {item.group}: {error}")
            continue
        size += len(item.body)
        if fit and (size > _MOST_BYTES or len(fit) == MOST_MESSAGES):
            break
        fit.append(item)
    return fit, refused


def _require_sendable(item: Parcel) -> None:
    """Raise ValueError unless it is what it is listed as, and may be seen by anybody."""
    if item.padded:
        row = PaddedRow.read(item.body, coordinates=(len(item.body) - row_size(0)) // 8)
        kind = ParcelKind.ROW if row.label.attempt == 1 else ParcelKind.MAKE_UP
        name = (row.label.season, row.label.group, row.label.row)
    else:
        release = messages.decode(item.released())
        if release.agents != 1:
            raise ValueError(f"it is a sum over {release.agents} agents, expected a release")
        kind, name = ParcelKind.RELEASE, (release.season, release.group, release.number)
    if (kind, name) != (item.kind, item.name):
        raise ValueError("it is listed under another name than its own")
