"""One agent on a graph, for any engine: bytes in, bytes out, on disk in between. No sockets here.

Deployed agents have no common clock, so rounds are made of public numbers: release k of group g is of round
(k − 1) · groups + g of its season, for everybody. What has arrived counts as arrived in time: a version is
used as soon as every member's release of that number is here. Requests are dropped: the schedule is public.

Where rows are masked in pairs, announcements are words about rows (`peer_contents.Words`): those of members
go to the agent itself, which adds rows up (`tell_members`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from secrets import token_hex
from typing import NamedTuple

from feducb.agent.mailbox import Mailbox
from feducb.carriers import peer_receipts
from feducb.carriers.peer_contents import Contents, Releases, Words
from feducb.errors import ConfigurationError, RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol import messages, peers
from feducb.protocol.admission import RefusalCount
from feducb.protocol.frames import Seal
from feducb.protocol.graphs import Topology
from feducb.protocol.parcels import Parcel
from feducb.protocol.peers import Announcement, PeerState
from feducb.protocol.roster import Roster
from feducb.storage import PeerBook

__all__ = ["OnRefusal", "Packet", "PeerDriver", "tell_members"]

_LATER_THAN_ALL = 2**62
_TOO_EARLY = ("order", "season")  # for the agent: a word that is told again

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
        roster: Roster | None = None,
        book: PeerBook | None = None,
        on_refusal: OnRefusal | None = None,
    ) -> None:
        self.names = topology.labels
        own = terms[agent]
        self._number, self._groups = self.names.index(agent), own.groups
        self._book = book
        self._padded = own.trust.padded
        if self._padded and roster is None:
            raise ConfigurationError("roster", None, "the federation's, where rows are masked")
        self._contents: Contents = (
            Words(roster, own) if self._padded and roster else Releases(terms, agent, seal or Seal())
        )
        # By origin (or, where that cannot be told, by sender): how many were refused; and why the newest was,
        # until one of theirs is taken in.
        self.refusals = RefusalCount(self.names)
        self.refusing: dict[str, str] = {}
        self._refused: dict[str, str] = {}  # likewise, of what neighbours brought in their own name
        self._asked: set[str] = set()  # who is to be told
        self._on_refusal = on_refusal
        state: PeerState[bytes] = peers.start(topology, self._number, groups=own.groups)
        self._state = replace(state, kept=self._load(book)) if book is not None else state
        self._summed: dict[int, tuple[int, int]] = {}
        self._told: set[tuple[int, int, tuple[int, int]]] = set()  # origin, group, version
        self._changed: set[tuple[int, int]] = set()
        self._session = ""

    def begin_session(self) -> list[Packet]:
        """What is announced or heard again from now on goes on, though a broker had and lost it.

        Returns own releases to be announced once more: the next one would make good for a lost one, but the
        last one has no next. Words about rows stay in the agent's outbox for as long as a member may lack
        them.
        """
        self._session = f":{token_hex(4)}"
        self._state = replace(self._state, forwarded={})
        return self.newest()

    def newest(self) -> list[Packet]:
        """The own newest releases, for every neighbour; none where rows are masked."""
        own = (self._state.kept.get((self._number, group), ()) for group in range(self._groups))
        newest = () if self._padded else (replace(some[-1], life=self._state.ttl) for some in own if some)
        return [self._packet(to, message) for message in newest for to in self._state.neighbours]

    @property
    def members(self) -> tuple[str, ...]:
        """Of the agent's clique."""
        return tuple(self.names[member] for member in self._state.members)

    def announce(self, item: Parcel) -> list[Packet]:
        """Publish what is the agent's own; the same packets, if it was before. Raw uploads are refused."""
        number, payload = self._contents.pack(item)
        key, version = (self._number, item.group), (item.season, number)
        kept = {one.version: one for one in self._state.kept.get(key, ())}
        if version not in kept and (not kept or version > max(kept)):
            self._state, _ = peers.publish(
                self._state,
                group=item.group,
                number=number,
                payload=payload,
                now=(number - 1) * self._groups + item.group,
                season=item.season,
            )
            self._changed.add(key)
            kept = {one.version: one for one in self._state.kept.get(key, ())}
        if version not in kept:
            return []  # newer ones of this group have left and replace it
        message = replace(kept[version], life=self._state.ttl)
        return [self._packet(to, message) for to in self._state.neighbours]

    def hear(self, data: bytes, *, sender: str, answered: bool = False) -> list[Packet]:
        """Take in a packet of a neighbour, as the link authenticated it; returns what is to be passed on.

        What is refused is counted and dropped. Where it is to be ``answered``, `answers` has what to say.
        """
        accused = sender
        if answered and sender in self.names:
            self._asked.add(sender)
        try:
            message = self._read(data)
            accused = self.names[message.origin]
            self._check(message)
        except RefusedError as error:
            self.refuse(accused, error, brought_by=sender)
            return []
        before = self._state.kept.get((message.origin, message.group))
        self._state, outgoing = peers.receive(
            self._state, message, sender=self.names.index(sender), now=_LATER_THAN_ALL
        )
        if self._state.kept.get((message.origin, message.group)) != before:
            self._changed.add((message.origin, message.group))
            self.refusing.pop(accused, None)
            if accused == sender:
                self._refused.pop(sender, None)
        sent = ((one.to, one.message) for one in outgoing)
        return [self._packet(to, message) for to, message in sent if isinstance(message, Announcement)]

    def refuse(self, accused: str, error: RefusedError, *, brought_by: str) -> None:
        """Count a refusal, and say it."""
        count = self.refusals.add(accused, error.reason)
        self.refusing[accused] = f"{error.reason}: {error.text}"[:500]
        if accused == brought_by:
            self._refused[accused] = self.refusing[accused]
        if self._on_refusal is not None:
            self._on_refusal(accused, brought_by, error, count)

    def answers(self) -> list[Packet]:
        """What neighbours who asked are told about what they sent; each once."""
        asked, self._asked = sorted(self._asked), set()
        return [
            Packet(
                self.names.index(name),
                f"{self._number}>{name}:receipt:{token_hex(8)}",
                peer_receipts.write(self._refused.get(name)),
            )
            for name in asked
        ]

    def commit(self) -> None:
        """Put what changed on disk, in one transaction: before packets are sent and others' acknowledged."""
        if self._book is not None and self._changed:
            self._book.keep({key: self._state.kept.get(key, ()) for key in self._changed})
        self._changed.clear()

    def new_sums(self) -> list[tuple[tuple[str, ...], messages.GridSum]]:
        """Sums that became complete since the last call: who is in it, and the sum."""
        complete: list[tuple[tuple[str, ...], messages.GridSum]] = []
        if self._padded:
            return complete  # the agent adds rows up
        for group in range(self._groups):
            view = peers.complete_view(self._state, group=group, now=_LATER_THAN_ALL)
            if not view or self._summed.get(group) == view[0].version:
                continue
            parts = [messages.decode(self._contents.bare(one.payload)) for one in view]
            names = tuple(self.names[one.origin] for one in view)
            complete.append((names, messages.combine(parts)))
            self._summed[group] = view[0].version
        return complete

    def untold(self) -> list[Announcement[bytes]]:
        """Words of members, own ones too, that the agent has not taken yet; in the order they were said."""
        if not self._padded:
            return []
        kept = [one for some in self._state.kept.values() for one in some]
        self._told &= {_name(one) for one in kept}
        return sorted((one for one in kept if _name(one) not in self._told), key=lambda one: one.version)

    def mark_told(self, word: Announcement[bytes]) -> None:
        """The agent has it on disk, or refused it."""
        self._told.add(_name(word))

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
        named = self._contents.read(self.names[message.origin], message.payload)
        if named != (message.season, message.group, message.number):
            raise RefusedError("number", "a release that is announced as another one")
        if message.round != (named.number - 1) * self._groups + named.group:
            raise RefusedError("number", f"release {named.number} announced for round {message.round}")
        bare = self._contents.bare
        for one in self._state.kept.get((message.origin, message.group), ()):
            if one.version == message.version and bare(one.payload) != bare(message.payload):
                raise RefusedError("replay", f"release {named.number} is known with other content")

    def _load(self, book: PeerBook) -> dict[tuple[int, int], tuple[Announcement[bytes], ...]]:
        book.number(self.names)
        return {
            (origin, group): tuple(
                one for one in some if self._contents.fits(self.names[origin], one.payload)
            )
            for (origin, group), some in book.load().items()
        }

    def _packet(self, to: int, message: Announcement[bytes]) -> Packet:
        name = f"{message.origin}.{message.group}.{message.season}.{message.number}"
        identity = f"{self._number}>{to}:{name}:{message.life}{self._session}"
        return Packet(to, identity, peers.encode(message))


def _name(one: Announcement[bytes]) -> tuple[int, int, tuple[int, int]]:
    return one.origin, one.group, one.version


async def tell_members(driver: PeerDriver, mailbox: Mailbox) -> bool:
    """Hand over what members said about rows, until nothing more is new; whether anything was.

    What comes too early stays, and is told again.
    """
    taken, again = False, True
    while again:
        again = False
        for word in driver.untold():
            try:
                again |= await mailbox.hear(word.payload)
            except RefusedError as error:
                if error.reason in _TOO_EARLY:
                    continue
                accused = driver.names[word.origin]
                driver.refuse(accused, error, brought_by=accused)
            driver.mark_told(word)
        taken |= again
    return taken
