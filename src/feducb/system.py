"""What is asked of the machine and of other libraries: threads of BLAS, warnings that say nothing."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

__all__ = ["quieten_asyncio", "single_threaded_blas"]


def single_threaded_blas() -> Any:
    """A context with one BLAS thread: small matrices gain nothing from more, and sums keep their order."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:  # only tidies up: results depend on it neither way at these sizes
        return contextlib.nullcontext()
    return threadpool_limits(limits=1, user_api="blas")


# nats-py's reader keeps a connection half open when the server hangs up, which TLS cannot do.
_NEEDLESS = "returning true from eof_received() has no effect when using ssl"


def _needed(record: logging.LogRecord) -> bool:
    return record.getMessage() != _NEEDLESS


def quieten_asyncio() -> None:
    """Drop that one warning; once more changes nothing."""
    logging.getLogger("asyncio").addFilter(_needed)
