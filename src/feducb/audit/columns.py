"""Rows that leave under pads, and what records move in them, whoever is away and whatever is closed.

Through an agent's deployed file, in the hands of everybody else (`circle`), who list its rows, leave them out
and close them empty as they like; in whole numbers, so that chance has no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from feducb.audit.canary import Batch, coordinates_of
from feducb.audit.circle import BuiltRow, one_federation, watch_rows
from feducb.audit.findings import Check
from feducb.config import Problem
from feducb.privacy.terms import Terms
from feducb.storage import AgentStore

__all__ = ["check_columns", "check_spaced_rows"]

Array = NDArray[np.float64]


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
_ATTENDANCE = ((_AWAY,), (_IN,), (_IN,), (_AWAY,), (_AWAY,), (_LEFT_OUT,), (_IN,), (_IN,))
_IDLE = 0.25  # a record that moves rows by less has not entered as it should


def check_columns(kind: type[AgentStore], terms: Terms) -> Check:
    """One record a row, each in a coordinate of its own, while a row ends once in each way that it can.

    All rows of a record that are ever built, listed or not, are together at most as long as the record: each
    is in one column of E, which absences only shorten. The check also fails where a record is in none.
    """
    count = len(_SCRIPTS)
    terms = replace(terms, releases=count, problem=Problem(dim=count))
    records = [Batch(one[None], np.zeros(1)) for one in np.eye(count)]
    lanes = [int(coordinates_of(terms, one).argmax()) for one in records]
    built = _season(kind, terms, _SCRIPTS, records)
    rows = np.array([one.values - one.noise for one in built], dtype=np.float64)[:, lanes]
    lengths = np.ldexp(np.linalg.norm(rows, axis=0), terms.certificate().exponent)
    rounding = math.ldexp(1.0 + math.sqrt(len(rows)), terms.certificate().exponent)
    return Check(
        f"columns n={count}",
        bool(rows.min() >= -1.0 and lengths.max() <= 1.0 + rounding and lengths.min() > _IDLE),
        f"a record moves all {len(rows)} rows that were built together by {lengths.min():.6f} to "
        f"{lengths.max():.6f} of its length",
    )


def check_spaced_rows(kind: type[AgentStore], terms: Terms) -> Check:
    """A person comes before every row, while her agent misses some: her records are as far apart as stated.

    In which columns they are is read off the rows that were built. The check fails, too, if fewer than two of
    hers are in any.
    """
    terms = replace(terms, releases=len(_ATTENDANCE))
    record = Batch(np.eye(1, terms.problem.dim), np.zeros(1))
    built = _season(kind, terms, _ATTENDANCE, [record] * terms.releases, person="she")
    lane = int(coordinates_of(terms, record).argmax())
    rows = np.array([one.values[lane] - one.noise[lane] for one in built], dtype=np.float64)
    numbers = [number for number, script in enumerate(_ATTENDANCE, start=1) if script != (_AWAY,)]
    places = np.array(numbers) - 1
    encoder = np.asarray(terms.factors.encoder())[np.ix_(places, places)]
    hers = solve_triangular(encoder, np.ldexp(rows, terms.certificate().exponent), lower=True)
    columns = np.repeat(numbers, np.rint(hers).astype(np.int64)).tolist()
    nearest = min((later - one for one, later in pairwise(columns)), default=0)
    return Check(
        f"spaced rows spacing={terms.spacing}",
        nearest >= terms.spacing and len(columns) <= terms.records_per_person,
        f"one person's records are in the rows {columns}, expected {terms.spacing} apart or more",
    )


def _season(
    kind: type[AgentStore],
    terms: Terms,
    scripts: Sequence[tuple[_Try, ...]],
    records: Sequence[Batch],
    person: str | None = None,
) -> list[BuiltRow]:
    """All rows that are built in a season whose rows go by the scripts, with a record before each."""
    built = list[BuiltRow]()
    with one_federation(terms) as (circle, path):
        for first in range(0, len(scripts), _OPENED_ANEW):
            some = slice(first, first + _OPENED_ANEW)
            with circle.open(kind, path) as store:
                watch_rows(store, built)
                for script, record in zip(scripts[some], records[some], strict=True):
                    store.record(record.actions, record.rewards, [person])
                    for attempt in script:
                        label = store.next_label()
                        own = {0: circle.build(store)} if attempt.builds else {}
                        listed = own if attempt.listed else {}
                        circle.close(label, None if attempt.empty else listed, [store])
    return built
