"""What a neighbour on a graph answers to what came over their link: taken, or refused and why.

The link authenticates who says so, and an answer goes no further than that link. It goes to those alone who
say that they understand one: earlier versions would refuse it.
"""

from __future__ import annotations

from feducb.formats import PEER_ANSWER
from feducb.protocol.admission import REASONS, Receipt

__all__ = ["HEADER", "is_receipt", "read", "write"]

HEADER = "Feducb-Receipt"  # of a message whose sender understands an answer
_MARK = PEER_ANSWER.mark("RCT")
_LONGEST = 600


def is_receipt(data: bytes) -> bool:
    """Whether a message is an answer; no announcement begins so."""
    return data.startswith(_MARK)


def write(why: str | None) -> bytes:
    """An answer: None if all was taken, or the reason of a refusal, a colon, and words."""
    return _MARK + (why or "")[: _LONGEST // 4].encode()


def read(data: bytes) -> Receipt:
    """What `write` wrote; whatever else it may be, no more than a line of text comes out."""
    text = data[len(_MARK) : _LONGEST].decode(errors="replace")
    if not text:
        return Receipt("stored")
    reason, _, words = text.partition(": ")
    return Receipt("refused", reason if reason in REASONS else "malformed", words)
