"""An agent with several groups: a record enters one stream, and every stream has noise of its own.

What each release was made of is read off its encoder, in whole numbers: the row E·b before noise, and the
noise, which is the published row less that one. So it does not matter who mixed groups up, or where.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feducb.audit.canary import background, worlds
from feducb.audit.findings import Check
from feducb.privacy.encoders import Encoder, Wide
from feducb.privacy.terms import Terms
from feducb.storage import AgentStore

__all__ = ["Seen", "Watched", "check_groups"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass
class Seen:
    """By group: rows before noise, and the noise, release by release."""

    rows: dict[int, list[Ints]] = field(default_factory=dict)
    noise: dict[int, list[Ints]] = field(default_factory=dict)


class Watched:
    """An encoder that notes what it is given."""

    def __init__(self, inner: Encoder, group: int, seen: Seen) -> None:
        self._inner = inner
        self._rows, self._noise = seen.rows.setdefault(group, []), seen.noise.setdefault(group, [])

    def encode(self, batch: Ints | Wide) -> Ints:
        """Note the row before noise is added to it."""
        self._rows.append(self._inner.encode(batch))
        return self._rows[-1]

    def decode(self, row: Ints) -> Array:
        """Note the noise: what is published less the row."""
        self._noise.append(row - self._rows[-1])
        return self._inner.decode(row)

    def dump(self) -> bytes:
        """The inner encoder's state; what was noted is not part of it."""
        return self._inner.dump()

    def load(self, data: bytes) -> None:
        """Set the inner encoder's state; what was noted stays."""
        self._inner.load(data)


def check_groups(open_store: Callable[[Path, Terms], AgentStore], terms: Terms) -> Check:
    """Replace the first record of each group in turn: only that group's rows move, and no more than Δ.

    The agent is opened anew between records and releases. Fresh draws are all different (but with chance
    1e-28 at ε = 8): where two are the same, noise was used twice, and a reader subtracts it.
    """
    certificate = terms.certificate()
    step, farthest, strays = math.ldexp(1.0, certificate.exponent), 0.0, list[tuple[int, list[int]]]()
    draws: Counter[bytes] = Counter()
    for home in range(terms.groups):
        one, other = (_run(open_store, terms, home, world) for world in (0, 1))
        moves = {group: np.subtract(one.rows[group], other.rows[group]) for group in one.rows}
        moved = [group for group, move in moves.items() if move.any()]
        strays += [(home, moved)] if moved != [home] else []
        farthest = max(farthest, step * math.hypot(*(float(np.linalg.norm(move)) for move in moves.values())))
        draws.update(draw.tobytes() for seen in (one, other) for some in seen.noise.values() for draw in some)
    again = sum(count > 1 for count in draws.values())
    return Check(
        f"groups kept apart groups={terms.groups}",
        not strays and not again and farthest <= certificate.sensitivity,
        f"one record moves all rows together by at most {farthest:.6f} of {certificate.sensitivity:.6f}; "
        f"(its group, those that moved) where these differ: {strays or 'none'}; noise used twice: {again} of "
        f"{len(draws)}",
    )


def _run(open_store: Callable[[Path, Terms], AgentStore], terms: Terms, home: int, world: int) -> Seen:
    """A whole season; the canary's record of this world is the first of its home group."""
    seen = Seen()
    others = background(terms.problem, terms.releases)
    streams = [worlds(terms, 0, world) if group == home else others for group in range(terms.groups)]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(terms.releases):
            with open_store(Path(folder) / "agent.db", terms) as store:
                for group, stream in enumerate(streams):
                    store.record(stream[number].actions, stream[number].rewards, group=group)
            with open_store(Path(folder) / "agent.db", terms) as store:
                for group, door in enumerate(store._privatizers):
                    door._encoder = Watched(door._encoder, group, seen)
                for group in range(terms.groups):
                    store.release(group)
    return seen
