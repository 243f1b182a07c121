"""What waits in an outbox, and what carriers move: it says what it is, so nobody looks at its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from feducb.errors import ConfigurationError

__all__ = ["Parcel", "ParcelKind"]


class ParcelKind(StrEnum):
    """What may leave an agent, and by which way: the bytes do not decide that."""

    RELEASE = "release"  # noisy: anybody may see it
    UPLOAD = "upload"  # raw: sealed, for a trusted controller alone
    ROW = "row"  # under noise and pads: anybody may see it, and nobody learns anything by it
    MAKE_UP = "make-up"  # the same, once more, for a row that was closed empty
    NONCE = "nonce"  # on a graph, what a row will be masked for: random


@dataclass(frozen=True, slots=True)
class Parcel:
    """A message on its way."""

    kind: ParcelKind
    season: int
    group: int  # g, the estimator it is of; 0 where there is one
    number: int  # k
    body: bytes  # as it is stored and sent

    @property
    def name(self) -> tuple[int, int, int]:
        """(season, group, number), by which an agent's file knows it among those of its kind."""
        return self.season, self.group, self.number

    @property
    def padded(self) -> bool:
        """Whether it is a row under pads or masks, or the nonce of one."""
        return self.kind in (ParcelKind.ROW, ParcelKind.MAKE_UP, ParcelKind.NONCE)

    def released(self) -> bytes:
        """The bytes of a release.

        Guarantees:
            Anything raw is refused, whatever its bytes look like.
        """
        if self.kind is not ParcelKind.RELEASE:
            expected = "a release: raw uploads go to a trusted controller alone, sealed"
            raise ConfigurationError("kind", str(self.kind), expected)
        return self.body
