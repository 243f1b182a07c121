"""The page that a privacy officer signs for an agent that is alone: nothing leaves it."""

from __future__ import annotations

from typing import Any

from feducb.privacy.circumstances import Kept, raw_events
from feducb.privacy.terms import Terms

__all__ = ["alone_rows", "state_alone"]

_PROMISE = (
    "Nothing leaves this agent: it makes no release, its store and its privatizer refuse to, and it takes "
    "in no sum of others. To anyone who sees neither its file nor its decisions, (ε, δ) = (0, 0)."
)
_DECISIONS = (
    "Decisions rest on sums of visitors' raw records, used as soon as their windows close. What a "
    "decision shows to the visitor it is made for, and to whoever sees it, about earlier visitors is NOT "
    "protected: nothing is promised against visitors."
)
_RETENTION = (
    " Exact sums of all records stay for as long as the agent is alone: they are not deleted when a season "
    "ends. Sums of few records show them to whoever holds the file. Counts and the learning curve are raw "
    "too."
)
_JOINING = (
    "If a later season shares, none of these records enters a release: the season's stream takes new "
    "decisions alone, made from releases alone. Under own play the sums kept here are read after its "
    "close; under released play they are deleted. Its promise covers people of earlier seasons only if, "
    "given what was released, its visitors, their candidates and rewards do not depend on what was "
    "decided alone (other people, no shared stock). A log exported here must not be loaded where it would "
    "enter a release, but for decisions that say own_phase = false: those were drawn uniformly."
)


def state_alone(terms: Terms, kept: Kept | None) -> dict[str, Any]:
    """The statement as plain data, but for what every page has.

    Args:
        terms: of the open season.
        kept: what the agent's file says about itself, if one was read.
    """
    return {
        "epsilon": terms.promised[0],
        "delta": terms.promised[1],
        "trust": terms.trust.name,
        "promise": _PROMISE,
        "adversary": terms.trust.words.adversary,
        "trusted": terms.trust.words.trusted,
        "releases": 0,
        "not_covered": _DECISIONS,
        "retention": raw_events(kept) + _RETENTION,
        "joining": _JOINING,
        "dim": terms.problem.dim,
        "model": terms.model.name,
    }


def alone_rows(plain: dict[str, Any]) -> list[tuple[str, str]]:
    """Its rows."""
    return [
        ("Promise", plain["promise"]),
        ("Against", plain["adversary"]),
        ("Trusted", plain["trusted"]),
        ("Not covered", plain["not_covered"]),
        ("Kept", plain["retention"]),
        ("Joining others later", plain["joining"]),
        ("Written", plain["written"]),
        ("Software", ", ".join(f"{name} {version}" for name, version in plain["versions"].items())),
    ]
