"""One agent on a graph, for any engine: bytes in, bytes out, on disk in between. No sockets here.

Deployed agents have no common clock, so rounds are made of public numbers: release k of group g is of round
(k − 1) · groups + g of its season, for everybody. What has arrived counts as arrived in time: a version is
used as soon as every member's release of that number is here. Requests are dropped: the schedule is public.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from feducb.errors import RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol import messages, peers
from feducb.protocol.admission import RefusalCount, prepare, read_release
from feducb.protocol.frames import Seal
from feducb.protocol.graphs import Topology
from feducb.protocol.parcels import Parcel
from feducb.protocol.peers import Announcement, PeerState
from feducb.storage import PeerBook

__all__ = ["OnRefusal", "Packet", "PeerDriver"]

_LATER_THAN_ALL = 2**62

OnRefusal = Callable[[str, str, RefusedError, int], None]  # whose release, who brought it, why, how often


class Packet(NamedTuple):
    """What goes over one link."""

    to: int  # the neighbour's number
    identity: str  # the same for the same packet, for brokers that drop duplicates
    data: bytes  # `peers.encode`


class PeerDriver:
    """Drives `peers` for one agent, and adds its clique's releases up.

    Guarantees:
        What is forwarded is what its origin signed. Two contents of one number: the first stays, the other is
        refused and counted. What `hear` and `announce` return is sent after `commit`, any number of times.
    """

    def __init__(
        self,
        topology: Topology,
        agent: str,
        terms: Mapping[str, Terms],
        *,
        seal: Seal | None = None,
        book: PeerBook | None = None,
        on_refusal: OnRefusal | None = None,
    ) -> None:
        self.names = topology.labels
        own = terms[agent]
        self._number, self._groups = self.names.index(agent), own.groups
        self._size = messages.message_size(own.problem.dim)
        self._seal = seal or Seal()
        self._book = book
        self._terms = terms
        prepare(terms)
        # By origin (or, where that cannot be told, by sender): how many were refused; and why the newest was,
        # until one of theirs is taken in.
        self.refusals = RefusalCount(self.names)
        self.refusing: dict[str, str] = {}
        self._on_refusal = on_refusal
        state: PeerState[bytes] = peers.start(topology, self._number, groups=own.groups)
        self._state = replace(state, kept=book.load()) if book is not None else state
        self._summed: dict[int, tuple[int, int]] = {}
        self._changed: set[tuple[int, int]] = set()

    def announce(self, item: Parcel) -> list[Packet]:
        """Publish an own release; the same packets, if it was published before. Raw uploads are refused."""
        payload = item.released()
        key, version = (self._number, item.group), (item.season, item.number)
        kept = {one.version: one for one in self._state.kept.get(key, ())}
        if version not in kept and (not kept or version > max(kept)):
            self._state, _ = peers.publish(
                self._state,
                group=item.group,
                number=item.number,
                payload=self._seal.sign(payload),
                now=(item.number - 1) * self._groups + item.group,
                season=item.season,
            )
            self._changed.add(key)
            kept = {one.version: one for one in self._state.kept.get(key, ())}
        if version not in kept:
            return []  # newer ones of this group have left and replace it
        message = replace(kept[version], life=self._state.ttl)
        return [self._packet(to, message) for to in self._state.neighbours]

    def hear(self, data: bytes, *, sender: str) -> list[Packet]:
        """Take in a packet of a neighbour, as the link authenticated it; returns what is to be passed on.

        What is refused is counted and dropped.
        """
        accused = sender
        try:
            message = self._read(data)
            accused = self.names[message.origin]
            self._check(message)
        except RefusedError as error:
            count = self.refusals.add(accused, error.reason)
            self.refusing[accused] = f"{error.reason}: {error.text}"[:500]
            if self._on_refusal is not None:
                self._on_refusal(accused, sender, error, count)
            return []
        before = self._state.kept.get((message.origin, message.group))
        self._state, outgoing = peers.receive(
            self._state, message, sender=self.names.index(sender), now=_LATER_THAN_ALL
        )
        if self._state.kept.get((message.origin, message.group)) != before:
            self._changed.add((message.origin, message.group))
            self.refusing.pop(accused, None)
        sent = ((one.to, one.message) for one in outgoing)
        return [self._packet(to, message) for to, message in sent if isinstance(message, Announcement)]

    def commit(self) -> None:
        """Put what changed on disk, in one transaction: before packets are sent and others' acknowledged."""
        if self._book is not None and self._changed:
            self._book.keep({key: self._state.kept.get(key, ()) for key in self._changed})
        self._changed.clear()

    def new_sums(self) -> list[tuple[tuple[str, ...], messages.GridSum]]:
        """Sums that became complete since the last call: who is in it, and the sum."""
        complete = []
        for group in range(self._groups):
            view = peers.complete_view(self._state, group=group, now=_LATER_THAN_ALL)
            if not view or self._summed.get(group) == view[0].version:
                continue
            parts = [messages.decode(self._release(one)) for one in view]
            names = tuple(self.names[one.origin] for one in view)
            complete.append((names, messages.combine(parts)))
            self._summed[group] = view[0].version
        return complete

    def _read(self, data: bytes) -> Announcement[bytes]:
        try:
            message = peers.decode(data)
        except ValueError as error:
            raise RefusedError("malformed", str(error)) from None
        if not isinstance(message, Announcement) or message.origin >= len(self.names):
            raise RefusedError("malformed", "no announcement of an agent on this graph")
        if message.origin == self._number:
            raise RefusedError("sender", "an own release, which others do not bring")
        return message

    def _check(self, message: Announcement[bytes]) -> None:
        agent = self.names[message.origin]
        release = self._seal.open(agent, message.payload)
        content = read_release(release, self._terms, agent=agent)
        if (content.season, content.number, content.group) != (message.season, message.number, message.group):
            raise RefusedError("number", "a release that is announced as another one")
        if message.round != (content.number - 1) * self._groups + content.group:
            raise RefusedError("number", f"release {content.number} announced for round {message.round}")
        for one in self._state.kept.get((message.origin, message.group), ()):
            if one.version == message.version and self._release(one) != release:
                raise RefusedError("replay", f"release {content.number} is known with other content")

    def _release(self, kept: Announcement[bytes]) -> bytes:
        """What was checked when it arrived, without its signature: the key may have changed since."""
        return kept.payload[: self._size]

    def _packet(self, to: int, message: Announcement[bytes]) -> Packet:
        name = f"{message.origin}.{message.group}.{message.season}.{message.number}"
        return Packet(to, f"{self._number}>{to}:{name}:{message.life}", peers.encode(message))
