"""What an agent's operator log says, and when: settings, seasons and API keys (`storage.operator_log`)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from feducb.storage import agent_tables, operator_log

__all__ = ["KeyChange", "note_keys", "note_settings", "view_log"]


class KeyChange(NamedTuple):
    """An API key that was made, or was revoked."""

    revoked: bool
    name: str
    role: str
    fingerprint: str  # the beginning of the SHA-256 of its secret
    by: str  # who did it


def note_keys(db: sqlite3.Connection, keys: Sequence[KeyChange]) -> None:
    """Add what the log does not say yet, within a transaction of the store.

    A key that is gone without a word of who revoked it was taken out of its file by hand.
    """
    known = operator_log.keys_noted(db)
    for one in keys:
        if not one.revoked and one.fingerprint not in known:
            details = {"key": one.name, "role": one.role, "fingerprint": one.fingerprint}
            operator_log.add(db, one.by, "key added", **details)
    there = {one.fingerprint for one in keys if not one.revoked}
    told = {one.fingerprint: one.by for one in keys if one.revoked}
    for fingerprint, name in known.items():
        if fingerprint not in there:
            by = told.get(fingerprint, "whoever edited the keys' file")
            operator_log.add(db, by, "key revoked", key=name, fingerprint=fingerprint)


def note_settings(
    db: sqlite3.Connection, kept: agent_tables.KeptSettings | None, season: int, body: str, by: str
) -> None:
    """Say that settings are taken, within a transaction, and which are others than before, if any are.

    Args:
        db: the agent's file.
        kept: what it has.
        season: the open one.
        body: the settings, as they are written.
        by: who takes them.
    """
    before: dict[str, Any] = {} if kept is None else json.loads(kept.body)
    now = json.loads(body)
    changed = sorted(name for name in now if kept is not None and before.get(name) != now[name])
    if kept is not None and kept.season == season:
        if now["start"] in (None, kept.started_at):  # left out, or written down meanwhile
            changed = [name for name in changed if name != "start"]
        if not changed:
            return
    what = "made" if kept is None else "settings taken" if kept.season == season else "season opened"
    details = {"season": season, "settings": sha256(body.encode()).hexdigest()[:16]}
    operator_log.add(db, by, what, **details, **({"changed": changed} if changed else {}))


def view_log(db: sqlite3.Connection) -> dict[str, Any]:
    """``entries``, oldest first; ``broken``: where the chain is, or None; ``end``: the newest hash."""
    found = operator_log.entries(db)
    return {
        "entries": [one.as_dict() for one in found],
        "broken": operator_log.broken_at(db),
        "end": found[-1].hash if found else None,
    }
