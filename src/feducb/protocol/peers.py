"""Releases between peers on a graph: a state machine for one agent, without sockets and clocks.

How a message travels on the line 0 ─ 1 ─ 2 ─ 3 with ttl = 2; agent 0 publishes at round t, after acting:

    round      agent 0          agent 1          agent 2          agent 3
    t          publish ──life 2──▶
    t + 1                       absorb ──life 1──▶
                                act
    t + 2      enters own view                   absorb           (out of reach)
                                                 act on all that was published at t

One hop a round; a message of life L goes on with life L - 1 until that is 0. Whoever hears it forwards it, in
the clique or not, to every neighbour but the one who said it, and again only if a copy comes with more life
than any it forwarded before: where links are uneven, a long way round may be faster than the short one.

In each round a driver (a simulation, or a network) calls, in this order:

    receive          for every message that has arrived             forwards go out
    complete_view    or newest_view, for the group of this round    the agent acts
    publish          if a release is due (`owes_release`, or a public schedule)
    ask              if the agent wants its clique to synchronise   (``paper`` only)

Guarantees: nothing here makes a release; it only passes on what `publish` was given. However many requests
arrive, true or forged, `owes_release` says yes at most once for a (group, round asked), so at most once every
``groups`` rounds for a group; under a public schedule requests are not looked at. A deployed agent's store
refuses release n + 1 whatever is owed. Forwarding is post-processing: `encode` writes the payload as it was
published. That a message is from its origin is for the driver to know: the network must authenticate.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeAlias, TypeVar

from feducb.config import require_integer
from feducb.errors import ConfigurationError
from feducb.formats import PEER_MESSAGE
from feducb.protocol import messages
from feducb.protocol.graphs import Topology

__all__ = ["Announcement", "Message", "Outgoing", "PeerState", "Request", "envelope_size"]

Payload = TypeVar("Payload")
_Version: TypeAlias = tuple[int, int]  # season, number

LARGEST_PAYLOAD = messages.message_size(messages.MAX_DIM)
WINDOW = 8  # numbers remembered for an (origin, group) beside those still on their way; older is too late


@dataclass(frozen=True, slots=True)
class Request:
    """The wish to synchronise group g, uttered after acting in round t′ (Synchronize(i, g, t))."""

    origin: int  # who asks
    group: int
    round: int  # t′
    life: int  # hops left, the one it is on included

    @property
    def version(self) -> _Version:
        """Its round: requests know no seasons."""
        return 0, self.round


@dataclass(frozen=True, slots=True)
class Announcement(Generic[Payload]):
    """A numbered, cumulative release on its way, or (life 0) kept.

    A new season starts its numbers at 1 again and replaces the one before.
    """

    origin: int  # whose release
    group: int
    number: int  # k, rising in each (origin, group, season)
    round: int  # t_k, after which it was published
    life: int  # hops left, the one it is on included
    payload: Payload  # the release; not looked into
    season: int = 1  # in which it was made

    @property
    def version(self) -> _Version:
        """Season and number: what tells two releases of one origin and group apart, rising."""
        return self.season, self.number


Message: TypeAlias = Request | Announcement[Payload]
_Flow = tuple[type, int, int]  # kind of message, origin, group


@dataclass(frozen=True, slots=True)
class Outgoing(Generic[Payload]):
    """One message over one link; it arrives at the start of a later round."""

    to: int
    message: Message[Payload]


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerState(Generic[Payload]):
    """What one agent knows of the protocol."""

    agent: int  # its number
    neighbours: tuple[int, ...]  # who hears it
    members: tuple[int, ...]  # its clique, itself included
    ttl: int  # γ
    groups: int  # estimators per agent, γ or 1; round t belongs to group t mod groups
    # By (member, group), releases by rising version: the newest, and those back to the last complete one,
    # without which a lost message would leave members no version in common.
    kept: Mapping[tuple[int, int], tuple[Announcement[Payload], ...]] = field(default_factory=dict)
    forwarded: Mapping[_Flow, Mapping[_Version, int]] = field(default_factory=dict)  # with the most life
    owed: frozenset[tuple[int, int]] = frozenset()  # (group, t′) of requests not yet answered


_Step: TypeAlias = tuple[PeerState[Payload], tuple[Outgoing[Payload], ...]]


def start(topology: Topology, agent: int, *, groups: int | None = None) -> PeerState[Payload]:
    """The state of an agent that has heard nothing; ``groups`` is γ, as in the paper, or 1."""
    if not 0 <= agent < topology.agents:
        raise ConfigurationError("agent", agent, f"0 to {topology.agents - 1}")
    if groups not in (None, 1, topology.ttl):
        raise ConfigurationError("groups", groups, f"1 or the time-to-live, {topology.ttl}")
    return PeerState(
        agent=agent,
        neighbours=topology.neighbours[agent],
        members=topology.members(agent),
        ttl=topology.ttl,
        groups=groups or topology.ttl,
    )


def publish(
    state: PeerState[Payload], *, group: int, number: int, payload: Payload, now: int, season: int = 1
) -> _Step[Payload]:
    """Announce the own release k of a group, after acting in round ``now``.

    Rounds rise within a season; a new one may count them from the start again, as it does numbers.
    """
    _require_group(state, group, now)
    require_integer("season", season, at_least=1)
    own = [kept for kept in state.kept.get((state.agent, group), ()) if kept.season >= season]
    if own and own[-1].season > season:
        raise ConfigurationError("season", season, f"at least {own[-1].season}, that of the last release")
    if own and now <= own[-1].round:
        raise ConfigurationError("round", now, f"a round after {own[-1].round}, that of the last release")
    require_integer("number", number, at_least=own[-1].number + 1 if own else 1)
    announcement = Announcement(state.agent, group, number, now, state.ttl, payload, season)
    owed = frozenset((g, asked) for g, asked in state.owed if g != group or asked + state.ttl > now)
    state = _keep(replace(state, owed=owed), announcement, now)
    return state, tuple(Outgoing(to, announcement) for to in state.neighbours)


def ask(state: PeerState[Payload], *, group: int, now: int) -> _Step[Payload]:
    """Ask the clique to synchronise a group, after acting in round ``now``; the one who asks answers too."""
    _require_group(state, group, now)
    request = Request(state.agent, group, now, state.ttl)
    state = _owe(state, group, now, now)
    return state, tuple(Outgoing(to, request) for to in state.neighbours)


def owes_release(state: PeerState[Payload], *, now: int) -> bool:
    """Whether a request for the group of this round is to be answered now, after acting.

    All members answer a request of round t′ at t′ + ttl, when it has reached them all and its group is used
    again; their answers are everywhere at t′ + 2 ttl.
    """
    return (now % state.groups, now - state.ttl) in state.owed


def receive(state: PeerState[Payload], message: Message[Payload], *, sender: int, now: int) -> _Step[Payload]:
    """Take in one message at the start of round ``now``, before acting.

    Messages that no agent of this protocol sends, own ones that come back, requests older than ttl and
    numbers far below the newest are dropped. The neighbour who sent it is not told again.
    """
    possible = (
        message.origin != state.agent
        and sender in state.neighbours
        and 1 <= message.life <= state.ttl
        and 0 <= message.group < state.groups
        and message.group == message.round % state.groups
        and message.round < now
        and min(message.version) >= 0
    )
    too_late = isinstance(message, Request) and message.round + state.ttl < now
    if not possible or too_late:
        return state, ()
    if message.origin in state.members:
        if isinstance(message, Request):
            state = _owe(state, message.group, message.round, now)
        else:
            state = _keep(state, message, now)
    return _forward(state, message, sender)


def complete_view(state: PeerState[Payload], *, group: int, now: int) -> tuple[Announcement[Payload], ...]:
    """The newest version that every member's release is here of, from ttl rounds after it was published.

    Until then the version before it is used, even if all has arrived: so all members switch at once. Empty
    before the first, then in the order of ``members``. (``calibrated``: public rounds, hence common numbers.)
    """
    version = _complete_version(state, group, now)
    return tuple(
        kept
        for member in state.members
        for kept in state.kept.get((member, group), ())
        if kept.version == version
    )


def newest_view(state: PeerState[Payload], *, group: int, now: int) -> tuple[Announcement[Payload], ...]:
    """The newest release of every member that has one here, whatever its age, in the order of ``members``.

    For ``paper``, where numbers may differ between members. It is asked for in the group's own rounds, so an
    own release enters, like the peers', γ after it was made.
    """
    before = (
        [kept for kept in state.kept.get((member, group), ()) if kept.round < now] for member in state.members
    )
    return tuple(kept[-1] for kept in before if kept)


# mark, kind, life, origin, group, season, number (of a request both 0: its round says it), round; the payload
_ENVELOPE = struct.Struct("<4sHHIIIIQ")
_MARK = PEER_MESSAGE.mark("PER")  # b"PEER", without a season, was never deployed
_REQUEST, _ANNOUNCEMENT = 0, 1


def envelope_size() -> int:
    """Bytes of a request; those of an announcement are its payload's and these."""
    return _ENVELOPE.size


