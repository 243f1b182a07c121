"""Kernels kept on disk, and their work spread over threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from numba import njit

__all__ = ["SOURCES", "Spread", "all_here", "kept_on_disk", "workers"]

Work = Callable[[int, int], None]
Spread = Callable[[int, Work], None]

# numba's cache on disk watches the file of a kernel and what its closure holds: this, for the other files.
SOURCES = crc32(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))


def kept_on_disk(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called; next time take it from disk, if that can be written to."""
    try:
        return njit(nogil=True, error_model="numpy", cache=True, no_cfunc_wrapper=True)(function)
    except RuntimeError:  # numba finds no folder
        return njit(nogil=True, error_model="numpy")(function)


def all_here(tasks: int, work: Work) -> None:
    """Call ``work(first, last)`` for the whole of ``range(tasks)``."""
    work(0, tasks)


@contextmanager
def workers(threads: int) -> Iterator[Spread]:
    """Something that calls ``work(first, last)`` on parts of ``range(tasks)``, on several threads."""
    if threads == 1:
        yield all_here
        return
    with ThreadPoolExecutor(threads) as pool:

        def spread(tasks: int, work: Work) -> None:
            parts = min(tasks, 4 * threads)  # whoever is done early takes another
            cuts = [tasks * part // parts for part in range(parts + 1)]
            list(pool.map(work, cuts[:-1], cuts[1:]))

        yield spread
