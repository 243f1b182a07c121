"""What is wrong with what carries an agent's or a keeper's messages, and with a keeper: by their plain facts.

An engine's facts are `agent.mailbox.EngineFacts`, a keeper's are `storage.keeper_facts`; None where there is
none.
"""

from __future__ import annotations

from feducb.protocol.trouble import WRONG, Condition, Facts, moment, some_of

__all__ = [
    "BROKER",
    "HANGS",
    "KEEPER_HALTED",
    "REFUSED",
    "ROW_WAITS",
    "SECOND_LIST",
    "STOPPED",
    "SUM_REFUSED",
    "UNANSWERED",
]

_SILENCE = 30.0  # seconds for which a process that says every few how it stands may say nothing


def _engine(facts: Facts) -> Facts:
    return facts.get("engine") or {}


def _stopped(facts: Facts) -> str | None:
    return None if facts.get("running", True) else "It does not run."


def _hangs(facts: Facts) -> str | None:
    """By ``seconds_ago``, when a process last said how it stands, where somebody looked from outside."""
    ago = facts.get("seconds_ago")
    if ago is None or ago <= _SILENCE or not facts.get("running", True):
        return None
    return (
        f"It runs, but has not said how it stands since {moment(facts['at'] - ago)}: it hangs, or cannot "
        "write to its disk. Restart it."
    )


def _broker(facts: Facts) -> str | None:
    engine = _engine(facts)
    if engine.get("connected", True) or not engine.get("failures"):
        return None
    return f"The broker is not reached. {engine.get('last_error') or ''}".strip()


def _reached(facts: Facts) -> Facts:
    """An engine that reaches its broker: what else is wrong cannot be known before."""
    engine = _engine(facts)
    return engine if engine.get("connected") else {}


def _refused(facts: Facts) -> str | None:
    engine = _reached(facts)
    if by := engine.get("refused_by"):  # on a graph
        why = [f"{name}: {text}" for name, text in sorted(by.items())]
        return f"Neighbours refuse what this agent sends. {some_of(why)}"
    at = engine.get("last_refusal_at")
    if at is None or at <= (engine.get("last_receipt_at") or 0.0):
        return None
    return f"Releases are refused. {engine['last_refusal']}"


def _neighbours(facts: Facts) -> str | None:
    refusing = _reached(facts).get("refusing")
    if not refusing:
        return None
    why = [f"{name}: {text}" for name, text in sorted(refusing.items())]
    return f"Releases of neighbours are refused here. {some_of(why)}"


def _sum_refused(facts: Facts) -> str | None:
    why = _reached(facts).get("sum_refused")
    return f"Sums are refused here. {why}" if why else None


def _unanswered(facts: Facts) -> str | None:
    engine = _reached(facts)
    if engine.get("unanswered", 0) < 2:  # one may be lost on the way
        return None
    return f"The broker is reached, but nobody answers. {engine.get('last_error') or ''}".strip()


def _row_waits(facts: Facts) -> str | None:
    return ((_reached(facts).get("rows") or {}).get("waiting")) or None


def _keeper_halted(facts: Facts) -> str | None:
    keeper = facts.get("keeper") or {}
    if not keeper.get("halted"):
        return None
    return f"Keeper {keeper['keeper']} has halted for the season: {keeper['halted']}."


def _second_list(facts: Facts) -> str | None:
    keeper = facts.get("keeper") or {}
    if not keeper.get("second_lists"):
        return None
    return f"The controller has signed two lists for a row; keeper {keeper['keeper']} has the proof."


STOPPED = Condition("stopped", WRONG, _stopped)
HANGS = Condition("hangs", WRONG, _hangs)
BROKER = Condition("broker", WRONG, _broker)
REFUSED = Condition("refused", WRONG, _refused)
NEIGHBOURS = Condition("neighbours", WRONG, _neighbours)
SUM_REFUSED = Condition("sum_refused", WRONG, _sum_refused)
UNANSWERED = Condition("unanswered", WRONG, _unanswered)
ROW_WAITS = Condition("row_waits", WRONG, _row_waits)
KEEPER_HALTED = Condition("keeper_halted", WRONG, _keeper_halted)
SECOND_LIST = Condition("second_list", WRONG, _second_list)

KEEPER = (STOPPED, HANGS, KEEPER_HALTED, SECOND_LIST, BROKER, REFUSED, UNANSWERED)