def encode(message: Message[bytes]) -> bytes:
    """A message as bytes, for one link; there is one way to write it."""
    if isinstance(message, Request):
        kind, (season, number), payload = _REQUEST, (0, 0), b""
    else:
        kind, (season, number), payload = _ANNOUNCEMENT, message.version, message.payload
    try:
        envelope = _ENVELOPE.pack(
            _MARK, kind, message.life, message.origin, message.group, season, number, message.round
        )
    except struct.error as error:
        raise ValueError(f"message of origin {message.origin} does not fit its envelope: {error}") from None
    data = envelope + payload
    decode(data)  # what nobody would accept is not sent
    return data


def decode(data: bytes) -> Message[bytes]:
    """Read what `encode` wrote; raises ``ValueError`` on anything else. The payload is not looked into."""
    if len(data) < _ENVELOPE.size:
        raise ValueError(f"message has {len(data)} bytes, expected at least {_ENVELOPE.size}")
    mark, kind, life, origin, group, season, number, when = _ENVELOPE.unpack_from(data)
    payload = len(data) - _ENVELOPE.size
    if mark != _MARK:
        raise ValueError(f"message has {PEER_MESSAGE.unlike(mark, _MARK)}")
    if kind not in (_REQUEST, _ANNOUNCEMENT):
        raise ValueError(f"message has kind {kind}, expected 0 or 1")
    if life == 0:
        raise ValueError("message has life 0, expected at least 1: it is not sent on")
    if kind == _REQUEST:
        if season or number or payload:
            has = f"season {season}, number {number} and {payload} bytes"
            raise ValueError(f"message has {has}, expected none in a request")
        return Request(origin, group, when, life)
    if season == 0 or number == 0 or not 0 < payload <= LARGEST_PAYLOAD:
        has = f"season {season}, number {number} and a payload of {payload} bytes"
        raise ValueError(f"message has {has}, expected at least 1, at least 1 and 1 to {LARGEST_PAYLOAD}")
    return Announcement(origin, group, number, when, life, data[_ENVELOPE.size :], season)


