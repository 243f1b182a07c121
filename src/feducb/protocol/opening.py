"""Rows that are over, read in their order: what they tell, and which sums are not to be used."""

from __future__ import annotations

from collections.abc import Iterable

from feducb.privacy.deployed import DeployedPrivatizer, GridRelease
from feducb.privacy.rows import require_in_range
from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.admission import require_definite
from feducb.protocol.secure_rows import Opened

__all__ = ["RowReader"]


class RowReader:
    """Decodes opened rows, each once and in order; those that are missing count as 0."""

    def __init__(self, terms: Terms, past: Iterable[Opened] = ()) -> None:
        self._terms, self._door = terms, DeployedPrivatizer(terms)
        for opened in past:
            self.take(opened)

    def take(self, opened: Opened) -> GridRelease | None:
        """What all rows up to this one tell; None while it is still to be made up for."""
        if opened.label.following(empty=opened.empty).row == opened.label.row:
            return None
        missing = opened.empty or opened.refused
        return self._door.read(None if missing else opened.values, agents=len(opened.listed))

    def require_usable(self, opened: Opened) -> None:
        """`take` it, or raise `RefusedError` if no honest rows add up to its sum: then make a new reader.

        Nobody sees single rows, so this is all that can be checked: the range of the sum, and that the Gram
        it tells is no further from positive semi-definite than its noise explains.
        """
        if opened.values is not None:
            require_in_range(opened.values, self._terms)
        told = self.take(opened)
        if told is not None and not opened.empty:
            require_definite(messages.decode(messages.encode(told, season=opened.label.season)))
