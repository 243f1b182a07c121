"""Rows that leave under pads: what hides them, what is left of them on disk, and what an old file does.

Through an agent's deployed file, in the hands of everybody else (`circle`), who list its rows, leave them out
and close rows as they like. All checks are exact, but for coincidences: of pads, and of bytes in a file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feducb.audit.canary import Batch, canary_pair
from feducb.audit.circle import BuiltRow, one_federation, watch_rows
from feducb.audit.doors import entries
from feducb.audit.findings import Check
from feducb.errors import FeducbError
from feducb.privacy.grid import FINE_BITS
from feducb.privacy.rows import MOST_RECORDS, largest_sum
from feducb.privacy.terms import Terms
from feducb.protocol.secure_rows import PaddedRow
from feducb.storage import AgentStore

__all__ = ["check_disk", "check_pads", "check_restored", "check_value"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_WINDOW = 5  # numbers side by side that are looked for on disk: 96 random bits at ε = 8


def check_pads(kind: type[AgentStore], terms: Terms) -> Check:
    """Any one keeper hides a row from all others together, the agent itself from them too if it is one.

    Of a first row and of one that makes up for it: without one keeper's pad no number of it is what it was
    under noise (chance of a coincidence 2^-64); with all pads, all are.
    """
    built, rows = list[BuiltRow](), list[PaddedRow]()
    with one_federation(terms) as (circle, path), circle.open(kind, path) as store:
        watch_rows(store, built)
        store.record(*_extreme(terms))
        for _ in range(2):
            rows.append(circle.build(store))
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
    with one_federation(terms) as (circle, path):
        circle.open(kind, path).close()
        backup = path.read_bytes()
        with circle.open(kind, path) as store:
            store.record(*_extreme(terms))
            row = circle.build(store)
        with circle.open(kind, path) as store:
            kept = [one.body for one in store.rows()] == [row.to_bytes()] and not store.may_build()
        path.write_bytes(backup)
        with circle.open(kind, path) as store:
            store.record(*_extreme(terms, 1))
            other = circle.build(store)
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
    """Neither a row before it is padded nor its noise is in the file or in its log: no five numbers of it.

    As bytes in either order and as text, while the file is open and after. The padded row is found like that,
    or the check would be idle.
    """
    built = list[BuiltRow]()
    with one_federation(terms) as (circle, path):
        with circle.open(kind, path) as store:
            watch_rows(store, built)
            store.record(*_extreme(terms))
            row = circle.build(store)
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
        built = list[BuiltRow]()
        with one_federation(terms) as (circle, path), circle.open(kind, path) as store:
            watch_rows(store, built)
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
