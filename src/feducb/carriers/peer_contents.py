"""What peers on a graph carry for each other: releases, or words about rows that are masked in pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from feducb.errors import ConfigurationError, RefusedError
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.admission import prepare, read_release
from feducb.protocol.frames import Seal
from feducb.protocol.masks import RowNonce, is_word, read_word
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.protocol.roster import Roster

__all__ = ["Contents", "Named", "Releases", "Words"]


class Named(NamedTuple):
    """What a payload says it is."""

    season: int
    group: int
    number: int  # of its announcement, counted from 1


class Contents(ABC):
    """How a payload is made, checked wherever it passes, and told from another one."""

    @abstractmethod
    def pack(self, item: Parcel) -> tuple[int, bytes]:
        """The number and the payload of an own announcement; raw uploads are refused."""

    @abstractmethod
    def read(self, origin: str, payload: bytes) -> Named:
        """What a payload is, or `RefusedError` if it is not its origin's."""

    @abstractmethod
    def fits(self, origin: str, payload: bytes) -> bool:
        """Whether a payload that was kept is one of these: a file may be older than a season."""

    @abstractmethod
    def bare(self, payload: bytes) -> bytes:
        """What must be the same in two payloads of one name."""


class Releases(Contents):
    """Releases of everybody, each under noise of its own."""

    def __init__(self, terms: Mapping[str, Terms], agent: str, seal: Seal) -> None:
        self._terms, self._seal = terms, seal
        self._size = messages.message_size(terms[agent].problem.dim, terms[agent].model)
        prepare(terms)

    def pack(self, item: Parcel) -> tuple[int, bytes]:
        """Signed, where somebody is in between."""
        return item.number, self._seal.sign(item.released())

    def read(self, origin: str, payload: bytes) -> Named:
        """A release that its origin signed, and that may enter a sum."""
        release = read_release(self._seal.open(origin, payload), self._terms, agent=origin)
        return Named(release.season, release.group, release.number)

    def fits(self, origin: str, payload: bytes) -> bool:
        """It was checked when it arrived."""
        return not is_word(payload)

    def bare(self, payload: bytes) -> bytes:
        """The release without its signature: the key may have changed since it was checked."""
        return payload[: self._size]


class Words(Contents):
    """What members of cliques say about their rows (`protocol.masks`): row k has numbers 2k − 1 and 2k."""

    def __init__(self, roster: Roster, terms: Terms) -> None:
        self._roster, self._coordinates = roster, terms.model.coordinates(terms.problem.dim)

    def pack(self, item: Parcel) -> tuple[int, bytes]:
        """It is signed already."""
        if item.kind not in (ParcelKind.NONCE, ParcelKind.ROW):
            raise ConfigurationError("kind", str(item.kind), "a nonce or a masked row")
        return 2 * item.number - (item.kind is ParcelKind.NONCE), item.body

    def read(self, origin: str, payload: bytes) -> Named:
        """A word that its origin signed; whether it is of the right charter its clique sees."""
        word = read_word(payload, self._roster, coordinates=self._coordinates)
        if word.agent != origin:
            raise RefusedError("sender", f"a word of {word.agent}")
        return Named(word.label.season, word.label.group, 2 * word.label.row - isinstance(word, RowNonce))

    def fits(self, origin: str, payload: bytes) -> bool:
        """Signed with the keys of today."""
        try:
            self.read(origin, payload)
        except RefusedError:
            return False
        return True

    def bare(self, payload: bytes) -> bytes:
        """All of it."""
        return payload
