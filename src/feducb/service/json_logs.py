"""Structured logs: one JSON object a line on standard error, and never anything about a visitor."""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
from datetime import UTC, datetime

from feducb.errors import FeducbError
from feducb.system import quieten_asyncio

__all__ = ["log_failure", "set_up_logs"]

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def set_up_logs(level: str = "info") -> None:
    """Everything through one handler; the server's access log stays off, since paths hold ids."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn.access").disabled = True
    logging.captureWarnings(True)
    quieten_asyncio()


def log_failure(event: str, reason: str, error: Exception) -> None:
    """Log what went wrong, with its trace if it is not of a kind that a disk or a network brings."""
    expected = isinstance(error, FeducbError | sqlite3.Error | OSError)
    extra = {"reason": reason}
    logging.getLogger("feducb.service").error(event, extra=extra, exc_info=None if expected else error)
