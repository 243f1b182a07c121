"""What an application showed while the service was away, kept in memory until that can be said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from feducb.agent import Outcome
from feducb.errors import ConfigurationError

__all__ = ["Defaults", "Fallback", "Fallbacks", "Kept", "fallback_for", "fallbacks_for"]

MOST_KEPT = 10_000
Defaults = int | str | Sequence[int | str]
"""One default for all of many visitors, or one for each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fallback:
    """The application's own default, since no answer of the service came.

    Attributes:
        id: names it, for its reward.
        index: of what to show; None if it was named, and only the recipe says in which place it stands.
        action: its name; None among vectors.
        propensity: None, as are estimate and bound: no policy chose it.
        fallback: True; that of a `Decision` is False.
        reason: why there was no answer.
    """

    id: str
    index: int | None
    action: str | None
    reason: str
    propensity: None = None
    estimate: None = None
    bound: None = None
    fallback: Literal[True] = True


def fallback_for(default: int | str, asked: Mapping[str, Any]) -> Fallback:
    """What to show by default, checked against the request before anything is sent."""
    actions, follow = asked["actions"], asked["follow"]
    if follow is not None and default != follow:
        expected = f"{follow!r}, as in follow: in shadow mode the application shows its own choice"
        raise ConfigurationError("fallback", default, expected)
    if actions is None:
        if not isinstance(default, str) or not default:
            raise ConfigurationError("fallback", default, "a name: the actions are the recipe's")
        return Fallback(id=asked["id"], index=None, action=default, reason="")
    names = [one.get("id") if isinstance(one, Mapping) else one for one in actions]
    if isinstance(default, str):
        if default not in names:
            listed = ", ".join(one for one in names if isinstance(one, str)) or "an index, among vectors"
            raise ConfigurationError("fallback", default, f"one of the actions: {listed}")
        default = names.index(default)
    if isinstance(default, bool) or not 0 <= default < len(names):
        raise ConfigurationError("fallback", default, f"an index from 0 to {len(names) - 1}")
    name = names[default]
    return Fallback(id=asked["id"], index=default, action=name if isinstance(name, str) else None, reason="")


def fallbacks_for(defaults: Defaults, asked: Sequence[Mapping[str, Any]]) -> list[Fallback]:
    """What to show each of many by default."""
    each = [defaults] * len(asked) if isinstance(defaults, int | str) else list(defaults)
    if len(each) != len(asked):
        expected = f"one for all, or one for each of {len(asked)} visitors"
        raise ConfigurationError("fallback", f"{len(each)} of them", expected)
    return [fallback_for(default, one) for default, one in zip(each, asked, strict=True)]


@dataclass(slots=True)
class Kept:
    """One of them.

    Attributes:
        request: in shadow mode, what is asked once the service is back; else None.
        reward: in shadow mode, what it was worth, if that is known already.
    """

    request: dict[str, Any] | None = None
    reward: float | None = None


@dataclass(slots=True)
class Fallbacks:
    """What was shown without an answer, and what became of it.

    Attributes:
        most: so many are kept; of more, the oldest is lost.
        shown: how often there was no answer.
        reported: how many the service has heard of.
        late: of these, for how many it had made a decision whose window is over: a record is in, with the
            default reward, of something that was not shown.
        refused: how many the service did not take.
        lost: how many were dropped from a full shelf, and are counted nowhere but here.
    """

    most: int = MOST_KEPT
    shown: int = 0
    reported: int = 0
    late: int = 0
    refused: int = 0
    lost: int = 0
    _kept: dict[str, Kept] = field(default_factory=dict, repr=False)

    @property
    def waiting(self) -> int:
        """How many the service has not heard of yet."""
        return len(self._kept)

    def keep(self, asked: dict[str, Any]) -> None:
        """One more: of a live agent its id alone, in shadow mode the request."""
        self.shown += 1
        self._kept.setdefault(asked["id"], Kept(asked if asked["follow"] is not None else None))
        if len(self._kept) > self.most:
            for oldest in list(self._kept)[: len(self._kept) - self.most]:
                self._kept.pop(oldest, None)
                self.lost += 1

    def get(self, id: str) -> Kept | None:
        """If it still waits."""
        return self._kept.get(id)

    def oldest(self, most_ids: int, most_requests: int) -> dict[str, Kept]:
        """So many, all of one kind: ids alone, or requests."""
        waiting = list(self._kept.items())
        of_kind = waiting and waiting[0][1].request is None
        most = most_ids if of_kind else most_requests
        return dict([one for one in waiting if (one[1].request is None) == of_kind][:most])

    def settle(self, outcomes: Iterable[tuple[str, str | None]]) -> None:
        """The service has heard of these: by id what it said, None where it refused."""
        for id, outcome in outcomes:
            if self._kept.pop(id, None) is None:
                continue  # another call of this client was quicker
            if outcome in (None, Outcome.REFUSED):
                self.refused += 1
            else:
                self.reported += 1
                self.late += outcome == Outcome.LATE
