"""A warning of asyncio that says nothing, and is not shown."""

from __future__ import annotations

import logging

__all__ = ["quieten_asyncio"]

# nats-py's reader keeps a connection half open when the server hangs up, which TLS cannot do.
_NEEDLESS = "returning true from eof_received() has no effect when using ssl"


def _needed(record: logging.LogRecord) -> bool:
    return record.getMessage() != _NEEDLESS


def quieten_asyncio() -> None:
    """Drop that one warning; once more changes nothing."""
    logging.getLogger("asyncio").addFilter(_needed)
