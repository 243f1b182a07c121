"""The rarer wishes: own logs to start from, erasure, export, backup and its restoration."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feducb.agent.durable import Agent
from feducb.agent.gain import LANES
from feducb.agent.kept import Season, placed, season_in
from feducb.agent.requests import fitting
from feducb.agent.season_roll import latest_number, mu_of
from feducb.agent.settings import SAME_START, AgentSettings
from feducb.agent.visitors import retold
from feducb.errors import ConfigurationError, StoreError
from feducb.formats import EXPORT
from feducb.privacy.terms import Terms
from feducb.storage import AgentStore, agent_tables, events, operator_log, own_sums, recipe_marks
from feducb.storage.agent_store import is_text
from feducb.system import counted, current_user
from feducb.worlds.features.encoder import Encoder

__all__ = ["Erasure", "Loaded", "Restored", "backup", "erase", "export", "restore", "warm_start"]

Array = NDArray[np.float64]
_MOST_BETWEEN = 1000  # seasons that a lost file may have opened since its backup
_SLOW_CLOCK = 60.0  # seconds by which the clock here may be behind that of the machine that was lost


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """What became of the records of an own log, each by itself.

    Attributes:
        entered: those that wait for the next release, clipped ones among them.
        clipped: actions that were too long or rewards out of range, shortened to the public bounds.
        dropped: not d numbers and a reward, not finite, or without the id that is needed.
        excluded: beyond what one person may have.
        kept: under own play, those that never leave, and that the own phase reads: excluded ones, and after
            the last release all.
    """

    entered: int
    clipped: int
    dropped: int
    excluded: int
    kept: int = 0


def warm_start(
    agent: Agent,
    actions: Array | Sequence[ArrayLike],
    rewards: Array | Sequence[float],
    persons: Sequence[str | None] | None = None,
    *,
    policy: Literal["fixed"] | None = None,
    never_loaded: bool = False,
    by: str | None = None,
) -> Loaded:
    """Take own logged records in, once; says what became of them.

    They enter the next release like any other record, at the same price; under own play, after the last
    release, the agent's own phase alone. Each is taken, clipped or dropped by itself, by a public rule:
    nothing about one record decides about another. The same log a second time is refused. A log that shares
    records with another one, or with the agent's own decisions, must not be loaded: a record may enter once.
    Nor must one whose actions were chosen by a policy that learnt from the rewards in it: one reward would
    then be in many records (as in shadow mode, `AgentSettings`); nor what an agent alone decided on raw
    records (``own_phase`` in `export`). Nothing in a log proves that, so that it must be stated; but not
    under trust self, where nothing leaves.

    Args:
        agent: whose records they are.
        actions: (n, d), what was shown; rows of another length are dropped.
        rewards: (n,), what it was worth. Where it is no finite number the record is dropped; but where
            contexts are public it has the default reward, as a decision without one: sums of public actions
            are exact, and one that was missing would tell.
        persons: whose record it is, where a person may come more than once.
        policy: ``fixed`` states that the log's policy was public and did not learn from these rewards.
        never_loaded: states that no record of it was loaded in a file that was lost. Needed for ever once
            this one took its place (`restore`), unless nothing can have left the lost one since the backup.
        by: who does it, for the operator log.
    """
    settings, count = agent.settings, len(rewards)
    if policy != "fixed" and settings.trust.leaves:
        expected = "the statement that the log's policy was public and did not learn from these rewards"
        raise ConfigurationError("policy", policy, f"'fixed', {expected}")
    people: Sequence[str | None] = persons if persons is not None else [None] * count
    if not len(actions) == count == len(people):
        given = f"of {len(actions)} actions, {count} rewards and {len(people)} persons"
        raise ConfigurationError("log", given, "as many of each")
    nameless = settings.records_per_person == 1  # a record may come without its person's id
    records = [
        (*record, agent.store.hash_person(person))
        for action, reward, person in zip(actions, rewards, people, strict=True)
        if (record := _record(action, reward, settings)) is not None
        and (is_text(person) or (person is None and nameless))
    ]
    if not records:
        expected = f"{settings.problem.dim} numbers and a reward"
        raise ConfigurationError("log", f"{counted(count, 'record')} that cannot be read", expected)
    rows, worth = np.array([row for row, _, _ in records]), np.array([reward for _, reward, _ in records])
    if not settings.releases_records and settings.trust.leaves:
        raise StoreError("what a policy chose that may learn from rewards does not leave in shadow mode")
    if agent.store.silent and settings.closes:
        raise StoreError(
            "this season may have gone on in the file that was lost, from which these records may be in the "
            "others' sum: load them in the next season"
        )
    over = agent.season_over or not settings.trust.leaves or (agent.waits and settings.play == "own")
    if over and not settings.closes:
        raise StoreError("all releases of this season are made: these records could never leave")
    digest = sha256(rows.tobytes() + worth.tobytes()).hexdigest()
    with agent.writing() as db:
        for person in people:
            if is_text(person):
                agent.store.find_person(db, person)
        if agent_tables.was_loaded(db, digest):
            raise StoreError("this log was loaded before; its records would count twice")
        if settings.trust.leaves and not never_loaded and agent_tables.has_gone_on_elsewhere(db):
            raise StoreError(
                "this file is from a backup, and the one that was lost may have loaded these records and "
                "released them: load them only on the word that it never did (--never-loaded)"
            )
        entered = 0
        groups = np.array([agent.draw_group() for _ in worth])
        for group in range(0 if over else settings.groups):
            some = np.flatnonzero(groups == group)
            hashes = [records[place][2] for place in some]
            entered += agent.store.settle(db, group, rows[some], worth[some], hashes, own=settings.closes)
        if over:
            agent.store.keep_own(db, rows, worth)
        agent_tables.mark_loaded(db, digest, len(worth))
        agent.count("loaded", len(worth))
        agent.read_own_again(db)
        agent.note("warm start", by=by, log=digest[:16], records=len(worth))
    fits = np.array([settings.problem.pays(one) for one in worth])
    return Loaded(
        entered=entered,
        clipped=int(
            np.sum(~(fits & settings.problem.short_enough(rows) & fitting(rows, settings.terms.model)))
        ),
        dropped=count - len(worth),
        excluded=0 if over else len(worth) - entered,
        kept=len(worth) - entered if settings.closes else 0,
    )


def _record(action: ArrayLike, reward: float, settings: AgentSettings) -> tuple[Array, float] | None:
    """A record of d finite numbers and a reward; None if it is none."""
    try:
        row = np.asarray(action, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    try:
        worth = float(reward)
    except (TypeError, ValueError, OverflowError):
        worth = math.nan
    if not math.isfinite(worth) and settings.contexts == "public":
        worth = settings.default_reward
    fits = row.shape == (settings.problem.dim,) and np.isfinite(row).all() and math.isfinite(worth)
    return (row, worth) if fits else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Erasure:
    """What became of a wish to be forgotten.

    Attributes:
        removed: decisions taken out before they entered any sum.
        content_removed: retained events whose content is gone.
        in_sums: records that are in sums, and stay there.
        said: the answer, in words.
    """

    removed: int
    content_removed: int
    in_sums: int
    said: str


def erase(agent: Agent, person: str, *, by: str | None = None) -> Erasure:
    """Answer a person's wish to be forgotten: what can be undone is, what cannot is said.

    Args:
        agent: whose visitor the person was.
        person: the id under which the application knows the person.
        by: who does it, for the operator log, which says nothing of the person.
    """
    hashed = agent.store.hash_person(person)
    assert hashed is not None
    while agent.settle_some():  # what is past its window has entered, whether we got round to it or not
        pass
    with agent.writing() as db:
        hashes = agent.store.find_person(db, person)
        hers = events.of_person(db, hashes)
        still_open = [number for number, state in hers if state == events.OPEN]
        retained = [number for number, state in hers if state != events.OPEN]
        events.discard(db, still_open)
        events.take_content(db, retained)
        agent.count("discarded", len(still_open))
        agent.count("erasures")
        agent.note("erasure", by=by)
        entered = agent_tables.records_of(db, hashed)
    agent.sweep()
    said = "Nothing under this id is in this season's sums."
    if entered:
        budget, (are, them) = agent.settings.budget, ("is", "it") if entered == 1 else ("are", "them")
        said = (
            f"{counted(entered, 'record')} under this id {are} in sums and cannot be taken out: only the "
            f"sums are kept. Whatever leaves shows {them} at most as far as (ε, δ) = ({budget.epsilon:g}, "
            f"{budget.delta:g}) allows. A keyed hash of the id stays until the season ends, so that this "
            "holds if the person comes back."
        )
    if not agent.settings.trust.leaves:
        said = (
            "This agent is alone, and nothing leaves it. Its decisions rest on sums of all its records, "
            "which cannot be taken apart: those under this id whose windows have closed stay in them."
        )
    elif agent.settings.closes:
        said += (
            " Under own play this agent's own decisions rest, from the close on, on sums of all its records; "
            "those under this id, also what came after the last release or beyond a person's limit and is "
            "not counted here, stay in them, in later seasons too if these remember all. Nothing of that "
            "leaves."
        )
    if agent.settings.holdout and agent.settings.play == "released":
        said += (
            " Of visitors who are held out, records are in sums of their own, which never leave, until the "
            "season ends; who was held out under this id counts here as if it were in all it may be in."
        )
    said += " Records that came without an id, and those of earlier seasons, cannot be found."
    return Erasure(removed=len(still_open), content_removed=len(retained), in_sums=entered, said=said)


def export(path: str | Path) -> Iterator[dict[str, Any]]:
    """Retained events as plain data, for off-policy evaluation; the agent may be running.

    What is kept is set by ``keep_events``; by default that is only what waits for its reward. Each row also
    says whose it is and what is public: the problem's bounds, and what counts where no reward came; and
    whether the application chose (``followed``), and how it is said to (``follow_policy``), since what a
    policy chose that learns from rewards must not be loaded elsewhere (`warm_start`); nor must what was
    decided after a close (``own_phase``), on raw records. Where a recipe made the vectors, a row also has the
    visitor's ``context``, all ``actions``, the ``name`` of the one shown, and the fingerprint of the
    ``recipe``. Of a row of an earlier season, by a recipe that the present one does not continue, there is
    none of these: its ``recipe`` is None, and ``action`` alone says what was shown.
    """
    with closing(agent_tables.look_into(path)) as db:
        db.execute("BEGIN")  # all that says how rows are read is of one moment
        settings = season_in(db, path).settings
        closed, after = own_sums.closed_at(db), agent_tables.closed_after(db)
        foreign, newest = recipe_marks.of_other_recipe(db), events.last_number(db)
        db.execute("COMMIT")
        public = {
            "format": EXPORT.number,
            "agent": settings.name,
            "problem": settings.problem.as_dict(),
            "default_reward": settings.default_reward,
            "followed": settings.shadow,  # for a season; where that changes, no event outlives its own
            "follow_policy": settings.follow_policy if settings.shadow else None,
        }
        encoder = None if settings.recipe is None else Encoder(settings.recipe)
        for row in events.retained(db):
            if row["number"] > newest:  # made since, perhaps by another recipe
                return
            action, features = np.frombuffer(row["action"]), row["features"]
            described: dict[str, Any] = {}
            since = row["number"] > after if after is not None else row["decided_at"] >= (closed or 0)
            if row["said"] is not None:
                readable = None if row["number"] <= foreign else encoder
                described, features = _described(row["said"], row["chosen"], readable)
            elif features is not None:
                features = np.frombuffer(features).reshape(-1, len(action)).tolist()
            yield {
                "number": row["number"],
                "group": row["group"],
                "decided_at": datetime.fromtimestamp(row["decided_at"] / 1000, UTC).isoformat(),
                "open": row["state"] == events.OPEN,
                "action": action.tolist(),
                "index": row["chosen"],
                "would_choose": row["preferred"],
                "candidates": row["candidates"],
                "features": features,
                **{name: row[name] for name in ("propensity", "model", "reward", "season", "batch")},
                "own_phase": (closed is not None and since)
                or (row["lane"] == events.ALONE and settings.trust.leaves),
                "lane": None if row["lane"] is None else LANES[row["lane"]],
                **described,
                **public,
            }


def _described(
    said: str, chosen: int, encoder: Encoder | None
) -> tuple[dict[str, Any], list[list[float]] | None]:
    """What a row of an export says in words, and the vectors that these words make.

    Nothing where its recipe is not the present one (None), or that cannot read it: another would say wrong
    names, also where it reads the words without an error.
    """
    unknown = {"recipe": None}, None
    if encoder is None:
        return unknown
    try:
        context, offers, vectors = retold(said, encoder)
    except ConfigurationError:
        return unknown
    if chosen >= len(offers.names):
        return unknown
    words = {
        "name": offers.names[chosen],
        "context": context,
        "actions": [dict(action) for action in offers.actions],
        "recipe": encoder.recipe.fingerprint,
    }
    return words, vectors.tolist()


def backup(path: str | Path, target: str | Path) -> None:
    """Copy an agent's file, which may be in use, to one that only `restore` opens.

    It holds whatever the file holds: protect it as raw data.
    """
    target = Path(target)
    if target.exists():
        raise ConfigurationError("backup", str(target), "a file that does not exist yet")
    fresh = target.with_name(f"{target.name}.new")
    fresh.unlink(missing_ok=True)
    agent_tables.copy_to(path, fresh)
    fresh.rename(target)  # marked, or not there


class Restored(NamedTuple):
    """What a backup was opened as: a season, whether the agent sends in it, and when the next one starts.

    And which seasons between that of the backup and a new one count as spent.
    """

    season: int
    sends: bool
    next_at: float
    between: range = range(0)


def restore(
    backup_path: str | Path,
    path: str | Path,
    *,
    settings: AgentSettings | None = None,
    season: int | None = None,
    never_opened: bool = False,
    clock: Callable[[], float] = time.time,
    by: str | None = None,
) -> Restored:
    """Make an agent's file out of a backup, in the season of the backup or in a new one.

    Guarantees:
        Nothing is released again under a number that may be out. In the season of the backup the agent sends
        on only if each release that is due by now, and for a minute more, is in the backup: releases are
        made when they are due, so that none has been made since; and only until a minute before that season
        ends, where the clock may have opened the next on the file that was lost. Otherwise nothing more of
        that season leaves: what waited is dropped, the season counts as spent, and decisions go by others'
        sums. In a new season it sends, if the agent never opened that one: one that the clock may have
        opened since is refused. All between that of the backup and the new one count as spent, since the
        lost file may have released in them: under the terms of the backup, or those of the settings given if
        they cost a person more; so does the season of the backup if nothing had happened in it. When a
        release was due, and which season the clock opened, is asked of the settings in the backup and of
        those given, which the lost file may have taken since: what either says may be out is. Where their
        seasons are others, it may have gone by third ones in between, which nobody here knows: then a new
        season is needed, and the word that it is one.

    Args:
        backup_path: made by `backup`; the file that it was made of is gone, and no other copy is opened.
        path: of the new file.
        settings: with which the lost file was last opened, as `agent.toml` has them; only if neither a
            budget nor any season's start, length, number or releases changed since the backup may they be
            left out. If it had a larger budget in between, which nobody knows here, give settings with that
            one: the new season opens with what `agent.toml` says when the agent starts.
        season: a new one that this agent never opened; where seasons were opened by hand, and you do not
            know how far it got, one beyond what it can have reached: each between costs as if it had been.
        never_opened: states that the lost file never opened ``season``, whatever start, length and numbering
            of seasons it had since the backup.
        clock: seconds since 1970.
        by: who does it, for the operator log; the user of this process if not given.
    """
    source, target = Path(backup_path).resolve(), Path(path).resolve()
    for name in _files(target):
        if name.exists():
            raise StoreError(
                f"{name} is still there, and a backup takes the place of a file that was lost; if it is to "
                "go, move it away first"
            )
    if not source.is_file():
        raise ConfigurationError("backup", str(source), "a file made by `feducb agent backup`")
    fresh = target.with_name(f"{target.name}.restoring")
    for name in _files(fresh):
        name.unlink(missing_ok=True)
    private = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(private, "wb") as copy, source.open("rb") as original:
        shutil.copyfileobj(original, copy)
    try:
        agent_tables.migrate_backup(fresh, name=source)
        now = clock()
        if season is None:
            opened = _open_again(fresh, settings, now)
        else:
            opened = _open_anew(fresh, settings, season, now, never_opened=never_opened)
    except (StoreError, ConfigurationError):
        for name in (*_files(fresh), Path(f"{fresh}.lock")):
            name.unlink(missing_ok=True)
        raise
    with AgentStore.open(fresh) as store, store.writing() as db:
        facts = {"season": opened.season, "sends": opened.sends, "backup": source.name}
        operator_log.add(db, by or current_user(), "restored", **facts)
    fresh.rename(target)  # whole, or not there
    Path(f"{fresh}.lock").unlink(missing_ok=True)
    return opened


def _has_other_seasons(before: Season, later: AgentSettings) -> bool:
    """Whether later settings have another start, length or numbering of seasons."""
    number, settings, started_at = before
    known, now = (one.calendar(number, started_at) for one in (settings, later))
    return known.length != now.length or abs(known.starts(number) - now.starts(number)) > SAME_START


def _dearest(before: Terms, settings: AgentSettings | None) -> Terms:
    """What a season counts as that the lost file may have opened under either terms."""
    may = [before] if settings is None else [settings.terms, before]
    return max(may, key=lambda terms: mu_of(terms.to_json()))


def _open_anew(
    fresh: Path, settings: AgentSettings | None, season: int, now: float, *, never_opened: bool
) -> Restored:
    with closing(agent_tables.look_into(fresh)) as db:
        before = season_in(db, fresh)
        later = (before.settings,) if settings is None else (settings, placed(db, settings))
        unused = agent_tables.is_unused(db)
    if before.settings.rolls or later[0].rolls:  # the file that was lost went with the clock
        latest = now + _SLOW_CLOCK
        reached = max(latest_number(before, one, latest, unused=unused) for one in later)
        if season <= reached:
            expected = f"at least {reached + 1}: by its clock the lost file may have opened {reached}"
            raise ConfigurationError("season", season, expected)
        if not never_opened and _has_other_seasons(before, later[-1]):
            expected = (
                "your word that the lost file never opened it (--never-opened): agent.toml has another "
                "start, length or numbering of seasons than the backup, and what it had in between is not "
                "known here"
            )
            raise ConfigurationError("season", season, expected)
    between = range(before.number + 1, season)
    if season > before.number + 1 + _MOST_BETWEEN:
        expected = (
            f"at most {before.number + 1 + _MOST_BETWEEN}: each season after {before.number} would count"
        )
        raise ConfigurationError("season", season, f"{expected} as spent")
    agent_tables.revive(fresh, spent=True)
    with AgentStore.open(fresh) as store:
        charged = _dearest(store.terms, settings)
        if unused:
            with store.writing() as db:
                store.restate(db, charged)

        def then(db: Connection) -> None:
            agent_tables.mark_season(db, None)  # what was decided before is none of the new one's
            agent_tables.count_as_spent(db, between, charged.to_json())

        opened = store.new_season(drop_pending=True, number=season, then=then)
    next_at = now if before.settings.start is None else before.settings.start
    return Restored(opened, True, next_at, between)


def _open_again(fresh: Path, settings: AgentSettings | None, now: float) -> Restored:
    """Go on in the season of the backup, sending or not."""
    latest = now + _SLOW_CLOCK
    with closing(agent_tables.look_into(fresh)) as db:
        kept, made = season_in(db, fresh), agent_tables.batches_out(db)
        silent = agent_tables.continued_elsewhere(db, kept.number)
        later, unused = (
            kept.settings if settings is None else placed(db, settings),
            agent_tables.is_unused(db),
        )
    # Others are taken in the midst of a season if nothing has happened in it, or a newer roster says so.
    ends, changed = kept.ends_at, unused and later.release_times != kept.settings.release_times
    if (latest if unused or kept.settings.rolls else now) >= ends:
        by_which = "" if now >= ends else ", or may be by the lost machine's clock"
        expected = f"a new one: season {kept.number}, that of the backup, is over{by_which}"
        raise ConfigurationError("season", None, expected)
    if unused and _has_other_seasons(kept, later):
        expected = (
            f"a new one: nothing had happened in season {kept.number} of the backup, and agent.toml has "
            "another start, length or numbering of seasons by now: the lost file may have opened others"
        )
        raise ConfigurationError("season", None, expected)
    due = max(
        sum(kept.started_at + one <= latest for one in said.release_times) for said in (kept.settings, later)
    )
    groups = range(kept.settings.groups)
    # Rows are also built out of their time, to make up for one that was closed empty: no clock tells.
    may_send = not kept.settings.trust.padded and not silent and not changed
    sends = may_send and all(made.get(group, 0) >= due for group in groups)
    if unused and not sends and _dearest(kept.settings.terms, settings) != kept.settings.terms:
        agent_tables.revive(fresh, spent=False)
        Agent.open(fresh, settings, clock=lambda: now).close()  # as the lost file may have been
    agent_tables.revive(fresh, spent=not sends)
    if not sends:
        with AgentStore.open(fresh) as store:
            store.drop_waiting()
    return Restored(kept.number, sends, ends)


def _files(path: Path) -> tuple[Path, ...]:
    """A file of SQLite's, and those beside it."""
    return path, Path(f"{path}-wal"), Path(f"{path}-shm")
