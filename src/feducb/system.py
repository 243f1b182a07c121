"""One BLAS thread, where more only wait for each other."""

from __future__ import annotations

import contextlib
from typing import Any

__all__ = ["single_threaded_blas"]


def single_threaded_blas() -> Any:
    """A context with one BLAS thread: small matrices gain nothing from more, and sums keep their order."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:  # only tidies up: results depend on it neither way at these sizes
        return contextlib.nullcontext()
    return threadpool_limits(limits=1, user_api="blas")
