"""What is answered: decisions, and what became of a reward."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal

from feducb.agent.reasons import Explanation

__all__ = ["Decision", "Outcome"]


class Outcome(StrEnum):
    """What became of a reward, or of a wish to discard."""

    RECORDED = "recorded"
    REPEATED = "repeated"  # it was there already; the first value stays
    LATE = "late"  # the window had closed: counted, and dropped
    DISCARDED = "discarded"
    UNKNOWN = "unknown"  # no such decision, or one forgotten long ago
    WAITING = "waiting"  # only said by a client: it keeps it until the service is back
    REFUSED = "refused"  # out of range or not finite: as if it had not come, but for the tally of them


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What was decided.

    Attributes:
        id: names it, for its reward.
        index: of the candidate to show.
        action: its name, where the agent has a recipe; None among vectors.
        propensity: the chance with which that candidate was chosen; None in shadow mode if it was not told.
        estimate: the reward that is expected of it, in the application's units; None before anything was
            learnt.
        bound: the most that its mean reward may be, by the confidence bound, in the same units. Both are cut
            off at the range of rewards, and rest on released sums as the choice does.
        model: the sum it rests on, ``season.number``; number 0 is none yet.
        would_choose: in shadow mode, what the agent would have shown; else the same as ``index``.
        would_choose_action: its name.
        scores: the upper confidence bound of each candidate, if asked for, in the units of rewards, as
            ``bound``, but not cut off at their range; None before anything was learnt.
        ranking: the best candidates in order, if asked for; None before anything was learnt.
        repeated: this id had been decided before, and this is that decision; scores, estimate, bound and
            explanation are those of now.
        explanation: what each term of the recipe adds to estimate and bound, if asked for (`reasons`); None
            before anything was learnt.
        fallback: False; a client that could not ask answers with another type (`service.client.Fallback`).
    """

    fallback: ClassVar[Literal[False]] = False

    id: str
    index: int
    action: str | None = None
    propensity: float | None
    estimate: float | None = None
    bound: float | None = None
    model: str
    would_choose: int
    would_choose_action: str | None = None
    scores: tuple[float, ...] | None = None
    ranking: tuple[int, ...] | None = None
    repeated: bool = False
    explanation: Explanation | None = None
