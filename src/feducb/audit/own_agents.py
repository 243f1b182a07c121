"""Deployed agents under own play: when they close, what they decide until then, and what ever leaves them.

Exact, as in `agents`: noise is the same in all worlds and every visitor has coins of her own, so that nothing
differs between two worlds but one visitor's reward at one agent, and what comes of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from feducb.agent import Agent
from feducb.audit.findings import Check
from feducb.audit.own_season import Close, Trace, play_season, release_of, settings_of
from feducb.privacy.terms import Terms
from feducb.protocol.parcels import ParcelKind

__all__ = ["check_agent_close"]

# Visitors who are in the first release, in the second, with a window that is open at the last one, or later.
_PLACES = (5, 8, 12, 18, 19, 21, 24, 28)
_SOME = (5, 12, 19)  # of them, where the last sum lacks an agent


def check_agent_close(kind: type[Agent], terms: Terms) -> Check:
    """Change one reward at a time: the close stays, decisions wait for its sum or the close, later ones stay.

    Whoever is trusted: with real agents, and the real controller and keepers. Nobody closes before the last
    release of all is made. Also where the last sum lacks an agent: then nobody closes, and what is in no sum
    before shows nowhere; rows are made up for, and all wait for that.
    """
    settings = settings_of(terms)
    moved, early, leaked, hasty = list[int](), list[int](), list[int](), list[str]()
    shown = {False: 0, True: 0}
    for lacks, places in ((False, _PLACES), (True, _SOME)):
        close = Close(settings, lacks)
        plain = play_season(kind, close, changed=None)
        hasty += plain.hasty
        for place in places:
            world, release = play_season(kind, close, changed=place), release_of(place)
            moved += [place] if _moved(plain, world, close) else []
            early += [place] if _early(plain, world, close, release) else []
            leaked += [place] if _leaked(plain, world, release) else []
            shown[lacks] += world.decided != plain.decided
    return Check(
        f"own play at an agent trust={terms.trust}",
        not (moved or early or leaked or hasty) and min(shown.values()) > 0,
        f"agents that closed before everybody's last release was made: {_listed(hasty)}; visitors whose "
        f"reward moved a release or the close, which needs a sum of all: {_listed(moved)}; changed a "
        f"decision before its sum or the close: {_listed(early)}; left in a release that it is not in: "
        f"{_listed(leaked)}; {shown[False]} of {len(_PLACES)} changed decisions, as they may, {shown[True]} "
        f"of {len(_SOME)} where the last sum lacks an agent",
    )


def _moved(plain: Trace, world: Trace, close: Close) -> bool:
    """Whether a release, or the close of anybody, was not when it is to be; or not all releases were made."""
    expected = {} if close.at is None else dict.fromkeys(world.left, close.at)
    return world.closed != expected or world.when != plain.when or not world.sealed


def _early(plain: Trace, world: Trace, close: Close, release: int) -> bool:
    """Whether a decision changed before the sum of the release was heard, or at its own agent the close."""
    first = next(iter(world.left))
    return any(
        plain.decided[name, second] != index and second < close.until(release, own=name == first)
        for (name, second), index in world.decided.items()
    )


def _leaked(plain: Trace, world: Trace, release: int) -> bool:
    """Whether a record shows in what left before its release, or without data: a row that is made up for.

    Nor may it in the release of its number at others, who have not heard it then.
    """
    for place, (name, left) in enumerate(world.left.items()):
        for (kind, number), what in left.items():
            again = kind is ParcelKind.MAKE_UP and (ParcelKind.ROW, number) in left
            if (again or number < release + (place > 0)) and what != plain.left[name].get((kind, number)):
                return True
    return False


def _listed(what: Iterable[object]) -> str:
    return ", ".join(map(str, dict.fromkeys(what))) or "none"
