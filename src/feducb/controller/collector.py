"""The controller's side of any engine: messages in, sums out, on disk in between. No sockets here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from feducb.config import require_finite, require_integer
from feducb.errors import ConfigurationError, PrivacyError, RefusedError, ReleasesExhaustedError, StoreError
from feducb.interfaces import Model, Trust
from feducb.privacy.terms import Terms
from feducb.privacy.uploads import decode_upload
from feducb.protocol.admission import Receipt, refusal
from feducb.protocol.calendar import LINGER, Calendar, Leap
from feducb.protocol.keeping import quorum_of
from feducb.protocol.parcels import ParcelKind
from feducb.protocol.roster import Roster, Signer
from feducb.protocol.sums import NamedSum, name_sum
from feducb.storage import ControllerStore, Quorum, ReleaseBook, RowBook
from feducb.storage.past_sums import PastSum, PastSums
from feducb.storage.store import require_same

__all__ = ["Collector", "TrustedCollector", "open_collector"]


def open_collector(
    path: Path,
    terms: Mapping[str, Terms],
    *,
    quorum: int | None = None,
    deadline: float | None = None,
    season: int = 1,
    budget: Terms | None = None,
    close_after: float | None = None,
    signing: tuple[Roster, Signer] | None = None,
    calendar: Calendar | None = None,
) -> Collector | RowBook:
    """Open or make a controller's file.

    Args:
        path: of the file.
        terms: of each agent.
        quorum: how many agents a sum needs; all if not given.
        deadline: seconds after the first message of a number arrived, when those that are here will do; if
            not given the controller waits for everybody.
        season: the open one, where there is no calendar; raise it, and restart, to go on to the next.
        budget: a trusted controller's own terms; those of the agents if not given.
        close_after: where rows are padded, see `RowBook`.
        signing: where rows are padded, who everybody is and what the controller signs with.
        calendar: which season runs when: the next one is opened by the clock.
    """
    if not terms:
        raise ConfigurationError("agents", [], "at least one")
    if quorum is not None and require_integer("quorum", quorum, at_least=1) > len(terms):
        raise ConfigurationError("quorum", quorum, f"at most {len(terms)}, the number of agents")
    if deadline is not None:
        require_finite("deadline", deadline, at_least=0.0)
    require_integer("season", season, at_least=1)
    trust = _common(terms, pooled=budget is None)
    if trust.padded:
        shared = next(iter(terms.values()))
        _require_whole_quorum(quorum, shared)
        if signing is None:
            raise ConfigurationError("signing", None, "a roster and a key, under trust='keepers'")
        times = {"deadline": deadline, "close_after": close_after}
        return RowBook(path, signing[0], shared, signing[1], season=season, calendar=calendar, **times)
    if close_after is not None:
        raise ConfigurationError("close_after", close_after, f"nothing under trust {trust.name}")
    rule = Quorum(len(terms), quorum or len(terms), deadline)
    if trust.raw:
        own = budget or next(iter(terms.values()))
        return TrustedCollector(path, own, names=terms, rule=rule, season=season, calendar=calendar)
    return ReleaseBook(path, terms, quorum=quorum, deadline=deadline, season=season, calendar=calendar)


def _require_whole_quorum(quorum: int | None, terms: Terms) -> None:
    """Noise is shared out between those that are there: with fewer it would not do."""
    enough = quorum_of(terms)
    if quorum not in (None, enough):
        expected = f"{enough}, all agents but those that `away` allows for; or leave it out"
        raise ConfigurationError("quorum", quorum, expected)


def _common(terms: Mapping[str, Terms], *, pooled: bool) -> Trust:
    """What all agents must have in common, so that releases add; returns whom they trust.

    A trusted controller whose own terms are the agents' (``pooled``) has one noise for all of them.
    """
    first = next(iter(terms.values()))
    names: tuple[str, ...] = ("problem", "model", "releases", "quiet", "decay", "trust", "groups")
    if pooled and first.trust.joint:
        names += ("budget", "records_per_person", "agents_per_person", "spacing", "agents")
    for name, one in terms.items():
        for setting in names:
            own, common = getattr(one, setting), getattr(first, setting)
            if own != common:
                if isinstance(own, Trust | Model):
                    own, common = own.name, common.name
                raise ConfigurationError(f"terms.{setting} of {name}", own, f"{common!r} as for others")
        if one.factors.name != first.factors.name:
            raise ConfigurationError(f"mechanism of {name}", one.factors.name, first.factors.name)
    if first.groups != 1:
        raise ConfigurationError("groups", first.groups, "1 with a controller")
    return first.trust


class TrustedCollector:
    """A controller that agents trust with raw sums: it adds noise once, under its own ledger.

    An upload that comes after its release is in the next: nothing is lost, and nothing enters twice.
    """

    takes: ClassVar[ParcelKind] = ParcelKind.UPLOAD

    def __init__(
        self,
        path: Path,
        terms: Terms,
        *,
        names: Iterable[str],
        rule: Quorum,
        season: int,
        calendar: Calendar | None = None,
    ) -> None:
        """Open or make the file, and go on to the season that is asked for."""
        self._path, self._terms, self._calendar = path, terms, calendar
        self._renewed: tuple[Terms, frozenset[str], Quorum] | None = None
        self._names, self._rule = frozenset(names), rule
        first = season if calendar is None else calendar.first
        self._leap, self._new = Leap(), False
        try:
            self._store = ControllerStore.open(path)
        except ConfigurationError:  # there is no season in it yet
            self._new = True  # it begins with the one that runs
            self._store = ControllerStore.open(path, terms, first_season=first)
        try:
            if calendar is None:
                self._go_to(season)
            else:
                self._go_on()
        except BaseException:
            self._store.close()
            raise
        self._past = PastSums(self._released_after)

    def _go_on(self) -> None:
        """Keep the terms of the open season; others are for those after it, as where it was not restarted.

        Not where they say that a person visits other agents: then who is in the season is not known here.
        """
        kept, terms = self._store.terms, self._terms
        if terms.agents_per_person != kept.agents_per_person:
            require_same(terms, kept)
        if terms != kept:
            self._terms, self._renewed = kept, (terms, self._names, self._rule)

    def _go_to(self, season: int) -> None:
        """Open the season that is asked for by number, where there is no calendar."""
        if self._store.season > season:
            expected = f"at least {self._store.season}, the open one of {self._path}"
            raise ConfigurationError("season", season, expected)
        if self._store.season == season:
            require_same(self._terms, self._store.terms)
        while self._store.season < season:
            self._store.new_season(self._terms)

    @property
    def season(self) -> int:
        """The open one."""
        return self.store.season

    def renew(self, terms: Mapping[str, Terms], *, quorum: int | None = None) -> None:
        """Take other terms, or other agents, for the next season."""
        rule = Quorum(len(terms), quorum or len(terms), self._rule.deadline)
        self._renewed = (next(iter(terms.values())), frozenset(terms), rule)

    def _advance(self, now: float) -> None:
        """Open the season that runs, once the one before has made its last release, or has had its time."""
        store, calendar = self.store, self._calendar
        if calendar is None or (number := calendar.number_at(now)) <= store.season:
            self._leap, self._new = Leap(), False
            return
        leapt = calendar.leaves_out(store.season, now)
        if not self._new and not self._leap.is_believed(leapt=leapt):
            return
        self._new = False
        waits = now < calendar.ends(store.season) + LINGER * calendar.length
        if waits and store.releases_left and len(store.sealed()) < len(self._names):
            return
        if store.releases_left and len(store.waiting()) >= self._rule.enough:
            store.release()  # what is here is in it; the others had their time
        if self._renewed is not None:
            (self._terms, self._names, self._rule), self._renewed = self._renewed, None
        store.new_season(self._terms, drop_pending=True, number=number)

    @property
    def store(self) -> ControllerStore:
        """The file; opened anew if it had to be given up, as after a disk that was full."""
        if self._store.closed:
            self._store = ControllerStore.open(self._path, self._terms)
        return self._store

    def receive(self, batch: Sequence[tuple[str, bytes]], *, now: float) -> list[Receipt]:
        """Take uploads in, each in a transaction of its own."""
        self._advance(now)
        return [self._receive(agent, payload) for agent, payload in batch]

    def publish_due(self, *, now: float) -> list[NamedSum]:
        """Release what was handed over, if it is time to and the budget allows it."""
        self._advance(now)
        waiting = self.store.waiting()
        if not waiting or not self._rule.due(len(waiting), _seconds(min(waiting.values())), now):
            return []
        try:
            self.store.release()
        except ReleasesExhaustedError:
            return []
        return [newest] if (newest := self.newest()) is not None else []

    def exchange(
        self, batch: Sequence[tuple[str, bytes]], *, now: float
    ) -> tuple[list[Receipt], list[NamedSum]]:
        """`receive`, then `publish_due`: uploads are on disk before a release is made of them."""
        return self.receive(batch, now=now), self.publish_due(now=now)

    def next_due(self) -> float | None:
        """When the deadline passes, in seconds since 1970."""
        waiting = self.store.waiting()
        if self._rule.deadline is None or len(waiting) < self._rule.enough or not self.store.releases_left:
            return None
        return _seconds(min(waiting.values())) + self._rule.deadline

    def newest(self) -> NamedSum | None:
        """The newest release, and whose records are in it."""
        if (newest := self.store.newest_release()) is None:
            return None
        season, number = newest
        if season < self.store.season and self._calendar is None:
            return None
        # Of those that are here now: one that took another's place in the season may still have more to send.
        sealed = len(self._names.intersection(self.store.sealed(season)))
        return name_sum(self.store.included(season), self.store.replay(season, number), sealed=sealed)

    def last_before(self, season: int) -> NamedSum | None:
        """The last release of the newest season before this one that has any."""
        if (newest := self.store.newest_release(before=season)) is None:
            return None
        return name_sum(self.store.included(newest[0]), self.store.replay(*newest))

    def progress(self) -> dict[str, int]:
        """By agent, the number of its newest upload of this season."""
        return self.store.newest_uploads()

    def last_received(self) -> dict[str, float]:
        """By agent, when its last upload of any season came, in seconds since 1970."""
        return {agent: _seconds(at) for agent, at in self.store.last_received().items()}

    def sums(self) -> list[dict[str, Any]]:
        """What was released, newest first (`PastSum`)."""
        return self._past.listed()

    def _released_after(self, season: int, number: int) -> Iterable[PastSum]:
        return self.store.releases_after(season, number)  # the store may be opened anew

    def waits(self) -> dict[str, Any] | None:
        """The next release, if some have sent for it: ``number``, ``since`` when, and who is ``here``."""
        waiting = self.store.waiting()
        if not waiting or not self.store.releases_left:
            return None
        number = self.store.terms.releases - self.store.releases_left + 1
        return {"number": number, "since": _seconds(min(waiting.values())), "here": sorted(waiting)}

    def arrivals(self) -> dict[str, float]:
        """By agent, when its upload of the newest release's number came."""
        number = self.store.terms.releases - self.store.releases_left
        return {agent: _seconds(at) for agent, at in self.store.arrivals(number).items()}

    def close(self) -> None:
        """Give the file back."""
        self._store.close()

    def _receive(self, agent: str, payload: bytes) -> Receipt:
        store = self.store  # what fails here is no fault of the message
        try:
            if agent not in self._names:
                raise RefusedError("sender", f"{agent[:64]!r} is not of this federation")
            season, number, _ = decode_upload(payload, store.terms)
            if season < store.season:
                return Receipt("past")
            if not 1 <= number <= store.terms.releases:
                raise RefusedError("number", f"upload {number}, expected 1 to {store.terms.releases}")
            return Receipt("stored" if store.receive(payload, from_agent=agent) else "known")
        except RefusedError as error:
            return refusal(error)
        except (PrivacyError, StoreError, ConfigurationError) as error:
            if isinstance(error, ConfigurationError) and error.setting == "terms of an upload":
                return Receipt("refused", "terms", str(error))
            reasons = {ReleasesExhaustedError: "exhausted", PrivacyError: "replay", StoreError: "season"}
            return Receipt("refused", reasons.get(type(error), "malformed"), str(error))


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


# What a controller does with what agents send, nobody or the controller trusted; a call that returned is on
# disk. Where rows are padded, a `RowBook` does the same, and what it publishes is no sum yet.
Collector: TypeAlias = ReleaseBook | TrustedCollector
