"""What the audit reads off a privatizer beside its releases: what records enter as, and rows before noise.

In whole numbers, as the deployed code moves them, so that chance has no part in it. All that needs to know
the inside of a privatizer is here, and in `broken`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from feducb.audit.canary import Batch
from feducb.privacy.deployed import DeployedPrivatizer, GridRelease
from feducb.privacy.encoders import Wide
from feducb.privacy.grid import FINE_BITS
from feducb.privacy.terms import Terms

__all__ = [
    "UNIT_BITS",
    "Make",
    "ScaleOf",
    "Seen",
    "entries",
    "length",
    "measure_encoder",
    "publish",
    "row_to_come",
    "rows_before_noise",
]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Make = Callable[[Terms], DeployedPrivatizer]
ScaleOf = Callable[[Terms, float], int | None]
"""Noise of a tally by the terms and the default reward; None where nothing is counted."""

UNIT_BITS = 40  # a unit batch is 2^40 grid steps: columns are measured to 12 digits


def entries(door: DeployedPrivatizer, records: Iterable[Batch]) -> Array:
    """(records, q): what each adds to an empty batch, in real units; the door is left as it was."""
    fresh, points = door.dump(), []
    for record in records:
        door.load(fresh)
        door.record(record.actions, record.rewards)
        points.append(np.ldexp(door._batch.astype(np.float64), door.certificate.exponent - FINE_BITS))
    door.load(fresh)
    return np.array(points)


def row_to_come(door: DeployedPrivatizer) -> Ints:
    """(q,), what the next release will be made of, before noise."""
    before = door._encoder.dump()
    row = door._encoder.encode(door._batch)
    door._encoder.load(before)
    return row


def publish(door: DeployedPrivatizer) -> GridRelease:
    """The next release; where rows are hidden, the next row, read as if it were a sum that has opened."""
    return door.read(door.row().values, agents=1) if door.terms.trust.padded else door.release()


def rows_before_noise(door: DeployedPrivatizer, fresh: bytes, batches: Sequence[Batch]) -> Ints:
    """(n·q,), what releases of these batches are made of, before noise."""
    door.load(fresh)
    rows = []
    for batch in batches:
        door.record(batch.actions, batch.rewards)
        rows.append(row_to_come(door))
        publish(door)
    return np.concatenate(rows)


def measure_encoder(door: DeployedPrivatizer) -> tuple[Ints, Array]:
    """Stream unit batches through a fresh privatizer's encoder: rows (n, n) and what they decode to.

    Column j is what a unit in batch j makes of every row, in steps of 2^-40. Coordinates are independent
    lanes, so as many columns as there are coordinates are measured in one pass.
    """
    count, encoder, decoder = door.terms.releases, door._encoder, door._decoder
    fresh, unread = encoder.dump(), decoder.dump()
    lanes = len(door._batch)
    rows = np.zeros((count, count), dtype=np.int64)
    decoded = np.zeros((count, count))
    for first in range(0, count, lanes):
        encoder.load(fresh)
        decoder.load(unread)
        last = min(first + lanes, count)
        for release in range(count):
            batch = np.zeros(lanes, dtype=np.int64)
            if first <= release < last:
                batch[release - first] = 1 << (UNIT_BITS + FINE_BITS)
            row = encoder.encode(batch)
            rows[release, first:last] = row[: last - first]
            decoded[release, first:last] = decoder.decode(row)[: last - first]
    encoder.load(fresh)
    decoder.load(unread)
    return rows, decoded / 2.0**UNIT_BITS


@dataclass
class Seen:
    """What an agent's releases were made of: by group, rows before noise and the noise, in order."""

    rows: dict[int, list[Ints]] = field(default_factory=lambda: defaultdict(list))
    noise: dict[int, list[Ints]] = field(default_factory=lambda: defaultdict(list))

    def watch(self, doors: Sequence[DeployedPrivatizer]) -> None:
        """From now on, read it off the encoders of these groups, so it does not matter who mixed them up."""
        for group, door in enumerate(doors):
            _watch(door, self.rows[group], self.noise[group])

    def moves(self, other: Seen) -> list[Ints]:
        """By group, (n, q): how the other world's rows differ."""
        return [np.subtract(self.rows[group], other.rows[group]) for group in sorted(self.rows)]


def _watch(door: DeployedPrivatizer, rows: list[Ints], noise: list[Ints]) -> None:
    encode, decode = door._encoder.encode, door._decoder.decode

    def note_row(batch: Ints | Wide) -> Ints:
        rows.append(encode(batch))
        return rows[-1]

    def note_noise(row: Ints) -> Array:
        noise.append(row - rows[-1])
        return decode(row)

    vars(door._encoder).update(encode=note_row)
    vars(door._decoder).update(decode=note_noise)


def length(moves: Iterable[Ints], terms: Terms) -> float:
    """How far rows moved all together, in real units."""
    step = math.ldexp(1.0, terms.certificate().exponent)
    return step * math.hypot(*(float(np.linalg.norm(move)) for move in moves))
