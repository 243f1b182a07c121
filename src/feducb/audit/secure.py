"""Rows that leave under pads: what a record moves in them, what hides them, and what an old file does.

Through an agent's deployed file, in the hands of everybody else (`circle`), who list its rows, leave them out
and close rows as they like. All checks are exact, but for chances of 1e-15 at most that sound code fails.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feducb.audit.canary import Batch, canary_pair, coordinates_of
from feducb.audit.circle import Circle
from feducb.audit.doors import entries
from feducb.audit.findings import Check
from feducb.config import Problem
from feducb.errors import FeducbError
from feducb.privacy.grid import FINE_BITS
from feducb.privacy.rows import MOST_RECORDS, largest_sum
from feducb.privacy.terms import Terms
from feducb.protocol.pads import Label
from feducb.protocol.secure_rows import KeyCard, PaddedRow
from feducb.storage import AgentStore

__all__ = ["check_columns", "check_disk", "check_pads", "check_restored", "check_value"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class _Try(NamedTuple):
    """One attempt at a row: whether the agent builds it, and whether it is closed empty or lists it."""

    builds: bool
    empty: bool = False
    listed: bool = False


_IN, _LEFT_OUT, _AWAY = _Try(builds=True, listed=True), _Try(builds=True), _Try(builds=False)
_ENDS = (_IN, _LEFT_OUT, _AWAY, _Try(builds=True, empty=True), _Try(builds=False, empty=True))
# All that can happen to a row: it opens, or it is closed empty and made up for. Data can enter in the last.
_SCRIPTS: tuple[tuple[_Try, ...], ...] = (
    *((_Try(builds, empty=True), end) for builds, end in product((True, False), _ENDS)),
    *((end,) for end in (_LEFT_OUT, _AWAY, _IN)),
)
_OPENED_ANEW = 4  # rows after which the file is closed and opened
_IDLE = 0.25  # a record that moves rows by less has not entered as it should
_WINDOW = 3  # numbers side by side that are looked for on disk: 57 bits or more


class _Built(NamedTuple):
    """What a row was made of. Private."""

    noise: Ints
    values: Ints  # under noise


def _watch(store: AgentStore, built: list[_Built]) -> None:
    """From now on, note all rows that the file builds, before they are hidden."""
    source, covering, drawn = store._privatizers[0]._noise, store.covering, list[Ints]()
    draw = source.draw

    def note_noise(count: int) -> Ints:
        drawn.append(draw(count))
        return drawn[-1]

    class Noting(covering):  # type: ignore[misc, valid-type]
        def hide(self, label: Label, row: Ints, cards: Mapping[str, KeyCard]) -> PaddedRow:
            built.append(_Built(drawn[-1], row.copy()))
            return covering.hide(self, label, row, cards)

    vars(source).update(draw=note_noise)
    vars(store).update(covering=Noting)


@contextmanager
def _federation(terms: Terms) -> Iterator[tuple[Circle, Path]]:
    """A federation, and where the file of its first agent, a keeper too, is to be."""
    with tempfile.TemporaryDirectory() as folder:
        yield Circle(terms), Path(folder) / "agent.db"


def _build(store: AgentStore, circle: Circle) -> PaddedRow:
    return PaddedRow.read(store.build_row(), coordinates=circle.coordinates)


def check_columns(kind: type[AgentStore], terms: Terms) -> Check:
    """One record a row, each in a coordinate of its own, while all that can happen to rows happens.

    All rows of a record that are ever built, listed or not, are together at most as long as the record: each
    is in one column of E, which absences only shorten. The check also fails where a record is in none.
    """
    count = len(_SCRIPTS)
    terms = replace(terms, releases=count, problem=Problem(dim=count))
    records = [Batch(one[None], np.zeros(1)) for one in np.eye(count)]
    lanes = [int(coordinates_of(terms, one).argmax()) for one in records]
    built = _season(kind, terms, records)
    rows = np.array([one.values - one.noise for one in built], dtype=np.float64)[:, lanes]
    lengths = np.ldexp(np.linalg.norm(rows, axis=0), terms.certificate().exponent)
    rounding = math.ldexp(1.0 + math.sqrt(len(rows)), terms.certificate().exponent)
    return Check(
        f"columns n={count}",
        bool(rows.min() >= -1.0 and lengths.max() <= 1.0 + rounding and lengths.min() > _IDLE),
        f"a record moves all {len(rows)} rows that were built together by {lengths.min():.6f} to "
        f"{lengths.max():.6f} of its length",
    )


def _season(kind: type[AgentStore], terms: Terms, records: Sequence[Batch]) -> list[_Built]:
    """All rows that are built in a season whose rows go by `_SCRIPTS`, with a record before each."""
    built = list[_Built]()
    with _federation(terms) as (circle, path):
        for first in range(0, len(_SCRIPTS), _OPENED_ANEW):
            some = slice(first, first + _OPENED_ANEW)
            with circle.open(kind, path) as store:
                _watch(store, built)
                for script, record in zip(_SCRIPTS[some], records[some], strict=True):
                    store.record(record.actions, record.rewards)
                    for attempt in script:
                        label = store.next_label()
                        own = {0: _build(store, circle)} if attempt.builds else {}
                        listed = own if attempt.listed else {}
                        circle.close(label, None if attempt.empty else listed, [store])
    return built


def check_pads(kind: type[AgentStore], terms: Terms) -> Check:
    """Any one keeper hides a row from all others together, the agent itself from them too if it is one.

    Of a first row and of one that makes up for it: without one keeper's pad no number of it is what it was
    under noise (chance of a coincidence 2^-64); with all pads, all are.
    """
    built, rows = list[_Built](), list[PaddedRow]()
    with _federation(terms) as (circle, path), circle.open(kind, path) as store:
        _watch(store, built)
        store.record(*_extreme(terms))
        for _ in range(2):
            rows.append(_build(store, circle))
            circle.close(rows[-1].label, None, [store])
    shown, wrong = list[tuple[int, str]](), 0
    for attempt, (row, one) in enumerate(zip(rows, built, strict=True), start=1):
        wrong += int((circle.bare(row, 0) != one.values).sum())
        for keeper in circle.roster.keepers:
            if (circle.bare(row, 0, without=[keeper]) == one.values).any():
                shown.append((attempt, keeper))
    return Check(
        "pads",
        not shown and not wrong,
        f"(attempt, keeper without whom all others see the row): {shown or 'none'}; numbers that all pads "
        f"together do not give back: {wrong}",
    )


def check_restored(kind: type[AgentStore], terms: Terms) -> Check:
    """Restart an agent, and put it back from a backup: no row twice, no pad twice, and the old file halts.

    After a mere restart the row that was built is there, byte for byte, and no other is built. An old file
    builds the row again, over other records: under another pad, or the difference of both would show. When it
    hears that another row of its own was listed, it builds none any more.
    """
    with _federation(terms) as (circle, path):
        circle.open(kind, path).close()
        backup = path.read_bytes()
        with circle.open(kind, path) as store:
            store.record(*_extreme(terms))
            row = _build(store, circle)
        with circle.open(kind, path) as store:
            kept = [one.body for one in store.rows()] == [row.to_bytes()] and not store.may_build()
        path.write_bytes(backup)
        with circle.open(kind, path) as store:
            store.record(*_extreme(terms, 1))
            other = _build(store, circle)
            circle.close(row.label, {0: row}, [store])
        with circle.open(kind, path) as store:
            halted = bool(store.halted) and not store.may_build()
    once = (row.public, row.label, row.nonce) != (other.public, other.label, other.nonce)
    return Check(
        "restored agents",
        kept and once and halted,
        f"after a restart the same row, and no other: {_yes(kept)}; a row built again is under another pad: "
        f"{_yes(once)}; an old file halts: {_yes(halted)}",
    )


def check_disk(kind: type[AgentStore], terms: Terms) -> Check:
    """Neither a row before it is padded nor its noise is in the file or in its log: no three numbers of it.

    As bytes in either order and as text, while the file is open and after. The padded row is found like that,
    or the check would be idle.
    """
    built = list[_Built]()
    with _federation(terms) as (circle, path):
        with circle.open(kind, path) as store:
            _watch(store, built)
            store.record(*_extreme(terms))
            row = _build(store, circle)
            seen = [path.read_bytes(), Path(f"{path}-wal").read_bytes()]
        seen.append(path.read_bytes())
    padded = circle.bare(row, 0, without=circle.roster.keepers)
    found = {name: _on_disk(part, seen) for name, part in (*built[0]._asdict().items(), ("padded", padded))}
    return Check(
        "rows on disk",
        found["padded"] and not found["values"] and not found["noise"],
        f"found: the padded row {_yes(found['padded'])}, the row under noise {_yes(found['values'])}, its "
        f"noise {_yes(found['noise'])}",
    )


def _on_disk(numbers: Ints, files: Sequence[bytes]) -> bool:
    """Whether any numbers side by side are in one of the files."""
    sought = list[bytes]()
    for first in range(len(numbers) - _WINDOW + 1):
        some = numbers[first : first + _WINDOW]
        sought += [some.astype(order).tobytes() for order in ("<i8", ">i8")]
        sought += [between.join(str(one) for one in some).encode() for between in (",", ", ", " ")]
    return any(one in data for one in sought for data in files)


def check_value(kind: type[AgentStore], terms: Terms) -> Check:
    """An agent sends its row whatever is in it: nothing, or the most that its count of records allows.

    And as many such rows as there are agents fit the range within which sums are taken for honest.
    """
    refused, largest = list[str](), 0
    for name, world, records in (("nothing", 0, 0), ("most", 0, MOST_RECORDS), ("least", 1, MOST_RECORDS)):
        built = list[_Built]()
        with _federation(terms) as (circle, path), circle.open(kind, path) as store:
            _watch(store, built)
            _fill(store, canary_pair(terms)[world], records)
            try:
                store.build_row()
            except (FeducbError, OverflowError):
                refused.append(name)
        largest = max(largest, *(int(np.abs(one.values).max()) for one in built))
    together, honest = terms.agents * largest, largest_sum(terms)
    return Check(
        "rows by value",
        not refused and together <= honest,
        f"not sent because of what is in them: {', '.join(refused) or 'none'}; entries of a sum up to "
        f"2^{math.log2(together):.1f}, taken for honest up to 2^{math.log2(honest):.1f}",
    )


def _fill(store: AgentStore, record: Batch, count: int) -> None:
    """As if so many records like this had been taken in."""
    door = store._privatizers[0]
    entry = np.rint(np.ldexp(entries(door, [record])[0], FINE_BITS - door.certificate.exponent))
    door._batch = door._batch + count * entry.astype(np.int64).astype(object)
    door.pending, door.taken = count, count


def _extreme(terms: Terms, world: int = 0) -> tuple[Array, Array]:
    record = canary_pair(terms)[world]
    return record.actions, record.rewards


def _yes(true: bool) -> str:
    return "yes" if true else "no"
