"""What the page to sign says beyond the terms: about this store, about whom it is for, and in plain words.

Every sentence here follows from a setting or a fact; whoever changes one changes the sentence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from feducb.config import Budget
from feducb.system import counted

__all__ = ["BLANK", "Kept", "Signed", "as_plain", "dates", "in_odds", "parties", "raw_events", "retention"]

_LARGEST = 700.0  # ε whose e^ε is still a number
BLANK = "______________________"  # to be filled in by hand

_UNKNOWN = (
    "Raw records stay on the agent. Their content is deleted when they enter its sums, unless keep_events in "
    "its file keeps raw events for longer: --store says what is true for a store."
)
_DELETED = (
    "Raw events are not kept: what was known of a visitor, offered and shown, and the reward, is deleted "
    "when the reward window ({window}) has closed and the record is in the agent's sums."
)
_RETAINED = (
    "RAW EVENTS ARE KEPT (keep_events): what was known of a visitor, offered and shown, and the reward, in "
    "clear in the agent's file, for {length} after the reward window ({window}) has closed, at most until "
    "a new season is opened by hand; `feducb agent export` writes them out."
)
_SUMS = (
    " Kept on the agent besides: the exact sums of every batch (for the season, and of what waits for the "
    "next one; a batch of one record shows that record to whoever holds the file), the releases themselves "
    "(for ever, to resend them unchanged), counts and average rewards by the hour or less (for 30 days) and "
    "the operator log (for ever: keys and users, no visitor)."
)
_HASHES = (
    " Where an application names persons, keyed hashes of their ids stay until the season ends, or while a "
    "record of theirs waits for the next season's first release."
)
_PADDED_ROWS = " Of rows that leave under pads the padded bytes are kept, never the row or its noise."
_OWN_SUMS = " Under own play the exact sums of its records, of earlier seasons too, stay on the agent."
_CONTROLLER = (
    "At the controller: each agent's raw sums, until the release that they are in is made, or the season "
    "ends; their hashes and the releases, for ever. Agents' own files say what agents keep."
)
_FINAL = " A release cannot be taken back."
_COPIES = " Backups hold what the file held; whoever makes them answers for them."


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """What a store says about itself besides its terms and its ledger.

    Attributes:
        of: whose file it is.
        name: of the agent; None for a controller.
        agents: how many the federation is planned for; None where the file does not say.
        season: the number of the open one.
        starts: when that started, in seconds since 1970; None where the file does not say.
        ends: likewise, when it ends.
        last_release: likewise, when the last release is due.
        window: seconds for which a reward may come.
        keep_events: seconds for which raw events are kept after that.
        joins: with which later season the agent comes in; None if it is one of the federation's already.
        has_released: whether anything has left, or may have.
    """

    of: Literal["agent", "controller"] = "agent"
    name: str | None = None
    agents: int | None = None
    season: int = 1
    starts: float | None = None
    ends: float | None = None
    last_release: float | None = None
    window: float = 0.0
    keep_events: float = 0.0
    joins: int | None = None
    has_released: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Signed:
    """What nobody but the signer knows; left out, there is a blank to fill in by hand.

    Attributes:
        purpose: what decisions are made for.
        party: who is responsible for the data.
        signer: whose signature it is.
        date: of the signature.
    """

    purpose: str | None = None
    party: str | None = None
    signer: str | None = None
    date: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        """For JSON."""
        return {"purpose": self.purpose, "party": self.party, "signer": self.signer, "date": self.date}


def in_odds(budget: Budget) -> str:
    """What (ε, δ) means for whoever guesses."""
    factor = math.exp(min(budget.epsilon, _LARGEST))
    shown = f"{factor:,.2f}" if factor < 100 else f"{factor:,.0f}" if factor < 1e6 else f"{factor:.1e}"
    more, even = "more than " if budget.epsilon > _LARGEST else "", 100.0 / (1.0 + 1.0 / factor)
    return (
        "Whatever anybody believes about it beforehand, all that leaves changes the odds at most e^ε = "
        f"{more}{shown} times: what was as likely as not (50 %) is at most {even:.4g} % likely afterwards. "
        f"This may fail with a chance of δ = {budget.delta:g}."
    )


def retention(kept: Kept | None, *, padded: bool, own: bool) -> str:
    """What is kept where, and for how long.

    Args:
        kept: by the store; None if none was read.
        padded: whether rows leave under pads.
        own: whether agents go on with their own records after the close.
    """
    if kept is not None and kept.of == "controller":
        return _CONTROLLER + _FINAL + _COPIES
    parts = (raw_events(kept), _SUMS, _HASHES, _PADDED_ROWS if padded else "", _OWN_SUMS if own else "")
    return "".join(parts) + _FINAL + (_COPIES if kept is not None else "")


def raw_events(kept: Kept | None) -> str:
    """Whether raw events are kept on the agent, and for how long."""
    if kept is None:
        return _UNKNOWN
    window = _length(kept.window)
    if not kept.keep_events:
        return _DELETED.format(window=window)
    return _RETAINED.format(window=window, length=_length(kept.keep_events))


def parties(kept: Kept | None, keepers: tuple[str, ...], clique: tuple[str, ...]) -> str:
    """Who takes part, as far as it is known."""
    if kept is None:
        return "those whom this page is written for"
    if kept.of == "controller":
        return "the controller of a federation, whom its agents trust"
    others = ", on its own" if kept.agents == 1 else f", one of {kept.agents} agents"
    if kept.joins is not None:
        so_far = "" if kept.has_released else ", and nothing has left it so far"
        others = f", which comes in with season {kept.joins}: it releases nothing before{so_far}"
    words = f"agent {kept.name}{others}"
    if clique:
        return f"{words}; its clique: {', '.join(clique)}"
    return words + (f"; keepers: {', '.join(keepers)}" if keepers else "")


def dates(kept: Kept | None) -> str | None:
    """When the season is; None where no store says it."""
    if kept is None or kept.starts is None or kept.ends is None:
        return None
    last = "" if kept.last_release is None else f"; the last release is due {_day(kept.last_release)}"
    return f"Season {kept.season}, from {_day(kept.starts)} to {_day(kept.ends)}{last}"


def as_plain(kept: Kept | None) -> dict[str, Any] | None:
    """What the store says, for JSON."""
    if kept is None:
        return None
    return {name: getattr(kept, name) for name in Kept.__slots__}


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def _length(seconds: float) -> str:
    for size, unit in ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute")):
        if seconds >= size:
            return counted(round(seconds / size, 2), unit, ",g")
    return counted(round(seconds, 3), "second", ",g")