def _require_group(state: PeerState[Payload], group: int, now: int) -> None:
    require_integer("round", now, at_least=0)
    if group != now % state.groups:
        raise ConfigurationError("group", group, f"{now % state.groups}, the group of round {now}")


def _window(state: PeerState[Payload]) -> int:
    """How many versions to remember: as many as can be younger than ttl, and `WINDOW` more."""
    return WINDOW + state.ttl // state.groups


def _complete_version(state: PeerState[Payload], group: int, now: int) -> _Version:
    """(0, 0) where none is complete."""
    common: set[_Version] = set()
    for index, member in enumerate(state.members):
        kept = state.kept.get((member, group), ())
        versions = {one.version for one in kept if one.round + state.ttl <= now}
        common = common & versions if index else versions
        if not common:
            return 0, 0
    return max(common)


def _keep(state: PeerState[Payload], message: Announcement[Payload], now: int) -> PeerState[Payload]:
    """Keep a release of a member; the first of a version stays, and older ones never displace newer ones."""
    key = message.origin, message.group
    held = {one.version: one for one in state.kept.get(key, ())}
    if message.version in held:
        return state
    complete = _complete_version(state, message.group, now)
    if message.number < 1 or message.version < complete:
        return state
    held[message.version] = replace(message, life=0)
    later = sorted(version for version in held if version > complete)[-_window(state) :]
    wanted = ([complete] if complete in held else []) + later
    return replace(state, kept={**state.kept, key: tuple(held[version] for version in wanted)})


def _owe(state: PeerState[Payload], group: int, asked: int, now: int) -> PeerState[Payload]:
    """Owe an answer, once for each (g, t′) whoever asks."""
    own = state.kept.get((state.agent, group), ())
    if own and own[-1].round >= asked + state.ttl:  # answered
        return state
    waiting = {(g, earlier) for g, earlier in state.owed if earlier + state.ttl >= now}
    return replace(state, owed=frozenset(waiting | {(group, asked)}))


def _forward(state: PeerState[Payload], message: Message[Payload], sender: int) -> _Step[Payload]:
    life = message.life - 1
    flow = (type(message), message.origin, message.group)
    lives = state.forwarded.get(flow, {})
    newest = sorted({*lives, message.version})[-_window(state) :]
    if life <= lives.get(message.version, 0) or message.version not in newest:
        return state, ()
    lives = {version: life if version == message.version else lives[version] for version in newest}
    state = replace(state, forwarded={**state.forwarded, flow: lives})
    passed_on = replace(message, life=life)
    return state, tuple(Outgoing(to, passed_on) for to in state.neighbours if to != sender)
